//! Charts of lines over linear or logarithmic axes.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::failure::Failure;
use crate::picture::{Area, CAPTION, FONT, KEY_LINE, Picture, TEXT, key, legend, line, log_ticks, tick};

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By factors; what is not above 0 is left out.
    Logarithmic,
}

/// Lines with labels over two axes, which span all of their points.
pub struct Chart {
    /// What is shown.
    pub caption: String,
    /// What the horizontal axis shows.
    pub x: (&'static str, Scale),
    /// What the vertical axis shows.
    pub y: (&'static str, Scale),
    /// Labels and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Where the labels are inside of the chart; none: above it, where they cover none of its lines.
    pub labels: Option<SeriesLabelPosition>,
}

/// A chart of perplexities over how far training had gone, which `x` names, with its labels above it.
pub fn perplexities(caption: String, x: &'static str, lines: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    let y = ("perplexity (log)", Scale::Logarithmic);
    Chart { caption, x: (x, Scale::Linear), y, lines, labels: None }
}

impl Picture for Chart {
    fn size(&self) -> (u32, u32) {
        let above = if self.labels.is_none() { self.lines.len() as u32 } else { 0 };
        (760, 460 + KEY_LINE * above)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let area = match self.labels {
            Some(_) => area.clone(),
            None => {
                let labels: Vec<&str> = self.lines.iter().map(|(label, _)| label.as_str()).collect();
                key(&area.titled(&self.caption, (FONT, CAPTION))?, &labels)?
            }
        };
        let ((x_title, x_scale), (y_title, y_scale)) = (self.x, self.y);
        let lines: Vec<(&str, Vec<(f64, f64)>)> = self
            .lines
            .iter()
            .map(|(label, points)| {
                let shown = |point: &&(f64, f64)| x_scale.shows(point.0) && y_scale.shows(point.1);
                (label.as_str(), points.iter().filter(shown).copied().collect())
            })
            .collect();
        let points = || lines.iter().flat_map(|(_, points)| points);
        let mut builder = ChartBuilder::on(&area);
        if self.labels.is_some() {
            builder.caption(&self.caption, (FONT, CAPTION));
        }
        let mut chart = builder.margin(12).x_label_area_size(46).y_label_area_size(70).build_cartesian_2d(
            Axis::new(x_scale, points().map(|point| point.0)),
            Axis::new(y_scale, points().map(|point| point.1)),
        )?;
        chart
            .configure_mesh()
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .x_labels(10)
            .y_labels(8)
            .x_desc(x_title)
            .y_desc(y_title)
            .draw()?;
        for (index, (label, points)) in lines.iter().enumerate() {
            line(&mut chart, points, index, label)?;
        }
        match &self.labels {
            Some(position) => legend(&mut chart, position.clone()),
            None => Ok(()),
        }
    }
}

impl Scale {
    fn shows(self, value: f64) -> bool {
        value.is_finite() && (self == Self::Linear || value > 0.0)
    }

    /// The place of a value, before scaling to pixels.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
        }
    }
}

/// An axis that spans all of its values, with some room.
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Where its ticks are, if not at round numbers.
    ticks: Option<Vec<f64>>,
}

impl Axis {
    /// An axis over these values.
    pub fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        // Nothing to show, or one value only: any span will do.
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        match scale {
            Scale::Linear => {
                let room = if high > low { 0.04 * (high - low) } else { 1.0 };
                Self { scale, low: low - room, high: high + room, ticks: None }
            }
            Scale::Logarithmic => {
                let [low, high] = [low, high].map(|end| end.clamp(f64::MIN_POSITIVE, f64::MAX));
                let room = (high / low).min(f64::MAX).powf(0.04).max(1.1);
                let (low, high) = ((low / room).max(f64::MIN_POSITIVE), (high * room).min(f64::MAX));
                Self { scale, low, high, ticks: None }
            }
        }
    }

    /// A value moved along the axis by a share of its length.
    pub fn moved(&self, value: f64, share: f64) -> f64 {
        match self.scale {
            Scale::Linear => value + share * (self.high - self.low),
            Scale::Logarithmic => value * (self.high / self.low).powf(share),
        }
    }

    /// The same axis with ticks at given values.
    pub fn with_ticks(self, ticks: Vec<f64>) -> Self {
        Self { ticks: Some(ticks), ..self }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |value| self.scale.place(value);
        let share = (place(*value) - place(self.low)) / (place(self.high) - place(self.low));
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if let Some(ticks) = &self.ticks {
            return ticks.clone();
        }
        match self.scale {
            Scale::Linear => even_ticks(self.low, self.high, hint.bold_points().max(2)),
            Scale::Logarithmic => {
                let ticks = log_ticks(self.low, self.high);
                let every = ticks.len().div_ceil(12);
                ticks.into_iter().step_by(every).collect()
            }
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        tick(*value)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten between `low` and `high`: at most `most`.
fn even_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let least = (high - low) / most as f64;
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = steps.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|index| index as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(even_ticks(-1.3, 20.9, 10), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(even_ticks(0.0, 1.0, 8).len(), 6);
        for (low, high) in [(0.1, 0.11), (-5.0, 900.0), (3.0, 5.0)] {
            let ticks = even_ticks(low, high, 8);
            assert!((2..=9).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (low..=high).contains(tick)));
        }
    }

    #[test]
    fn axes_span_their_values() {
        let axis = Axis::new(Scale::Linear, [2.0, 4.0].into_iter());
        assert_eq!((axis.map(&axis.low, (10, 110)), axis.map(&axis.high, (10, 110))), (10, 110));
        assert_eq!(axis.map(&3.0, (10, 110)), 60);
        let axis = Axis::new(Scale::Logarithmic, [1e-3, 1e3].into_iter());
        assert_eq!(axis.map(&1.0, (0, 100)), 50);
        assert!(axis.low < 1e-3 && axis.high > 1e3);
        assert_eq!(axis.map(&axis.moved(axis.low, 0.25), (0, 100)), 25);
        let axis = axis.with_ticks(vec![1.0, 7.0]);
        assert_eq!(axis.key_points(10), [1.0, 7.0]);
        // A single value and none at all are drawn as well.
        assert!(Axis::new(Scale::Linear, [7.0].into_iter()).range().contains(&7.0));
        assert!(!Axis::new(Scale::Logarithmic, [].into_iter()).range().is_empty());
    }

    #[test]
    fn ends_and_ticks_of_extreme_values_are_finite() {
        for values in
            [[1.0, 1e300], [f64::MAX, f64::MAX], [f64::from_bits(1), 1.0], [f64::from_bits(1), f64::MAX]]
        {
            let axis = Axis::new(Scale::Logarithmic, values.into_iter());
            assert!(axis.low > 0.0 && axis.low < axis.high && axis.high.is_finite(), "{values:?}");
            let ticks = log_ticks(axis.low, axis.high);
            assert!((2..1000).contains(&ticks.len()), "{values:?}: {} ticks", ticks.len());
            assert!(ticks.iter().all(|tick| tick.is_finite()), "{values:?}");
        }
    }

    #[test]
    fn points_that_have_no_place_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let chart = Chart {
            caption: "a chart".into(),
            x: ("d", Scale::Logarithmic),
            y: ("error", Scale::Logarithmic),
            lines: vec![("one".into(), vec![(1.0, 0.0), (2.0, 0.5), (4.0, f64::NAN), (8.0, 0.1)])],
            labels: Some(SeriesLabelPosition::UpperRight),
        };
        crate::picture::save(&chart, &folder.path().join("chart")).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("chart.svg")).unwrap();
        assert!(svg.contains("a chart") && svg.contains("one") && !svg.contains("NaN"), "{svg}");
    }
}
