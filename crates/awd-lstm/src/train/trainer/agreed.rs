//! What ranks go by together.

use crate::train::observer::WaitMetrics;
use runs::ranks::Waiting;

/// What all ranks go by, whatever their own clocks and signals say. A process of its own goes by itself.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    /// Whether the run is saved, by rank 0.
    pub(super) saves: bool,
    /// Whether a rank was asked to stop.
    pub(super) stop: bool,
    /// Whether the run is to be saved after this step.
    pub(super) save: bool,
    /// How long this rank waited in the last step, in seconds.
    pub(super) waited: f64,
    /// Since the last interval.
    pub(super) waiting: Waiting,
}

impl Agreed {
    /// Before the first step.
    pub(super) fn new(saves: bool) -> Self {
        Self { saves, ..Self::default() }
    }

    /// What ranks waited for each other since the last read; `None` for one process.
    pub(super) fn read_waiting(&mut self) -> Option<WaitMetrics> {
        let Waiting { of_ranks, sums, steps } = std::mem::take(&mut self.waiting);
        if steps == 0 {
            return None;
        }
        let (ranks, steps) = (of_ranks.len(), steps as f64);
        Some(WaitMetrics {
            ranks,
            wait_seconds: of_ranks.iter().sum::<f64>() / ranks as f64 / steps,
            longest_wait_seconds: of_ranks.iter().fold(0.0, |longest: f64, wait| longest.max(*wait)) / steps,
            reduce_seconds: sums / steps,
        })
    }
}
