//! `plif`: the functions that PLIF heads have learned.

use std::path::PathBuf;

use clap::Args;
use highrank::analysis::{LogitRange, SlopeStatistics, curve};
use highrank::logit_map::LogitMap;
use plotters::prelude::SeriesLabelPosition;
use program::args::Head;
use program::chart::{Chart, Scale};
use program::failure::Failure;
use program::files::Force;
use program::picture;
use serde::{Deserialize, Serialize};

use crate::commands::analysis::args::SourceArgs;
use crate::commands::analysis::frame::{self, Analysis, Row};
use crate::commands::analysis::runs::{SavedRun, label};

/// Places at which a function is drawn.
const POINTS: usize = 401;

/// Options of `plif`.
#[derive(Debug, Clone, Args)]
pub struct PlifArgs {
    /// Folder for the plot of all functions, plif.svg.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whether files are replaced.
    #[command(flatten)]
    pub force: Force,
    /// The runs and the text.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// What a run's function looks like and what its logits see of it.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    run: String,
    head: Head,
    pieces: usize,
    bound: f64,
    slope_mean: f64,
    slope_std: f64,
    slope_min: f64,
    slope_max: f64,
    logits: u64,
    logits_below: u64,
    logits_above: u64,
    outside_share: f64,
    logit_min: f64,
    logit_max: f64,
    /// Points `(z, f(z))` of the function.
    curve: Vec<(f64, f64)>,
}

/// Prints slope statistics and the share of logits outside `[−T, T]` for every run, and draws the functions.
pub fn run(args: &PlifArgs) -> Result<(), Failure> {
    if let Some(out) = &args.out {
        args.force.check_in(out, &["plif.svg"])?;
    }
    let rows = frame::rows(&args.source, "function of a PLIF", args.out.as_deref(), || look(args))?;
    let Some(out) = &args.out else { return Ok(()) };
    let mut lines: Vec<(String, Vec<(f64, f64)>)> =
        rows.into_iter().map(|row| (label(&row.run, row.head), row.curve)).collect();
    let places = || lines.iter().flat_map(|(_, points)| points).map(|point| point.0);
    let ends = [places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max)];
    lines.push(("identity, the start".into(), ends.map(|end| (end, end)).to_vec()));
    let chart = Chart {
        caption: "Learned function f of the logits (PLIF)".into(),
        x: ("logit z", Scale::Linear),
        y: ("f(z)", Scale::Linear),
        lines,
        labels: Some(SeriesLabelPosition::UpperLeft),
    };
    picture::save(&chart, &out.join("plif"))
}

fn look(args: &PlifArgs) -> Result<Vec<Report>, Failure> {
    let runs = SavedRun::open_all(&args.source.runs)?;
    if let Some(run) = runs.iter().find(|run| !run.head.has_plif()) {
        let head = run.head;
        return Err(run.failure(format!("its head {head} has no PLIF; train with --head plif or mos-plif")));
    }
    let analysis = Analysis::open(runs, &args.source.text, 1, args.out.as_deref())?;
    analysis.print_rows(|run, model| {
        let head = model.head();
        let LogitMap::Plif(plif) = &head.logit_map else { unreachable!("heads were checked") };
        let slopes = SlopeStatistics::of(plif);
        let mut range = LogitRange::new(plif.bound);
        for window in analysis.windows(run, model) {
            head.logit_blocks(window.hidden).for_each(|block| range.add(block));
        }
        let reach = 1.1 * plif.bound;
        Ok(Report {
            run: run.name.clone(),
            head: run.head,
            pieces: slopes.pieces,
            bound: range.bound,
            slope_mean: slopes.mean,
            slope_std: slopes.std,
            slope_min: slopes.min,
            slope_max: slopes.max,
            logits: range.count,
            logits_below: range.below,
            logits_above: range.above,
            outside_share: range.share_outside(),
            logit_min: range.min,
            logit_max: range.max,
            curve: curve(&head.logit_map, (-reach, reach), POINTS, &analysis.device),
        })
    })
}

impl Row for Report {
    const LEGEND: &'static str =
        "outside: share of the logits below -T or above T, where the end slopes go on";

    fn header() -> String {
        format!(
            "{:<20} {:<9} {:>8} {:>5} {:>32} {:>9} {:>18}",
            "run", "head", "pieces", "T", "slopes: mean std min max", "outside", "logits from to"
        )
    }

    fn line(&self) -> String {
        format!(
            "{:<20} {:<9} {:>8} {:>5} {:>8.4} {:>7.4} {:>7.4} {:>7.4} {:>8.4}% {:>9.2} {:>8.2}",
            self.run,
            self.head,
            self.pieces,
            self.bound,
            self.slope_mean,
            self.slope_std,
            self.slope_min,
            self.slope_max,
            100.0 * self.outside_share,
            self.logit_min,
            self.logit_max,
        )
    }
}
