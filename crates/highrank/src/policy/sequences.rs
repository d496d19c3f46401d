//! From tokens to sequences: what counts, sums and means.

use burn::tensor::{Bool, Tensor};

use crate::checks::TensorChecks;
use crate::error::{HeadError, OrPanic, expect_shape, not_negative};
use crate::ops::wide;
use crate::parameters::constant;

/// The log-probability of each sequence: the sum over its tokens that count.
///
/// ```text
/// S_b = Σ_t m_bt l_bt
/// ```
///
/// # Shapes
/// - log_probs: `[B, L]`
/// - mask: `[B, L]`, true where a token counts
/// - output: `[B]`; 0 of a sequence without tokens
///
/// # Panics
/// If the shapes differ; the message has both.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{sequence_mean, sequence_sum};
///
/// let device = Device::default();
/// let log_probs = Tensor::<2>::from_data([[-1.0, -2.0, f32::NAN], [-4.0, f32::NAN, f32::NAN]], &device);
/// let mask = log_probs.clone().is_nan().bool_not();
/// let sums = sequence_sum(log_probs.clone(), mask.clone());
/// assert_eq!(sums.into_data().to_vec::<f32>().unwrap(), [-3.0, -4.0]);
/// let means = sequence_mean(log_probs, mask);
/// assert_eq!(means.into_data().to_vec::<f32>().unwrap(), [-1.5, -4.0]);
/// ```
#[track_caller]
pub fn sequence_sum(log_probs: Tensor<2>, mask: Tensor<2, Bool>) -> Tensor<1> {
    fits("mask", mask.dims(), &log_probs).or_panic("sequence_sum");
    sums(counted(log_probs, &mask))
}

/// The mean log-probability of each sequence's tokens that count.
///
/// ```text
/// a_b = S_b / L_b      L_b = Σ_t m_bt
/// ```
///
/// # Shapes
/// - log_probs: `[B, L]`
/// - mask: `[B, L]`, true where a token counts
/// - output: `[B]`; 0 of a sequence without tokens
///
/// # Panics
/// If the shapes differ; the message has both.
///
/// See [`sequence_sum`] for an example.
#[track_caller]
pub fn sequence_mean(log_probs: Tensor<2>, mask: Tensor<2, Bool>) -> Tensor<1> {
    fits("mask", mask.dims(), &log_probs).or_panic("sequence_mean");
    means(log_probs, &mask)
}

/// Checks that a tensor is of the shape of the log-probabilities.
pub(super) fn fits(what: &'static str, got: [usize; 2], log_probs: &Tensor<2>) -> Result<(), HeadError> {
    expect_shape(what, &got, &log_probs.dims(), "the shape of the log-probabilities")
}

/// Checks a number that is multiplied with, of at least 0.
pub(super) fn weight(name: &'static str, value: f64, log_probs: &Tensor<2>) -> Result<(), HeadError> {
    not_negative(name, value)?;
    TensorChecks::of(log_probs).factor(name, value)
}

/// The mean, 0 of no values, with a gradient.
pub(super) fn mean(values: Tensor<1>) -> Tensor<1> {
    if values.dims() == [0] { values.sum() } else { values.mean() }
}

/// The values of tokens that count, in the type of sums, and 0 elsewhere whatever is there; so is the gradient.
pub(super) fn counted(values: Tensor<2>, mask: &Tensor<2, Bool>) -> Tensor<2> {
    let dtype = wide(values.dtype());
    values.cast(dtype).mask_fill(mask.clone().bool_not(), 0.0)
}

/// The sum of each row.
pub(super) fn sums(values: Tensor<2>) -> Tensor<1> {
    values.sum_dim(1).squeeze_dim(1)
}

/// The number of tokens of each sequence that count, in the type of the sums of `like`.
pub(super) fn lengths(like: &Tensor<2>, mask: &Tensor<2, Bool>) -> Tensor<1> {
    sums(counted(like.ones_like(), mask))
}

/// The mean of the tokens of each sequence that count; 0 where there are none.
pub(super) fn means(values: Tensor<2>, mask: &Tensor<2, Bool>) -> Tensor<1> {
    let lengths = lengths(&values, mask).clamp_min(1.0);
    sums(counted(values, mask)) / lengths
}

/// `S_b − R_b`: how much likelier each sequence is than under the reference.
pub(super) fn log_ratios(
    log_probs: Tensor<2>,
    ref_log_probs: Tensor<2>,
    mask: &Tensor<2, Bool>,
) -> Result<Tensor<1>, HeadError> {
    fits("ref_log_probs", ref_log_probs.dims(), &log_probs)?;
    fits("mask", mask.dims(), &log_probs)?;
    Ok(sums(counted(log_probs, mask)) - sums(counted(constant(ref_log_probs), mask)))
}
