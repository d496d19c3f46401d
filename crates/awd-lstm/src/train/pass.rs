//! An epoch's pass over the training text, and the part of it that a checkpoint keeps.

use std::time::Instant;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::data::Schedule;
use crate::lstm::LstmState;
use crate::model::LmState;

/// Number of steps between two reads of the loss. A read waits for the device; nothing else in a step does.
pub const LOG_INTERVAL: usize = 20;

/// The progress of an unfinished epoch, without its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of steps that are done.
    pub step: usize,
    /// Summed nll of the tokens up to the last read of the loss, in nats.
    #[serde(with = "crate::exact")]
    pub nll: f64,
    /// Number of those tokens.
    pub tokens: usize,
    /// Number of tokens since that read. Their sums are still on the device.
    pub unread: usize,
    /// Wall-clock time of the epoch so far, in seconds.
    pub seconds: f64,
}

/// A pass over the training text between two steps.
pub(super) struct Pass {
    pub(super) schedule: Schedule,
    /// Number of steps that are done.
    pub(super) step: usize,
    /// State after the last step, without its history.
    pub(super) hidden: LmState,
    /// The losses that were read.
    pub(super) whole: Sum,
    pub(super) meter: Meter,
    /// Time of earlier processes, before `since`.
    seconds: f64,
    since: Instant,
}

/// The tensors of an unfinished epoch as a module, the form in which they are saved.
#[derive(Module, Debug)]
pub(super) struct Carried {
    hidden: Vec<Param<Tensor<2>>>,
    cell: Vec<Param<Tensor<2>>>,
    /// Summed nll and summed total loss of the unread tokens, `[2]`.
    sums: Param<Tensor<1>>,
}

impl Pass {
    /// A pass before its first step.
    pub(super) fn new(schedule: Schedule, hidden: LmState) -> Self {
        let (whole, meter) = (Sum::default(), Meter::default());
        Self { schedule, step: 0, hidden, whole, meter, seconds: 0.0, since: Instant::now() }
    }

    /// Whether every step is done.
    pub(super) fn is_done(&self) -> bool {
        self.step == self.schedule.steps().len()
    }

    /// Wall-clock time of the pass so far, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds + self.since.elapsed().as_secs_f64()
    }

    pub(super) fn position(&self) -> Position {
        Position {
            step: self.step,
            nll: self.whole.nll,
            tokens: self.whole.tokens,
            unread: self.meter.tokens,
            seconds: self.seconds(),
        }
    }

    pub(super) fn carried(&self) -> Carried {
        let matrices = |of: fn(&LstmState) -> &Tensor<2>| {
            self.hidden.layers.iter().map(|layer| Param::from_tensor(of(layer).clone().inner())).collect()
        };
        let sums = match &self.meter.sums {
            Some((nll, total)) => Tensor::cat(vec![nll.clone(), total.clone()], 0),
            None => {
                let state = &self.hidden.layers[0].hidden;
                Tensor::zeros([2], (&state.device().inner(), state.dtype()))
            }
        };
        Carried {
            hidden: matrices(|layer| &layer.hidden),
            cell: matrices(|layer| &layer.cell),
            sums: Param::from_tensor(sums),
        }
    }

    /// Goes back to a saved position.
    pub(super) fn restore(&mut self, position: &Position, carried: Carried) {
        let layers = carried.hidden.into_iter().zip(carried.cell).map(|(hidden, cell)| LstmState {
            hidden: Tensor::from_inner(hidden.val()),
            cell: Tensor::from_inner(cell.val()),
        });
        self.hidden = LmState { layers: layers.collect() };
        self.step = position.step;
        self.whole = Sum { nll: position.nll, tokens: position.tokens };
        let sums = carried.sums.val();
        let sums = (position.unread > 0).then(|| (sums.clone().narrow(0, 0, 1), sums.narrow(0, 1, 1)));
        self.meter = Meter { sums, tokens: position.unread };
        self.seconds = position.seconds;
        self.since = Instant::now();
    }
}

/// Losses summed over tokens, in nats.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) nll: f64,
    pub(super) tokens: usize,
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.nll += other.nll;
        self.tokens += other.tokens;
    }
}

/// Sums losses on the device, so that no step waits for it.
#[derive(Default)]
pub(super) struct Meter {
    /// The summed nll and the summed total loss `[1]`, outside of the graph. The latter only shows whether all steps were finite.
    sums: Option<(Tensor<1>, Tensor<1>)>,
    tokens: usize,
}

impl Meter {
    /// Adds a step of `tokens` tokens with the mean loss `nll` and the loss `total` with regularisation.
    pub(super) fn add(&mut self, nll: Tensor<1>, total: Tensor<1>, tokens: usize) {
        let nll = nll.mul_scalar(tokens as f64);
        self.tokens += tokens;
        self.sums = Some(match self.sums.take() {
            Some((nlls, totals)) => (nlls + nll, totals + total),
            None => (nll, total),
        });
    }

    /// The sum since the last read; `None` if a loss was not finite.
    pub(super) fn read(&mut self) -> Option<Sum> {
        let sum = self.peek();
        *self = Self::default();
        sum
    }

    /// What [`Meter::read`] would return.
    pub(super) fn peek(&self) -> Option<Sum> {
        let Some((nll, total)) = self.sums.clone() else { return Some(Sum::default()) };
        let values: Vec<f64> = Tensor::cat(vec![nll, total], 0).into_data().iter::<f64>().collect();
        values.iter().all(|value| value.is_finite()).then_some(Sum { nll: values[0], tokens: self.tokens })
    }
}
