//! `bench-report`: medians and ratios of recorded runs of this project's programs and their peers.

use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Parser;
use plotters::prelude::*;
use serde::Deserialize;

use program::failure::Failure;
use program::files::{Force, absolute};
use program::picture::{self, Area, Picture};

use crate::timing::median;

/// Prints the medians and ratios of recorded runs as a Markdown table.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct BenchReportArgs {
    /// Files of runs, one JSON object a line, as `scripts/bench_cpu.sh` prints them; all make one table.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Draws the ratios to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Whether the picture replaces a file.
    #[command(flatten)]
    pub force: Force,
}

/// Who has the runs that peers are compared with.
const OURS: &str = "highrank";
/// The times that a run may have, in ms. A ratio of two of them is a finite number above 0.
const TIMES: RangeInclusive<f64> = 1e-9..=1e12;

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
    /// Not of a product by itself.
    tokens_per_s: Option<f64>,
    of_ceiling: Option<f64>,
    added_peak_bytes: Option<f64>,
    /// What our products read: `full`, `tf32` or `bf16`. Peers do not all say it, and old recordings do not either.
    precision: Option<String>,
    /// Float type of our parameters.
    dtype: Option<String>,
}

impl Figures {
    /// The precision of one of our runs: that of the products, unless the parameters themselves are shorter.
    fn precision(&self) -> &str {
        match (self.dtype.as_deref(), self.precision.as_deref()) {
            (Some("bf16"), _) => "bf16 parameters",
            (_, Some("full") | None) => "f32",
            (_, Some(precision)) => precision,
        }
    }
}

/// A workload's runs of one precision against one peer.
#[derive(Debug)]
struct Pairing {
    what: String,
    precision: String,
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

    /// The median of the ratios.
    fn middle(&self) -> f64 {
        median(self.ratios()).unwrap_or(f64::NAN)
    }
}

/// Runs the program.
///
/// # Errors
/// A file that cannot be read or written, a line that is no run, a peer's run without one of ours before it.
pub fn run(args: &BenchReportArgs) -> Result<(), Failure> {
    if let Some(path) = &args.plot {
        check_plot(path, &args.runs, args.force)?;
    }
    let pairings = read(&args.runs)?;
    program::print::print_out(&table(&pairings));
    match &args.plot {
        Some(path) => picture::save_as(&Speeds { pairings: &pairings }, path),
        None => Ok(()),
    }
}

/// Checks that a picture may be written to `path`; never in the place of a recording.
fn check_plot(path: &Path, runs: &[PathBuf], force: Force) -> Result<(), Failure> {
    if runs.iter().any(|run| absolute(run) == absolute(path)) {
        let shown = path.display();
        return Err(format!("`{shown}` is one of the recordings; name another file for the picture").into());
    }
    force.check(path)
}

fn read(paths: &[PathBuf]) -> Result<Vec<Pairing>, Failure> {
    let mut pairings: Vec<Pairing> = vec![];
    for path in paths {
        read_file(path, &mut pairings)?;
    }
    // What is of one workload stands together, in the order of the workloads' first runs.
    let order: Vec<String> = pairings.iter().map(|pairing| pairing.what.clone()).collect();
    pairings.sort_by_key(|pairing| order.iter().position(|what| *what == pairing.what));
    Ok(pairings)
}

fn read_file(path: &Path, pairings: &mut Vec<Pairing>) -> Result<(), Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let (mut ours, mut has_pairs): (Option<Run>, bool) = (None, false);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("`{}` line {}", path.display(), number + 1);
        let run: Run =
            serde_json::from_str(line).map_err(|error| format!("{} is no run: {error}", place()))?;
        let time = run.result.median_ms;
        if !TIMES.contains(&time) {
            let (least, most) = TIMES.into_inner();
            let expected = format!("from {least:e} to {most:e}");
            return Err(format!("{}: median_ms is {time:?}, but must be {expected}", place()).into());
        }
        if run.who == OURS {
            ours = Some(run);
            continue;
        }
        let Some(own) = ours.take().filter(|own| own.what == run.what) else {
            let what = &run.what;
            return Err(format!("{}: a peer's run of {what} without one of {OURS} before it", place()).into());
        };
        has_pairs = true;
        let (own, precision) = (own.result.clone(), own.result.precision().to_string());
        let same = |pairing: &&mut Pairing| {
            pairing.what == run.what && pairing.peer == run.who && pairing.precision == precision
        };
        match pairings.iter_mut().find(same) {
            Some(pairing) => {
                pairing.ours.push(own);
                pairing.theirs.push(run.result);
            }
            None => pairings.push(Pairing {
                what: run.what,
                precision,
                peer: run.who,
                ours: vec![own],
                theirs: vec![run.result],
            }),
        }
    }
    match has_pairs {
        true => Ok(()),
        false => Err(format!("`{}` holds no pair of runs", path.display()).into()),
    }
}

fn table(pairings: &[Pairing]) -> String {
    let mut text = String::from(
        "| what | precision | pairs | ours, ms | tokens/s | of ceiling | added peak, MB | peer | peer, ms | tokens/s | added peak, MB | times as fast (min – max) |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let or_dash = |value: Option<f64>, digits: usize| value.map_or("–".into(), |x| format!("{x:.digits$}"));
    for pairing in pairings {
        let Pairing { what, precision, peer, ours, theirs } = pairing;
        let [what, precision, peer] = [what, precision, peer].map(|name| cell(name));
        let of =
            |runs: &[Figures], figure: fn(&Figures) -> Option<f64>| median(runs.iter().filter_map(figure));
        let peak: fn(&Figures) -> Option<f64> = |run| run.added_peak_bytes.map(|bytes| bytes / 1e6);
        let ratios = pairing.ratios();
        let _ = writeln!(
            text,
            "| {what} | {precision} | {} | {} | {} | {} | {} | {peer} | {} | {} | {} | **{:.2}** ({:.2} – {:.2}) |",
            ratios.len(),
            of(ours, |run| Some(run.median_ms)).map_or("–".into(), milliseconds),
            or_dash(of(ours, |run| run.tokens_per_s), 0),
            or_dash(of(ours, |run| run.of_ceiling), 2),
            or_dash(of(ours, peak), 0),
            of(theirs, |run| Some(run.median_ms)).map_or("–".into(), milliseconds),
            or_dash(of(theirs, |run| run.tokens_per_s), 0),
            or_dash(of(theirs, peak), 0),
            pairing.middle(),
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    text
}

/// A name as the text of a table's cell.
fn cell(name: &str) -> String {
    name.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Four digits of a short time, one decimal of a long one.
fn milliseconds(ms: f64) -> String {
    let digits = if ms < 10.0 { 3 } else { 1 };
    format!("{ms:.digits$}")
}

/// A bar a pairing from 1, level, to the median ratio, with a line from the smallest to the largest.
struct Speeds<'a> {
    pairings: &'a [Pairing],
}

impl Speeds<'_> {
    fn label(pairing: &Pairing) -> String {
        format!("{}, {} / {}", pairing.what, pairing.precision, pairing.peer)
    }

    /// Pixels that hold the longest label.
    fn label_width(&self) -> u32 {
        let longest = self.pairings.iter().map(|pairing| Self::label(pairing).chars().count()).max();
        20 + picture::TEXT * 3 / 5 * longest.unwrap_or(0) as u32
    }
}

impl Picture for Speeds<'_> {
    fn size(&self) -> (u32, u32) {
        (560 + self.label_width(), 90 + 24 * self.pairings.len() as u32)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let Self { pairings } = self;
        let ratios: Vec<Vec<f64>> = pairings.iter().map(Pairing::ratios).collect();
        let shortest = ratios.iter().filter_map(|ratios| ratios.first()).fold(1.0, |a: f64, b| a.min(*b));
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
            .y_label_area_size(self.label_width())
            .build_cartesian_2d(
                (shortest / 1.1..longest * 1.1)
                    .log_scale()
                    .with_key_points(picture::log_ticks(shortest, longest)),
                (0..last).into_segmented(),
            )?;
        let label = |place: &SegmentValue<i32>| match place {
            SegmentValue::CenterOf(row) if (0..rows).contains(row) => {
                Self::label(&pairings[(rows - 1 - row) as usize])
            }
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(pairings.len().max(2))
            .y_label_formatter(&label)
            .label_style((picture::FONT, picture::TEXT))
            .x_desc("times as fast as the peer (log; 1 is level)")
            .draw()?;
        let grey = RGBColor(120, 120, 120);
        let above = |row: i32| if row < last { SegmentValue::Exact(row + 1) } else { SegmentValue::Last };
        for (index, ratios) in ratios.iter().enumerate() {
            let row = rows - 1 - index as i32;
            let middle = pairings[index].middle();
            let bar = [(middle.min(1.0), SegmentValue::Exact(row)), (middle.max(1.0), above(row))];
            let mut bar = Rectangle::new(bar, grey.filled());
            bar.set_margin(4, 4, 0, 0);
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
        line_of(what, who, ms, "")
    }

    /// With more of the result, such as `,"precision":"bf16"`.
    fn line_of(what: &str, who: &str, ms: f64, more: &str) -> String {
        format!(
            r#"{{"what":"{what}","who":"{who}","round":1,"result":{{"median_ms":{ms},"tokens_per_s":1{more}}}}}"#
        )
    }

    fn read_texts(texts: &[&str]) -> Result<Vec<Pairing>, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> =
            (0..texts.len()).map(|index| folder.path().join(index.to_string())).collect();
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
        read(&paths)
    }

    #[test]
    fn ratios_are_of_neighbouring_runs() {
        let lines =
            [(OURS, 10.0), ("peer", 20.0), (OURS, 10.0), ("peer", 40.0), (OURS, 20.0), ("peer", 60.0)];
        let text: Vec<String> = lines.iter().map(|(who, ms)| line("mos", who, *ms)).collect();
        let pairings = read_texts(&[&text.join("\n")]).unwrap();
        assert_eq!(pairings.len(), 1);
        assert_eq!(pairings[0].ratios(), [2.0, 3.0, 4.0]);
        assert!(table(&pairings).contains("**3.00** (2.00 – 4.00)"), "{}", table(&pairings));
        // The middle of two is halfway between them, for the bar as in the table.
        let pairings = read_texts(&[&text[..4].join("\n")]).unwrap();
        assert_eq!((pairings[0].ratios(), pairings[0].middle()), (vec![2.0, 4.0], 3.0));
        assert!(table(&pairings).contains("**3.00** (2.00 – 4.00)"), "{}", table(&pairings));
    }

    #[test]
    fn precisions_are_rows_of_their_own_and_workloads_stand_together() {
        let run = |what, ms, more| {
            let peer = line(what, "PyTorch", 2.0 * ms);
            [line_of(what, OURS, ms, more), peer].join("\n")
        };
        let first = [
            run("mos", 8.0, r#","precision":"full","dtype":"f32""#),
            run("softmax", 4.0, ""),
            run("mos", 5.0, r#","precision":"bf16","dtype":"f32""#),
        ];
        let second = run("mos", 6.0, r#","precision":"full","dtype":"bf16""#);
        let pairings = read_texts(&[&first.join("\n"), &second]).unwrap();
        let rows: Vec<_> = pairings
            .iter()
            .map(|row| (row.what.as_str(), row.precision.as_str(), row.ours[0].median_ms))
            .collect();
        let want = [
            ("mos", "f32", 8.0),
            ("mos", "bf16", 5.0),
            ("mos", "bf16 parameters", 6.0),
            ("softmax", "f32", 4.0),
        ];
        assert_eq!(rows, want);
        assert!(table(&pairings).contains("| mos | bf16 | 1 | 5.000 |"), "{}", table(&pairings));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let good = [line("mos", OURS, 1.0), line("mos", "peer", 1.0)].join("\n");
        assert!(read_texts(&[&good, ""]).unwrap_err().to_string().contains("/1` holds no pair"));
        assert!(read_texts(&[""]).unwrap_err().to_string().contains("holds no pair"));
        assert!(read_texts(&["x"]).unwrap_err().to_string().contains("line 1 is no run"));
        let alone = read_texts(&[&line("mos", "peer", 1.0)]).unwrap_err().to_string();
        assert!(alone.contains("line 1") && alone.contains("without one of highrank"), "{alone}");
        for time in [0.0, -1.0, 1e-300, 1e300] {
            let bad = [line("mos", OURS, 1.0), line("mos", "peer", time)].join("\n");
            let message = read_texts(&[&bad]).unwrap_err().to_string();
            assert!(message.contains("line 2: median_ms is"), "{message}");
        }
    }

    #[test]
    fn a_bar_in_a_name_stays_in_its_cell() {
        let text = [line("a | b", OURS, 1.0), line("a | b", "x|y", 1.0)].join("\n");
        let table = table(&read_texts(&[&text]).unwrap());
        assert!(table.contains("| a \\| b | f32 |") && table.contains("| x\\|y |"), "{table}");
    }
}
