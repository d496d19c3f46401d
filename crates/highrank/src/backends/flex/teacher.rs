//! Another head's distributions of a chunk's tokens.

use burn::backend::Flex;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, LANES, Real, share};
use highrank_kernels::vectorised;
use pulp::Arch;

use super::row::sums;
use super::tensors::{row_major, values};
use crate::likelihood::LikelihoodKernels;
use crate::ops::{LikelihoodInput, Prediction};

/// What a chunk's tokens are compared with.
pub(super) enum Teacher<T> {
    /// `log T_v`, `[tokens, V]`.
    LogProbs(Floats<Flex>),
    /// Of a forward Kullback–Leibler divergence, which is the cross-entropy under `T` but for a constant.
    Probs {
        /// `T_v`, `[tokens, V]`.
        probs: Buffer<T>,
        /// `Σ_v T_v log T_v`; ∞ where some is of a masked word. `[tokens]`
        constants: Vec<f64>,
    },
}

impl<T: Real> Teacher<T> {
    /// - masked: the student's masked words, if a divergence is to become a cross-entropy
    pub(super) fn new(
        of_chunk: LikelihoodInput<Floats<Flex>>,
        vocab: usize,
        masked: Option<&[usize]>,
    ) -> Self {
        let log_probs = Flex::predict(of_chunk, Prediction::LogProbs).expect("a tensor was asked for");
        let log_probs = row_major(log_probs.cast(T::dtype()));
        let Some(masked) = masked else { return Self::LogProbs(log_probs) };
        let log_probs = values::<T>(&log_probs);
        let (mut probs, mut constants) = (Buffer::new(log_probs.len()), vec![0.0; log_probs.len() / vocab]);
        let rows = probs.chunks_exact_mut(vocab).zip(log_probs.chunks_exact(vocab));
        share(rows.zip(&mut constants), |((row, logarithms), constant)| {
            row.copy_from_slice(logarithms);
            // Becomes what it has the logarithms of; the sum of the products of both.
            *constant = vectorised!(Arch::new(), |row: &'a mut [T]| -> f64 {
                let [sum] = sums(row, |lanes| {
                    let mut terms = [T::ZERO; LANES];
                    for (log, term) in lanes.iter_mut().zip(&mut terms) {
                        let e = log.exp_of_bounded();
                        *term = if e > T::ZERO { e * *log } else { T::ZERO };
                        *log = e;
                    }
                    [terms]
                });
                sum
            });
            if masked.iter().any(|word| row[*word] > T::ZERO) {
                *constant = f64::INFINITY;
            }
        });
        Self::Probs { probs, constants }
    }

    pub(super) fn rows(&self) -> &[T] {
        match self {
            Self::LogProbs(log_probs) => values(log_probs),
            Self::Probs { probs, .. } => probs,
        }
    }

    /// Adds to cross-entropies what makes divergences of them.
    pub(super) fn finish(&self, losses: &mut [T]) {
        if let Self::Probs { constants, .. } = self {
            losses
                .iter_mut()
                .zip(constants)
                .for_each(|(loss, constant)| *loss = T::of(loss.wide() + constant));
        }
    }
}
