//! An epoch's training steps, and the part of them that a checkpoint keeps.

use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::step::Stepped;

/// Number of steps between two reads of the loss, unless a trainer says otherwise. A read waits for the device; nothing else in a
/// step does.
pub const LOG_INTERVAL: usize = 20;

/// The progress of an unfinished epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of steps that are done.
    pub step: usize,
    /// Their losses.
    pub whole: Sum,
    /// What was met since the last report.
    pub interval: Sum,
    /// Wall-clock time of the epoch so far, in seconds.
    pub seconds: f64,
}

/// Sums over steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Negative log-likelihoods of response tokens, in nats.
    #[serde(with = "runs::exact")]
    pub nll: f64,
    /// Number of those tokens.
    pub tokens: usize,
    /// Norms of the gradients.
    #[serde(with = "runs::exact")]
    pub norm: f64,
    /// Number of steps whose gradient was clipped.
    pub clipped: usize,
    /// Number of steps.
    pub steps: usize,
}

impl Sum {
    fn add(&mut self, nll: f64, tokens: usize, norm: f64, clip: f64) {
        self.nll += nll;
        self.tokens += tokens;
        self.norm += norm;
        self.clipped += usize::from(norm > clip);
        self.steps += 1;
    }

    /// Mean nll of a token.
    pub(super) fn mean(&self) -> f64 {
        self.nll / self.tokens as f64
    }
}

/// An epoch between two steps.
pub(super) struct Pass {
    position: Position,
    /// The steps that were not read yet. They are read together, but added one by one: sums do not depend on when that is.
    unread: Vec<Stepped>,
    since: Instant,
}

impl Pass {
    /// Goes on from a position.
    pub(super) fn new(position: Position) -> Self {
        Self { position, unread: Vec::new(), since: Instant::now() }
    }

    /// Number of steps that are done.
    pub(super) fn step(&self) -> usize {
        self.position.step
    }

    /// Wall-clock time of the epoch so far, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.position.seconds + self.since.elapsed().as_secs_f64()
    }

    /// Sums of all steps that were read.
    pub(super) fn whole(&self) -> Sum {
        self.position.whole
    }

    /// A step is done.
    pub(super) fn add(&mut self, stepped: Stepped) {
        self.unread.push(stepped);
        self.position.step += 1;
    }

    /// Reads what is on the device. `None` if a loss is not finite.
    pub(super) fn read(&mut self, clip: f64) -> Option<()> {
        if self.unread.is_empty() {
            return Some(());
        }
        let values = self
            .unread
            .iter()
            .flat_map(|Stepped { nll, norm, .. }| [nll.clone(), norm.clone().cast(nll.dtype())]);
        let values: Vec<f64> = Tensor::cat(values.collect(), 0).into_data().iter::<f64>().collect();
        for (Stepped { tokens, .. }, values) in self.unread.drain(..).zip(values.chunks(2)) {
            if !values[0].is_finite() {
                return None;
            }
            self.position.whole.add(values[0], tokens, values[1], clip);
            self.position.interval.add(values[0], tokens, values[1], clip);
        }
        Some(())
    }

    /// The sums since this was asked last, as far as they were read.
    pub(super) fn take_interval(&mut self) -> Sum {
        std::mem::take(&mut self.position.interval)
    }

    /// What a checkpoint keeps. Everything must have been read.
    pub(super) fn position(&self) -> Position {
        Position { seconds: self.seconds(), ..self.position.clone() }
    }
}
