//! An operation with a hand-written backward pass, as one node of the autodiff graph over any backend.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, AutodiffBackend, Backend};

use crate::tensor::Floats;

/// The backward pass of an operation with `N` inputs that may be differentiated and one output.
pub trait Node<B: Backend, const N: usize>: Debug + Send + 'static {
    /// What the forward pass keeps for the backward pass. Tensors in it are shared, not copied.
    type State: Clone + Debug + Send + 'static;

    /// The gradients of the inputs for the upstream gradient of the output; `None` where there is none. One that is not
    /// `wanted` is ignored.
    fn backward(state: Self::State, upstream: Floats<B>, wanted: [bool; N]) -> [Option<Floats<B>>; N];
}

/// Records the operation `O` in the graph of its inputs, of which some may be absent, and gives its output.
///
/// `forward` returns the output and the state for [`Node::backward`]. Its argument says which inputs are tracked; it is `None`,
/// and no state is needed, if none is.
///
/// # Panics
/// If all inputs are absent, or `forward` keeps no state though an input is tracked.
pub fn record<O, B, C, const N: usize>(
    inputs: [Option<Floats<Autodiff<B, C>>>; N],
    forward: impl FnOnce(Option<[bool; N]>) -> (Floats<B>, Option<O::State>),
) -> Floats<Autodiff<B, C>>
where
    O: Node<B, N>,
    B: Backend,
    C: CheckpointStrategy,
{
    let present = inputs.iter().flatten().next().expect("an operation has inputs");
    let present = present.primitive().primitive().clone();
    // A constant stands in for an absent input: it shares the memory of another, and nothing reads it.
    let constant = || Floats::new(Autodiff::<B, C>::from_inner(present.clone()));
    let inputs = inputs.map(|input| input.unwrap_or_else(constant));
    let tracked = inputs.each_ref().map(|input| input.primitive().is_tracked());
    // Guards keep the inputs in the graph until the operation is registered.
    let guards = inputs.each_ref().map(|input| input.primitive().node());
    let operation = Recorded::<O>(PhantomData);
    match operation.prepare::<C>(guards).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let (output, state) = forward(Some(tracked));
            let state = state.expect("a tracked operation keeps its state");
            Floats::new(prep.finish(state, output.into_primitive()))
        }
        OpsKind::UnTracked(prep) => Floats::new(prep.finish(forward(None).0.into_primitive())),
    }
}

/// The tensor without its graph.
pub fn inner<B: Backend, C: CheckpointStrategy>(tensor: Floats<Autodiff<B, C>>) -> Floats<B> {
    Floats::new(tensor.into_primitive().into_primitive())
}

struct Recorded<O>(PhantomData<O>);

impl<O: Debug> Debug for Recorded<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::any::type_name::<O>())
    }
}

impl<O: Node<B, N>, B: Backend, const N: usize> Backward<B, N> for Recorded<O> {
    type State = O::State;

    fn backward(self, ops: Ops<Self::State, N>, store: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let upstream = Floats::new(store.consume::<B>(&ops.node));
        let wanted = ops.parents.each_ref().map(|parent| parent.is_some());
        let gradients = O::backward(ops.state, upstream, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                store.register::<B>(parent.id, gradient.into_primitive());
            }
        }
    }
}
