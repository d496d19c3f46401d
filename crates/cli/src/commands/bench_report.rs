//! `bench-report`: medians and ratios of recorded runs of this project's programs and their peers.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;

use crate::failure::Failure;
use crate::picture::{self, Picture};
use crate::statistics::median;

/// Prints the medians and ratios of recorded runs as a Markdown table.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct BenchReportArgs {
    /// Runs, one JSON object a line, as `scripts/bench_cpu.sh` prints them.
    pub runs: PathBuf,
    /// Draws the ratios to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Who has the runs that peers are compared with.
const OURS: &str = "highrank";

/// One run of a program.
#[derive(Debug, Clone, Deserialize)]
struct Run {
    what: String,
    who: String,
    result: Figures,
}

#[derive(Debug, Clone, Deserialize)]
struct Figures {
    median_ms: f64,
    tokens_per_s: f64,
    of_ceiling: Option<f64>,
    added_peak_bytes: Option<f64>,
}

/// A workload's runs against one peer.
#[derive(Debug)]
struct Pairing {
    what: String,
    peer: String,
    ours: Vec<Figures>,
    theirs: Vec<Figures>,
}

impl Pairing {
    /// Speed of ours over the peer's, run by run: each pair was made one right after the other.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self
            .ours
            .iter()
            .zip(&self.theirs)
            .map(|(ours, theirs)| theirs.median_ms / ours.median_ms)
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// Runs the program.
///
/// # Errors
/// A file that cannot be read or written, a line that is no run, a peer's run without one of ours before it.
pub fn run(args: &BenchReportArgs) -> Result<(), Failure> {
    let pairings = read(&args.runs)?;
    print!("{}", table(&pairings));
    match &args.plot {
        Some(path) => picture::save_svg(&Speeds { pairings: &pairings }, path),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<Pairing>, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let mut pairings: Vec<Pairing> = vec![];
    let mut ours: Option<Run> = None;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("`{}` line {}", path.display(), number + 1);
        let run: Run =
            serde_json::from_str(line).map_err(|error| format!("{} is no run: {error}", place()))?;
        if run.who == OURS {
            ours = Some(run);
            continue;
        }
        let Some(own) = ours.take().filter(|own| own.what == run.what) else {
            let what = &run.what;
            return Err(format!("{}: a peer's run of {what} without one of {OURS} before it", place()).into());
        };
        let same = |pairing: &&mut Pairing| pairing.what == run.what && pairing.peer == run.who;
        match pairings.iter_mut().find(same) {
            Some(pairing) => {
                pairing.ours.push(own.result);
                pairing.theirs.push(run.result);
            }
            None => pairings.push(Pairing {
                what: run.what,
                peer: run.who,
                ours: vec![own.result],
                theirs: vec![run.result],
            }),
        }
    }
    match pairings.is_empty() {
        true => Err(format!("`{}` holds no pair of runs", path.display()).into()),
        false => Ok(pairings),
    }
}

fn table(pairings: &[Pairing]) -> String {
    let mut text = String::from(
        "| what | pairs | ours, ms | tokens/s | of ceiling | added peak, MB | peer | peer, ms | tokens/s | added peak, MB | times as fast (min – max) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let or_dash = |value: Option<f64>, digits: usize| value.map_or("–".into(), |x| format!("{x:.digits$}"));
    for pairing in pairings {
        let Pairing { what, peer, ours, theirs } = pairing;
        let of =
            |runs: &[Figures], figure: fn(&Figures) -> Option<f64>| median(runs.iter().filter_map(figure));
        let peak: fn(&Figures) -> Option<f64> = |run| run.added_peak_bytes.map(|bytes| bytes / 1e6);
        let ratios = pairing.ratios();
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {} | {} | {peer} | {} | {} | {} | **{}** ({:.2} – {:.2}) |",
            ratios.len(),
            or_dash(of(ours, |run| Some(run.median_ms)), 1),
            or_dash(of(ours, |run| Some(run.tokens_per_s)), 0),
            or_dash(of(ours, |run| run.of_ceiling), 2),
            or_dash(of(ours, peak), 0),
            or_dash(of(theirs, |run| Some(run.median_ms)), 1),
            or_dash(of(theirs, |run| Some(run.tokens_per_s)), 0),
            or_dash(of(theirs, peak), 0),
            or_dash(median(ratios.iter().copied()), 2),
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    text
}

/// A bar a pairing, its length the median ratio, with a line from the smallest to the largest.
struct Speeds<'a> {
    pairings: &'a [Pairing],
}

impl Picture for Speeds<'_> {
    fn size(&self) -> (u32, u32) {
        (860, 90 + 34 * self.pairings.len() as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Result<(), Failure>
    where
        DB::ErrorType: 'static,
    {
        let Self { pairings } = self;
        let ratios: Vec<Vec<f64>> = pairings.iter().map(Pairing::ratios).collect();
        let longest = ratios.iter().filter_map(|ratios| ratios.last()).fold(1.0, |a: f64, b| a.max(*b));
        let rows = pairings.len() as i32;
        // Two places at least: an axis of one has no labels.
        let last = (rows - 1).max(1);
        let mut chart = ChartBuilder::on(area)
            .caption(
                "Speed over the peer on the same machine (bar: median, line: range)",
                (picture::FONT, picture::CAPTION),
            )
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(300)
            .build_cartesian_2d(0.0..longest * 1.08, (0..last).into_segmented())?;
        let label = |place: &SegmentValue<i32>| match place {
            SegmentValue::CenterOf(row) if (0..rows).contains(row) => {
                let pairing = &pairings[(rows - 1 - row) as usize];
                format!("{} / {}", pairing.what, pairing.peer)
            }
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(pairings.len().max(2))
            .y_label_formatter(&label)
            .label_style((picture::FONT, picture::TEXT))
            .x_desc("times as fast as the peer (1 is level)")
            .draw()?;
        let grey = RGBColor(120, 120, 120);
        let above = |row: i32| if row < last { SegmentValue::Exact(row + 1) } else { SegmentValue::Last };
        for (index, ratios) in ratios.iter().enumerate() {
            let row = rows - 1 - index as i32;
            let middle = ratios[ratios.len() / 2];
            let bar = [(0.0, SegmentValue::Exact(row)), (middle, above(row))];
            let mut bar = Rectangle::new(bar, grey.filled());
            bar.set_margin(6, 6, 0, 0);
            let range = [ratios[0], ratios[ratios.len() - 1]].map(|x| (x, SegmentValue::CenterOf(row)));
            chart.draw_series([bar])?;
            chart.draw_series([PathElement::new(range, BLACK.stroke_width(2))])?;
        }
        let level = [(1.0, SegmentValue::Exact(0)), (1.0, SegmentValue::Last)];
        chart.draw_series([PathElement::new(level, BLACK.stroke_width(1))])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: &str, who: &str, ms: f64) -> String {
        format!(
            r#"{{"what":"{what}","who":"{who}","round":1,"result":{{"median_ms":{ms},"tokens_per_s":1}}}}"#
        )
    }

    fn read_text(text: &str) -> Result<Vec<Pairing>, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn ratios_are_of_neighbouring_runs() {
        let lines =
            [(OURS, 10.0), ("peer", 20.0), (OURS, 10.0), ("peer", 40.0), (OURS, 20.0), ("peer", 60.0)];
        let text: Vec<String> = lines.iter().map(|(who, ms)| line("mos", who, *ms)).collect();
        let pairings = read_text(&text.join("\n")).unwrap();
        assert_eq!(pairings.len(), 1);
        assert_eq!(pairings[0].ratios(), [2.0, 3.0, 4.0]);
        assert!(table(&pairings).contains("**3.00** (2.00 – 4.00)"), "{}", table(&pairings));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        assert!(read_text("").unwrap_err().to_string().contains("holds no pair"));
        assert!(read_text("x").unwrap_err().to_string().contains("line 1 is no run"));
        let alone = read_text(&line("mos", "peer", 1.0)).unwrap_err().to_string();
        assert!(alone.contains("line 1") && alone.contains("without one of highrank"), "{alone}");
    }
}
