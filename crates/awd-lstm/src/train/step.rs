//! One step of training.

use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use crate::config::TrainConfig;
use crate::data::Window;
use crate::lstm::LstmState;
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
/// Of the configuration it reads `alpha`, `beta`, `clip` and `small_batch`: with that, the columns are taken in slices, each with
/// its own forward and backward pass, and gradients are summed in the proportion of the slices' columns, so that memory
/// goes with a slice. But for rounding, and for the dropout masks, the result is that of all columns at once.
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
    let [_, columns] = window.tokens.dims();
    let slice = config.small_batch.unwrap_or(columns);
    let (stepped, grads) = if slice >= columns {
        pass(&model, window, state, config)
    } else {
        sliced_pass(&model, window, state, config, slice)
    };
    let grads = clip_global_norm(&model, grads, config.clip);
    (optimiser.step(lr, model, grads), stepped)
}

/// Losses and gradients of a window.
fn pass<B>(
    model: &LanguageModel<B>,
    window: Window<B>,
    state: LmState<B>,
    config: &TrainConfig,
) -> (Stepped<B>, GradientsParams)
where
    B: AutodiffBackend<InnerBackend: LmBackend> + LmBackend,
{
    let loss = model.loss(window.tokens, window.targets, state, config.alpha, config.beta);
    let stepped =
        Stepped { nll: loss.nll.inner(), total: loss.total.clone().inner(), state: loss.state.detach() };
    (stepped, GradientsParams::from_grads(loss.total.backward(), model))
}

/// The same, in slices of at most `slice` columns.
fn sliced_pass<B>(
    model: &LanguageModel<B>,
    window: Window<B>,
    state: LmState<B>,
    config: &TrainConfig,
    slice: usize,
) -> (Stepped<B>, GradientsParams)
where
    B: AutodiffBackend<InnerBackend: LmBackend> + LmBackend,
{
    let [_, columns] = window.tokens.dims();
    let mut accumulator = GradientsAccumulator::new();
    let zero = || Tensor::zeros([1], (&state.layers[0].hidden.device(), state.layers[0].hidden.dtype()));
    let (mut nll, mut total): (Tensor<B::InnerBackend, 1>, Tensor<B::InnerBackend, 1>) = (zero(), zero());
    let mut states = vec![];
    for start in (0..columns).step_by(slice) {
        let count = slice.min(columns - start);
        let share = count as f64 / columns as f64;
        let part = Window {
            tokens: window.tokens.clone().narrow(1, start, count),
            targets: window.targets.clone().narrow(1, start, count),
        };
        let loss =
            model.loss(part.tokens, part.targets, rows(&state, start, count), config.alpha, config.beta);
        nll = nll + loss.nll.inner() * share;
        total = total + loss.total.clone().inner() * share;
        states.push(loss.state.detach());
        // All means are over as many time steps and features, so they add up in the proportion of columns.
        let grads = (loss.total * share).backward();
        accumulator.accumulate(model, GradientsParams::from_grads(grads, model));
    }
    (Stepped { nll, total, state: join(states) }, accumulator.grads())
}

/// The state of some of the columns.
fn rows<B: AutodiffBackend>(state: &LmState<B>, start: usize, count: usize) -> LmState<B> {
    let narrow = |tensor: &Tensor<B, 2>| tensor.clone().narrow(0, start, count);
    let layers = state.layers.iter();
    LmState {
        layers: layers
            .map(|layer| LstmState { hidden: narrow(&layer.hidden), cell: narrow(&layer.cell) })
            .collect(),
    }
}

/// The state of all columns from those of the slices.
fn join<B: AutodiffBackend>(states: Vec<LmState<B>>) -> LmState<B> {
    let layers = states[0].layers.len();
    let of = |layer: usize, part: fn(&LstmState<B>) -> &Tensor<B, 2>| {
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
