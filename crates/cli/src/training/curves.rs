//! The curves of a run: perplexities, learning rate, and where averaging began.

use awd_lstm::train::RunFolder;
use plotters::coord::Shift;
use plotters::prelude::*;
use runs::EpochMetrics;

use crate::failure::Failure;
use crate::picture::{self, FONT, Picture, TEXT};

/// Draws `curves.svg` and `curves.png` in a run's folder from its `metrics.jsonl`.
///
/// # Errors
/// Files that cannot be read or written.
pub fn save(run: &RunFolder) -> Result<(), Failure> {
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

struct Curves {
    name: String,
    epochs: Vec<EpochMetrics>,
}

impl Curves {
    /// Epochs as the horizontal axis, with room at both ends.
    fn span(&self) -> std::ops::Range<f64> {
        let (first, last) = (self.epochs[0].epoch as f64, self.epochs[self.epochs.len() - 1].epoch as f64);
        let room = ((last - first) * 0.03).max(0.5);
        first - room..last + room
    }

    fn points(&self, of: fn(&EpochMetrics) -> f64) -> Vec<(f64, f64)> {
        self.epochs.iter().map(|metrics| (metrics.epoch as f64, of(metrics))).collect()
    }

    /// Draws the line where averaging began, between the last epoch without it and the first with it.
    fn averaging(&self) -> Option<f64> {
        let first = self.epochs.iter().find(|metrics| metrics.averaging == Some(true))?;
        Some(first.epoch as f64 - 0.5)
    }
}

impl Picture for Curves {
    fn size(&self) -> (u32, u32) {
        (900, 620)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let (above, below) = area.split_vertically(430);
        let (train, valid) =
            (self.points(|metrics| metrics.train_ppl), self.points(|metrics| metrics.valid_ppl));
        let values = || train.iter().chain(&valid).map(|(_, ppl)| *ppl);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min) / 1.04, values().fold(1.0, f64::max) * 1.04);
        let mut chart = ChartBuilder::on(&above)
            .caption(format!("Perplexity, {}", self.name), (FONT, picture::CAPTION))
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
            chart
                .draw_series([PathElement::new([(epoch, low), (epoch, high)], mark)])?
                .label("averaging begins")
                .legend(move |(x, y)| PathElement::new([(x + 12, y - 6), (x + 12, y + 6)], mark));
        }
        picture::line(&mut chart, &train, 1, "training, as met (with dropout)")?;
        let best = valid.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0.0, f64::NAN));
        let label = format!("validation, best {:.2} after epoch {}", best.1, best.0);
        picture::line(&mut chart, &valid, 0, &label)?;
        picture::legend(&mut chart, SeriesLabelPosition::UpperRight)?;

        let rates = self.points(|metrics| metrics.lr);
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
