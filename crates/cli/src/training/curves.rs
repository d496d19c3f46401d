//! The curves of a run: perplexities, learning rate, and where averaging began.

use plotters::prelude::*;
use runs::{EpochMetrics, Folder, Settings};

use crate::failure::Failure;
use crate::picture::{self, Area, FONT, Picture, TEXT};
use crate::statistics::decimal;

/// Draws `curves.svg` in a run's folder from its `metrics.jsonl`.
///
/// # Errors
/// Files that cannot be read or written.
pub fn save<S: Settings>(run: &Folder<S>) -> Result<(), Failure> {
    let lines = run.metrics()?;
    // The line of a finished run is no epoch.
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if epochs.is_empty() {
        return Ok(());
    }
    let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    picture::save(&Curves { name, epochs }, &run.path().join("curves"))
}

/// The label of training perplexities.
const AS_MET: &str = "training, mean of each epoch as met (with dropout)";
/// How far a mean over an epoch lies before the epoch's end, where validation is.
const WITHIN: f64 = 0.5;

struct Curves {
    name: String,
    epochs: Vec<EpochMetrics>,
}

impl Curves {
    /// Epochs as the horizontal axis, with room at both ends.
    fn span(&self) -> std::ops::Range<f64> {
        let (first, last) = (self.epochs[0].epoch as f64, self.epochs[self.epochs.len() - 1].epoch as f64);
        let room = ((last - first) * 0.03).max(0.2);
        first - 1.0 - room..last + room
    }

    /// Values of the epochs, so much before their ends.
    fn points(&self, back: f64, of: fn(&EpochMetrics) -> f64) -> Vec<(f64, f64)> {
        self.epochs.iter().map(|metrics| (metrics.epoch as f64 - back, of(metrics))).collect()
    }

    /// Where averaging began: at the end of the last epoch without it.
    fn averaging(&self) -> Option<f64> {
        let first = self.epochs.iter().find(|metrics| metrics.averaging == Some(true))?;
        Some(first.epoch as f64 - 1.0)
    }
}

impl Picture for Curves {
    fn size(&self) -> (u32, u32) {
        (900, 620)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let (above, below) = area.split_vertically(430);
        let (train, valid) =
            (self.points(WITHIN, |metrics| metrics.train_ppl), self.points(0.0, |metrics| metrics.valid_ppl));
        let values = || train.iter().chain(&valid).map(|(_, ppl)| *ppl);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min) / 1.04, values().fold(1.0, f64::max) * 1.04);
        let best = valid.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0.0, f64::NAN));
        let validation = format!("validation, best {} after epoch {}", decimal(best.1, 2), best.0);
        let averaging = self
            .averaging()
            .map_or(String::new(), |epoch| format!("; averaging begins after epoch {epoch} (thin line)"));
        let caption = format!("Perplexity, {}{averaging}", self.name);
        let titled = above.titled(&caption, (FONT, picture::CAPTION))?;
        let mut chart = ChartBuilder::on(&picture::key(&titled, &[&validation, AS_MET])?)
            .margin(12)
            .x_label_area_size(12)
            .y_label_area_size(62)
            .build_cartesian_2d(
                self.span(),
                (low..high).log_scale().with_key_points(picture::log_ticks(low, high)),
            )?;
        chart
            .configure_mesh()
            .x_labels(12)
            .x_label_formatter(&|_| String::new())
            .y_label_formatter(&|ppl| picture::tick(*ppl))
            .y_desc("perplexity (log)")
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .draw()?;
        if let Some(epoch) = self.averaging() {
            let mark = BLACK.mix(0.6).stroke_width(1);
            chart.draw_series([PathElement::new([(epoch, low), (epoch, high)], mark)])?;
        }
        picture::line(&mut chart, &train, 1, AS_MET)?;
        picture::line(&mut chart, &valid, 0, &validation)?;

        let rates = self.points(WITHIN, |metrics| metrics.lr);
        let highest = rates.iter().fold(0.0, |high: f64, (_, lr)| high.max(*lr));
        let mut chart = ChartBuilder::on(&below)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(62)
            .build_cartesian_2d(self.span(), 0.0..highest * 1.2)?;
        chart
            .configure_mesh()
            .x_labels(12)
            .y_labels(4)
            .x_label_formatter(&|epoch| picture::tick(*epoch))
            .y_label_formatter(&|lr| picture::tick(*lr))
            .x_desc("epoch")
            .y_desc("learning rate")
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .draw()?;
        if let Some(epoch) = self.averaging() {
            let mark = BLACK.mix(0.6).stroke_width(1);
            chart.draw_series([PathElement::new([(epoch, 0.0), (epoch, highest * 1.2)], mark)])?;
        }
        picture::line(&mut chart, &rates, 0, "learning rate")
    }
}
