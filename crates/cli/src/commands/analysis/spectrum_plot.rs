//! The spectra of several models in one picture.

use plotters::prelude::*;

use crate::failure::Failure;
use crate::picture::{Area, CAPTION, FONT, Picture, TEXT, legend, line, tick};

/// Share of singular values at or below a value, over the value, each model's largest being 1: figure 1 of Yang et al.
pub struct SpectrumPlot {
    /// Label and points, in ascending order of the logarithm of the value.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Smallest normalised singular value that is drawn: below, f64 has rounding errors only.
const LOWEST: f64 = 1e-16;

impl SpectrumPlot {
    /// Of labelled spectra, normalised and in descending order.
    pub fn new(spectra: Vec<(String, Vec<f64>)>) -> Self {
        let points = |values: &[f64]| -> Vec<(f64, f64)> {
            let count = values.len() as f64;
            let share = |i: usize| 100.0 * (1.0 - i as f64 / count);
            let place = |value: f64| value.max(LOWEST).log10();
            values.iter().enumerate().rev().map(|(i, value)| (place(*value), share(i))).collect()
        };
        Self { lines: spectra.into_iter().map(|(label, values)| (label, points(&values))).collect() }
    }

    /// The power of ten at which the horizontal axis begins.
    fn lowest(&self) -> f64 {
        let all = self.lines.iter().flat_map(|(_, points)| points.first());
        all.map(|(place, _)| place.floor()).fold(-1.0, f64::min)
    }
}

impl Picture for SpectrumPlot {
    fn size(&self) -> (u32, u32) {
        (760, 460)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let lowest = self.lowest();
        let mut chart = ChartBuilder::on(area)
            .caption("Spectrum of the matrix of log-probabilities", (FONT, CAPTION))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(58)
            .build_cartesian_2d(lowest..0.0, 0.0..102.0)?;
        chart
            .configure_mesh()
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .x_labels((-lowest) as usize + 1)
            .x_label_formatter(&|power| tick(10f64.powi(power.round() as i32)))
            .y_label_formatter(&|share| format!("{share:.0}"))
            .x_desc("singular value over the largest")
            .y_desc("singular values at or below, %")
            .draw()?;
        for (index, (label, points)) in self.lines.iter().enumerate() {
            line(&mut chart, points, index, label)?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_rise_to_all_at_the_largest_value() {
        let plot = SpectrumPlot::new(vec![("a".into(), vec![1.0, 0.1, 1e-3, 0.0])]);
        let (_, points) = &plot.lines[0];
        assert_eq!(points.iter().map(|point| point.1).collect::<Vec<_>>(), [25.0, 50.0, 75.0, 100.0]);
        assert_eq!(points.iter().map(|point| point.0.round()).collect::<Vec<_>>(), [-16.0, -3.0, -1.0, 0.0]);
        assert_eq!(plot.lowest(), -16.0);
    }
}
