//! An operation with a hand-written backward pass, as one node of the autodiff graph over any backend.

use std::fmt;
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use burn::tensor::DType;

use crate::tensor::Floats;

/// Records an operation in the graph of its inputs, of which some may be absent, and gives its output.
///
/// `forward` returns the output and, if an input is tracked, the backward pass: it turns the upstream gradient of the output
/// into the gradients of the inputs, `None` where there is none; one of an input that is not tracked is ignored, and the
/// others are cast to their inputs' types. What it holds is kept from the forward pass, tensors shared and not copied. The argument
/// of `forward` says which inputs are tracked; it is `None` if none is.
///
/// # Panics
/// If all inputs are absent, or there is no backward pass though an input is tracked.
pub fn record<B, C, F, const N: usize>(
    name: &'static str,
    inputs: [Option<Floats<Autodiff<B, C>>>; N],
    forward: impl FnOnce(Option<[bool; N]>) -> (Floats<B>, Option<F>),
) -> Floats<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    F: FnOnce(Floats<B>) -> [Option<Floats<B>>; N] + Clone + Send + 'static,
{
    let present = inputs.iter().flatten().next().expect("an operation has inputs");
    let present = present.primitive().primitive().clone();
    // A constant stands in for an absent input: it shares the memory of another, and nothing reads it.
    let constant = || Floats::new(Autodiff::<B, C>::from_inner(present.clone()));
    let inputs = inputs.map(|input| input.unwrap_or_else(constant));
    let tracked = inputs.each_ref().map(|input| input.primitive().is_tracked());
    let types = inputs.each_ref().map(Floats::dtype);
    // Guards keep the inputs in the graph until the operation is registered.
    let guards = inputs.each_ref().map(|input| input.primitive().node());
    let operation = Recorded::<B, F>(name, PhantomData);
    match operation.prepare::<C>(guards).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let (output, backward) = forward(Some(tracked));
            let backward = backward.expect("a tracked operation has a backward pass");
            Floats::new(prep.finish(Pass { name, types, backward }, output.into_primitive()))
        }
        OpsKind::UnTracked(prep) => Floats::new(prep.finish(forward(None).0.into_primitive())),
    }
}

/// The tensor without its graph.
pub fn inner<B: Backend, C: CheckpointStrategy>(tensor: Floats<Autodiff<B, C>>) -> Floats<B> {
    Floats::new(tensor.into_primitive().into_primitive())
}

/// An operation with its backward pass `F`.
struct Recorded<B, F>(&'static str, PhantomData<fn() -> (B, F)>);

impl<B, F> fmt::Debug for Recorded<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A backward pass with what it holds, and the types of its gradients.
#[derive(Clone)]
struct Pass<F, const N: usize> {
    name: &'static str,
    types: [DType; N],
    backward: F,
}

impl<F, const N: usize> fmt::Debug for Pass<F, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<B, F, const N: usize> Backward<B, N> for Recorded<B, F>
where
    B: Backend,
    F: FnOnce(Floats<B>) -> [Option<Floats<B>>; N] + Clone + Send + 'static,
{
    type State = Pass<F, N>;

    fn backward(self, ops: Ops<Self::State, N>, store: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let upstream = Floats::new(store.consume::<B>(&ops.node));
        let gradients = (ops.state.backward)(upstream);
        for ((parent, gradient), dtype) in ops.parents.into_iter().zip(gradients).zip(ops.state.types) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                store.register::<B>(parent.id, gradient.cast(dtype).into_primitive());
            }
        }
    }
}
