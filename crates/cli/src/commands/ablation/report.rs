//! The table and the picture of an ablation.

use std::fmt::Write as _;
use std::path::Path;

use awd_lstm::HeadKind;
use awd_lstm::files::replace;
use awd_lstm::text::comma_list;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::commands::ablation::outcome::Outcome;
use crate::failure::Failure;
use crate::picture::{self, FONT, Picture, TEXT};
use crate::statistics::{mean_and_spread, mean_and_spread_text};

/// Writes `results.jsonl`, `table.md`, `ablation.svg` and `ablation.png` to `folder`.
///
/// # Errors
/// Files that cannot be written.
pub fn save(outcomes: &[Outcome], folder: &Path) -> Result<(), Failure> {
    let write = |name: &str, text: String| replace(&folder.join(name), text.as_bytes());
    let lines = outcomes.iter().map(|outcome| Ok(serde_json::to_string(outcome)? + "\n"));
    write("results.jsonl", lines.collect::<Result<String, serde_json::Error>>()?)?;
    write("table.md", table(outcomes))?;
    picture::save(&Perplexities { outcomes }, &folder.join("ablation"))
}

/// Outcomes head by head, in the order of the first of each.
fn by_head(outcomes: &[Outcome]) -> Vec<(HeadKind, Vec<&Outcome>)> {
    let mut heads: Vec<(HeadKind, Vec<&Outcome>)> = vec![];
    for outcome in outcomes {
        match heads.iter_mut().find(|(head, _)| *head == outcome.head) {
            Some((_, of_head)) => of_head.push(outcome),
            None => heads.push((outcome.head, vec![outcome])),
        }
    }
    heads
}

/// A Markdown table with one line a head: means over seeds, with the standard deviation where there are several.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| head | sizes | parameters | seeds | valid perplexity | test perplexity | tokens/s |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (head, of_head) in by_head(outcomes) {
        let column = |value: fn(&Outcome) -> f64, digits: usize| {
            let values: Vec<f64> = of_head.iter().map(|outcome| value(outcome)).collect();
            mean_and_spread_text(&values, digits)
        };
        let first = of_head[0];
        let _ = writeln!(
            text,
            "| {head} | d {}, LSTM {} | {} | {} | {} | {} | {} |",
            first.d_embedding,
            comma_list(&first.lstm_sizes),
            grouped(first.parameters),
            comma_list(of_head.iter().map(|outcome| outcome.seed)),
            column(|outcome| outcome.valid_ppl, 2),
            column(|outcome| outcome.test_ppl, 2),
            column(|outcome| outcome.tokens_per_s, 0),
        );
    }
    text
}

/// A number with commas between its thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are text"))
        .collect();
    groups.join(",")
}

/// Perplexities head by head: a mark for each mean, a line from the lowest to the highest seed.
struct Perplexities<'a> {
    outcomes: &'a [Outcome],
}

impl Picture for Perplexities<'_> {
    fn size(&self) -> (u32, u32) {
        (760, 130 + 44 * by_head(self.outcomes).len() as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let heads = by_head(self.outcomes);
        let rows = heads.len() as i32;
        let values = || self.outcomes.iter().flat_map(|outcome| [outcome.valid_ppl, outcome.test_ppl]);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let room = ((high - low) * 0.08).max(high * 0.01);
        let parameters = heads.iter().map(|(_, of_head)| of_head[0].parameters).max().unwrap_or(0);
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Heads of about {} parameters", grouped(parameters)), (FONT, picture::CAPTION))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(100)
            .build_cartesian_2d(low - room..high + room, -0.5..f64::from(rows) - 0.5)?;
        let label = |place: &f64| {
            let row = place.round();
            let index = rows - 1 - row as i32;
            match (place - row).abs() < 0.01 && (0..rows).contains(&index) {
                true => heads[index as usize].0.to_string(),
                false => String::new(),
            }
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(2 * heads.len() + 1)
            .y_label_formatter(&label)
            .x_label_formatter(&|ppl| picture::tick(*ppl))
            .x_desc("perplexity (mark: mean, line: range over seeds)")
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .draw()?;
        for (series, (name, of)) in [
            ("test", (|outcome: &Outcome| outcome.test_ppl) as fn(&Outcome) -> f64),
            ("validation", |outcome: &Outcome| outcome.valid_ppl),
        ]
        .into_iter()
        .enumerate()
        {
            let color = picture::LineStyle::nth(series).color;
            let shift = if series == 0 { 0.13 } else { -0.13 };
            let mut marks = vec![];
            for (index, (_, of_head)) in heads.iter().enumerate() {
                let row = f64::from(rows - 1 - index as i32) + shift;
                let values: Vec<f64> = of_head.iter().map(|outcome| of(outcome)).collect();
                let (mean, _) = mean_and_spread(&values);
                let ends = [f64::min, f64::max].map(|pick| values.iter().copied().fold(mean, pick));
                chart.draw_series([PathElement::new(ends.map(|end| (end, row)), color.stroke_width(2))])?;
                marks.push((mean, row));
            }
            let style = if series == 0 { color.filled() } else { color.stroke_width(2) };
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

    fn outcome(head: HeadKind, seed: u64, test_ppl: f64) -> Outcome {
        Outcome {
            head,
            seed,
            parameters: 1_234_567,
            d_embedding: 30,
            lstm_sizes: vec![64, 30],
            epochs: 3,
            best_epoch: 3,
            valid_ppl: test_ppl + 1.0,
            test_ppl,
            tokens_per_s: 1000.0,
            seconds: 1.0,
        }
    }

    #[test]
    fn a_line_a_head_with_mean_and_spread() {
        let outcomes = [
            outcome(HeadKind::Mos, 28, 10.0),
            outcome(HeadKind::Mos, 29, 12.0),
            outcome(HeadKind::Softmax, 28, 20.0),
        ];
        let table = table(&outcomes);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        let mos = "| mos | d 30, LSTM 64, 30 | 1,234,567 | 28, 29 | 12.00 ± 1.41 | 11.00 ± 1.41 | 1000 ± 0 |";
        assert_eq!(lines[0], mos);
        assert_eq!(lines[1], "| softmax | d 30, LSTM 64, 30 | 1,234,567 | 28 | 21.00 | 20.00 | 1000 |");
        let folder = tempfile::tempdir().unwrap();
        save(&outcomes, folder.path()).unwrap();
        for name in ["results.jsonl", "table.md", "ablation.svg", "ablation.png"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
        assert_eq!([1, 999, 1000, 21_500_620].map(grouped), ["1", "999", "1,000", "21,500,620"]);
    }
}
