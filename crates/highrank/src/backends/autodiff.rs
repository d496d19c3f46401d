//! The hand-written backward passes, once for every backend.
//!
//! Losses of single tokens save their inputs and recompute each chunk backward, because the upstream gradient of a token must
//! enter before the sum over tokens. A weighted sum knows the whole upstream gradient but one scalar factor: it makes its
//! gradients in the forward pass and the backward pass multiplies them by that factor. Gradients of half-precision inputs
//! are rounded to their type at the end, after that factor. Both gradients of a product are products of the same precision.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use highrank_kernels::node::{inner, record};
use highrank_kernels::{Floats, Ints, Precision, Rounding};

use crate::likelihood::{GradientSum, LikelihoodKernels, OutputOps};
use crate::ops::{
    Kernels, LatentCall, LatentInputs, LikelihoodInput, LossCall, Objective, PerInput, Prediction,
    PredictionCall, Scores, Targets, Wanted, is_cpu,
};

type Goal<B> = Objective<Floats<B>, Ints<B>>;

/// Inputs of the likelihood that may be differentiated, and the token weights.
const WITH_WEIGHTS: usize = PerInput::<()>::COUNT + 1;

// The portable bodies are differentiable by composition; what is dispatched does not come to them.
impl<B: Rounding, C: CheckpointStrategy> Kernels for Autodiff<B, C> {}

impl<B: Rounding, C: CheckpointStrategy> LikelihoodKernels for Autodiff<B, C> {}

impl<B: LikelihoodKernels, C: CheckpointStrategy> OutputOps for Autodiff<B, C> {
    fn loss(call: LossCall<Self>) -> Vec<FloatTensor<Self>> {
        let LossCall { input, objective, weights } = call;
        let [_, is_listed] = objective.parts();
        assert!(!is_listed || weights.is_none(), "likelihood: listed words have no weights");
        let scores = match weights {
            Some(weights) => weighted_sum(input, objective, weights),
            None => of_tokens(input, objective),
        };
        scores.into_parts().into_iter().map(Floats::into_primitive).collect()
    }

    fn latent(args: LatentCall<Self>) -> FloatTensor<Self> {
        let parents = args.inputs().into_array().map(|tensor| tensor.cloned());
        let args = args.map(inner);
        record("Latent", parents, |tracked| {
            let output = B::latent(args.clone());
            let made = output.clone();
            let backward = tracked.map(|tracked| {
                move |upstream: Floats<B>| {
                    let wanted = LatentInputs::from_array(tracked);
                    B::latent_backward(args, made, upstream, wanted).into_array()
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
            let backward = tracked
                .map(|tracked| move |upstream: Floats<B>| B::mix_backward(prior, latent, upstream, tracked));
            (output, backward)
        })
        .into_primitive()
    }

    fn predict(input: PredictionCall<Self>, prediction: Prediction<'_>) -> Option<FloatTensor<Self>> {
        B::predict(input.map(inner), prediction).map(|made| outer::<B, C>(made).into_primitive())
    }

    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        let (lhs, rhs) = (Floats::<Self>::new(lhs), Floats::<Self>::new(rhs));
        let parents = [Some(lhs.clone()), Some(rhs.clone())];
        let (lhs, rhs) = (inner(lhs), inner(rhs));
        record("Product", parents, |tracked| {
            let output = B::product(lhs.clone(), rhs.clone(), precision);
            let backward = tracked.map(|[of_lhs, of_rhs]| {
                // Each gradient needs the other matrix only.
                let (lhs, rhs) = (of_rhs.then_some(lhs), of_lhs.then_some(rhs));
                move |upstream: Floats<B>| {
                    [
                        rhs.map(|rhs| B::product(upstream.clone(), rhs.transpose(), precision)),
                        lhs.map(|lhs| B::product(lhs.transpose(), upstream, precision)),
                    ]
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

/// What is made of each token, and statistics: its loss, or the log-probabilities of listed words and what else is asked for,
/// beside which the loss is a constant.
fn of_tokens<B: LikelihoodKernels, C: CheckpointStrategy>(
    input: LikelihoodInput<Floats<Autodiff<B, C>>>,
    objective: Goal<Autodiff<B, C>>,
) -> Scores<Floats<Autodiff<B, C>>> {
    let parents = input.inputs().map(|tensor| tensor.cloned()).into_array();
    let (input, objective) = (input.map(inner), constant(objective));
    let mut scores = None;
    let made = record("OfTokens", parents, |tracked| {
        let backward = tracked.map(|tracked| {
            let (input, goal) = (input.clone(), Objective { statistics: false, ..objective.clone() });
            move |upstream: Floats<B>| {
                let [_, is_listed] = goal.parts();
                let (goal, upstream) =
                    if is_listed { sum_of_listed(goal, upstream) } else { (goal, upstream) };
                B::score(input, goal, Some((upstream, Wanted::from_array(tracked)))).1.into_array()
            }
        });
        let (made, _) = B::score(input, objective, None);
        let output = made.listed.as_ref().unwrap_or(&made.loss).clone();
        scores = Some(made);
        (output, backward)
    });
    let Scores { loss, statistics, listed } = scores.expect("the forward pass has run");
    let statistics = statistics.map(outer);
    match listed {
        Some(_) => Scores { loss: outer(loss), statistics, listed: Some(made) },
        None => Scores { loss: made, statistics, listed: None },
    }
}

/// The objective, and the gradient of its losses, that weigh what is made of listed words by an upstream gradient.
fn sum_of_listed<B: Backend>(objective: Goal<B>, upstream: Floats<B>) -> (Goal<B>, Floats<B>) {
    let ids = objective.targets.words().clone();
    let [tokens, listed] = ids.dims();
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
    (goal, Floats::full([tokens], 1.0, &upstream.device(), upstream.dtype()))
}

/// A weighted sum of the losses, and statistics.
fn weighted_sum<B: LikelihoodKernels, C: CheckpointStrategy>(
    input: LikelihoodInput<Floats<Autodiff<B, C>>>,
    objective: Goal<Autodiff<B, C>>,
    weights: Floats<Autodiff<B, C>>,
) -> Scores<Floats<Autodiff<B, C>>> {
    let parents = with_weights(input.inputs().map(|tensor| tensor.cloned()), Some(weights.clone()));
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
            // As a number where it is known without waiting.
            let number = is_cpu::<B>(&upstream.device())
                .then(|| upstream.clone().into_data().iter::<f64>().next().expect("one number"));
            let scaled = |gradient: Floats<B>| match number {
                // A loss that is differentiated by itself, or added to others: nothing to do.
                Some(1.0) => gradient,
                Some(scale) => gradient.mul_scalar(scale),
                None => {
                    let ones = vec![1; gradient.shape().num_dims()];
                    gradient * upstream.clone().reshape(ones)
                }
            };
            with_weights(gradients, d_weights).map(|gradient| gradient.map(scaled))
        };
        (total, Some(backward))
    });
    Scores { loss, statistics: statistics.map(outer), listed: None }
}

/// # Panics
/// If target distributions are tracked: dropping their gradient would be silent.
fn constant<B: Backend, C: CheckpointStrategy>(objective: Goal<Autodiff<B, C>>) -> Goal<B> {
    if let Targets::Teacher { probs, .. } | Targets::Distributions { rows: probs, .. } = &objective.targets {
        assert!(
            !probs.primitive().is_tracked(),
            "the target distributions are tracked, but they are constants of the loss: detach() them"
        );
    }
    objective.map(inner, |words| Ints::new(words.into_primitive()))
}

/// The tensor as a constant of the graph.
fn outer<B: Backend, C: CheckpointStrategy>(tensor: Floats<B>) -> Floats<Autodiff<B, C>> {
    Floats::new(Autodiff::<B, C>::from_inner(tensor.into_primitive()))
}

/// The inputs of the likelihood that may be differentiated, and the token weights.
fn with_weights<T>(inputs: PerInput<Option<T>>, weights: Option<T>) -> [Option<T>; WITH_WEIGHTS] {
    let mut all = inputs.into_array().into_iter().chain([weights]);
    std::array::from_fn(|_| all.next().expect("as many as are counted"))
}
