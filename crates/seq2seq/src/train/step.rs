//! One step of training.

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;
use runs::optim::clip_global_norm;

use crate::config::TrainConfig;
use crate::data::Batch;
use crate::model::Seq2Seq;

/// The results of a step besides the weights. None of them waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// Sum of the nll of the batch's response tokens before the update, in nats, `[1]`.
    pub nll: Tensor<1>,
    /// Number of those tokens.
    pub tokens: usize,
    /// Norm of the gradient over all parameters together, before clipping, `[1]`.
    pub norm: Tensor<1>,
}

/// Forward and backward pass, clipping to the global norm, and the optimiser's update. The loss is the [sum](Seq2Seq::loss) over
/// the tokens, averaged over the responses.
///
/// It reads `clip` and `lr` of the configuration. [`adam`](runs::optim::adam) makes the optimiser.
///
/// # Panics
/// As [`Seq2Seq::loss`], and if the model is not on an autodiff device.
pub fn step(
    model: Seq2Seq,
    optimiser: &mut ModuleOptimizer,
    batch: &Batch,
    config: &TrainConfig,
) -> (Seq2Seq, Stepped) {
    let targets = &batch.responses.targets;
    let (nll, grads) = gradients(&model, batch, 1.0 / targets.rows() as f64);
    let (grads, norm) = clip_global_norm(&model, grads, config.clip);
    let norm = norm.unwrap_or_else(|| nll.zeros_like());
    let model = optimiser.step(config.lr, model, grads);
    (model, Stepped { nll, tokens: targets.count(), norm })
}

/// The sum of the nll of a batch's response tokens, and the gradients of `factor` times that sum.
pub(super) fn gradients(model: &Seq2Seq, batch: &Batch, factor: f64) -> (Tensor<1>, GradientsParams) {
    let loss = model.loss(batch);
    let nll = loss.clone().inner();
    // Not a division: its backward pass rounds the reciprocal to float32.
    let grads = (loss * factor).backward();
    (nll, GradientsParams::from_grads(grads, model))
}
