//! Perplexities of trials against a setting.

use awd_lstm::HeadKind;
use plotters::prelude::*;

use crate::chart::{Axis as Span, Scale};
use crate::commands::sweep::cells::{self, Cell};
use crate::commands::sweep::grid::{Axis, number};
use crate::commands::sweep::outcome::Outcome;
use crate::commands::sweep::pictures::{scale_of, tick, x_label};
use crate::commands::sweep::range::is_by_steps;
use crate::failure::Failure;
use crate::picture::{self, Area, FONT, Picture, TEXT};

/// Room for the legend above the marks, as a share of their range.
const LEGEND: f64 = 0.2;

/// A mark for every trial of a head that has the setting: its validation perplexity against the setting's value.
pub struct Scatter {
    title: String,
    /// The setting as the label of its axis.
    x: String,
    /// Whether its values were drawn by steps and not by factors.
    by_steps: bool,
    heads: Vec<(HeadKind, Vec<(f64, f64)>)>,
}

impl Scatter {
    /// The picture against a setting of numbers; none as long as there are not two of them.
    pub fn new(outcomes: &[Outcome], axis: &Axis) -> Option<Self> {
        let mut heads: Vec<(HeadKind, Vec<(f64, f64)>)> = vec![];
        for cell in Cell::all(outcomes) {
            let x = cell.first().setting(&axis.flag).and_then(number);
            let Some((x, y)) = x.zip(cell.mean(cells::chosen_by)) else { continue };
            match heads.iter_mut().find(|(head, _)| *head == cell.head()) {
                Some((_, points)) => points.push((x, y)),
                None => heads.push((cell.head(), vec![(x, y)])),
            }
        }
        let picture = Self {
            title: format!("Validation perplexity of trials against {}", cells::symbol(&axis.flag)),
            x: x_label(&axis.flag),
            by_steps: is_by_steps(&axis.flag),
            heads,
        };
        (picture.values().len() > 1).then_some(picture)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.heads.iter().flat_map(|(_, points)| points).copied()
    }

    /// The different values of the setting.
    fn values(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.points().map(|(x, _)| x).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }
}

impl Picture for Scatter {
    fn size(&self) -> (u32, u32) {
        (760, 460)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let values = self.values();
        // Drawn values are uneven: their ends say how they are spread, unless it is known.
        let scale = match self.by_steps {
            true => Scale::Linear,
            false => scale_of(&[values[0], values[values.len() - 1]]),
        };
        let x = Span::new(scale, self.points().map(|(x, _)| x));
        let ppl = || self.points().map(|(_, y)| y);
        let (low, high) = (ppl().fold(f64::INFINITY, f64::min), ppl().fold(f64::NEG_INFINITY, f64::max));
        let y = ppl().chain([high + LEGEND * (high - low)]);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, picture::CAPTION))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d(x, Span::new(Scale::Linear, y))?;
        chart
            .configure_mesh()
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .x_labels(12)
            .y_labels(8)
            .x_label_formatter(&|value| tick(*value))
            .x_desc(&self.x)
            .y_desc("validation perplexity")
            .draw()?;
        for (index, (head, points)) in self.heads.iter().enumerate() {
            picture::marks(&mut chart, points, index, head.name())?;
        }
        picture::legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::table::tests::{axis, outcome};

    #[test]
    fn every_trial_is_a_mark_of_its_head() {
        let mut outcomes = vec![
            outcome(HeadKind::Mos, &[("lr", "5"), ("components", "3")], 1, 12.0),
            outcome(HeadKind::Mos, &[("lr", "50"), ("components", "5")], 1, 10.0),
            outcome(HeadKind::Softmax, &[("lr", "50")], 1, 9.0),
        ];
        let scatter = Scatter::new(&outcomes, &axis("lr", &[])).unwrap();
        assert_eq!(scatter.heads[0], (HeadKind::Mos, vec![(5.0, 13.0), (50.0, 11.0)]));
        assert_eq!(scatter.heads[1], (HeadKind::Softmax, vec![(50.0, 10.0)]));
        assert_eq!(Scatter::new(&outcomes, &axis("components", &[])).unwrap().heads.len(), 1);
        let folder = tempfile::tempdir().unwrap();
        picture::save(&scatter, &folder.path().join("scatter")).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("scatter.svg")).unwrap();
        assert!(
            svg.contains("learning rate") && svg.contains("softmax") && svg.contains("validation perplexity")
        );
        outcomes[1].failed = Some("too hot".into());
        outcomes.truncate(2);
        assert!(Scatter::new(&outcomes, &axis("lr", &[])).is_none());
    }
}
