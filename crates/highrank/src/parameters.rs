//! The float type of a module's parameters.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::kind::Autodiff;
use burn::tensor::{DType, Device, Tensor};

/// The module with all float parameters of one type. What is trained stays so, as a leaf of its own: no gradient flows to the
/// parameters of before. Quantised parameters are dequantised.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{DType, Device};
/// use highrank::cast_parameters;
///
/// let linear = cast_parameters(LinearConfig::new(3, 2).init(&Device::default()), DType::BF16);
/// assert_eq!(linear.weight.val().dtype(), DType::BF16);
/// ```
pub fn cast_parameters<M: Module>(module: M, dtype: DType) -> M {
    module.map(&mut Cast(dtype))
}

/// The value of a parameter as floats: that of a quantised one, as `Module::quantize_weights` leaves it, dequantised.
pub(crate) fn value<const D: usize>(param: &Param<Tensor<D>>) -> Tensor<D> {
    param.val().dequantize()
}

/// The float type of a parameter's value. That of LoRA is known without the value, which would be a sum of two matrices.
pub(crate) fn float_type<const D: usize>(param: &Param<Tensor<D>>) -> DType {
    param.adapter().map_or_else(|| param.val().dtype(), |adapter| adapter.a.base().dtype())
}

/// A tensor without its history. Detaching alone leaves a leaf tracked, and no sum of one can be a parameter.
pub(crate) fn constant<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    tensor.detach().set_require_grad(false)
}

/// A tensor without history in the autodiff context of a device, if it has one: the tensors of an operation share a checkpointing
/// strategy.
pub(crate) fn in_context<const D: usize, K: Autodiff>(tensor: Tensor<D, K>, device: &Device) -> Tensor<D, K> {
    match device.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

/// Whether the parameter is trained, on a device without autodiff too, where only training mode shows it. Under LoRA, whether its base
/// is: the sum is no leaf.
pub(crate) fn is_trained<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.clone().train().base().is_require_grad()
}

/// The parameter with what `change` makes of its value, as a leaf of its own that is trained if it was. The id stays.
pub(crate) fn changed<const D: usize>(
    param: &Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    let trained = is_trained(param);
    Param::initialized(param.id, change(value(param).detach()).detach()).set_require_grad(trained)
}

/// The module with parameters of its own, as leaves of the same ids.
pub(crate) fn with_own_parameters<M: Module>(module: M) -> M {
    struct Own;
    impl ModuleMapper for Own {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            changed(&param, |tensor| tensor)
        }
    }
    module.map(&mut Own)
}

struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match param.val().dtype() == self.0 {
            true => param,
            false => param.map(|tensor| {
                let trained = tensor.is_require_grad();
                tensor.dequantize().cast(self.0).detach().set_require_grad(trained)
            }),
        }
    }
}
