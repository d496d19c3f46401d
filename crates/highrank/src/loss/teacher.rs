//! A teacher's rows on the host, and their checks.

use burn::tensor::TensorData;
use highrank_kernels::{Floats, Ints};

use crate::error::HeadError;
use crate::ops::assert_constant;

/// The words that a teacher lists and their probabilities, read back from the device.
pub(crate) struct TeacherRows {
    /// Words a token.
    listed: usize,
    ids: Vec<i64>,
    probs: Vec<f64>,
}

impl TeacherRows {
    /// Of all tokens, with those that count checked.
    ///
    /// # Errors
    /// As [`validate`].
    ///
    /// # Panics
    /// If the probabilities are tracked.
    pub(super) fn read(
        ids: &Ints,
        probs: &Floats,
        vocab: usize,
        counted: impl FnMut(usize) -> bool,
    ) -> Result<Self, HeadError> {
        assert_constant(probs.clone().reshape([probs.num_elements()]).tensor::<1>().is_tracked());
        let (ids, probs) = (ids.clone().into_data(), probs.clone().into_data());
        validate(&ids, &probs, vocab, counted)?;
        let listed = ids.shape().last().copied().unwrap_or(1).max(1);
        Ok(Self { listed, ids: ids.iter().collect(), probs: probs.iter().collect() })
    }

    /// The words of a token that counts, with their probabilities.
    pub(crate) fn row(&self, token: usize) -> impl Iterator<Item = (usize, f64)> {
        let row = token * self.listed..(token + 1) * self.listed;
        let ids = self.ids[row.clone()].iter().map(|word| *word as usize);
        ids.zip(self.probs[row].iter().copied())
    }
}

/// Checks the rows of the tokens that count: words of the vocabulary, all different, and probabilities that a distribution
/// can have.
///
/// # Errors
/// [`HeadError::TeacherWord`] or [`HeadError::TeacherRow`] of the first row that is wrong.
pub(super) fn validate(
    ids: &TensorData,
    probs: &TensorData,
    vocab: usize,
    mut counted: impl FnMut(usize) -> bool,
) -> Result<(), HeadError> {
    let width = ids.shape().last().copied().unwrap_or(1).max(1);
    let (ids, probs): (Vec<i64>, Vec<f64>) = (ids.iter().collect(), probs.iter().collect());
    for (token, (ids, probs)) in ids.chunks(width).zip(probs.chunks(width)).enumerate() {
        if !counted(token) {
            continue;
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let outside = sorted.iter().find(|word| !(0..vocab as i64).contains(word));
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| &pair[0]);
        if let Some(&word) = outside.or(twice) {
            return Err(HeadError::TeacherWord { word, token, vocab });
        }
        let sum: f64 = probs.iter().sum();
        // Probabilities in half precision are off by a thousandth.
        if probs.iter().any(|p| p.is_nan() || *p < 0.0) || sum > 1.0 + 2e-3 {
            let least = probs.iter().copied().fold(f64::INFINITY, f64::min);
            return Err(HeadError::TeacherRow { token, sum, least });
        }
    }
    Ok(())
}
