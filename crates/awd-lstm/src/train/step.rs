//! One step of training.

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;

use crate::config::TrainConfig;
use crate::data::Window;
use crate::dropout::{Lookup, Masks};
use crate::model::{LanguageModel, LmState, StepLoss};
use runs::error::Result;
use runs::optim::{NtAsgd, global_norm};
use runs::ranks::{Ranks, cut};

/// The results of a step besides the weights. None of them waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// The loss and its terms before the update, outside of their graph.
    pub losses: StepLoss,
    /// Norm of the gradient over all parameters together, before clipping, `[1]`; `None` if no parameter has a gradient.
    pub gradient_norm: Option<Tensor<1>>,
    /// The same of a mixture's projections alone, `[1]`; `None` under a head without mixture.
    pub latent_norm: Option<Tensor<1>>,
    /// State after the last time step, without its history.
    pub state: LmState,
}

/// Forward and backward pass, clipping to the global norm, and the optimiser's update with the learning rate `lr`.
///
/// It reads `alpha`, `beta`, `prior_cv`, `clip` and `small_batch` of the configuration; `weight_decay` and `latent_lr` are the
/// optimiser's. With `small_batch`, the columns are taken in slices, each with its own forward and backward pass, and gradients are
/// summed in proportion to the slices' columns. Memory is then that of a slice. Except for rounding and for `prior_cv`, whose term
/// is then the mean of those of the slices, the result is that of all columns at once.
///
/// # Panics
/// As [`LanguageModel::loss`], and if the model is not on an autodiff device.
pub fn step(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel, Stepped) {
    let pass = own_gradients(&model, window, state, config, &Ranks::alone());
    finish(model, optimiser, pass, config, lr)
}

/// The results of forward and backward passes.
#[derive(Debug)]
pub(super) struct Pass {
    /// Outside of their graph.
    pub(super) losses: StepLoss,
    /// State after the last time step, without its history.
    pub(super) state: LmState,
    /// Those that are still to be summed over the ranks, if there are several.
    pub(super) grads: GradientsParams,
}

/// Losses and gradients of a rank's columns of a window, in proportion to all of its columns: those of all ranks add up
/// to those of the whole. `state` is that of the own columns.
///
/// Masks are drawn for all columns, whatever the part.
pub(super) fn own_gradients(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    ranks: &Ranks,
) -> Pass {
    let [_, columns] = window.tokens.dims();
    let slice = config.small_batch.unwrap_or(columns);
    if slice >= columns && !ranks.are_several() {
        let masks = model.draw_masks(columns);
        return pass(model, window, state, masks, config);
    }
    in_slices(model, &window, &state, config, ranks.part(columns), slice)
}

/// As [`step`], of all columns at once, with given masks in place of drawn ones. They are on the model's device without autodiff.
///
/// # Panics
/// As [`step`], and if a mask does not fit.
pub fn step_by(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    window: Window,
    state: LmState,
    masks: Masks,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel, Stepped) {
    let pass = pass(&model, window, state, masks, config);
    finish(model, optimiser, pass, config, lr)
}

fn finish(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    pass: Pass,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel, Stepped) {
    let Pass { losses, state, grads } = pass;
    let (model, [gradient_norm, latent_norm]) =
        update(model, optimiser, grads, config, lr).expect("one process has nobody to lose");
    (model, Stepped { losses, gradient_norm, latent_norm, state })
}

/// Clips the gradients of all columns to their norm, and makes the optimiser's update. Returns the two norms of [`Stepped`].
///
/// # Errors
/// [`Error::Communication`](runs::Error::Communication), if ranks share the vocabulary.
pub(super) fn update(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    grads: GradientsParams,
    config: &TrainConfig,
    lr: f64,
) -> Result<(LanguageModel, [Option<Tensor<1>>; 2])> {
    let latent_norm = global_norm(&model.head.context, &grads);
    let (model, gradient_norm) = optimiser.step_clipped(lr, model, grads, config.clip)?;
    Ok((model, [gradient_norm, latent_norm]))
}

/// Losses and gradients of a window.
fn pass(model: &LanguageModel, window: Window, state: LmState, masks: Masks, config: &TrainConfig) -> Pass {
    let (loss, state, lookup) =
        model.loss_beside_lookup(window.tokens, window.targets, state, masks, config.penalties());
    let (total, state) = (loss.total.clone(), state.detach());
    let losses = loss.inner();
    Pass { losses, state, grads: gradients(model, total, lookup) }
}

/// Gradients of a loss, with the whole one of the embedding.
fn gradients(model: &LanguageModel, loss: Tensor<1>, lookup: Lookup) -> GradientsParams {
    let mut grads = loss.backward();
    lookup.finish(&mut grads);
    GradientsParams::from_grads(grads, model)
}

/// Losses and gradients of the columns `own` of a window, in slices of at most `slice` of them. `state` is that of the own columns; masks
/// are drawn for all.
fn in_slices(
    model: &LanguageModel,
    window: &Window,
    state: &LmState,
    config: &TrainConfig,
    own: Range<usize>,
    slice: usize,
) -> Pass {
    let [_, columns] = window.tokens.dims();
    let masks = model.draw_all_masks(columns);
    let count = own.len().div_ceil(slice);
    let mut accumulator = GradientsAccumulator::new();
    let zero = Tensor::<1>::zeros([1], (&model.device().inner(), state.layers[0].hidden.dtype()));
    let mut sums = [(); 4].map(|()| zero.clone());
    let mut states = vec![];
    for slice in (0..count).map(|index| cut(own.len(), count, index)) {
        let (start, count) = (own.start + slice.start, slice.len());
        let Window { tokens, targets } = window.columns(start, count);
        let state = state.columns(slice.start, count);
        let masks = masks.columns(start, count);
        let (loss, state, lookup) =
            model.loss_beside_lookup(tokens, targets, state, masks, config.penalties());
        // All means are over the same time steps and features, so they add up in proportion to the columns.
        let share = count as f64 / columns as f64;
        states.push(state.detach());
        let total = loss.total.clone() * share;
        let StepLoss { nll, ar, tar, prior_cv, .. } = loss.inner();
        for (sum, term) in sums.iter_mut().zip([nll, ar, tar, prior_cv]) {
            *sum = sum.clone() + term * share;
        }
        accumulator.accumulate(model, gradients(model, total, lookup));
    }
    let [nll, ar, tar, prior_cv] = sums;
    let total = nll.clone() + ar.clone() + tar.clone() + prior_cv.clone();
    let losses = StepLoss { nll, total, ar, tar, prior_cv };
    Pass { losses, state: LmState::join(states), grads: accumulator.grads() }
}

#[cfg(all(test, feature = "flex"))]
#[path = "step_tests.rs"]
mod tests;
