//! One step of training.

use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use crate::config::TrainConfig;
use crate::data::Window;
use crate::model::{LanguageModel, LmBackend, LmState};
use crate::optim::{NtAsgd, clip_global_norm};

/// What a step leaves besides the weights. Nothing in it waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped<B: AutodiffBackend> {
    /// Mean nll of the step's tokens before the update, in nats, `[1]`.
    pub nll: Tensor<B::InnerBackend, 1>,
    /// `nll` + AR + TAR, which was differentiated, `[1]`.
    pub total: Tensor<B::InnerBackend, 1>,
    /// State after the last time step, without its history.
    pub state: LmState<B>,
}

/// Forward and backward pass, clipping to the global norm, and the optimiser's update with the learning rate `lr`.
///
/// Of the configuration it reads `alpha`, `beta` and `clip`.
///
/// # Panics
/// As [`LanguageModel::loss`].
pub fn step<B>(
    model: LanguageModel<B>,
    optimiser: &mut NtAsgd<LanguageModel<B>, B>,
    window: Window<B>,
    state: LmState<B>,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel<B>, Stepped<B>)
where
    B: AutodiffBackend<InnerBackend: LmBackend> + LmBackend,
{
    let loss = model.loss(window.tokens, window.targets, state, config.alpha, config.beta);
    let stepped =
        Stepped { nll: loss.nll.inner(), total: loss.total.clone().inner(), state: loss.state.detach() };
    let grads = GradientsParams::from_grads(loss.total.backward(), &model);
    let grads = clip_global_norm(&model, grads, config.clip);
    (optimiser.step(lr, model, grads), stepped)
}
