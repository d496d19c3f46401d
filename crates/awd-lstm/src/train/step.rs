//! One step of training.

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;

use crate::config::TrainConfig;
use crate::data::Window;
use crate::dropout::Masks;
use crate::lstm::LstmState;
use crate::model::{LanguageModel, LmState};
use crate::optim::NtAsgd;

/// The results of a step besides the weights. None of them waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// Mean nll of the step's tokens before the update, in nats, `[1]`.
    pub nll: Tensor<1>,
    /// `nll` + AR + TAR, the loss that was differentiated, `[1]`.
    pub total: Tensor<1>,
    /// AR, `[1]`; 0 without.
    pub ar: Tensor<1>,
    /// TAR, `[1]`; 0 without.
    pub tar: Tensor<1>,
    /// Norm of the gradient over all parameters together, before clipping, `[1]`; `None` if no parameter has a gradient.
    pub gradient_norm: Option<Tensor<1>>,
    /// State after the last time step, without its history.
    pub state: LmState,
}

/// Forward and backward pass, clipping to the global norm, and the optimiser's update with the learning rate `lr`.
///
/// It reads `alpha`, `beta`, `clip` and `small_batch` of the configuration. With `small_batch`, the columns are taken in slices,
/// each with its own forward and backward pass, and gradients are summed in proportion to the slices' columns. Memory is then
/// that of a slice. Except for rounding and for the dropout masks, the result is that of all columns at once.
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
    let slice = config.small_batch.unwrap_or(columns);
    let (stepped, grads) = if slice >= columns {
        let masks = model.draw_masks(columns);
        pass(&model, window, state, masks, config)
    } else {
        sliced_pass(&model, window, state, config, slice)
    };
    update(model, optimiser, stepped, grads, config, lr)
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

fn update(
    model: LanguageModel,
    optimiser: &mut NtAsgd,
    stepped: Stepped,
    grads: GradientsParams,
    config: &TrainConfig,
    lr: f64,
) -> (LanguageModel, Stepped) {
    let (model, gradient_norm) = optimiser.step_clipped(lr, model, grads, config.clip);
    (model, Stepped { gradient_norm, ..stepped })
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
        model.loss_beside_lookup(window.tokens, window.targets, state, masks, config.alpha, config.beta);
    let stepped = Stepped {
        nll: loss.nll.inner(),
        total: loss.total.clone().inner(),
        ar: loss.ar.inner(),
        tar: loss.tar.inner(),
        gradient_norm: None,
        state: loss.state.detach(),
    };
    let mut grads = loss.total.backward();
    lookup.finish(&mut grads);
    (stepped, GradientsParams::from_grads(grads, model))
}

/// The same, in slices of at most `slice` columns.
fn sliced_pass(
    model: &LanguageModel,
    window: Window,
    state: LmState,
    config: &TrainConfig,
    slice: usize,
) -> (Stepped, GradientsParams) {
    let [_, columns] = window.tokens.dims();
    let mut accumulator = GradientsAccumulator::new();
    // Sums of what is read only, outside of the graph.
    let zero = Tensor::<1>::zeros([1], (&model.device().inner(), state.layers[0].hidden.dtype()));
    let (mut nll, mut total, mut ar, mut tar) = (zero.clone(), zero.clone(), zero.clone(), zero);
    let mut states = vec![];
    for start in (0..columns).step_by(slice) {
        let count = slice.min(columns - start);
        let share = count as f64 / columns as f64;
        let part = Window {
            tokens: window.tokens.clone().narrow(1, start, count),
            targets: window.targets.clone().narrow(1, start, count),
        };
        let state = rows(&state, start, count);
        let masks = model.draw_masks(count);
        let (loss, lookup) =
            model.loss_beside_lookup(part.tokens, part.targets, state, masks, config.alpha, config.beta);
        nll = nll + loss.nll.inner() * share;
        total = total + loss.total.clone().inner() * share;
        ar = ar + loss.ar.inner() * share;
        tar = tar + loss.tar.inner() * share;
        states.push(loss.state.detach());
        // All means are over the same time steps and features, so they add up in proportion to the columns.
        let mut grads = (loss.total * share).backward();
        lookup.finish(&mut grads);
        accumulator.accumulate(model, GradientsParams::from_grads(grads, model));
    }
    (Stepped { nll, total, ar, tar, gradient_norm: None, state: join(states) }, accumulator.grads())
}

/// The state of some of the columns.
fn rows(state: &LmState, start: usize, count: usize) -> LmState {
    let narrow = |tensor: &Tensor<2>| tensor.clone().narrow(0, start, count);
    let layers = state.layers.iter();
    LmState {
        layers: layers
            .map(|layer| LstmState { hidden: narrow(&layer.hidden), cell: narrow(&layer.cell) })
            .collect(),
    }
}

/// The state of all columns from those of the slices.
fn join(states: Vec<LmState>) -> LmState {
    let layers = states[0].layers.len();
    let of = |layer: usize, part: fn(&LstmState) -> &Tensor<2>| {
        Tensor::cat(states.iter().map(|state| part(&state.layers[layer]).clone()).collect(), 0)
    };
    LmState {
        layers: (0..layers)
            .map(|n| LstmState { hidden: of(n, |layer| &layer.hidden), cell: of(n, |layer| &layer.cell) })
            .collect(),
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "step_tests.rs"]
mod tests;
