//! Hashes that tell one corpus from another.

use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};

use super::tokens::Tokens;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::hashes::hex;

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
    /// The fingerprint of the parts of a corpus.
    pub(super) fn measure(vocabulary: &Vocabulary, train: &Tokens, valid: &[u32], test: &[u32]) -> Self {
        let words = vocabulary.words();
        let bytes = words.iter().flat_map(|word| [word.as_bytes(), b"\n"]);
        let ids = |ids: &[u32]| Part::hashed(ids.len(), hash_ids(Sha256::new(), ids));
        let mut hash = Sha256::new();
        train.for_each_block(|ids| hash = hash_ids(std::mem::take(&mut hash), ids));
        Self {
            vocabulary: Part::of(words.len(), bytes),
            train: Part::hashed(train.len(), hash),
            valid: ids(valid),
            test: ids(test),
        }
    }

    /// Whether `now` is the same.
    ///
    /// # Errors
    /// [`Error::DataChanged`] names the first part that [differs](Self::difference).
    pub fn check_same(&self, now: &Self) -> Result<()> {
        match self.difference(now) {
            Some((what, [before, now])) => Err(Error::DataChanged { what, before, now }),
            None => Ok(()),
        }
    }

    /// The first part that differs from that of `now`, and its two states. Texts come before the vocabulary, which depends on
    /// them.
    pub fn difference(&self, now: &Self) -> Option<(&'static str, [String; 2])> {
        let parts = [
            ("the training text", &self.train, &now.train),
            ("the validation text", &self.valid, &now.valid),
            ("the test text", &self.test, &now.test),
            ("the vocabulary", &self.vocabulary, &now.vocabulary),
        ];
        let different = parts.into_iter().find(|(_, before, now)| before != now);
        different.map(|(what, before, now)| (what, [before.short(), now.short()]))
    }
}

fn hash_ids(mut hash: Sha256, ids: &[u32]) -> Sha256 {
    // In pieces: a call for every id would cost more than the hash.
    let mut bytes = Vec::with_capacity(4 * ids.len().min(1 << 14));
    for piece in ids.chunks(1 << 14) {
        bytes.clear();
        bytes.extend(piece.iter().flat_map(|id| id.to_le_bytes()));
        hash.update(&bytes);
    }
    hash
}

impl Part {
    /// A part of `length` words or tokens, and the bytes that its hash is of.
    pub fn of(length: usize, bytes: impl Iterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hash = Sha256::new();
        bytes.for_each(|bytes| hash.update(bytes));
        Self::hashed(length, hash)
    }

    fn hashed(length: usize, hash: Sha256) -> Self {
        Self { length, sha256: hex(&hash.finalize()) }
    }

    fn short(&self) -> String {
        format!("{} words, hash {}", self.length, self.sha256.get(..8).unwrap_or(&self.sha256))
    }
}
