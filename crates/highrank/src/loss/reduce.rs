//! From the tokens that count to the loss.

use burn::tensor::{DType, Device, Int, Tensor};
use highrank_kernels::Floats;

use super::counted::CountedTokens;
use super::{Loss, LossOptions, Reduction};
use crate::checks::TensorChecks;
use crate::error::{HeadError, OrPanic, expect_shape};
use crate::likelihood;
use crate::ops::{ContextSource, LikelihoodInput, LogitMapConfig, Objective, Scores};

/// The mean nll of a plain softmax over `h·Wᵀ + b`, and whatever else the options ask for: a linear cross-entropy that never
/// stores the logits.
///
/// ```text
/// log P(v) = (h·Wᵀ + b)_v − logsumexp_u (h·Wᵀ + b)_u
/// ```
///
/// The same as [`HeadConfig::softmax`](crate::HeadConfig::softmax)'s loss, as a function of tensors.
///
/// # Shapes
/// - hidden: `[.., d]`, D dimensions
/// - weight: `[V, d]`, a row for each word, as an embedding has it; of a `Linear` the transposed weight
/// - bias: `[V]`; `None` means 0, and −∞ masks a word
/// - targets: `[..]`, T = D − 1 dimensions
///
/// # Panics
/// As [`OutputHead::loss_with`](crate::OutputHead::loss_with). A softmax has no priors, so it refuses
/// [`with_prior_cv`](LossOptions::with_prior_cv).
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::{LossOptions, linear_cross_entropy};
///
/// let device = Device::default().autodiff();
/// let hidden = Tensor::<2>::random([6, 16], Distribution::Default, &device).require_grad();
/// let weight = Tensor::<2>::random([100, 16], Distribution::Default, &device).require_grad();
/// let targets = Tensor::<1, Int>::from_ints([3, 1, 4, 1, 5, -100], &device);
/// let options = LossOptions::new().with_ignore_index(-100);
/// let gradients = linear_cross_entropy(hidden, weight, None, targets, &options).value.backward();
/// # let _ = gradients;
/// ```
#[track_caller]
pub fn linear_cross_entropy<const D: usize, const T: usize>(
    hidden: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<T, Int>,
    options: &LossOptions,
) -> Loss<T> {
    checked_cross_entropy(hidden, weight, bias, targets, options).or_panic("linear_cross_entropy")
}

fn checked_cross_entropy<const D: usize, const T: usize>(
    hidden: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<T, Int>,
    options: &LossOptions,
) -> Result<Loss<T>, HeadError> {
    let (weight, bias) = (weight.dequantize(), bias.map(Tensor::dequantize));
    let checks = TensorChecks::of(&weight);
    let (dims, [vocab, width]) = (hidden.dims(), weight.dims());
    if dims.last().is_some_and(|got| D > 1 && *got != width) {
        let rule = "which is [V, d]: that of a Linear must be transposed";
        let expected = format!("[.., {width}] of the weight {:?}, {rule}", [vocab, width]);
        return Err(HeadError::Shape { what: "hidden", got: dims.to_vec(), expected });
    }
    check_hidden(&hidden, width, &checks)?;
    if let Some(bias) = &bias {
        expect_shape("bias", &bias.dims(), &[vocab], "as the weight says")?;
        checks.floats("bias", bias)?;
    }
    check_targets(&targets, leading(&dims, of_targets(&targets))?, options, vocab, vocab, &checks)?;
    if options.prior_cv != 0.0 {
        let reason = "a softmax has no priors: leave it out";
        return Err(HeadError::Unused { option: "prior_cv", reason });
    }
    let masking = bias.clone();
    loss_of_counted(
        targets,
        options,
        vocab,
        || Ok(masking),
        |rows| {
            let input = LikelihoodInput {
                contexts: ContextSource::Given(rows.of_hidden(hidden).hidden()),
                log_prior: None,
                chunk_bytes: likelihood::memory_budget(&weight),
                weight: weight.into(),
                bias: bias.map(Into::into),
                map: LogitMapConfig::Identity,
                map_params: None,
                temperature: 1.0,
                precision: Default::default(),
            };
            Ok((input, None))
        },
    )
}

/// Checks hidden states `[.., width]` of at least one token.
pub(crate) fn check_hidden<const D: usize>(
    hidden: &Tensor<D>,
    width: usize,
    checks: &TensorChecks,
) -> Result<(), HeadError> {
    let dims = hidden.dims();
    match D < 2 || dims[D - 1] != width || dims.contains(&0) {
        true => Err(HeadError::Shape {
            what: "hidden",
            got: dims.to_vec(),
            expected: format!("[.., {width}] with at least one token"),
        }),
        false => checks.floats("hidden", hidden),
    }
}

/// The dimensions of hidden states before their features, as many as what goes with them has.
///
/// - of: what goes with them, in the words of an error
pub(crate) fn leading<const D: usize, const T: usize>(
    hidden: &[usize; D],
    of: impl FnOnce() -> String,
) -> Result<[usize; T], HeadError> {
    hidden[..D - 1].try_into().map_err(|_| HeadError::Shape {
        what: "hidden",
        got: hidden.to_vec(),
        expected: format!("{} dimensions, one more than the {T} of {}", T + 1, of()),
    })
}

/// Targets that go with hidden states, in the words of an error.
pub(crate) fn of_targets<const T: usize>(targets: &Tensor<T, Int>) -> impl FnOnce() -> String + use<T> {
    let shape = targets.dims();
    move || format!("the targets {shape:?}")
}

/// Checks targets and options for hidden states of a shape.
///
/// - rows: of the decoder, the padding's too
pub(crate) fn check_targets<const T: usize>(
    targets: &Tensor<T, Int>,
    shape: [usize; T],
    options: &LossOptions,
    rows: usize,
    vocab: usize,
    checks: &TensorChecks,
) -> Result<(), HeadError> {
    expect_shape("targets", &targets.dims(), &shape, "as the hidden state says")?;
    checks.device("targets", &targets.device())?;
    options.check(&shape, rows, vocab, checks)
}

/// The loss of checked targets and options.
///
/// - bias: of the decoder, −∞ for masked words; made where it is needed
/// - input: the likelihood's inputs of the tokens that count, and `log π` of their contexts, `[N, K]`
pub(crate) fn loss_of_counted<const T: usize>(
    targets: Tensor<T, Int>,
    options: &LossOptions,
    vocab: usize,
    bias: impl FnOnce() -> Result<Option<Tensor<1>>, HeadError>,
    input: impl FnOnce(&CountedTokens) -> Result<(LikelihoodInput, Option<Tensor<2>>), HeadError>,
) -> Result<Loss<T>, HeadError> {
    let shape = targets.dims();
    let targets = targets.reshape([shape.iter().product::<usize>()]);
    let counted = CountedTokens::new(targets, options, vocab, bias)?;
    let (input, log_prior) = input(&counted)?;
    let on = (&Device::new(input.weight.device()), input.wide());
    let rows = input.vocab();
    let score = |objective: Objective, weights| {
        let class_weights = objective.class_weights.map(|weights| padded(weights, rows));
        Ok(likelihood::loss(input, Objective { class_weights, ..objective }, weights))
    };
    reduced(&counted, options, shape, on, log_prior, score)
}

/// Weights of words, with those of the padding after them, which are 0.
fn padded(weights: Floats, rows: usize) -> Floats {
    let padding = Floats::zeros([rows - weights.num_elements()], &weights.device(), weights.dtype());
    Floats::cat(vec![weights, padding], 0)
}

/// The loss of tokens that have been counted.
///
/// - on: the device, and the type of sums
/// - log_prior: `log π` of their contexts, `[N, K]`
/// - score: what [`likelihood::loss`] makes of an objective and weights
pub(crate) fn reduced<const T: usize, E>(
    counted: &CountedTokens,
    options: &LossOptions,
    shape: [usize; T],
    on: (&Device, DType),
    log_prior: Option<Tensor<2>>,
    score: impl FnOnce(Objective, Option<Tensor<1>>) -> Result<Scores, E>,
) -> Result<Loss<T>, E> {
    let shares = options.shares(|| counted.weights(on), || counted.shares(on));
    let weights = (!options.per_token).then(|| shares.of_tokens.clone());
    let scores = score(counted.objective(on), weights)?;
    let loss = scores.loss.tensor::<1>();
    let sum = match options.per_token {
        true => (loss.clone() * shares.of_tokens.clone().cast(loss.dtype())).sum(),
        false => loss.clone(),
    };
    let mut value = shares.finish(sum);
    let per_token = options.per_token.then(|| {
        let weights = counted.weights(on).cast(loss.dtype());
        counted.among_all(loss * weights, shape)
    });
    let prior_cv = log_prior.filter(|_| options.prior_cv != 0.0).map(|log_prior| {
        let (shares, count) = counted.prior_shares(on);
        let squared = prior_cv(log_prior, shares);
        let sum = squared.clone() * count.cast(squared.dtype());
        let term = match options.reduction {
            Reduction::Mean => squared.clone(),
            Reduction::Sum => sum,
            // The quotient of a tensor and a number would be rounded to f32.
            Reduction::Divisor(n) => sum * n.recip(),
        };
        value = value.clone() + term.cast(value.dtype()) * options.prior_cv;
        squared
    });
    let statistics = scores.statistics.map(|rows| counted.statistics(rows.tensor(), shape));
    Ok(Loss { value, per_token, prior_cv, statistics })
}

/// The squared coefficient of variation of the components' priors, `[1]`; differentiable.
///
/// With the mean priors `m_k = Σ_n s_n π_nk`, whose mean is `1/K`, it is `K Σ_k (m_k − 1/K)²`: no difference of large sums, and
/// never negative. It is 1 where nothing counts.
///
/// - log_prior: `log π`, `[N, K]`
/// - shares: `s`, what each token has in a mean, `[N]`
fn prior_cv(log_prior: Tensor<2>, shares: Tensor<1>) -> Tensor<1> {
    let ([tokens, components], dtype) = (log_prior.dims(), log_prior.dtype());
    let shares = shares.cast(dtype).reshape([tokens, 1]);
    let means = (log_prior.exp() * shares).sum_dim(0).reshape([components]);
    let off = means - 1.0 / components as f64;
    (off.clone() * off).sum() * components as f64
}
