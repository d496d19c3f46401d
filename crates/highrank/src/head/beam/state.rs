//! States that a beam search carries from step to step.

use burn::nn::LstmState;
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;

use crate::head::predict::integers;

/// What a step function keeps for every live hypothesis: one row each.
///
/// After a step some hypotheses go on in several ways and others not at all, so the rows of the next step are a selection of the
/// rows of this one. Implemented for tensors, whose first dimension are the rows, for the state of Burn's LSTM, and for tuples,
/// options and vectors of states, such as one a layer. A state of one's own, or with its rows elsewhere, takes a few lines:
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use highrank::BeamState;
///
/// struct Cache {
///     keys: Tensor<3>, // [time, rows, d]
/// }
///
/// impl BeamState for Cache {
///     fn select(self, rows: &[usize]) -> Self {
///         let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
///         let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &self.keys.device());
///         Self { keys: self.keys.select(1, rows) }
///     }
/// }
/// ```
pub trait BeamState: Sized {
    /// The state whose row `i` is row `rows[i]` of this one. Rows may repeat or be missing.
    fn select(self, rows: &[usize]) -> Self;
}

impl BeamState for () {
    fn select(self, _rows: &[usize]) -> Self {}
}

impl<const D: usize, K: Basic> BeamState for Tensor<D, K> {
    fn select(self, rows: &[usize]) -> Self {
        let same = rows.len() == self.dims()[0] && rows.iter().enumerate().all(|(i, &row)| i == row);
        if same {
            return self;
        }
        let rows = integers(rows.iter().copied(), [rows.len()], &self.device());
        Tensor::select(self, 0, rows)
    }
}

impl<const D: usize> BeamState for LstmState<D> {
    fn select(self, rows: &[usize]) -> Self {
        Self { cell: BeamState::select(self.cell, rows), hidden: BeamState::select(self.hidden, rows) }
    }
}

impl<S: BeamState> BeamState for Option<S> {
    fn select(self, rows: &[usize]) -> Self {
        self.map(|state| state.select(rows))
    }
}

impl<S: BeamState> BeamState for Vec<S> {
    fn select(self, rows: &[usize]) -> Self {
        self.into_iter().map(|state| state.select(rows)).collect()
    }
}

impl<A: BeamState, B: BeamState> BeamState for (A, B) {
    fn select(self, rows: &[usize]) -> Self {
        (self.0.select(rows), self.1.select(rows))
    }
}

impl<A: BeamState, B: BeamState, C: BeamState> BeamState for (A, B, C) {
    fn select(self, rows: &[usize]) -> Self {
        (self.0.select(rows), self.1.select(rows), self.2.select(rows))
    }
}
