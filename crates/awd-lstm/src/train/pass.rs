//! An epoch's pass over the training text, and the part of it that a checkpoint keeps.

use std::ops::Range;
use std::time::Instant;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::losses::Losses;
use super::step::Stepped;
use crate::data::Schedule;
use crate::lstm::LstmState;
use crate::model::LmState;

/// Number of steps between two reads of the loss, unless a trainer says otherwise. A read waits for the device; nothing else in a
/// step does.
pub const LOG_INTERVAL: usize = 20;

/// The progress of an unfinished epoch, without its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of steps that are done.
    pub step: usize,
    /// Summed nll of the tokens up to the last read of the loss, in nats.
    #[serde(with = "runs::exact")]
    pub nll: f64,
    /// Number of those tokens.
    pub tokens: usize,
    /// Number of tokens since that read. Their sums are still on the device.
    pub unread: usize,
    /// Number of steps since that read, if their sums of what is only watched were kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread_steps: usize,
    /// Number of those steps whose share of a mixture's projections in the gradient's norm was kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub latent_steps: usize,
    /// Number of those steps whose variation of a mixture's priors was kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prior_cv_steps: usize,
    /// Wall-clock time of the epoch so far, in seconds.
    pub seconds: f64,
    /// The part of it that went into validation.
    #[serde(default)]
    pub validation_seconds: f64,
    /// The step after which the validation text was scored last; 0 if it was not yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub validated: usize,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &usize) -> bool {
    *count == 0
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
    /// The step after which the validation text was scored last; 0 if it was not yet.
    pub(super) validated: usize,
    /// The part of the time that went into validation, in seconds.
    pub(super) validation_seconds: f64,
    /// Time of earlier processes, before `since`.
    seconds: f64,
    since: Instant,
    /// The time that several ranks go by.
    agreed: Option<f64>,
}

/// The tensors of an unfinished epoch as a module, the form in which they are saved.
#[derive(Module, Debug)]
pub(super) struct Carried {
    hidden: Vec<Param<Tensor<2>>>,
    cell: Vec<Param<Tensor<2>>>,
    /// Summed nll and summed total loss of the unread tokens, `[2]`.
    sums: Param<Tensor<1>>,
    /// Sums over the unread steps of what is only watched, `[4]`, if there are any.
    watched: Option<Param<Tensor<1>>>,
    /// Sum over the unread steps of a mixture's share in the gradient's norm, `[1]`, if there are any.
    latent: Option<Param<Tensor<1>>>,
    /// Sum over the unread steps of the variation of a mixture's priors, `[1]`, if there are any.
    prior_cv: Option<Param<Tensor<1>>>,
}

impl Pass {
    /// A pass before its first step.
    pub(super) fn new(schedule: Schedule, hidden: LmState) -> Self {
        Self {
            schedule,
            step: 0,
            hidden,
            whole: Sum::default(),
            meter: Meter::default(),
            validated: 0,
            validation_seconds: 0.0,
            seconds: 0.0,
            since: Instant::now(),
            agreed: None,
        }
    }

    /// Whether every step is done.
    pub(super) fn is_done(&self) -> bool {
        self.step == self.schedule.steps().len()
    }

    /// Wall-clock time of the pass so far, in seconds; with several ranks, when they last agreed on it.
    pub(super) fn seconds(&self) -> f64 {
        self.agreed.unwrap_or_else(|| self.own_seconds())
    }

    /// The time by this process's clock.
    pub(super) fn own_seconds(&self) -> f64 {
        self.seconds + self.since.elapsed().as_secs_f64()
    }

    /// Takes this for the time of the pass so far.
    pub(super) fn agree_on(&mut self, seconds: f64) {
        self.agreed = Some(seconds);
    }

    /// The same without validation.
    pub(super) fn training_seconds(&self) -> f64 {
        self.seconds() - self.validation_seconds
    }

    pub(super) fn position(&self) -> Position {
        Position {
            step: self.step,
            nll: self.whole.nll,
            tokens: self.whole.tokens,
            unread: self.meter.tokens,
            unread_steps: self.meter.steps,
            latent_steps: self.meter.latent.steps,
            prior_cv_steps: self.meter.prior_cv.steps,
            seconds: self.seconds(),
            validation_seconds: self.validation_seconds,
            validated: self.validated,
        }
    }

    /// The tensors to be saved, with the state `hidden` of all columns.
    pub(super) fn carried(&self, hidden: &LmState) -> Carried {
        let matrices = |of: fn(&LstmState) -> &Tensor<2>| {
            hidden.layers.iter().map(|layer| Param::from_tensor(of(layer).clone().inner())).collect()
        };
        let sums = match &self.meter.sums {
            Some([nll, total]) => Tensor::cat(vec![nll.clone(), total.clone()], 0),
            None => {
                let state = &self.hidden.layers[0].hidden;
                Tensor::zeros([2], (&state.device().inner(), state.dtype()))
            }
        };
        Carried {
            hidden: matrices(|layer| &layer.hidden),
            cell: matrices(|layer| &layer.cell),
            sums: Param::from_tensor(sums),
            watched: self.meter.watched.clone().map(|sums| Param::from_tensor(Tensor::cat(sums.into(), 0))),
            latent: self.meter.latent.sum.clone().map(Param::from_tensor),
            prior_cv: self.meter.prior_cv.sum.clone().map(Param::from_tensor),
        }
    }

    /// As [`carried`](Self::carried), of the form that belongs to a saved position.
    pub(super) fn form_of(&self, position: &Position, hidden: &LmState) -> Carried {
        let carried = self.carried(hidden);
        let zeros = |steps: usize, count: usize| {
            let sums = carried.sums.val();
            (steps > 0).then(|| Param::from_tensor(Tensor::zeros([count], (&sums.device(), sums.dtype()))))
        };
        let watched = zeros(position.unread_steps, Meter::WATCHED);
        let [latent, prior_cv] =
            [position.latent_steps, position.prior_cv_steps].map(|steps| zeros(steps, 1));
        Carried { watched, latent, prior_cv, ..carried }
    }

    /// Goes back to a saved position, with the state of the columns `own`.
    pub(super) fn restore(&mut self, position: &Position, carried: Carried, own: &Range<usize>) {
        let layers = carried.hidden.into_iter().zip(carried.cell).map(|(hidden, cell)| LstmState {
            hidden: Tensor::from_inner(hidden.val()),
            cell: Tensor::from_inner(cell.val()),
        });
        self.hidden = LmState { layers: layers.collect() }.columns(own.start, own.len());
        self.step = position.step;
        self.whole = Sum { nll: position.nll, tokens: position.tokens };
        let sums = carried.sums.val();
        self.meter = Meter {
            sums: (position.unread > 0).then(|| apart(&sums)),
            tokens: position.unread,
            watched: carried.watched.map(|sums| apart(&sums.val())),
            steps: position.unread_steps,
            latent: Watched { sum: carried.latent.map(|sum| sum.val()), steps: position.latent_steps },
            prior_cv: Watched { sum: carried.prior_cv.map(|sum| sum.val()), steps: position.prior_cv_steps },
        };
        (self.validated, self.validation_seconds) = (position.validated, position.validation_seconds);
        self.seconds = position.seconds;
        self.since = Instant::now();
        // All ranks have read the same.
        self.agreed = None;
    }
}

/// The elements of a vector.
fn apart<const N: usize>(vector: &Tensor<1>) -> [Tensor<1>; N] {
    std::array::from_fn(|index| vector.clone().narrow(0, index, 1))
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

    /// Mean nll of a token.
    pub(super) fn mean(&self) -> f64 {
        self.nll / self.tokens as f64
    }
}

/// What is read of an interval of steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    /// The losses of its tokens.
    pub(super) sum: Sum,
    /// Mean over its steps of the gradient's norm.
    pub(super) gradient_norm: f64,
    /// Share of its steps that were clipped.
    pub(super) clipped: f64,
    /// Mean over its steps of a mixture's share in the gradient's norm; none without mixture.
    pub(super) latent_share: Option<f64>,
    /// Mean over its steps of the squared coefficient of variation of a mixture's priors; none unless it is in the loss.
    pub(super) prior_cv: Option<f64>,
    /// Mean over its steps of activation regularisation.
    pub(super) ar: f64,
    /// Mean over its steps of temporal activation regularisation.
    pub(super) tar: f64,
}

/// Sums losses on the device, so that no step waits for it.
#[derive(Default)]
pub(super) struct Meter {
    /// The summed nll and the summed total loss, `[1]` each, outside of the graph. The latter only shows whether all steps were
    /// finite.
    sums: Option<[Tensor<1>; 2]>,
    tokens: usize,
    /// Sums over steps of what is only watched, `[1]` each: the gradient's norm, whether it was clipped, AR and TAR.
    watched: Option<[Tensor<1>; Self::WATCHED]>,
    /// Number of steps in the latter.
    steps: usize,
    /// A mixture's share in the gradient's norm.
    latent: Watched,
    /// The squared coefficient of variation of a mixture's priors.
    prior_cv: Watched,
}

/// What is watched in some runs only.
#[derive(Default)]
struct Watched {
    /// Its sum over steps, `[1]`.
    sum: Option<Tensor<1>>,
    /// Number of these steps.
    steps: usize,
}

impl Watched {
    fn add(&mut self, value: Tensor<1>) {
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + value,
            None => value,
        });
        self.steps += 1;
    }

    /// The mean, of which the sum is the next of some values that were read; none if nothing was added.
    fn mean<'a>(&self, mut read: impl Iterator<Item = &'a f64>) -> Option<f64> {
        self.sum.as_ref()?;
        read.next().map(|sum| sum / self.steps as f64)
    }
}

impl Meter {
    /// Number of sums that are only watched.
    const WATCHED: usize = 4;

    /// Adds a step of `tokens` tokens, whose gradient was clipped to the norm `clip` and in whose loss the variation of a mixture's
    /// priors had the weight `prior_cv`.
    pub(super) fn add(&mut self, stepped: &Stepped, tokens: usize, clip: f64, prior_cv: f64) {
        fn sum<const N: usize>(sums: Option<[Tensor<1>; N]>, more: [Tensor<1>; N]) -> [Tensor<1>; N] {
            let Some(sums) = sums else { return more };
            let mut more = more.into_iter();
            sums.map(|sum| sum + more.next().expect("both have N elements"))
        }
        let Stepped { losses, gradient_norm, latent_norm, .. } = stepped;
        let Losses { nll, total, ar, tar, prior_cv: of_priors } = losses;
        self.sums = Some(sum(self.sums.take(), [nll.clone().mul_scalar(tokens as f64), total.clone()]));
        self.tokens += tokens;
        let norm =
            gradient_norm.as_ref().map_or_else(|| nll.zeros_like(), |norm| norm.clone().cast(nll.dtype()));
        if let Some(latent) = latent_norm {
            // A gradient of zeros has no share.
            let share =
                latent.clone().cast(nll.dtype()) / norm.clone().clamp_min(f64::from(f32::MIN_POSITIVE));
            self.latent.add(share);
        }
        if prior_cv > 0.0 {
            self.prior_cv.add(of_priors.clone() / prior_cv);
        }
        let clipped = norm.clone().greater_elem(clip).float().cast(nll.dtype());
        self.watched = Some(sum(self.watched.take(), [norm, clipped, ar.clone(), tar.clone()]));
        self.steps += 1;
    }

    /// What was added since the last read; `None` if a loss was not finite.
    pub(super) fn read(&mut self) -> Option<Reading> {
        let reading = self.peek();
        *self = Self::default();
        reading
    }

    /// What [`Meter::read`] would return.
    pub(super) fn peek(&self) -> Option<Reading> {
        let Some(sums) = &self.sums else { return Some(Reading::default()) };
        let watched = self.watched.as_ref().map_or(&[][..], |watched| watched);
        let of_some = [&self.latent, &self.prior_cv].into_iter().filter_map(|watched| watched.sum.as_ref());
        let all = sums.iter().chain(watched).chain(of_some).cloned().collect();
        let values: Vec<f64> = Tensor::cat(all, 0).into_data().iter::<f64>().collect();
        if !values[..2].iter().all(|value| value.is_finite()) {
            return None;
        }
        // Of a checkpoint of an earlier version, nothing was watched.
        let (means, of_some) = values[2..].split_at(watched.len());
        let mean = |index: usize| means.get(index).map_or(0.0, |sum| sum / self.steps as f64);
        let mut of_some = of_some.iter();
        Some(Reading {
            sum: Sum { nll: values[0], tokens: self.tokens },
            gradient_norm: mean(0),
            clipped: mean(1),
            latent_share: self.latent.mean(&mut of_some),
            prior_cv: self.prior_cv.mean(&mut of_some),
            ar: mean(2),
            tar: mean(3),
        })
    }
}
