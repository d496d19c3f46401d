//! The LSTM operation: its data, and what a backend provides.
//!
//! The data is generic over the tensor type, so that one type serves users' tensors, a backend's primitives and whatever an
//! implementation turns them into.

// Burn has deprecated NdArray; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType, backend_extension,
};
use highrank_kernels::{Floats, Precision};

/// The inputs of the operation. All tensors have the same float type and device.
#[derive(Clone, Copy, Debug)]
pub struct LstmArgs<F> {
    /// Inputs `[T, B, I]`, T at least 1.
    pub x: F,
    /// Hidden state before the first step, `[B, H]`.
    pub h0: F,
    /// Cell state before the first step, `[B, H]`.
    pub c0: F,
    /// Input weights `[4H, I]`.
    pub w_ih: F,
    /// Recurrent weights `[4H, H]`, before the mask.
    pub w_hh: F,
    /// Input bias `[4H]`.
    pub b_ih: F,
    /// Recurrent bias `[4H]`. It has the same gradient as `b_ih`; PyTorch's layer has both.
    pub b_hh: F,
    /// DropConnect mask `[4H, H]` of zeros and `1/(1-p)`. A constant: no gradient flows to it.
    pub hh_mask: Option<F>,
    /// Precision of the matrix products.
    pub precision: Precision,
}

impl<F> LstmArgs<F> {
    /// Replaces every tensor, in the order of the fields.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LstmArgs<G> {
        LstmArgs {
            x: f(self.x),
            h0: f(self.h0),
            c0: f(self.c0),
            w_ih: f(self.w_ih),
            w_hh: f(self.w_hh),
            b_ih: f(self.b_ih),
            b_hh: f(self.b_hh),
            hh_mask: self.hh_mask.map(f),
            precision: self.precision,
        }
    }
}

/// What the forward pass keeps for the backward pass, besides its inputs and its result.
#[derive(Clone, Copy, Debug)]
pub struct LstmSaved<F> {
    /// Gates after their sigmoid or tanh, `[T, B, 4H]`.
    pub gates: F,
    /// Cell states after each step, `[T, B, H]`.
    pub cells: F,
    /// The recurrent weights in use, `w_hh ∘ hh_mask`, `[4H, H]`.
    pub recurrent: F,
}

impl<F> LstmSaved<F> {
    /// Replaces every tensor, in the order of the fields.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LstmSaved<G> {
        LstmSaved { gates: f(self.gates), cells: f(self.cells), recurrent: f(self.recurrent) }
    }
}

/// Which gradients the backward pass must compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LstmWanted {
    /// Of the inputs.
    pub x: bool,
    /// Of the first hidden state.
    pub h0: bool,
    /// Of the first cell state.
    pub c0: bool,
    /// Of the input weights.
    pub w_ih: bool,
    /// Of the raw recurrent weights.
    pub w_hh: bool,
    /// Of either bias: the two gradients are equal.
    pub bias: bool,
}

/// Gradients, each of its tensor's shape, and present if wanted.
#[derive(Clone, Copy, Debug)]
pub struct LstmGrads<F> {
    /// Of the inputs, `[T, B, I]`.
    pub x: Option<F>,
    /// Of the first hidden state, `[B, H]`.
    pub h0: Option<F>,
    /// Of the first cell state, `[B, H]`.
    pub c0: Option<F>,
    /// Of the input weights, `[4H, I]`.
    pub w_ih: Option<F>,
    /// Of the raw recurrent weights, `[4H, H]`: zero where the mask is.
    pub w_hh: Option<F>,
    /// Of either bias, `[4H]`.
    pub bias: Option<F>,
}

impl<F> LstmGrads<F> {
    /// Replaces every gradient that is present, in the order of the fields.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LstmGrads<G> {
        LstmGrads {
            x: self.x.map(&mut f),
            h0: self.h0.map(&mut f),
            c0: self.c0.map(&mut f),
            w_ih: self.w_ih.map(&mut f),
            w_hh: self.w_hh.map(&mut f),
            bias: self.bias.map(&mut f),
        }
    }
}

/// The LSTM as an operation on tensors of any device that has kernels for it.
///
/// On [`Dispatch`] it panics for tensors of any other device; [`lstm_sequence`](super::lstm_sequence) runs on those too.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "gpu"),
    Autodiff
)]
pub trait LstmOps: Backend {
    /// The packed result of [`LstmKernels`](super::LstmKernels). On an `Autodiff` backend it is differentiable.
    fn lstm(#[extension_type] call: LstmCall<Self>) -> FloatTensor<Self>;
}

/// The arguments of [`LstmOps::lstm`], which the dispatch takes apart and puts together.
#[derive(Clone, Debug)]
pub struct LstmCall<B: Backend>(pub LstmArgs<Floats<B>>);

// By hand: the derive knows tensors as fields, but neither optional nor generic ones.
impl<B: Backend> ExtensionType<B> for LstmCall<B> {
    type Target = LstmCall<Dispatch>;

    fn map_to_dispatch<M>(self, map_kind: M, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        M: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        LstmCall(self.0.map(|tensor| {
            let kind = map_kind(BackendTensor::Float(tensor.into_primitive()));
            Floats::new(DispatchTensor { kind, autodiff })
        }))
    }

    fn map_from_dispatch<M>(target: Self::Target, unwrap_kind: M) -> Self
    where
        M: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        Self(target.0.map(|tensor| Floats::new(unwrap_kind(tensor.into_primitive()).float())))
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        Some(target.0.x.primitive())
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        Self::routing_tensor(target)
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, hh_mask, precision: _ } = &target.0;
        // Every tensor counts: any of them may be tracked, the others are then constants.
        let tensors = [x, h0, c0, w_ih, w_hh, b_ih, b_hh].into_iter().chain(hh_mask);
        tensors.fold(DispatchAutodiffContext::Disabled, |all, tensor| all.merge(tensor.primitive().autodiff))
    }
}
