//! `plif`: the functions that PLIF heads have learned.

use clap::Args;
use highrank::analysis::{LogitRange, SlopeStatistics, curve};
use highrank::logit_map::LogitMap;
use plotters::prelude::SeriesLabelPosition;
use program::args::Head;
use program::chart::{Chart, Scale};
use program::failure::Failure;
use serde::{Deserialize, Serialize};

use crate::commands::analysis::frame::{self, Analysis, Row, SourceArgs};
use crate::commands::analysis::runs::{SavedRun, label};

/// Places at which a function is drawn.
const POINTS: usize = 401;

/// Options of `plif`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("out", |out| out.help("Folder for the plot of all functions, plif.svg")))]
pub struct PlifArgs {
    /// The runs, the text and where they are drawn.
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
    frame::run(&args.source, ("function of a PLIF", "plif"), look, |rows| {
        let mut lines: Vec<(String, Vec<(f64, f64)>)> =
            rows.into_iter().map(|row| (label(&row.run, row.head), row.curve)).collect();
        let places = || lines.iter().flat_map(|(_, points)| points).map(|point| point.0);
        let ends = [places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max)];
        lines.push(("identity, the start".into(), ends.map(|end| (end, end)).to_vec()));
        Chart {
            caption: "Learned function f of the logits (PLIF)".into(),
            x: ("logit z", Scale::Linear),
            y: ("f(z)", Scale::Linear),
            lines,
            labels: Some(SeriesLabelPosition::UpperLeft),
        }
    })
}

fn look(source: &SourceArgs) -> Result<Vec<Report>, Failure> {
    let runs = SavedRun::open_all(&source.runs)?;
    if let Some(run) = runs.iter().find(|run| !run.head.has_plif()) {
        let head = run.head;
        return Err(run.failure(format!("its head {head} has no PLIF; train with --head plif or mos-plif")));
    }
    SavedRun::one_decoder(&runs)?;
    let analysis = Analysis::open(runs, &source.text, 1, source.out.as_deref())?;
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
            outside_share: (range.below + range.above) as f64 / range.count as f64,
            logit_min: range.min,
            logit_max: range.max,
            curve: curve(&head.logit_map, (-reach, reach), POINTS, &analysis.device),
        })
    })
}

impl Row for Report {
    const LEGEND: &'static str =
        "outside: share of the logits below -T or above T, where the end slopes go on";

    const HEADER: &'static str = concat!(
        "run                  head        pieces     T",
        "         slopes: mean std min max   outside     logits from to"
    );

    fn line(&self) -> String {
        let Self { run, head, pieces, bound, slope_mean, slope_std, slope_min, slope_max, .. } = self;
        let (outside, from, to) = (100.0 * self.outside_share, self.logit_min, self.logit_max);
        format!(
            "{run:<20} {head:<9} {pieces:>8} {bound:>5} {slope_mean:>8.4} {slope_std:>7.4} {slope_min:>7.4} \
             {slope_max:>7.4} {outside:>8.4}% {from:>9.2} {to:>8.2}"
        )
    }
}
