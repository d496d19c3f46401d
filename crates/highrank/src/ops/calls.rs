//! The arguments of the dispatched operations, and their way to the backend that their tensors are on.

use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType,
};
use highrank_kernels::{Floats, Ints};

use super::latent::LatentArgs;
use super::likelihood::Likelihood;
use super::objective::Objective;

/// Arguments of the likelihood.
#[derive(Debug, Clone)]
pub struct LossCall<B: Backend> {
    /// All that it depends on but the targets.
    pub input: Likelihood<Floats<B>>,
    /// What it is scored against, and how.
    pub objective: Objective<Floats<B>, Ints<B>>,
    /// `w`, `[N]`: the loss is `Σ_n w_n loss_n`. `None`: a loss for each token.
    pub weights: Option<Floats<B>>,
}

/// Arguments of the latent layer.
#[derive(Debug, Clone)]
pub struct LatentCall<B: Backend>(pub LatentArgs<Floats<B>>);

/// Arguments of a prediction.
#[derive(Debug, Clone)]
pub struct LikelihoodCall<B: Backend>(pub Likelihood<Floats<B>>);

impl<B: Backend> LossCall<B> {
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

/// Merges the autodiff contexts of tensors.
#[derive(Default)]
struct Context(DispatchAutodiffContext);

impl Context {
    fn merge(&mut self, tensor: &DispatchTensor) {
        self.0 = self.0.merge(tensor.autodiff);
    }
}

impl<B: Backend> ExtensionType<B> for LossCall<B> {
    type Target = LossCall<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let tensor = |tensor| DispatchTensor { kind: map_kind(tensor), autodiff };
        self.map(
            |x| Floats::new(tensor(BackendTensor::Float(x.into_primitive()))),
            |x| Ints::new(tensor(BackendTensor::Int(x.into_primitive()))),
        )
    }

    fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        target.map(
            |x| Floats::new(unwrap_kind(x.into_primitive()).float()),
            |x| Ints::new(unwrap_kind(x.into_primitive()).int()),
        )
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        Some(target.input.weight.primitive())
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        Self::routing_tensor(target)
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let mut context = Context::default();
        target.input.as_ref().map(|x| context.merge(x.primitive()));
        target.weights.iter().for_each(|x| context.merge(x.primitive()));
        let targets = &target.objective.targets;
        targets.words().iter().for_each(|x| context.merge(x.primitive()));
        targets.probabilities().iter().for_each(|x| context.merge(x.primitive()));
        context.0
    }
}

/// The way of calls whose tensors are all floats, and of which the weight says the backend.
macro_rules! calls_of_floats {
    ($($call:ident),*) => {$(
        impl<B: Backend> ExtensionType<B> for $call<B> {
            type Target = $call<Dispatch>;

            fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
            where
                F: Fn(BackendTensor<B>) -> DispatchTensorKind,
            {
                $call(self.0.map(|x| {
                    let kind = map_kind(BackendTensor::Float(x.into_primitive()));
                    Floats::new(DispatchTensor { kind, autodiff })
                }))
            }

            fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
            where
                F: Fn(DispatchTensor) -> BackendTensor<B>,
            {
                Self(target.0.map(|x| Floats::new(unwrap_kind(x.into_primitive()).float())))
            }

            fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                Some(target.0.weight.primitive())
            }

            fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
                Self::routing_tensor(target)
            }

            fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
                let mut context = Context::default();
                target.0.as_ref().map(|x| context.merge(x.primitive()));
                context.0
            }
        }
    )*};
}
calls_of_floats!(LatentCall, LikelihoodCall);
