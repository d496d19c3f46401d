//! The special tokens and the vocabulary of dialogues.

use std::cmp::Reverse;
use std::path::Path;

use runs::data::Vocabulary;
use runs::text::comma_list;

use super::dialogue::Dialogue;
use super::tokens::for_each_token;
use crate::error::{Error, Result};

/// The special tokens, in the order of their ids. None of them can be a token of a text, which keeps `<` and `s` apart.
pub const SPECIAL: [&str; 5] = ["<pad>", "<unk>", "<s>", "</s>", "<d>"];

/// Id of `<pad>`, which fills rows up.
pub const PAD: u32 = 0;
/// Id of `<unk>`, which stands for every word that the vocabulary lacks.
pub const UNK: u32 = 1;
/// Id of `<s>`, which begins an entry.
pub const BOS: u32 = 2;
/// Id of `</s>`, which ends an entry.
pub const EOS: u32 = 3;
/// Id of `<d>`, the only word of the entry that begins a dialogue.
pub const BOD: u32 = 4;

/// The [special tokens](SPECIAL) and the most frequent tokens of `dialogues`, at most `size` in all; of equally frequent ones
/// the first to appear.
///
/// # Errors
/// The first of the dialogues' errors.
pub fn build_vocabulary(
    dialogues: impl IntoIterator<Item = Result<Dialogue>>,
    size: usize,
) -> Result<Vocabulary> {
    let (mut all, mut counts) = (Vocabulary::new(), Vec::<u64>::new());
    for dialogue in dialogues {
        for turn in dialogue?.turns() {
            for_each_token(&turn.text, |token| {
                let id = all.insert(token) as usize;
                counts.resize(counts.len().max(id + 1), 0);
                counts[id] += 1;
            });
        }
    }
    let mut order: Vec<usize> = (0..counts.len()).collect();
    // The sort is stable: ties stay in order of appearance.
    order.sort_by_key(|&id| Reverse(counts[id]));
    let frequent = order.into_iter().take(size.saturating_sub(SPECIAL.len()));
    let words = frequent.map(|id| all.words()[id].clone());
    Ok(SPECIAL.map(String::from).into_iter().chain(words).collect::<Vec<_>>().into())
}

/// Reads a vocabulary that [`Vocabulary::save`] wrote.
///
/// # Errors
/// As [`Vocabulary::load`], and [`Error::ForeignVocabulary`] if it does not begin with the [special tokens](SPECIAL).
pub fn load_vocabulary(path: &Path) -> Result<Vocabulary> {
    let vocabulary = Vocabulary::load(path)?;
    if vocabulary.words().iter().map(String::as_str).take(SPECIAL.len()).eq(SPECIAL) {
        return Ok(vocabulary);
    }
    Err(Error::ForeignVocabulary { path: path.to_path_buf(), expected: comma_list(SPECIAL) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Turn, tokens};

    fn dialogue(texts: &[&str]) -> Result<Dialogue> {
        let turn = |text: &&str| Turn { speaker: "A".into(), text: text.to_string() };
        Ok(Dialogue::new("", texts.iter().map(turn).collect()).unwrap())
    }

    fn words(size: usize) -> Vec<String> {
        let dialogues = [dialogue(&["b c c", "a B"]), dialogue(&["d-d a", "-"])];
        build_vocabulary(dialogues, size).unwrap().into()
    }

    #[test]
    fn frequent_words_come_first_and_ties_by_appearance() {
        assert_eq!(words(100), ["<pad>", "<unk>", "<s>", "</s>", "<d>", "b", "c", "a", "d", "-"]);
        assert_eq!(words(7), ["<pad>", "<unk>", "<s>", "</s>", "<d>", "b", "c"]);
        assert_eq!(words(5), SPECIAL);
        assert_eq!(words(0), SPECIAL);
        // More ties than a sort takes in one piece.
        let many: Vec<String> = (0..300).map(|word| format!("w{}", word * 7 % 300)).collect();
        let vocabulary = build_vocabulary([dialogue(&[&many.join(" "), "w0"])], 1000).unwrap();
        assert_eq!(vocabulary.words()[SPECIAL.len()..], many);
        for (id, token) in [PAD, UNK, BOS, EOS, BOD].into_iter().zip(SPECIAL) {
            assert_eq!(SPECIAL[id as usize], token);
            assert!(tokens(token).len() > 1, "{token} is a token of a text");
        }
    }

    #[test]
    fn the_first_error_is_handed_on() {
        let empty = Err(Error::EmptyFile { path: "train.jsonl".into() });
        let error = build_vocabulary([dialogue(&["a", "b"]), empty], 10).unwrap_err();
        assert!(matches!(error, Error::EmptyFile { .. }));
    }

    #[test]
    fn a_saved_vocabulary_is_read_back_and_a_foreign_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocab.txt");
        let vocabulary = Vocabulary::from(words(8));
        vocabulary.save(&path).unwrap();
        assert_eq!(load_vocabulary(&path).unwrap(), vocabulary);
        for foreign in ["<eos>\nthe\n", "<pad>\n<unk>\n<s>\n</s>\n", "a\n<pad>\n<unk>\n<s>\n</s>\n<d>\n"] {
            std::fs::write(&path, foreign).unwrap();
            let message = load_vocabulary(&path).unwrap_err().to_string();
            assert!(message.ends_with("its first words must be <pad>, <unk>, <s>, </s>, <d>"), "{message}");
        }
    }
}
