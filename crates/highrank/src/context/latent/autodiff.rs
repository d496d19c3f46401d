//! The latent layer as one node of the autodiff graph, over any inner backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as GradientStore;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::{LatentArgs, LatentMask, LatentWanted};
use crate::autodiff::{unwrap, wrap};
use crate::likelihood::LikelihoodBackend;

/// Hidden state, weight, bias.
const INPUTS: usize = 3;

#[derive(Debug)]
struct LatentOp;

/// The tensors are shared with the graph, not copied.
#[derive(Debug, Clone)]
struct LatentState<B: Backend> {
    args: LatentArgs<B>,
    output: Tensor<B, 2>,
}

impl<B: LikelihoodBackend> Backward<B, INPUTS> for LatentOp {
    type State = LatentState<B>;

    fn backward(
        self,
        ops: Ops<Self::State, INPUTS>,
        store: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad: Tensor<B, 2> = wrap(store.consume::<B>(&ops.node));
        let LatentState { args, output } = ops.state;
        let [hidden, weight, bias] = ops.parents;
        let wanted =
            LatentWanted { hidden: hidden.is_some(), weight: weight.is_some(), bias: bias.is_some() };
        let made = B::latent_backward(args, output, grad, wanted);
        let pairs = [(hidden, made.hidden.map(unwrap)), (weight, made.weight.map(unwrap))];
        for (parent, gradient) in pairs.into_iter().chain([(bias, made.bias.map(unwrap))]) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                store.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// [`LikelihoodBackend::latent`] of an autodiff backend.
pub(crate) fn latent<B: LikelihoodBackend, C: CheckpointStrategy>(
    args: LatentArgs<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let hidden = args.hidden.clone().into_primitive().tensor();
    let weight = args.weight.clone().into_primitive().tensor();
    let bias = match &args.bias {
        Some(bias) => bias.clone().into_primitive().tensor(),
        None => Tensor::<Autodiff<B, C>, 1>::empty([1], &args.hidden.device()).into_primitive().tensor(),
    };
    let inner = inner(args);
    match LatentOp.prepare::<C>([hidden.node, weight.node, bias.node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::latent(inner.clone());
            wrap(prep.finish(LatentState { args: inner, output: output.clone() }, unwrap(output)))
        }
        OpsKind::UnTracked(prep) => wrap(prep.finish(unwrap(B::latent(inner)))),
    }
}

/// The same layer without tracking.
pub(crate) fn inner<A: AutodiffBackend>(args: LatentArgs<A>) -> LatentArgs<A::InnerBackend> {
    LatentArgs {
        hidden: args.hidden.inner(),
        weight: args.weight.inner(),
        bias: args.bias.map(|bias| bias.inner()),
        mask: args.mask.map(|LatentMask { values, first, keep }| LatentMask {
            values: values.inner(),
            first,
            keep,
        }),
        precision: args.precision,
    }
}
