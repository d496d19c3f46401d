//! One step of training.

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;

use crate::config::TrainConfig;
use crate::data::Window;
use crate::dropout::Masks;
use crate::model::{LanguageModel, LmState};
use crate::optim::{NtAsgd, global_norm};
use crate::ranks::cut;

/// The results of a step besides the weights. None of them waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// Mean nll of the step's tokens before the update, in nats, `[1]`.
    pub nll: Tensor<1>,
    /// `nll` + AR + TAR + the priors' term, the loss that was differentiated, `[1]`.
    pub total: Tensor<1>,
    /// AR, `[1]`; 0 without.
    pub ar: Tensor<1>,
    /// TAR, `[1]`; 0 without.
    pub tar: Tensor<1>,
    /// The term of the mixture's priors, `prior_cv · cv²`, `[1]`; 0 without.
    pub prior_cv: Tensor<1>,
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
    let [_, columns] = window.tokens.dims();
    let (stepped, grads) = gradients(&model, window, state, config, 0..columns);
    update(model, optimiser, stepped, grads, config, lr)
}

/// Losses and gradients of the columns `own` of a window, in proportion to all of its columns: those of all parts of a window add up
/// to those of the whole. `state` is that of the own columns.
///
/// Masks are drawn for all columns, whatever the part.
pub(super) fn gradients(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    own: Range<usize>,
) -> (Stepped, GradientsParams) {
    let [_, columns] = window.tokens.dims();
    let slice = config.small_batch.unwrap_or(columns);
    if own.len() == columns && slice >= columns {
        let masks = model.draw_masks(columns);
        return pass(model, window, state, masks, config);
    }
    sliced_pass(model, window, state, config, own, slice)
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
    let (stepped, grads) = pass(&model, window, state, masks, config);
    update(model, optimiser, stepped, grads, config, lr)
}

/// Clips the gradients of all columns to their norm, and makes the optimiser's update.
pub(super) fn update(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    stepped: Stepped,
    grads: GradientsParams,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel, Stepped) {
    let latent_norm = global_norm(&model.head.context, &grads);
    let (model, gradient_norm) = optimiser.step_clipped(lr, model, grads, config.clip);
    (model, Stepped { gradient_norm, latent_norm, ..stepped })
}

/// Losses and gradients of a window.
fn pass(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    masks: Masks,
    config: &TrainConfig,
) -> (Stepped, GradientsParams) {
    let (loss, lookup) =
        model.loss_beside_lookup(window.tokens, window.targets, state, masks, config.penalties());
    let stepped = Stepped {
        nll: loss.nll.inner(),
        total: loss.total.clone().inner(),
        ar: loss.ar.inner(),
        tar: loss.tar.inner(),
        prior_cv: loss.prior_cv.inner(),
        gradient_norm: None,
        latent_norm: None,
        state: loss.state.detach(),
    };
    let mut grads = loss.total.backward();
    lookup.finish(&mut grads);
    (stepped, GradientsParams::from_grads(grads, model))
}

/// The same of the columns `own`, in slices of at most `slice` columns.
fn sliced_pass(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    own: Range<usize>,
    slice: usize,
) -> (Stepped, GradientsParams) {
    let [_, columns] = window.tokens.dims();
    let masks = model.draw_all_masks(columns);
    let slices = own.len().div_ceil(slice);
    let mut accumulator = GradientsAccumulator::new();
    // Sums of what is read only, outside of the graph.
    let zero = Tensor::<1>::zeros([1], (&model.device().inner(), state.layers[0].hidden.dtype()));
    let (mut nll, mut total, mut ar, mut tar) = (zero.clone(), zero.clone(), zero.clone(), zero.clone());
    let mut prior_cv = zero;
    let mut states = vec![];
    for slice in (0..slices).map(|index| cut(own.len(), slices, index)) {
        let (start, count) = (own.start + slice.start, slice.len());
        let share = count as f64 / columns as f64;
        let part = window.columns(start, count);
        let state = state.columns(slice.start, count);
        let masks = masks.columns(start, count);
        let (loss, lookup) =
            model.loss_beside_lookup(part.tokens, part.targets, state, masks, config.penalties());
        nll = nll + loss.nll.inner() * share;
        total = total + loss.total.clone().inner() * share;
        ar = ar + loss.ar.inner() * share;
        tar = tar + loss.tar.inner() * share;
        prior_cv = prior_cv + loss.prior_cv.inner() * share;
        states.push(loss.state.detach());
        // All means are over the same time steps and features, so they add up in proportion to the columns.
        let mut grads = (loss.total * share).backward();
        lookup.finish(&mut grads);
        accumulator.accumulate(model, GradientsParams::from_grads(grads, model));
    }
    let state = LmState::join(states);
    (
        Stepped { nll, total, ar, tar, prior_cv, gradient_norm: None, latent_norm: None, state },
        accumulator.grads(),
    )
}

#[cfg(all(test, feature = "flex"))]
#[path = "step_tests.rs"]
mod tests;
