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
use highrank_kernels::node::{inner, record};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::LikelihoodKernels;
use crate::ops::{
    GradientSum, LatentCall, LatentInputs, Likelihood, LossCall, MixWanted, Objective, OutputOps, PerInput,
    Prediction, PredictionCall, Targets, Wanted, assert_constant, is_cpu,
};

type Goal<B> = Objective<Floats<B>, Ints<B>>;

/// Inputs of the likelihood that may be differentiated, and the token weights.
const WITH_WEIGHTS: usize = PerInput::<()>::COUNT + 1;

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

    fn listed(call: LossCall<Self>) -> FloatTensor<Self> {
        listed(call.input, call.objective).into_primitive()
    }

    fn latent(args: LatentCall<Self>) -> FloatTensor<Self> {
        let parents = args.inputs().into_array().map(|tensor| tensor.cloned());
        let types = dtypes(&parents);
        let args = args.map(inner);
        record("Latent", parents, |tracked| {
            let output = B::latent(args.clone());
            let made = output.clone();
            let backward = tracked.map(|tracked| {
                move |upstream: Floats<B>| {
                    let wanted = LatentInputs::from_array(tracked);
                    rounded(B::latent_backward(args, made, upstream, wanted).into_array(), types)
                }
            });
            (output, backward)
        })
        .into_primitive()
    }

    fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self> {
        let parents = [prior, latent].map(Floats::<Self>::new);
        let [prior, latent] = parents.clone().map(inner);
        record("Mix", parents.map(Some), |tracked| {
            let output = B::mix(prior.clone(), latent.clone());
            let backward = tracked.map(|tracked| {
                move |upstream: Floats<B>| {
                    B::mix_backward(prior, latent, upstream, MixWanted::from_array(tracked)).into_array()
                }
            });
            (output, backward)
        })
        .into_primitive()
    }

    fn predict(input: PredictionCall<Self>, prediction: Prediction<'_>) -> Option<FloatTensor<Self>> {
        let made = B::predict(input.map(inner), prediction);
        made.map(|made| Self::from_inner(made.into_primitive()))
    }

    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        let (lhs, rhs) = (Floats::<Self>::new(lhs), Floats::<Self>::new(rhs));
        let parents = [Some(lhs.clone()), Some(rhs.clone())];
        let types = dtypes(&parents);
        let (lhs, rhs) = (inner(lhs), inner(rhs));
        record("Product", parents, |tracked| {
            let output = B::product(lhs.clone(), rhs.clone(), precision);
            let backward = tracked.map(|[of_lhs, of_rhs]| {
                // Each gradient needs the other matrix only.
                let (lhs, rhs) = (of_rhs.then_some(lhs), of_lhs.then_some(rhs));
                move |upstream: Floats<B>| {
                    let gradients = [
                        rhs.map(|rhs| B::product(upstream.clone(), rhs.transpose(), precision)),
                        lhs.map(|lhs| B::product(lhs.transpose(), upstream, precision)),
                    ];
                    rounded(gradients, types)
                }
            });
            (output, backward)
        })
        .into_primitive()
    }

    fn with_gradient_sum(tensor: FloatTensor<Self>, sum: GradientSum) -> FloatTensor<Self> {
        let tensor = Floats::<Self>::new(tensor);
        record("GradientSum", [Some(tensor.clone())], |tracked| {
            let backward = tracked.map(|_| {
                move |upstream: Floats<B>| {
                    let device = upstream.device();
                    [Some(Floats::from_data(sum(upstream.into_data()), &device))]
                }
            });
            (inner(tensor), backward)
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
    let loss = record("PerToken", parents, |tracked| {
        let backward = tracked.map(|tracked| {
            let (input, goal) = (input.clone(), Objective { statistics: false, ..objective.clone() });
            move |upstream: Floats<B>| {
                let wanted = Wanted::from_array(tracked);
                let (_, gradients) = B::score(input, goal, Some((upstream, wanted)));
                rounded(gradients.into_array(), types)
            }
        });
        let (scores, _) = B::score(input, objective, None);
        statistics = scores.statistics;
        (scores.loss, backward)
    });
    (loss, statistics)
}

/// Log-probabilities of listed words, and what else is asked for. Backward their sum, weighted by the upstream gradient, is an
/// objective of the same words.
fn listed<B: LikelihoodKernels, C: CheckpointStrategy>(
    input: Likelihood<Floats<Autodiff<B, C>>>,
    objective: Goal<Autodiff<B, C>>,
) -> Floats<Autodiff<B, C>> {
    let parents = input.inputs().map(|tensor| tensor.cloned()).into_array();
    let types = dtypes(&parents);
    let (input, objective) = (input.map(inner), constant(objective));
    record("Listed", parents, |tracked| {
        let backward = tracked.map(|tracked| {
            let (input, objective) = (input.clone(), objective.clone());
            move |upstream: Floats<B>| {
                let tokens = input.tokens();
                let ids = objective.targets.words().clone();
                let listed = ids.dims::<2>()[1];
                let factors = -upstream.clone().narrow(1, 0..listed);
                let mut columns = listed..;
                let mut next = |_: &_| {
                    let column = columns.next().expect("a column for each");
                    upstream.clone().narrow(1, column..column + 1).reshape([tokens])
                };
                let goal = Objective {
                    entropy: objective.entropy.as_ref().map(&mut next),
                    normaliser: objective.normaliser.as_ref().map(&mut next),
                    ..Objective::new(Targets::Listed { ids, factors })
                };
                let ones = Floats::full([tokens], 1.0, &upstream.device(), upstream.dtype());
                let (_, gradients) = B::score(input, goal, Some((ones, Wanted::from_array(tracked))));
                rounded(gradients.into_array(), types)
            }
        });
        let (scores, _) = B::score(input, objective, None);
        (scores.listed.expect("listed words are scored"), backward)
    })
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
    let loss = record("WeightedSum", parents, |tracked| {
        let Some([wanted @ .., of_weights]) = tracked else {
            let scores = B::score(input, objective, None).0.weighted(Some(weights));
            statistics = scores.statistics;
            return (scores.loss, None);
        };
        let (wanted, weights) = (Wanted::from_array(wanted), weights.cast(input.wide()));
        let (scores, gradients) = B::score(input, objective, Some((weights.clone(), wanted)));
        statistics = scores.statistics;
        let total = (scores.loss.clone() * weights).sum();
        let d_weights = of_weights.then_some(scores.loss);
        let backward = move |upstream: Floats<B>| {
            let scale = Scale::new(upstream);
            let gradients = with_weights(gradients, d_weights);
            rounded(gradients.map(|gradient| gradient.map(|gradient| scale.apply(gradient))), types)
        };
        (total, Some(backward))
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
