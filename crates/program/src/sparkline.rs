//! How a training goes, in characters, for a terminal.

use std::fmt::Write;

use console::Term;

use crate::statistics::decimal;

/// Heights of a column, from the lowest to the highest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The column of a value that is not finite.
const BROKEN: char = '×';
/// Fewest and most columns of a curve.
const COLUMNS: (usize, usize) = (6, 48);
/// Between two curves.
const GAP: &str = "   ";

/// Losses and validation perplexities of a training.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// The mean loss of some training steps after another, in nats.
    pub losses: Vec<f64>,
    /// Perplexities of the validation text. Their heights are logarithmic.
    pub perplexities: Vec<f64>,
}

impl Curves {
    /// The curves with their first and last values, each from two values on, in less than `width` columns. `None` if there is nothing to
    /// draw or no room; the loss makes room for the perplexity.
    pub fn line(&self, width: usize) -> Option<String> {
        let logs: Vec<f64> = self.perplexities.iter().map(|ppl| ppl.ln()).collect();
        let [loss, valid] =
            [("loss", &self.losses, &self.losses, 3), ("valid", &self.perplexities, &logs, 1)].map(
                |(name, values, heights, digits)| {
                    let ends = (values.first()?, values.last()?);
                    (values.len() > 1).then(|| {
                        let [first, last] = [ends.0, ends.1].map(|end| decimal(*end, digits));
                        (format!("{name} {first} "), heights, format!(" {last}"))
                    })
                },
            );
        let shown: Vec<_> = loss.into_iter().chain(valid).collect();
        (0..shown.len()).find_map(|skipped| {
            let shown = &shown[skipped..];
            let taken: usize = shown.iter().map(|(before, _, after)| before.len() + after.len()).sum();
            let room = (width.checked_sub(1 + taken + GAP.len() * (shown.len() - 1))?) / shown.len();
            if room < COLUMNS.0 {
                return None;
            }
            let mut line = String::new();
            for (index, (before, heights, after)) in shown.iter().enumerate() {
                let gap = if index > 0 { GAP } else { "" };
                let _ = write!(line, "{gap}{before}{}{after}", sparkline(heights, room.min(COLUMNS.1)));
            }
            Some(line)
        })
    }

    /// The same as wide as the terminal of standard error is now.
    pub fn as_wide_as_terminal(&self) -> Option<String> {
        let (_, columns) = Term::stderr().size();
        self.line(columns.into())
    }
}

/// At most `columns` block characters, each the mean of the values that fall on it, between the lowest and the highest mean.
fn sparkline(values: &[f64], columns: usize) -> String {
    let columns = columns.min(values.len());
    let start = |column| column * values.len() / columns;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let means: Vec<f64> =
        (0..columns).map(|column| mean(&values[start(column)..start(column + 1)])).collect();
    let finite = || means.iter().copied().filter(|mean| mean.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let block = |mean: f64| match mean.is_finite() {
        false => BROKEN,
        true if high > low => {
            BLOCKS[((mean - low) / (high - low) * (BLOCKS.len() - 1) as f64).round() as usize]
        }
        true => BLOCKS[0],
    };
    means.iter().copied().map(block).collect()
}

/// Rows and columns of [`lines_as_text`].
const PLOT: (usize, usize) = (12, 60);

/// Labelled lines of values above 0 as one plot, each with a mark of its own, heights in logarithms.
pub fn lines_as_text(lines: &[(String, Vec<(f64, f64)>)]) -> String {
    const MARKS: [char; 4] = ['○', '●', '□', '■'];
    let points = || lines.iter().flat_map(|(_, points)| points);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let values = || points().map(of).filter(|value| value.is_finite());
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    };
    let ((left, right), (low, high)) = (ends(|point| point.0), ends(|point| point.1));
    let place = |share: f64, count: usize| (share.clamp(0.0, 1.0) * (count - 1) as f64).round() as usize;
    let mut cells = vec![[' '; PLOT.1]; PLOT.0];
    for ((_, points), mark) in lines.iter().zip(MARKS.iter().cycle()) {
        for (x, y) in points.iter().filter(|point| point.1.is_finite()) {
            let column = place((x - left) / (right - left).max(1e-9), PLOT.1);
            let row = place((high / y).ln() / (high / low).ln().max(1e-9), PLOT.0);
            cells[row][column] = *mark;
        }
    }
    let mut text = String::new();
    for (row, cells) in cells.iter().enumerate() {
        let label = match row {
            0 => decimal(high, 1),
            row if row + 1 == PLOT.0 => decimal(low, 1),
            _ => String::new(),
        };
        let _ = writeln!(text, "{label:>9} │{}", cells.iter().collect::<String>().trim_end());
    }
    let _ = writeln!(text, "{:>9} └{}", "", "─".repeat(PLOT.1));
    let legend = lines.iter().zip(MARKS.iter().cycle()).map(|((label, _), mark)| format!("{mark} {label}"));
    text + &format!("{:>11}{}", "", legend.collect::<Vec<_>>().join("   "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(losses: &[f64], perplexities: &[f64]) -> Curves {
        Curves { losses: losses.to_vec(), perplexities: perplexities.to_vec() }
    }

    #[test]
    fn heights_span_the_values() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[9.0, 5.0, 5.0], 8), "█▁▁");
        assert_eq!(sparkline(&[3.0, 3.0], 8), "▁▁");
        assert_eq!(sparkline(&[], 8), "");
    }

    #[test]
    fn many_values_share_columns() {
        // Means of 7, 4 and 1.
        assert_eq!(sparkline(&[8.0, 6.0, 5.0, 3.0, 1.0, 1.0], 3), "█▅▁");
        // Five values on two columns: two and three of them.
        assert_eq!(sparkline(&[1.0, 1.0, 0.0, 0.0, 0.0], 2), "█▁");
    }

    #[test]
    fn a_value_that_is_not_finite_is_marked() {
        assert_eq!(sparkline(&[2.0, f64::NAN, 1.0, f64::INFINITY], 8), "█×▁×");
        assert_eq!(sparkline(&[f64::NAN; 2], 8), "××");
    }

    #[test]
    fn a_line_has_both_ends_of_each_curve() {
        let both = curves(&[6.9, 5.0, 4.5], &[800.0, 200.0, 100.0]);
        // 200 is a third of the way up in logarithms, a seventh otherwise.
        assert_eq!(both.line(80).unwrap(), "loss 6.900 █▂▁ 4.500   valid 800.0 █▃▁ 100.0");
    }

    #[test]
    fn a_curve_needs_two_values() {
        assert_eq!(curves(&[], &[]).line(80), None);
        assert_eq!(curves(&[6.9], &[400.0]).line(80), None);
        assert_eq!(curves(&[6.9, 6.0], &[400.0]).line(80).unwrap(), "loss 6.900 █▁ 6.000");
    }

    #[test]
    fn lines_are_plotted_between_their_ends() {
        let text = lines_as_text(&[
            ("one".into(), vec![(1.0, 100.0), (2.0, 10.0)]),
            ("other".into(), vec![(1.0, 10.0), (2.0, f64::NAN)]),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), PLOT.0 + 2);
        assert_eq!(lines[0], "    100.0 │○");
        assert!(lines[PLOT.0 - 1].starts_with("     10.0 │●") && lines[PLOT.0 - 1].ends_with('○'), "{text}");
        assert_eq!(lines[PLOT.0 + 1].trim(), "○ one   ● other");
    }

    #[test]
    fn a_line_fits_any_terminal() {
        let losses: Vec<f64> = (0..500).map(|step| 9.0 - f64::from(step) / 100.0).collect();
        let perplexities: Vec<f64> = (0..300).map(|epoch| 900.0 - f64::from(epoch)).collect();
        let both = curves(&losses, &perplexities);
        let mut longest = 0;
        for width in 0..200 {
            let Some(line) = both.line(width) else {
                assert!(width < 25, "nothing in {width} columns");
                continue;
            };
            let length = line.chars().count();
            assert!(length < width, "{length} of {width} columns: {line}");
            assert!(
                line.starts_with("loss") == (width >= 51) && line.contains("valid 900.0 █"),
                "{width}: {line}"
            );
            longest = longest.max(length);
        }
        // As wide as is of use, and no wider.
        assert_eq!(
            longest,
            "loss 9.000  4.010".len() + "valid 900.0  601.0".len() + GAP.len() + 2 * COLUMNS.1
        );
    }
}
