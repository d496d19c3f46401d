//! Training, validation and test dialogues with one vocabulary.

use std::path::{Path, PathBuf};

use runs::data::Vocabulary;

use super::dialogue::dialogues;
use super::split::{DialogConfig, Split};
use super::vocabulary::build_vocabulary;
use crate::error::{Error, Result};

/// The dialogues of a [data folder](super) as token ids.
#[derive(Debug, Clone)]
pub struct Corpus {
    vocabulary: Vocabulary,
    train: Split,
    valid: Split,
    test: Split,
}

impl Corpus {
    /// Reads the dialogues of `folder`. The vocabulary is that of [`build_vocabulary`], from the training dialogues, which are read
    /// twice.
    ///
    /// # Errors
    /// [`Error::MissingFolder`], those of [`DialogConfig::validate`] and those of [`dialogues`].
    pub fn load(folder: &Path, config: &DialogConfig) -> Result<Self> {
        config.validate()?;
        let path = split_file(folder, "train")?;
        let vocabulary = build_vocabulary(dialogues(&path)?, config.vocab_size)?;
        let train = Split::read(&path, &vocabulary, config)?;
        Ok(Self { train, ..Self::load_held_out(folder, vocabulary, config)? })
    }

    /// Reads validation and test dialogues with the vocabulary of a trained model; there are no training dialogues.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_held_out(folder: &Path, vocabulary: Vocabulary, config: &DialogConfig) -> Result<Self> {
        config.validate()?;
        let read = |name| Split::read(&split_file(folder, name)?, &vocabulary, config);
        let (train, valid, test) = (Split::new([], &vocabulary, config), read("valid")?, read("test")?);
        Ok(Self { vocabulary, train, valid, test })
    }

    /// The words.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The training dialogues.
    pub fn train(&self) -> &Split {
        &self.train
    }

    /// The validation dialogues.
    pub fn valid(&self) -> &Split {
        &self.valid
    }

    /// The test dialogues.
    pub fn test(&self) -> &Split {
        &self.test
    }
}

/// The file of a split.
pub(crate) fn split_file(folder: &Path, name: &str) -> Result<PathBuf> {
    if !folder.is_dir() {
        return Err(Error::MissingFolder { path: folder.to_path_buf() });
    }
    Ok(folder.join(format!("{name}.jsonl")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(train: &str, valid: &str, test: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("train", train), ("valid", valid), ("test", test)] {
            std::fs::write(folder.path().join(format!("{name}.jsonl")), text).unwrap();
        }
        folder
    }

    const LINE: &str = "{\"turns\": [[\"A\", \"a b\"], [\"B\", \"b c\"]]}\n";
    const OTHER: &str = "{\"turns\": [[\"A\", \"b x\"], [\"B\", \"c\"], [\"B\", \"c\"]]}\n";

    #[test]
    fn the_vocabulary_is_that_of_the_training_text() {
        let folder = folder(LINE, OTHER, LINE);
        let config = DialogConfig { vocab_size: 7, ..DialogConfig::default() };
        let corpus = Corpus::load(folder.path(), &config).unwrap();
        assert_eq!(corpus.vocabulary().words()[5..], ["b", "a"]);
        assert_eq!((corpus.train().num_pairs(), corpus.valid().num_pairs(), corpus.test().len()), (1, 2, 1));
        assert_eq!(corpus.valid().entry(0, 1), [2, 5, 1, 3]);

        std::fs::remove_file(folder.path().join("train.jsonl")).unwrap();
        let held_out = Corpus::load_held_out(folder.path(), corpus.vocabulary().clone(), &config).unwrap();
        assert!(held_out.train().is_empty());
        assert_eq!(held_out.valid().entry(0, 1), corpus.valid().entry(0, 1));
        assert!(matches!(Corpus::load(folder.path(), &config), Err(Error::MissingFile { .. })));
    }

    #[test]
    fn errors_name_the_file() {
        let load = |folder: &Path| Corpus::load(folder, &DialogConfig::default()).unwrap_err().to_string();
        let bad = folder(LINE, &format!("{LINE}{{}}\n"), LINE);
        assert!(load(bad.path()).ends_with("valid.jsonl`, line 2: the field `turns` is missing"));
        assert!(load(folder("", LINE, LINE).path()).contains("train.jsonl` is empty"));
        assert!(load(&bad.path().join("none")).contains("none` does not exist; it should hold train.jsonl"));
        let config = DialogConfig { vocab_size: 2, ..DialogConfig::default() };
        assert!(Corpus::load(bad.path(), &config).unwrap_err().to_string().starts_with("vocab_size is 2"));
    }
}
