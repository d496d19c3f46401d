//! The hand-written backward pass, once for every backend.
//!
//! `nll` saves its inputs and recomputes each chunk backward, because the upstream gradient of a token must enter before
//! the sum over tokens. `mean_nll` knows the whole upstream gradient but one scalar factor: it makes its gradients in the
//! forward pass and the backward pass multiplies them by that factor.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as GradientStore;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;

use super::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted, shares};
use crate::autodiff::{unwrap, wrap};
use crate::context::ContextSource;
use crate::context::latent::{self, LatentArgs};
use crate::precision::{self, Precision};

/// Number of tensors that may be differentiated: the seven of [`Gradients`] and the token weights.
const INPUTS: usize = 8;

impl<B: LikelihoodBackend, C: CheckpointStrategy> LikelihoodBackend for Autodiff<B, C> {
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        let targets = inner_targets(targets);
        let parents = Parents::new(&input, None);
        let inner = inner_input(input);
        match PerToken
            .prepare::<C>(parents.0.each_ref().map(|tensor| tensor.node.clone()))
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prep) => {
                let state = PerTokenState {
                    input: inner.clone(),
                    targets: targets.clone(),
                    wanted: parents.wanted(),
                };
                wrap(prep.finish(state, unwrap(B::nll(inner, targets))))
            }
            OpsKind::UnTracked(prep) => wrap(prep.finish(unwrap(B::nll(inner, targets)))),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        let (nll, gradients) =
            B::nll_and_gradients(inner_input(input), inner_targets(targets), upstream.inner(), wanted);
        let gradients = Gradients {
            contexts: gradients.contexts.map(Tensor::from_inner),
            latent_weight: gradients.latent_weight.map(Tensor::from_inner),
            latent_bias: gradients.latent_bias.map(Tensor::from_inner),
            log_prior: gradients.log_prior.map(Tensor::from_inner),
            weight: gradients.weight.map(Tensor::from_inner),
            bias: gradients.bias.map(Tensor::from_inner),
            map_params: gradients.map_params.map(Tensor::from_inner),
        };
        (Tensor::from_inner(nll), gradients)
    }

    fn mean_nll(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        weights: Option<Tensor<Self, 1>>,
    ) -> Tensor<Self, 1> {
        let targets = inner_targets(targets);
        let parents = Parents::new(&input, weights.as_ref());
        let inner = inner_input(input);
        let weights = weights.map(|weights| weights.inner());
        match Mean
            .prepare::<C>(parents.0.each_ref().map(|tensor| tensor.node.clone()))
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prep) => {
                let shares = shares(&inner, weights.clone());
                let (nll, gradients) = B::nll_and_gradients(inner, targets, shares.clone(), parents.wanted());
                let mean = (nll.clone() * shares).sum();
                // ∂(Σ w nll / Σ w)/∂w_n = (nll_n − mean) / Σ w
                let d_weights = weights.map(|weights| (nll - mean.clone()) / weights.sum());
                wrap(prep.finish(MeanState { gradients, d_weights }, unwrap(mean)))
            }
            OpsKind::UnTracked(prep) => wrap(prep.finish(unwrap(B::mean_nll(inner, targets, weights)))),
        }
    }

    fn product(lhs: Tensor<Self, 2>, rhs: Tensor<Self, 2>, precision: Precision) -> Tensor<Self, 2> {
        precision::on_autodiff(lhs, rhs, precision)
    }

    fn memory_budget(decoder_bytes: usize, device: &Self::Device) -> usize {
        B::memory_budget(decoder_bytes, device)
    }

    fn latent(args: LatentArgs<Self>) -> Tensor<Self, 2> {
        latent::on_autodiff(args)
    }

    fn reads_are_free() -> bool {
        B::reads_are_free()
    }
}

/// The differentiable inputs in a fixed order; a constant stands in for an absent one.
struct Parents<B: Backend, C: CheckpointStrategy>([FloatTensor<Autodiff<B, C>>; INPUTS]);

impl<B: Backend, C: CheckpointStrategy> Parents<B, C> {
    fn new(input: &Likelihood<Autodiff<B, C>>, weights: Option<&Tensor<Autodiff<B, C>, 1>>) -> Self {
        let constant = || {
            let device = input.weight.device();
            Tensor::<Autodiff<B, C>, 1>::empty([1], &device).into_primitive().tensor()
        };
        let vector = |tensor: Option<&Tensor<Autodiff<B, C>, 1>>| match tensor {
            Some(tensor) => tensor.clone().into_primitive().tensor(),
            None => constant(),
        };
        let matrix = |tensor: Option<&Tensor<Autodiff<B, C>, 2>>| match tensor {
            Some(tensor) => tensor.clone().into_primitive().tensor(),
            None => constant(),
        };
        let (contexts, latent_weight, latent_bias) = match &input.contexts {
            ContextSource::Given(contexts) => (contexts, None, None),
            ContextSource::Latent(args) => (&args.hidden, Some(&args.weight), args.bias.as_ref()),
        };
        Self([
            matrix(Some(contexts)),
            matrix(latent_weight),
            vector(latent_bias),
            matrix(input.log_prior.as_ref()),
            input.weight.clone().into_primitive().tensor(),
            vector(input.bias.as_ref()),
            vector(input.map_params.as_ref()),
            vector(weights),
        ])
    }

    fn wanted(&self) -> Wanted {
        let [contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params, _] =
            self.0.each_ref().map(|tensor| tensor.is_tracked());
        Wanted { contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params }
    }
}

#[derive(Debug)]
struct PerToken;

#[derive(Debug, Clone)]
struct PerTokenState<B: Backend> {
    input: Likelihood<B>,
    targets: Targets<B>,
    wanted: Wanted,
}

impl<B: LikelihoodBackend> Backward<B, INPUTS> for PerToken {
    type State = PerTokenState<B>;

    fn backward(
        self,
        ops: Ops<Self::State, INPUTS>,
        store: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let upstream: Tensor<B, 1> = wrap(store.consume::<B>(&ops.node));
        let PerTokenState { input, targets, wanted } = ops.state;
        let (_, gradients) = B::nll_and_gradients(input, targets, upstream, wanted);
        let gradients = primitives(gradients, None);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                store.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct Mean;

#[derive(Debug, Clone)]
struct MeanState<B: Backend> {
    gradients: Gradients<B>,
    d_weights: Option<Tensor<B, 1>>,
}

impl<B: LikelihoodBackend> Backward<B, INPUTS> for Mean {
    type State = MeanState<B>;

    fn backward(
        self,
        ops: Ops<Self::State, INPUTS>,
        store: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let upstream: Tensor<B, 1> = wrap(store.consume::<B>(&ops.node));
        let MeanState { gradients, d_weights } = ops.state;
        let scale = Scale::new(upstream);
        let gradients = Gradients {
            contexts: gradients.contexts.map(|gradient| scale.apply(gradient)),
            latent_weight: gradients.latent_weight.map(|gradient| scale.apply(gradient)),
            latent_bias: gradients.latent_bias.map(|gradient| scale.apply(gradient)),
            log_prior: gradients.log_prior.map(|gradient| scale.apply(gradient)),
            weight: gradients.weight.map(|gradient| scale.apply(gradient)),
            bias: gradients.bias.map(|gradient| scale.apply(gradient)),
            map_params: gradients.map_params.map(|gradient| scale.apply(gradient)),
        };
        let gradients = primitives(gradients, d_weights.map(|gradient| scale.apply(gradient)));
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                store.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// The upstream gradient of a scalar, as a number where that is known without waiting.
enum Scale<B: Backend> {
    Number(f64),
    Tensor(Tensor<B, 1>),
}

impl<B: LikelihoodBackend> Scale<B> {
    fn new(upstream: Tensor<B, 1>) -> Self {
        match B::reads_are_free() {
            // By way of its data: a scalar would be cast to the backend's default type, f32.
            true => Self::Number(upstream.into_data().iter::<f64>().next().expect("one number")),
            false => Self::Tensor(upstream),
        }
    }

    /// A loss that is differentiated by itself, or added to others, has the upstream gradient 1: nothing to do.
    fn apply<const D: usize>(&self, gradient: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Number(1.0) => gradient,
            Self::Number(scale) => gradient.mul_scalar(*scale),
            Self::Tensor(scale) => gradient * scale.clone().reshape([1; D]),
        }
    }
}

/// In the order of [`Parents`].
fn primitives<B: Backend>(
    gradients: Gradients<B>,
    d_weights: Option<Tensor<B, 1>>,
) -> [Option<FloatTensor<B>>; INPUTS] {
    [
        gradients.contexts.map(unwrap),
        gradients.latent_weight.map(unwrap),
        gradients.latent_bias.map(unwrap),
        gradients.log_prior.map(unwrap),
        gradients.weight.map(unwrap),
        gradients.bias.map(unwrap),
        gradients.map_params.map(unwrap),
        d_weights.map(unwrap),
    ]
}

fn inner_input<A: AutodiffBackend>(input: Likelihood<A>) -> Likelihood<A::InnerBackend> {
    Likelihood {
        contexts: match input.contexts {
            ContextSource::Given(contexts) => ContextSource::Given(contexts.inner()),
            ContextSource::Latent(args) => ContextSource::Latent(latent::inner(args)),
        },
        log_prior: input.log_prior.map(|prior| prior.inner()),
        weight: input.weight.inner(),
        bias: input.bias.map(|bias| bias.inner()),
        map: input.map,
        map_params: input.map_params.map(|params| params.inner()),
        chunk_bytes: input.chunk_bytes,
        precision: input.precision,
    }
}

/// # Panics
/// If target distributions are tracked: they are constants of the loss, and dropping their gradient would be silent.
fn inner_targets<B: Backend, C: CheckpointStrategy>(targets: Targets<Autodiff<B, C>>) -> Targets<B> {
    match targets {
        Targets::Words(words) => Targets::Words(words.inner()),
        Targets::Distributions(rows) => {
            assert!(
                !rows.clone().into_primitive().tensor().is_tracked(),
                "soft_loss: the target distributions are tracked, but they are constants of the loss: detach() them"
            );
            Targets::Distributions(rows.inner())
        }
    }
}
