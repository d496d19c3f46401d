//! Who is told of a training while it works.

use crate::metrics::{EpochMetrics, StepMetrics, ValidationMetrics};

/// Receives the progress of training. Every method does nothing unless overridden.
pub trait TrainObserver {
    /// Training begins or resumes with this share of the run's work done.
    fn on_start(&mut self, _share: f64) {}
    /// Some more steps are done.
    fn on_interval(&mut self, _interval: &StepMetrics) {}
    /// The validation text was scored inside of an epoch.
    ///
    /// `share` is the share of the run's work that is done, from 0 to 1.
    fn on_validation(&mut self, _metrics: &ValidationMetrics, _share: f64) {}
    /// An epoch is done, and saved if the run has a folder.
    ///
    /// `share` is the share of the run's work that is done, from 0 to 1.
    fn on_epoch(&mut self, _metrics: &EpochMetrics, _share: f64) {}
    /// The best model is about to be tested.
    fn on_test(&mut self) {}
    /// Whether training should stop and save itself. Asked before every step and every chunk of an evaluation.
    fn stop(&mut self) -> bool {
        false
    }
    /// An event that is worth a line to the user.
    fn on_message(&mut self, _message: &str) {}
}

/// An observer that keeps quiet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl TrainObserver for Silent {}

/// An observer that notes all that it is told, and can stop training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// Of each interval.
    pub intervals: Vec<StepMetrics>,
    /// Of each validation inside of an epoch.
    pub validations: Vec<ValidationMetrics>,
    /// Of each epoch.
    pub epochs: Vec<EpochMetrics>,
    /// The messages.
    pub messages: Vec<String>,
    /// After how many further questions whether to stop, that is before so many steps and chunks, it says so; `None`: never.
    stop_after: Option<usize>,
}

impl Notes {
    /// An observer that stops training after so many steps and chunks of evaluations.
    pub fn stopping_after(steps: usize) -> Self {
        Self { stop_after: Some(steps), ..Self::default() }
    }
}

impl TrainObserver for Notes {
    fn on_interval(&mut self, interval: &StepMetrics) {
        self.intervals.push(*interval);
    }

    fn on_validation(&mut self, metrics: &ValidationMetrics, _share: f64) {
        self.validations.push(metrics.clone());
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, _share: f64) {
        self.epochs.push(metrics.clone());
    }

    fn stop(&mut self) -> bool {
        let stop = self.stop_after == Some(0);
        self.stop_after = self.stop_after.map(|steps| steps.saturating_sub(1));
        stop
    }

    fn on_message(&mut self, message: &str) {
        self.messages.push(message.to_string());
    }
}
