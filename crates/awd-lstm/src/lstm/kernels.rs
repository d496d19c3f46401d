//! The passes of the LSTM operation that a backend may have kernels for.

use highrank_kernels::{Floats, Rounding};

use super::ops::{LstmArgs, LstmGrads, LstmSaved, LstmWanted};
use super::portable;

/// The two passes of the LSTM on one backend, without a graph.
///
/// Results are *packed*, because a node of the autodiff graph has one output: `[T + 1, B, H]`, rows
/// 0 to T - 1 the hidden states h_1 … h_T, row T the final cell state c_T. Shapes are not checked here:
/// [`lstm_sequence`](super::lstm_sequence) does that.
///
/// Cost: `8 T B H (I + H)` floating-point operations forward, twice that backward.
/// The arguments' float type is kept throughout; the backend's default type plays no part.
///
/// A backend that provides neither pass runs the [portable](mod@portable) formulas.
pub trait LstmKernels: Rounding {
    /// The packed result, and what [`LstmKernels::lstm_backward`] needs besides.
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        portable::forward_with_saved(args)
    }

    /// Gradients of a loss whose gradient with respect to the packed result `packed` is `grad`.
    ///
    /// `args`, `packed` and `saved` are those of [`LstmKernels::lstm_with_saved`].
    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        portable::backward(args, packed, saved, grad, wanted)
    }
}
