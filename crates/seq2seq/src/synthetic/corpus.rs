//! Data folders of the language.

use std::path::Path;

use runs::error::{Result, check};

use super::language::Language;
use crate::data::{Dialogue, ReferencesLine, write_lines};

/// Numbers of dialogues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Of the training text.
    pub train: usize,
    /// Of the validation text.
    pub valid: usize,
    /// Of the test text.
    pub test: usize,
}

impl Language {
    /// The training, validation and test dialogues of a seed.
    pub fn texts(&self, sizes: Sizes, seed: u64) -> [Vec<Dialogue>; 3] {
        // Three seeds of their own, for any seed.
        let text = |count, place| self.dialogues(count, seed.wrapping_mul(3).wrapping_add(place));
        [text(sizes.train, 0), text(sizes.valid, 1), text(sizes.test, 2)]
    }

    /// Writes the [`texts`](Self::texts) of a seed to `train.jsonl`, `valid.jsonl` and `test.jsonl` in `folder`, and to
    /// `test_refs.jsonl` the [references](crate::data::References) of the test text: the true response first, then all other
    /// right answers, most probable first. Makes the folder if need be, and replaces files of these names.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) if a text is to have no dialogue,
    /// [`Io`](runs::Error::Io) if a file cannot be written.
    pub fn write_corpus(&self, folder: &Path, sizes: Sizes, seed: u64) -> Result<()> {
        for (name, size) in [("train", sizes.train), ("valid", sizes.valid), ("test", sizes.test)] {
            check(size > 0, name, size, "at least 1 dialogue")?;
        }
        std::fs::create_dir_all(folder).map_err(runs::Error::io("create", folder))?;
        let texts = self.texts(sizes, seed);
        for (name, dialogues) in ["train", "valid", "test"].into_iter().zip(&texts) {
            write_lines(&folder.join(format!("{name}.jsonl")), dialogues)?;
        }
        let [.., test] = &texts;
        let references = test.iter().enumerate().flat_map(|(place, dialogue)| {
            (1..dialogue.turns().len()).map(move |turn| {
                let spoken = dialogue.turns()[turn - 1].text.as_str();
                let answers = self.answers(dialogue, turn).unwrap_or_default();
                let others = answers.into_iter().map(|answer| answer.text).filter(|text| *text != spoken);
                let references: Vec<&str> = std::iter::once(spoken).chain(others).collect();
                ReferencesLine { dialogue: place, turn, references }
            })
        });
        write_lines(&folder.join("test_refs.jsonl"), references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Corpus, DialogConfig, References, Split, dialogues, tokens};
    use crate::metrics::{BleuForm, BleuMean};
    use crate::synthetic::LanguageConfig;

    #[test]
    fn a_written_corpus_is_read_back() {
        let language = Language::new(LanguageConfig::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let sizes = Sizes { train: 30, valid: 5, test: 7 };
        language.write_corpus(&folder, sizes, 4).unwrap();
        let texts = language.texts(sizes, 4);
        for (name, text) in ["train", "valid", "test"].into_iter().zip(&texts) {
            let path = folder.join(format!("{name}.jsonl"));
            let read = dialogues(&path).unwrap();
            assert_eq!(read.map(|dialogue| dialogue.unwrap()).collect::<Vec<_>>(), *text);
        }
        assert!(texts[0][..5] != texts[1] && texts[1] != texts[2][..5]);
        assert_eq!(texts, language.texts(sizes, 4));
        assert_ne!(texts, language.texts(sizes, 5));

        let corpus = Corpus::load(&folder, &DialogConfig::default()).unwrap();
        let test = corpus.test();
        let responses = texts[2].iter().flat_map(|dialogue| &dialogue.turns()[..dialogue.turns().len() - 1]);
        let lengths: Vec<usize> = responses.map(|turn| tokens(&turn.text).len() + 1).collect();
        assert_eq!(
            (test.num_pairs(), test.response_tokens()),
            (lengths.len(), lengths.iter().sum::<usize>())
        );
        let in_memory = Split::new(&texts[2], corpus.vocabulary(), &DialogConfig::default());
        assert!(in_memory.pairs().all(|pair| in_memory.response(pair) == test.response(pair)));

        let path = folder.join("test_refs.jsonl");
        let references = References::read(&path, test, corpus.vocabulary()).unwrap();
        for (pair, references) in test.pairs().zip(references.iter()) {
            let answers = language.answers(&texts[2][pair.dialogue], pair.turn).unwrap();
            assert_eq!(references.len(), answers.len());
        }
        // The right answers themselves have the highest scores.
        let mut mean = BleuMean::new(BleuForm::FourOrders);
        references.iter().for_each(|references| mean.add(references, references));
        let scores = mean.scores().unwrap();
        assert_eq!(scores.precision, scores.recall);
        assert!(scores.recall[0] > 1.0);
    }

    #[test]
    fn an_empty_text_is_refused() {
        let language = Language::new(LanguageConfig::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let sizes = Sizes { train: 1, valid: 0, test: 1 };
        let message = language.write_corpus(folder.path(), sizes, 1).unwrap_err().to_string();
        assert_eq!(message, "valid is 0, but must be at least 1 dialogue");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
