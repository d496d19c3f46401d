//! The arguments of the dispatched operations, and their way to the backend that their tensors are on.

use std::cell::Cell;

use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType,
};
use highrank_kernels::{Floats, Ints};

use super::latent::LatentArgs;
use super::likelihood::LikelihoodInput;
use super::objective::Objective;

/// Arguments of the likelihood.
#[derive(Debug, Clone)]
pub struct LossCall<B: Backend> {
    /// All that it depends on but the targets.
    pub input: LikelihoodInput<Floats<B>>,
    /// What it is scored against, and how.
    pub objective: Objective<Floats<B>, Ints<B>>,
    /// `w`, `[N]`: the loss is `Σ_n w_n loss_n`. `None`: a loss for each token.
    pub weights: Option<Floats<B>>,
}

/// Arguments of the latent layer.
pub type LatentCall<B> = LatentArgs<Floats<B>>;

/// Arguments of a prediction.
pub type PredictionCall<B> = LikelihoodInput<Floats<B>>;

impl<B: Backend> LossCall<B> {
    /// The same call with each tensor changed by one of the functions.
    fn map<C: Backend>(
        self,
        mut float: impl FnMut(Floats<B>) -> Floats<C>,
        int: impl FnMut(Ints<B>) -> Ints<C>,
    ) -> LossCall<C> {
        LossCall {
            input: self.input.map(&mut float),
            weights: self.weights.map(&mut float),
            objective: self.objective.map(float, int),
        }
    }
}

/// Takes calls to a backend and back. The named tensor says the backend; the expression changes each tensor of a call by one of
/// two functions.
// Burn's derive macro knows tensors as fields, but neither optional nor generic ones.
macro_rules! extension_types {
    ($($Call:ident: $($field:ident).+, |$call:ident, $float:ident, $int:ident| $changed:expr;)+) => {$(
        impl<B: Backend> ExtensionType<B> for $Call<B> {
            type Target = $Call<Dispatch>;

            fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
            where
                F: Fn(BackendTensor<B>) -> DispatchTensorKind,
            {
                let tensor = |tensor| DispatchTensor { kind: map_kind(tensor), autodiff };
                let $float = |x: Floats<B>| Floats::<Dispatch>::new(tensor(BackendTensor::Float(x.into_primitive())));
                let $int = |x: Ints<B>| Ints::<Dispatch>::new(tensor(BackendTensor::Int(x.into_primitive())));
                let $call = self;
                $changed
            }

            fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
            where
                F: Fn(DispatchTensor) -> BackendTensor<B>,
            {
                let $float = |x: Floats| Floats::<B>::new(unwrap_kind(x.into_primitive()).float());
                let $int = |x: Ints| Ints::<B>::new(unwrap_kind(x.into_primitive()).int());
                let $call = target;
                $changed
            }

            fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                Some(target.$($field).+.primitive())
            }

            fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                Self::routing_tensor(target)
            }

            fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
                // Every tensor counts: any of them may be tracked, the others are then constants.
                let context = Cell::new(DispatchAutodiffContext::default());
                let merge = |tensor: &DispatchTensor| context.set(context.get().merge(tensor.autodiff));
                let $float = |x: Floats| {
                    merge(x.primitive());
                    x
                };
                let $int = |x: Ints| {
                    merge(x.primitive());
                    x
                };
                let $call = target.clone();
                let _: Self::Target = $changed;
                context.get()
            }
        }
    )+};
}
extension_types! {
    LossCall: input.weight, |call, float, int| call.map(float, int);
    LatentCall: weight, |call, float, _int| call.map(float);
    PredictionCall: weight, |call, float, _int| call.map(float);
}
