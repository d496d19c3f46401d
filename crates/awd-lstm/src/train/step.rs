//! One step of training.

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;

use super::stages::Above;
use crate::config::TrainConfig;
use crate::data::Window;
use crate::dropout::Masks;
use crate::model::{LanguageModel, LmState, StagedLoss, StepLoss};
use runs::error::Result;
use runs::optim::{NtAsgd, global_norm};
use runs::ranks::{Early, Ranks, cut};

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
    let pass = whole_gradients(&model, window, state, config);
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
    /// Those that were summed while the others were computed.
    pub(super) early: Option<Early>,
}

/// Losses and gradients of all columns of a window.
pub(super) fn whole_gradients(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
) -> Pass {
    let [_, columns] = window.tokens.dims();
    let slice = config.small_batch.unwrap_or(columns);
    if slice >= columns {
        let masks = model.draw_masks(columns);
        return pass(model, window, state, masks, config);
    }
    Slices::new(model, window, state, config, 0..columns).pass(slice)
}

/// Losses and gradients of a rank's columns of a window, in proportion to all of its columns: those of all ranks add up
/// to those of the whole. `state` is that of the own columns.
///
/// Masks are drawn for all columns, whatever the part.
///
/// # Errors
/// [`Error::Communication`](runs::Error::Communication).
pub(super) fn own_gradients(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    ranks: &Ranks,
) -> Result<Pass> {
    if !ranks.are_several() {
        return Ok(whole_gradients(model, window, state, config));
    }
    let [_, columns] = window.tokens.dims();
    let slice = config.small_batch.unwrap_or(columns);
    // The same at all ranks, though one may have a column less.
    let in_one = columns.div_ceil(ranks.size()) <= slice;
    let slices = Slices::new(model, window, state, config, ranks.part(columns));
    if in_one && ranks.can_sum_meanwhile() {
        return slices.pass_and_sum(ranks);
    }
    Ok(slices.pass(slice))
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
    let Pass { losses, state, grads, early: _ } = pass;
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
    let mut grads = total.backward();
    lookup.finish(&mut grads);
    Pass { losses, state, grads: GradientsParams::from_grads(grads, model), early: None }
}

/// A part of the columns of a window, to be taken in slices.
struct Slices<'a> {
    model: &'a LanguageModel,
    window: Window,
    /// Of all columns.
    masks: Masks,
    /// Of the own columns.
    state: LmState,
    config: &'a TrainConfig,
    /// Number of all columns.
    columns: usize,
    own: Range<usize>,
}

impl<'a> Slices<'a> {
    fn new(
        model: &'a LanguageModel,
        window: Window,
        state: LmState,
        config: &'a TrainConfig,
        own: Range<usize>,
    ) -> Self {
        let [_, columns] = window.tokens.dims();
        let masks = model.draw_all_masks(columns);
        Self { model, window, masks, state, config, columns, own }
    }

    /// The losses of `count` of the own columns from `start` on, and their share in those of all columns.
    fn loss(&self, start: usize, count: usize) -> (StagedLoss, f64) {
        let part = self.window.columns(self.own.start + start, count);
        let masks = self.masks.columns(self.own.start + start, count);
        let state = self.state.columns(start, count);
        let penalties = self.config.penalties();
        // All means are over the same time steps and features, so they add up in proportion to the columns.
        let share = count as f64 / self.columns as f64;
        (self.model.loss_in_stages(part.tokens, part.targets, state, masks, penalties), share)
    }

    /// Losses and gradients, in slices of at most `slice` columns.
    fn pass(self, slice: usize) -> Pass {
        let count = self.own.len().div_ceil(slice);
        let mut accumulator = GradientsAccumulator::new();
        let mut sums = Sums::new(self.model, &self.state);
        for slice in (0..count).map(|index| cut(self.own.len(), count, index)) {
            let (loss, share) = self.loss(slice.start, slice.len());
            sums.add(&loss, share);
            let (above, grads) = Above::of(self.model, &loss, share);
            accumulator.accumulate(self.model, grads);
            accumulator.accumulate(self.model, above.below(self.model, loss, share));
        }
        sums.pass(accumulator.grads(), None)
    }

    /// Losses and gradients of all own columns at once. Those of the output layer are summed over the ranks meanwhile.
    fn pass_and_sum(self, ranks: &Ranks) -> Result<Pass> {
        let (loss, share) = self.loss(0, self.own.len());
        let mut sums = Sums::new(self.model, &self.state);
        sums.add(&loss, share);
        let (above, grads) = Above::of(self.model, &loss, share);
        let matrix = (self.model.embedding.id, above.embedding.clone());
        let work = || above.below(self.model, loss, share);
        let (early, grads) = ranks.sum_meanwhile(self.model, grads, matrix, &self.window.tokens, work)?;
        Ok(sums.pass(grads, Some(early)))
    }
}

/// Losses summed over slices, outside of the graph, and their states.
struct Sums {
    /// Mean nll, AR, TAR and the priors' term.
    terms: [Tensor<1>; 4],
    states: Vec<LmState>,
}

impl Sums {
    fn new(model: &LanguageModel, state: &LmState) -> Self {
        let zero = Tensor::<1>::zeros([1], (&model.device().inner(), state.layers[0].hidden.dtype()));
        Self { terms: std::array::from_fn(|_| zero.clone()), states: vec![] }
    }

    fn add(&mut self, loss: &StagedLoss, share: f64) {
        let StagedLoss { nll, ar, tar, prior_cv, .. } = loss;
        let terms = [Some(nll), ar.as_ref(), tar.as_ref(), prior_cv.as_ref()];
        for (sum, term) in self.terms.iter_mut().zip(terms) {
            if let Some(term) = term {
                *sum = sum.clone() + term.clone().inner() * share;
            }
        }
        self.states.push(loss.state.clone().detach());
    }

    fn pass(self, grads: GradientsParams, early: Option<Early>) -> Pass {
        let [nll, ar, tar, prior_cv] = self.terms;
        let total = nll.clone() + ar.clone() + tar.clone() + prior_cv.clone();
        let losses = StepLoss { nll, total, ar, tar, prior_cv };
        Pass { losses, state: LmState::join(self.states), grads, early }
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "step_tests.rs"]
mod tests;
