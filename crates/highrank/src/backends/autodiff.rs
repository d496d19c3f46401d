//! The hand-written backward passes, once for every backend.
//!
//! `nll` saves its inputs and recomputes each chunk backward, because the upstream gradient of a token must enter before
//! the sum over tokens. `mean_nll` knows the whole upstream gradient but one scalar factor: it makes its gradients in the
//! forward pass and the backward pass multiplies them by that factor. Both gradients of a product are products of the same
//! precision.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};
use highrank_kernels::node::{Node, inner, record};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::portable::token_shares;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentCall, LatentInputs, Likelihood, NllCall, OutputOps, PerInput,
    Targets, Wanted,
};

type Words<B> = Targets<Floats<B>, Ints<B>>;

impl<B: Kernels + OutputOps, C: CheckpointStrategy> OutputOps for Autodiff<B, C> {
    fn nll(call: NllCall<Self>) -> FloatTensor<Self> {
        let NllCall { input, targets, .. } = call;
        let parents = input.inputs().map(|tensor| tensor.cloned()).into_array();
        let (input, targets) = (input.map(inner), constant(targets));
        record::<PerToken, B, C, _>(parents, |tracked| {
            let state = tracked.map(|tracked| (input.clone(), targets.clone(), Wanted::from_array(tracked)));
            (<B as Kernels>::nll(input, targets), state)
        })
        .into_primitive()
    }

    fn mean_nll(call: NllCall<Self>) -> FloatTensor<Self> {
        let NllCall { input, targets, weights } = call;
        let parents = with_weights(input.inputs().map(|tensor| tensor.cloned()), weights.clone());
        let (input, targets, weights) = (input.map(inner), constant(targets), weights.map(inner));
        record::<Mean, B, C, _>(parents, |tracked| {
            let Some([contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params, _]) =
                tracked
            else {
                let call = NllCall { input, targets, weights };
                return (Floats::new(B::mean_nll(call)), None);
            };
            let wanted = Wanted { contexts, latent_weight, latent_bias, log_prior, weight, bias, map_params };
            let shares = token_shares(&input, weights.clone());
            let (nll, gradients) = B::nll_and_gradients(input, targets, shares.clone(), wanted);
            let mean = (nll.clone() * shares).sum();
            // ∂(Σ w nll / Σ w)/∂w_n = (nll_n − mean) / Σ w
            let d_weights = weights.map(|weights| (nll - mean.clone()) / weights.sum());
            (mean, Some((gradients, d_weights)))
        })
        .into_primitive()
    }

    fn latent(call: LatentCall<Self>) -> FloatTensor<Self> {
        let args = call.0;
        let parents = args.inputs().into_array().map(|tensor| tensor.cloned());
        let args = args.map(inner);
        record::<Latent, B, C, _>(parents, |_| {
            let output = <B as Kernels>::latent(args.clone());
            (output.clone(), Some((args, output)))
        })
        .into_primitive()
    }

    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        let (lhs, rhs) = (Floats::<Self>::new(lhs), Floats::<Self>::new(rhs));
        let parents = [Some(lhs.clone()), Some(rhs.clone())];
        let (lhs, rhs) = (inner(lhs), inner(rhs));
        record::<Product, B, C, _>(parents, |tracked| {
            let output = <B as Kernels>::product(lhs.clone(), rhs.clone(), precision);
            // Each gradient needs the other matrix only.
            let state =
                tracked.map(|[of_lhs, of_rhs]| (of_rhs.then_some(lhs), of_lhs.then_some(rhs), precision));
            (output, state)
        })
        .into_primitive()
    }
}

/// # Panics
/// If target distributions are tracked: dropping their gradient would be silent.
fn constant<B: Backend, C: CheckpointStrategy>(targets: Words<Autodiff<B, C>>) -> Words<B> {
    if let Targets::Distributions(rows) = &targets {
        assert!(
            !rows.primitive().is_tracked(),
            "soft_loss: the target distributions are tracked, but they are constants of the loss: detach() them"
        );
    }
    targets.map(inner, |words| Ints::new(words.into_primitive()))
}

/// The inputs of the likelihood that may be differentiated, and the token weights.
fn with_weights<T>(inputs: PerInput<Option<T>>, weights: Option<T>) -> [Option<T>; 8] {
    let [a, b, c, d, e, f, g] = inputs.into_array();
    [a, b, c, d, e, f, g, weights]
}

/// Cross-entropy of every token.
#[derive(Debug)]
struct PerToken;

impl<B: Kernels> Node<B, 7> for PerToken {
    type State = (Likelihood<Floats<B>>, Words<B>, Wanted);

    fn backward(
        (input, targets, wanted): Self::State,
        upstream: Floats<B>,
        _: [bool; 7],
    ) -> [Option<Floats<B>>; 7] {
        B::nll_and_gradients(input, targets, upstream, wanted).1.into_array()
    }
}

/// Weighted mean of the cross-entropies.
#[derive(Debug)]
struct Mean;

impl<B: Kernels> Node<B, 8> for Mean {
    type State = (Gradients<Floats<B>>, Option<Floats<B>>);

    fn backward(
        (gradients, d_weights): Self::State,
        upstream: Floats<B>,
        _: [bool; 8],
    ) -> [Option<Floats<B>>; 8] {
        let scale = Scale::new(upstream);
        with_weights(gradients, d_weights).map(|gradient| gradient.map(|gradient| scale.apply(gradient)))
    }
}

/// The upstream gradient of a scalar, as a number where that is known without waiting.
enum Scale<B: Backend> {
    Number(f64),
    Tensor(Floats<B>),
}

impl<B: Kernels> Scale<B> {
    fn new(upstream: Floats<B>) -> Self {
        match B::is_cpu(&upstream.device()) {
            true => Self::Number(upstream.into_data().iter::<f64>().next().expect("one number")),
            false => Self::Tensor(upstream),
        }
    }

    /// A loss that is differentiated by itself, or added to others, has the upstream gradient 1: nothing to do.
    fn apply(&self, gradient: Floats<B>) -> Floats<B> {
        match self {
            Self::Number(1.0) => gradient,
            Self::Number(scale) => gradient.mul_scalar(*scale),
            Self::Tensor(scale) => {
                let ones = vec![1; gradient.shape().num_dims()];
                gradient * scale.clone().reshape(ones)
            }
        }
    }
}

/// The latent layer of a mixture.
#[derive(Debug)]
struct Latent;

impl<B: Kernels> Node<B, 3> for Latent {
    type State = (LatentArgs<Floats<B>>, Floats<B>);

    fn backward(
        (args, output): Self::State,
        upstream: Floats<B>,
        wanted: [bool; 3],
    ) -> [Option<Floats<B>>; 3] {
        B::latent_backward(args, output, upstream, LatentInputs::from_array(wanted)).into_array()
    }
}

/// A matrix product of a stated precision.
#[derive(Debug)]
struct Product;

impl<B: Kernels> Node<B, 2> for Product {
    type State = (Option<Floats<B>>, Option<Floats<B>>, Precision);

    fn backward(
        (lhs, rhs, precision): Self::State,
        upstream: Floats<B>,
        _: [bool; 2],
    ) -> [Option<Floats<B>>; 2] {
        [
            rhs.map(|rhs| <B as Kernels>::product(upstream.clone(), rhs.transpose(), precision)),
            lhs.map(|lhs| <B as Kernels>::product(lhs.transpose(), upstream.clone(), precision)),
        ]
    }
}
