//! Progress of training on standard error, and the curves of a run.

use std::time::Duration;

use plotters::prelude::SeriesLabelPosition;
use runs::{EpochMetrics, StepMetrics, TrainObserver};
use seq2seq::train::RunFolder;

use crate::chart::{Chart, Keyed, Scale};
use crate::failure::Failure;
use crate::picture;
use crate::progress::{Progress, left_text};
use crate::statistics::decimal;
use crate::training::{AS_MET, Output, WITHIN};

/// Reports the training of a model.
pub struct View<'a> {
    progress: Progress,
    /// Where curves are drawn after every epoch.
    run: Option<&'a RunFolder>,
}

impl<'a> View<'a> {
    /// Shows a bar alone, with `label` in front.
    pub fn bar_only(label: String) -> Self {
        Self { progress: Progress::bar_only(label).with_step_texts(step_texts), run: None }
    }

    /// Reports steps and epochs of a run, draws its curves, and stops it after an interrupt.
    pub fn of_run(run: &'a RunFolder, output: &Output, every_interval: bool) -> Self {
        let progress = Progress::new(output.json)
            .until(&output.interrupt)
            .with_every_interval(every_interval)
            .with_log_every(output.log_every())
            .with_step_texts(step_texts);
        Self { progress, run: Some(run) }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.progress.finish();
    }
}

impl TrainObserver for View<'_> {
    fn on_start(&mut self, share: f64) {
        self.progress.on_start(share);
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        self.progress.on_interval(interval);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.progress.on_epoch(metrics, share);
        // A picture is no reason to stop training.
        if let Some(Err(error)) = self.run.map(draw) {
            self.progress.on_message(&format!("the curves were not drawn: {error}"));
        }
    }

    fn stop(&mut self) -> bool {
        self.progress.stop()
    }
}

/// What is said of some steps. The learning rate never changes.
fn step_texts(interval: &StepMetrics, _characters: bool, left: Option<Duration>) -> [String; 2] {
    let StepMetrics { epoch, epochs, step, steps, tokens_per_s, ppl, gradient_norm, .. } = *interval;
    let message = format!(
        "ppl {}, {tokens_per_s:.0} tokens/s{}, gradient norm {gradient_norm:.2}",
        decimal(ppl, 1),
        left_text(left)
    );
    [format!("epoch {epoch}/{epochs}, step {step} of {steps}: {message}"), message]
}

/// Draws `curves.svg` in a run's folder from its `metrics.jsonl`.
fn draw(run: &RunFolder) -> Result<(), Failure> {
    let lines = run.metrics()?;
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let points = |back: f64, of: fn(&EpochMetrics) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|metrics| (metrics.epoch as f64 - back, of(metrics))).collect()
    };
    let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let chart = Chart {
        caption: format!("Perplexity, {name}"),
        x: ("epoch", Scale::Linear),
        y: ("perplexity (log)", Scale::Logarithmic),
        lines: vec![
            ("validation".into(), points(0.0, |metrics| metrics.valid_ppl)),
            (AS_MET.into(), points(WITHIN, |metrics| metrics.train_ppl)),
        ],
        labels: SeriesLabelPosition::UpperRight,
    };
    picture::save(&Keyed(chart), &run.path().join("curves"))
}
