//! The product as one node of the autodiff graph, over any inner backend, so that both of its gradients are products of
//! the same precision.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as GradientStore;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::Precision;
use crate::autodiff::{unwrap, wrap};
use crate::likelihood::LikelihoodBackend;

/// Left and right matrix.
const INPUTS: usize = 2;

#[derive(Debug)]
struct ProductOp;

/// The matrices that the wanted gradients need.
#[derive(Debug, Clone)]
struct ProductState<B: Backend> {
    lhs: Option<Tensor<B, 2>>,
    rhs: Option<Tensor<B, 2>>,
    precision: Precision,
}

impl<B: LikelihoodBackend> Backward<B, INPUTS> for ProductOp {
    type State = ProductState<B>;

    fn backward(
        self,
        ops: Ops<Self::State, INPUTS>,
        store: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad: Tensor<B, 2> = wrap(store.consume::<B>(&ops.node));
        let ProductState { lhs, rhs, precision } = ops.state;
        let [of_lhs, of_rhs] = ops.parents;
        if let (Some(parent), Some(rhs)) = (of_lhs, rhs) {
            store.register::<B>(parent.id, unwrap(B::product(grad.clone(), rhs.transpose(), precision)));
        }
        if let (Some(parent), Some(lhs)) = (of_rhs, lhs) {
            store.register::<B>(parent.id, unwrap(B::product(lhs.transpose(), grad, precision)));
        }
    }
}

/// [`LikelihoodBackend::product`] of an autodiff backend.
pub(crate) fn product<B: LikelihoodBackend, C: CheckpointStrategy>(
    lhs: Tensor<Autodiff<B, C>, 2>,
    rhs: Tensor<Autodiff<B, C>, 2>,
    precision: Precision,
) -> Tensor<Autodiff<B, C>, 2> {
    let (left, right) = (lhs.clone().into_primitive().tensor(), rhs.clone().into_primitive().tensor());
    let (lhs, rhs) = (lhs.inner(), rhs.inner());
    let output = unwrap(B::product(lhs.clone(), rhs.clone(), precision));
    let (lhs, rhs) = (right.is_tracked().then_some(lhs), left.is_tracked().then_some(rhs));
    match ProductOp.prepare::<C>([left.node, right.node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => wrap(prep.finish(ProductState { lhs, rhs, precision }, output)),
        OpsKind::UnTracked(prep) => wrap(prep.finish(output)),
    }
}
