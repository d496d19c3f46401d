//! Perplexities head by head, where no number varies.

use std::collections::HashMap;

use awd_lstm::HeadKind;
use plotters::prelude::*;
use program::failure::Failure;
use program::picture::{self, Area, FONT, LineStyle, Picture, TEXT};
use program::statistics::grouped;

use crate::commands::sweep::cells::{self, Cell, Quantity};
use crate::commands::sweep::grid::Varying;
use crate::commands::sweep::outcome::Outcome;

/// Room for the legend below the rows, in rows.
const LEGEND: f64 = 1.4;

/// A row for every head and combination of values: a mark for each mean, a line from the lowest to the highest seed.
pub struct Marks<'a> {
    cells: Vec<Cell<'a>>,
    /// Whether they are drawn as they are after finetuning.
    finetuned: bool,
}

/// Whether every head has one combination of values, of those of all runs.
pub fn is_one_a_head<'a>(mut runs: impl Iterator<Item = (HeadKind, &'a Varying)>) -> bool {
    let mut first: HashMap<HeadKind, &Varying> = HashMap::new();
    runs.all(|(head, settings)| *first.entry(head).or_insert(settings) == settings)
}

impl<'a> Marks<'a> {
    /// The picture of all runs that did not fail.
    pub fn new(outcomes: &'a [Outcome]) -> Self {
        let mut cells = Cell::all(outcomes);
        cells.retain(|cell| !cell.values(cells::valid_ppl).is_empty());
        Self { cells, finetuned: cells::all_have(outcomes, cells::finetuned_valid_ppl) }
    }

    /// The names of the rows; the values of a head that has one combination are in the table.
    fn labels(&self) -> Vec<String> {
        let of_head = |head: HeadKind| self.cells.iter().filter(|other| other.head() == head).count();
        let label = |cell: &Cell| match of_head(cell.head()) {
            1 => cell.head().to_string(),
            _ => cell.label(|_| true),
        };
        self.cells.iter().map(label).collect()
    }

    fn title(&self) -> String {
        let parameters = || self.cells.iter().map(|cell| cell.first().parameters);
        let (least, most) = (parameters().min().unwrap_or(0), parameters().max().unwrap_or(0));
        let mut heads: Vec<HeadKind> = self.cells.iter().map(Cell::head).collect();
        heads.dedup();
        let what = if heads.len() == 1 { heads[0].to_string() } else { "Heads".into() };
        // Equal parameters are equal up to whole sizes.
        match least as f64 > 0.95 * most as f64 {
            true => format!("{what} of about {} parameters", grouped(most)),
            false => format!("{what} of {} to {} parameters", grouped(least), grouped(most)),
        }
    }
}

impl Picture for Marks<'_> {
    fn size(&self) -> (u32, u32) {
        (760, 130 + (44.0 * (self.cells.len() as f64 + LEGEND)) as u32)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let (rows, labels) = (self.cells.len() as i32, self.labels());
        let series: [(&str, Quantity); 2] = match self.finetuned {
            false => [("test", cells::test_ppl), ("validation", cells::valid_ppl)],
            true => [("test, finetuned", cells::final_test_ppl), ("validation, finetuned", cells::chosen_by)],
        };
        let all: Vec<f64> =
            series.iter().flat_map(|(_, of)| self.cells.iter().flat_map(|cell| cell.values(*of))).collect();
        let (low, high) =
            (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
        let room = ((high - low) * 0.08).max(high * 0.01);
        let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as u32;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title(), (FONT, picture::CAPTION))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size((8 * widest + 24).clamp(100, 420))
            .build_cartesian_2d(low - room..high + room, -0.5 - LEGEND..f64::from(rows) - 0.5)?;
        let label = |place: &f64| {
            let row = place.round();
            let index = rows - 1 - row as i32;
            match (place - row).abs() < 0.01 && (0..rows).contains(&index) {
                // Without ticks a label would touch the axis, and a picture's trailing blanks are dropped unless they hold.
                true => format!("{}\u{a0}\u{a0}", labels[index as usize]),
                false => String::new(),
            }
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(2 * labels.len() + 4)
            .y_label_formatter(&label)
            // Most of these places have no row.
            .set_tick_mark_size(LabelAreaPosition::Left, 0)
            .x_label_formatter(&|ppl| picture::tick(*ppl))
            .x_desc("perplexity (mark: mean, line: range over seeds)")
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .draw()?;
        for (index, (name, of)) in series.into_iter().enumerate() {
            let color = LineStyle::nth(index).color;
            let shift = if index == 0 { 0.13 } else { -0.13 };
            let mut marks = vec![];
            for (position, cell) in self.cells.iter().enumerate() {
                let row = f64::from(rows - 1 - position as i32) + shift;
                let Some((mean, ends)) = cell.mean_and_ends(of) else { continue };
                chart.draw_series([PathElement::new(ends.map(|end| (end, row)), color.stroke_width(2))])?;
                marks.push((mean, row));
            }
            if marks.is_empty() {
                continue;
            }
            let style = if index == 0 { color.filled() } else { color.stroke_width(2) };
            chart
                .draw_series(marks.into_iter().map(|place| Circle::new(place, 5, style)))?
                .label(name)
                .legend(move |(x, y)| Circle::new((x + 12, y), 5, style));
        }
        picture::legend(&mut chart, SeriesLabelPosition::LowerRight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::table::tests::outcome;

    #[test]
    fn rows_are_heads_with_what_varies() {
        let mut outcomes = [
            outcome(HeadKind::Mos, &[("precision", "full")], 28, 10.0),
            outcome(HeadKind::Mos, &[("precision", "bf16")], 28, 11.0),
            outcome(HeadKind::Softmax, &[], 28, 20.0),
        ];
        assert_eq!(Marks::new(&outcomes).title(), "Heads of about 1,234,567 parameters");
        assert_eq!(Marks::new(&outcomes[..2]).title(), "mos of about 1,234,567 parameters");
        outcomes[2].parameters = 1_000_000;
        let marks = Marks::new(&outcomes);
        assert_eq!(marks.title(), "Heads of 1,000,000 to 1,234,567 parameters");
        assert_eq!(marks.labels(), ["mos, precision full", "mos, precision bf16", "softmax"]);
        let folder = tempfile::tempdir().unwrap();
        picture::save(&marks, &folder.path().join("marks")).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("marks.svg")).unwrap();
        assert!(svg.contains("mos, precision bf16") && svg.contains("perplexity (mark: mean"), "{svg}");
        outcomes[2].trained = None;
        assert_eq!(Marks::new(&outcomes).labels().len(), 2);
    }
}
