//! Names of words.

const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
const VOWELS: &[u8] = b"aeiou";

/// A pronounceable word for a number: two syllables, or as many more as are needed. Different numbers have different words.
pub(super) fn word(number: usize) -> String {
    let syllables = CONSONANTS.len() * VOWELS.len();
    let (mut number, mut count, mut length) = (number, syllables * syllables, 2);
    while number >= count {
        number -= count;
        count *= syllables;
        length += 1;
    }
    // Spreads neighbours over all first syllables. It has no divisor in common with the 70 syllables.
    const STEP: usize = 137;
    let mut place = (number * STEP + STEP / 2) % count;
    let mut word = String::new();
    for _ in 0..length {
        let syllable = place % syllables;
        place /= syllables;
        word.push(CONSONANTS[syllable / VOWELS.len()].into());
        word.push(VOWELS[syllable % VOWELS.len()].into());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokens;
    use std::collections::HashSet;

    #[test]
    fn words_are_distinct_tokens() {
        let words: Vec<String> = (0..20_000).map(word).collect();
        assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
        assert_eq!((words[4899].len(), words[4900].len()), (4, 6));
        assert_eq!(tokens(&words.join(" ")), words);
    }
}
