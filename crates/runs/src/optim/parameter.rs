//! New values for a module's parameters.

use burn::module::Param;
use burn::tensor::Tensor;

/// Replaces a parameter's value outside of any graph.
///
/// The parameter keeps its identity and its part in training: autodiff and its checkpointing strategy, and whether it
/// requires gradients. `f` is given the plain value as the only owner of its memory, if the parameter was.
pub(super) fn map<const D: usize>(
    param: Param<Tensor<D>>,
    f: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    let (id, tensor, mapper) = param.consume();
    let (tracked, strategy) = (tensor.is_require_grad(), tensor.gradient_checkpointing_strategy());
    let mut value = f(tensor.inner());
    if let Some(strategy) = strategy {
        value = Tensor::from_inner(value).with_gradient_checkpointing_strategy(strategy);
    }
    Param::from_mapped_value(id, value.set_require_grad(tracked), mapper)
}

/// The values of a tensor in one dimension.
pub(super) fn flat<const D: usize>(value: Tensor<D>) -> Tensor<1> {
    let count = value.shape().num_elements();
    value.reshape([count])
}
