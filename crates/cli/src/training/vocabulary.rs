//! What a vocabulary holds.

use program::statistics::grouped;
use runs::data::{Corpus, TextConfig};

/// Tokens of the vocabulary that the training text has, unless its [size](TextConfig::vocab_size) is bounded: they are numbered first.
fn of_training(corpus: &Corpus) -> usize {
    let mut largest = None;
    corpus.train().for_each_block(|ids| largest = largest.max(ids.iter().max().copied()));
    largest.map_or(0, |id| id as usize + 1)
}

/// The vocabulary in words.
pub fn words(text: &TextConfig, corpus: &Corpus) -> String {
    let all = corpus.vocabulary().len();
    let kind = if text.characters { "characters" } else { "words" };
    let of = match (text.vocab_size, of_training(corpus)) {
        (Some(_), _) => ", the most frequent of the training text".to_string(),
        (None, training) if training < all => format!(
            ": {} of the training text and those of validation and test, as the papers' programs count",
            grouped(training)
        ),
        _ => String::new(),
    };
    format!("{} {kind}{of}", grouped(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runs::data::Vocabulary;

    #[test]
    fn words_that_training_never_meets_are_told() {
        let mut vocabulary = Vocabulary::new();
        for word in 0..1597 {
            vocabulary.insert(&format!("w{word}"));
        }
        let corpus = |training: Vec<u32>| {
            Corpus::from_ids(vocabulary.clone(), training, vec![0, 1596], vec![3]).unwrap()
        };
        let text = TextConfig::default();
        assert_eq!(
            words(&text, &corpus(vec![0, 1224, 7])),
            "1,597 words: 1,225 of the training text and those of validation and test, as the papers' programs count"
        );
        assert_eq!(words(&text, &corpus(vec![1596])), "1,597 words");
        let capped = TextConfig { vocab_size: Some(1597), characters: true, ..text };
        assert_eq!(
            words(&capped, &corpus(vec![0])),
            "1,597 characters, the most frequent of the training text"
        );
    }
}
