//! Hashes that tell one corpus from another.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data::Corpus;
use crate::error::{Error, Result};

/// Size and hash of each part of a corpus. They guarantee that a run is resumed with the text that it was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The words, in the order of their ids.
    pub vocabulary: Part,
    /// The training text as word ids.
    pub train: Part,
    /// The validation text as word ids.
    pub valid: Part,
    /// The test text as word ids.
    pub test: Part,
}

/// Size and hash of one part of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Words or tokens.
    pub length: usize,
    /// SHA-256 in hexadecimal digits: of the words, each with a line feed after it, or of the ids as little-endian 32-bit words.
    pub sha256: String,
}

impl Fingerprint {
    /// The fingerprint of `corpus`.
    pub fn of(corpus: &Corpus) -> Self {
        let words = corpus.vocabulary().words();
        let bytes = words.iter().flat_map(|word| [word.as_bytes(), b"\n"]);
        let ids = |ids: &[u32]| Part::of(ids.len(), ids.iter().map(|id| id.to_le_bytes()));
        let mut train = Sha256::new();
        corpus.train().for_each_block(|ids| ids.iter().for_each(|id| train.update(id.to_le_bytes())));
        Self {
            vocabulary: Part::of(words.len(), bytes),
            train: Part::hashed(corpus.train().len(), train),
            valid: ids(corpus.valid()),
            test: ids(corpus.test()),
        }
    }

    /// Whether this is the fingerprint of `corpus`.
    ///
    /// # Errors
    /// [`Error::DataChanged`] names the first part that differs; texts come before the vocabulary, which depends on them.
    pub fn check(&self, corpus: &Corpus) -> Result<()> {
        let now = Self::of(corpus);
        let parts = [
            ("the training text", &self.train, &now.train),
            ("the validation text", &self.valid, &now.valid),
            ("the test text", &self.test, &now.test),
            ("the vocabulary", &self.vocabulary, &now.vocabulary),
        ];
        match parts.into_iter().find(|(_, before, now)| before != now) {
            Some((what, before, now)) => {
                Err(Error::DataChanged { what, before: before.short(), now: now.short() })
            }
            None => Ok(()),
        }
    }
}

impl Part {
    fn of(length: usize, bytes: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hash = Sha256::new();
        bytes.for_each(|bytes| hash.update(bytes));
        Self::hashed(length, hash)
    }

    fn hashed(length: usize, hash: Sha256) -> Self {
        Self { length, sha256: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect() }
    }

    fn short(&self) -> String {
        format!("{} words, hash {}", self.length, self.sha256.get(..8).unwrap_or(&self.sha256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Vocabulary;

    fn corpus(words: [&str; 3], train: Vec<u32>, test: Vec<u32>) -> Corpus {
        let vocabulary = Vocabulary::from(words.map(String::from).to_vec());
        Corpus::from_ids(vocabulary, train, vec![0, 1], test).unwrap()
    }

    #[test]
    fn any_difference_is_named() {
        let before = Fingerprint::of(&corpus(["a", "b", "c"], vec![0, 1, 2], vec![1]));
        assert_eq!(before.train.length, 3);
        before.check(&corpus(["a", "b", "c"], vec![0, 1, 2], vec![1])).unwrap();
        let cases = [
            (corpus(["a", "b", "c"], vec![0, 2, 1], vec![1]), "the training text"),
            (corpus(["a", "b", "c"], vec![0, 1, 2], vec![1, 1]), "the test text"),
            (corpus(["a", "b", "d"], vec![0, 1, 2], vec![1]), "the vocabulary"),
            (corpus(["a", "bc", ""], vec![0, 1, 2], vec![1]), "the vocabulary"),
        ];
        for (corpus, part) in cases {
            let message = before.check(&corpus).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{part} is not the one")), "{message}");
        }
    }
}
