//! The hand-written backward passes, once for every backend.
//!
//! Losses of single tokens save their inputs and recompute each chunk backward, because the upstream gradient of a token must
//! enter before the sum over tokens. A weighted sum knows the whole upstream gradient but one scalar factor: it makes its
//! gradients in the forward pass and the backward pass multiplies them by that factor. Gradients of half-precision inputs
//! are rounded to their type at the end, after that factor. Both gradients of a product are products of the same precision.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use burn::tensor::DType;
use highrank_kernels::node::{Node, inner, record};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::LikelihoodKernels;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentCall, LatentInputs, Likelihood, LikelihoodCall, LossCall,
    MixWanted, Objective, OutputOps, PerInput, Prediction, Wanted, assert_constant, is_cpu,
};

type Goal<B> = Objective<Floats<B>, Ints<B>>;

/// Inputs of the likelihood that may be differentiated, without token weights and with them.
const INPUTS: usize = PerInput::<()>::COUNT;
const WITH_WEIGHTS: usize = INPUTS + 1;

impl<B: LikelihoodKernels, C: CheckpointStrategy> OutputOps for Autodiff<B, C> {
    fn loss(call: LossCall<Self>) -> Vec<FloatTensor<Self>> {
        let LossCall { input, objective, weights } = call;
        let (loss, statistics) = match weights {
            None => per_token(input, objective),
            Some(weights) => weighted_sum(input, objective, weights),
        };
        let constants = statistics.map(|statistics| Self::from_inner(statistics.into_primitive()));
        std::iter::once(loss.into_primitive()).chain(constants).collect()
    }

    fn latent(call: LatentCall<Self>) -> FloatTensor<Self> {
        let args = call.0;
        let parents = args.inputs().into_array().map(|tensor| tensor.cloned());
        let types = dtypes(&parents);
        let args = args.map(inner);
        record::<Latent, B, C, _>(parents, |_| {
            let output = B::latent(args.clone());
            (output.clone(), Some((args, output, types)))
        })
        .into_primitive()
    }

    fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self> {
        let parents = [prior, latent].map(Floats::<Self>::new);
        let [prior, latent] = parents.clone().map(inner);
        record::<Mix, B, C, _>(parents.map(Some), |tracked| {
            let output = B::mix(prior.clone(), latent.clone());
            (output, tracked.map(|tracked| (prior, latent, MixWanted::from_array(tracked))))
        })
        .into_primitive()
    }

    fn predict(call: LikelihoodCall<Self>, prediction: Prediction<'_>) -> Option<FloatTensor<Self>> {
        let made = B::predict(call.0.map(inner), prediction);
        made.map(|made| Self::from_inner(made.into_primitive()))
    }

    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        let (lhs, rhs) = (Floats::<Self>::new(lhs), Floats::<Self>::new(rhs));
        let parents = [Some(lhs.clone()), Some(rhs.clone())];
        let types = dtypes(&parents);
        let (lhs, rhs) = (inner(lhs), inner(rhs));
        record::<Product, B, C, _>(parents, |tracked| {
            let output = B::product(lhs.clone(), rhs.clone(), precision);
            // Each gradient needs the other matrix only.
            let matrices = |[of_lhs, of_rhs]: [bool; 2]| [of_rhs.then_some(lhs), of_lhs.then_some(rhs)];
            (output, tracked.map(|tracked| (matrices(tracked), precision, types)))
        })
        .into_primitive()
    }
}

/// Losses of tokens, and statistics.
fn per_token<B: LikelihoodKernels, C: CheckpointStrategy>(
    input: Likelihood<Floats<Autodiff<B, C>>>,
    objective: Goal<Autodiff<B, C>>,
) -> (Floats<Autodiff<B, C>>, Option<Floats<B>>) {
    let parents = input.inputs().map(|tensor| tensor.cloned()).into_array();
    let types = dtypes(&parents);
    let (input, objective) = (input.map(inner), constant(objective));
    let mut statistics = None;
    let loss = record::<PerToken, B, C, _>(parents, |tracked| {
        let goal = Objective { statistics: false, ..objective.clone() };
        let state = tracked.map(|tracked| (input.clone(), goal, Wanted::from_array(tracked), types));
        let scores = B::score(input, objective);
        statistics = scores.statistics;
        (scores.loss, state)
    });
    (loss, statistics)
}

/// A weighted sum of the losses, and statistics.
fn weighted_sum<B: LikelihoodKernels, C: CheckpointStrategy>(
    input: Likelihood<Floats<Autodiff<B, C>>>,
    objective: Goal<Autodiff<B, C>>,
    weights: Floats<Autodiff<B, C>>,
) -> (Floats<Autodiff<B, C>>, Option<Floats<B>>) {
    let parents = with_weights(input.inputs().map(|tensor| tensor.cloned()), Some(weights.clone()));
    let types = dtypes(&parents);
    let (input, objective, weights) = (input.map(inner), constant(objective), inner(weights));
    let mut statistics = None;
    let loss = record::<WeightedSum, B, C, _>(parents, |tracked| {
        let Some([wanted @ .., of_weights]) = tracked else {
            let scores = B::score(input, objective).weighted(Some(weights));
            statistics = scores.statistics;
            return (scores.loss, None);
        };
        let (wanted, weights) = (Wanted::from_array(wanted), weights.cast(input.wide()));
        let (scores, gradients) = B::score_and_gradients(input, objective, weights.clone(), wanted);
        statistics = scores.statistics;
        let total = (scores.loss.clone() * weights).sum();
        (total, Some((gradients, of_weights.then_some(scores.loss), types)))
    });
    (loss, statistics)
}

/// # Panics
/// If target distributions are tracked: dropping their gradient would be silent.
fn constant<B: Backend, C: CheckpointStrategy>(objective: Goal<Autodiff<B, C>>) -> Goal<B> {
    if let Some(probs) = objective.targets.probabilities() {
        assert_constant(probs.primitive().is_tracked());
    }
    objective.map(inner, |words| Ints::new(words.into_primitive()))
}

fn dtypes<B: Backend, const N: usize>(inputs: &[Option<Floats<B>>; N]) -> [Option<DType>; N] {
    inputs.each_ref().map(|input| input.as_ref().map(Floats::dtype))
}

/// Gradients in the types of their inputs.
fn rounded<B: Backend, const N: usize>(
    gradients: [Option<Floats<B>>; N],
    types: [Option<DType>; N],
) -> [Option<Floats<B>>; N] {
    let mut types = types.into_iter();
    gradients.map(|gradient| {
        let dtype = types.next().expect("a type for each input");
        gradient.zip(dtype).map(|(gradient, dtype)| gradient.cast(dtype))
    })
}

/// The inputs of the likelihood that may be differentiated, and the token weights.
fn with_weights<T>(inputs: PerInput<Option<T>>, weights: Option<T>) -> [Option<T>; WITH_WEIGHTS] {
    let mut all = inputs.into_array().into_iter().chain([weights]);
    std::array::from_fn(|_| all.next().expect("as many as are counted"))
}

/// Loss of every token.
#[derive(Debug)]
struct PerToken;

impl<B: LikelihoodKernels> Node<B, INPUTS> for PerToken {
    type State = (Likelihood<Floats<B>>, Goal<B>, Wanted, [Option<DType>; INPUTS]);

    fn backward(
        (input, objective, wanted, types): Self::State,
        upstream: Floats<B>,
        _: [bool; INPUTS],
    ) -> [Option<Floats<B>>; INPUTS] {
        let (_, gradients) = B::score_and_gradients(input, objective, upstream, wanted);
        rounded(gradients.into_array(), types)
    }
}

/// Weighted sum of the losses.
#[derive(Debug)]
struct WeightedSum;

impl<B: Backend> Node<B, WITH_WEIGHTS> for WeightedSum {
    type State = (Gradients<Floats<B>>, Option<Floats<B>>, [Option<DType>; WITH_WEIGHTS]);

    fn backward(
        (gradients, d_weights, types): Self::State,
        upstream: Floats<B>,
        _: [bool; WITH_WEIGHTS],
    ) -> [Option<Floats<B>>; WITH_WEIGHTS] {
        let scale = Scale::new(upstream);
        let scaled = with_weights(gradients, d_weights);
        rounded(scaled.map(|gradient| gradient.map(|gradient| scale.apply(gradient))), types)
    }
}

/// The upstream gradient of a scalar, as a number where that is known without waiting.
enum Scale<B: Backend> {
    Number(f64),
    Tensor(Floats<B>),
}

impl<B: Backend> Scale<B> {
    fn new(upstream: Floats<B>) -> Self {
        match is_cpu::<B>(&upstream.device()) {
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
    type State = (LatentArgs<Floats<B>>, Floats<B>, [Option<DType>; 3]);

    fn backward(
        (args, output, types): Self::State,
        upstream: Floats<B>,
        wanted: [bool; 3],
    ) -> [Option<Floats<B>>; 3] {
        let made = B::latent_backward(args, output, upstream, LatentInputs::from_array(wanted));
        rounded(made.into_array(), types)
    }
}

/// The mixed context of a Mixture of Contexts.
#[derive(Debug)]
struct Mix;

impl<B: Kernels> Node<B, 2> for Mix {
    type State = (Floats<B>, Floats<B>, MixWanted);

    fn backward(
        (prior, latent, wanted): Self::State,
        upstream: Floats<B>,
        _: [bool; 2],
    ) -> [Option<Floats<B>>; 2] {
        B::mix_backward(prior, latent, upstream, wanted).into_array()
    }
}

/// A matrix product of a stated precision.
#[derive(Debug)]
struct Product;

impl<B: Kernels> Node<B, 2> for Product {
    type State = ([Option<Floats<B>>; 2], Precision, [Option<DType>; 2]);

    fn backward(
        ([lhs, rhs], precision, types): Self::State,
        upstream: Floats<B>,
        _: [bool; 2],
    ) -> [Option<Floats<B>>; 2] {
        let gradients = [
            rhs.map(|rhs| B::product(upstream.clone(), rhs.transpose(), precision)),
            lhs.map(|lhs| B::product(lhs.transpose(), upstream, precision)),
        ];
        rounded(gradients, types)
    }
}
