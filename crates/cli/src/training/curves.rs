//! The curves of a run.

use program::chart::perplexities;
use program::failure::Failure;
use program::files::last_part;
use program::picture;
use program::statistics::decimal;
use runs::{EpochMetrics, Folder, Settings};

/// How far a mean over an epoch lies before the epoch's end, where validation is.
const WITHIN: f64 = 0.5;

/// Draws `curves.svg` in a run's folder from its `metrics.jsonl`.
pub fn save<S: Settings>(run: &Folder<S>) -> Result<(), Failure> {
    let lines = run.metrics()?;
    // The line of a finished run is no epoch.
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let points = |back: f64, of: fn(&EpochMetrics) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|metrics| (metrics.epoch as f64 - back, of(metrics))).collect()
    };
    let valid = points(0.0, |metrics| metrics.valid_ppl);
    let Some(best) = valid.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(()) };
    let name = last_part(run.path());
    let averaging = epochs
        .iter()
        .find(|metrics| metrics.averaging == Some(true))
        .map_or(String::new(), |first| format!("; averaged weights from epoch {} on", first.epoch));
    let lines = vec![
        (format!("validation at ends of epochs, best {} after epoch {}", decimal(best.1, 2), best.0), valid),
        (
            "training, mean of each epoch as met (with dropout)".into(),
            points(WITHIN, |metrics| metrics.train_ppl),
        ),
    ];
    let chart = perplexities(format!("Perplexity, {name}{averaging}"), "epoch", lines);
    picture::save(&chart, &run.path().join("curves"))
}
