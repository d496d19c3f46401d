//! The LSTM layer as one operation over the whole sequence.
//!
//! For T steps, B sequences, I inputs and H units, with the rows of all weights in the order
//! input, forget, cell, output:
//!
//! ```text
//! U = w_hh ∘ hh_mask                                     (DropConnect: the same mask in all steps)
//! i, f, g, o = split(x_t w_ihᵀ + b_ih + h_{t-1} Uᵀ + b_hh)
//! c_t = sigmoid(f) ∘ c_{t-1} + sigmoid(i) ∘ tanh(g)
//! h_t = sigmoid(o) ∘ tanh(c_t)
//! ```
//!
//! The equations and the mask on the recurrent weight are those of AWD-LSTM (arXiv 1708.02182, section 2).
//!
//! A layer written in tensor operations records dozens of small nodes a step. Here the sequence is one node of the autodiff
//! graph. One product computes the input part of all steps, and one recurrent product a step remains. The backward pass
//! needs one recurrent product a step, and one product per weight over all steps.
//!
//! [`lstm_sequence`] is the checked function over tensors, and [`Lstm`] the layer as a module. [`LstmKernels`] is what a
//! backend implements, natively or with the formulas of [`mod@portable`]; [`LstmOps`] leads from tensors to it, with the
//! backward pass on autodiff devices written once for all backends. A device without an implementation runs the portable
//! formulas.

mod backends;
mod kernels;
mod layer;
mod mask;
mod ops;
pub mod portable;
mod sequence;
#[cfg(all(test, any(feature = "flex", feature = "wgpu", feature = "cuda")))]
mod testing;
#[cfg(all(test, feature = "flex"))]
mod tests;

pub use kernels::LstmKernels;
pub use layer::{Lstm, LstmConfig};
pub use mask::{drop_connect_mask, weight_mask};
pub use ops::{LstmArgs, LstmCall, LstmGrads, LstmOps, LstmSaved, LstmWanted};
pub use sequence::{LstmState, LstmWeights, lstm_sequence};
