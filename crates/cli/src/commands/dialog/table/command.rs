//! The command: runs checked against each other, evaluated, and printed.

use std::path::PathBuf;

use clap::Args;
use highrank::BeamSearch;
use runs::error::check;

use super::answers::{Answers, Responses};
use super::cells::{Cell, different_settings};
use super::outcome::{Line, Outcome};
use super::side_by_side::{Voice, text_of};
use super::tables;
use crate::commands::dialog::DialogRecord;
use crate::commands::dialog::beam::BeamArgs;
use crate::commands::dialog::held_out::{HeldOut, HeldOutArgs};
use crate::commands::dialog::saved::Saved;
use crate::device::DeviceChoice;
use crate::failure::Failure;
use crate::print::{print_json, print_note};

/// Options of `dialog table`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct TableArgs {
    /// Folders of the runs. Those that differ in their seed alone share a line.
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub held_out: HeldOutArgs,
    /// Search again in order of log-probability / length^A, and print further tables, marked so.
    #[arg(long, value_name = "A")]
    pub by_length: Option<f64>,
    /// Add the lines of Table 4 of Yang et al. 2018.
    #[arg(long)]
    pub published: bool,
    /// Also print the responses of each line's first run to N contexts, side by side.
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub side_by_side: Option<usize>,
    /// Compute what is kept in the runs' folders again.
    #[arg(long)]
    pub again: bool,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda. What was kept of another device counts
    /// for auto alone.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How responses are found.
    #[command(flatten)]
    pub beam: BeamArgs,
}

/// A run with its responses, by either search.
struct Evaluated {
    outcome: Outcome,
    window: usize,
    responses: Responses,
    by_length: Option<Responses>,
}

/// Evaluates the runs and prints the tables.
///
/// # Errors
/// Bad input: no run, a damaged one, runs that are not of one text, options out of range. Nothing is written before all of it
/// is found to be good.
pub fn run(args: &TableArgs) -> Result<(), Failure> {
    let search = args.beam.search()?;
    let by_length = args.by_length.map(|alpha| search_by_length(args, alpha)).transpose()?;
    args.held_out.check()?;
    check(args.side_by_side != Some(0), "side-by-side", 0, "at least 1")?;
    let runs = args.runs.iter().map(|path| Ok((Saved::open(path)?, DialogRecord::read(path)?)));
    let runs: Vec<(Saved, DialogRecord)> = runs.collect::<Result<_, Failure>>()?;
    let held_out = one_text(args, &runs)?;
    different(&runs)?;
    let mut evaluated = Vec::with_capacity(runs.len());
    for (saved, record) in &runs {
        evaluated.push(evaluate(args, saved, record, &held_out, &search, by_length.as_ref())?);
    }
    let outcomes: Vec<Outcome> = evaluated.iter().map(|run| run.outcome.clone()).collect();
    if args.json {
        outcomes.iter().for_each(print_json);
        return Ok(());
    }
    let cells = Cell::all(&outcomes);
    print!("{}", tables::text(&cells, args.published));
    if let Some(count) = args.side_by_side {
        let window = evaluated.iter().map(|run| run.window).max().unwrap_or(1);
        println!();
        print!("{}", text_of(&held_out, &voices(&cells, &evaluated), window, count));
    }
    Ok(())
}

fn search_by_length(args: &TableArgs, alpha: f64) -> Result<BeamSearch, Failure> {
    check(alpha > 0.0, "by-length", alpha, "above 0")?;
    BeamArgs { alpha: Some(alpha), ..args.beam.clone() }.search()
}

/// Checks that no two runs have the same settings and seed: their spread would not be one over seeds.
///
/// # Errors
/// Names two such runs.
fn different(runs: &[(Saved, DialogRecord)]) -> Result<(), Failure> {
    let of = |record: &DialogRecord| (Line::of(&record.config), record.config.train.seed);
    for (place, (_, record)) in runs.iter().enumerate() {
        if let Some((_, other)) = runs[..place].iter().find(|(_, other)| of(other) == of(record)) {
            let (other, one) = (other.path.display(), record.path.display());
            return Err(format!("`{other}` and `{one}` are runs of the same settings and seed").into());
        }
    }
    Ok(())
}

/// The text that all runs are evaluated on.
///
/// # Errors
/// Runs of different texts, and a text that is not theirs unless it was asked for.
fn one_text(args: &TableArgs, runs: &[(Saved, DialogRecord)]) -> Result<HeldOut, Failure> {
    let (first, _) = &runs[0];
    let path = |saved: &Saved| saved.folder.path().display().to_string();
    for (saved, _) in &runs[1..] {
        if let Some((what, _)) = first.config.corpus.difference(&saved.config.corpus) {
            let (one, other) = (path(first), path(saved));
            return Err(format!("`{one}` and `{other}` cannot share a table: {what} differs").into());
        }
    }
    let held_out = args.held_out.load(first)?;
    let corpus = &first.config.corpus;
    if args.held_out.data.is_none() && held_out.parts() != [corpus.valid.clone(), corpus.test.clone()] {
        let data = first.config.data.display();
        return Err(format!(
            "`{data}` no longer holds the text that `{}` was started with; name a folder with --data",
            path(first)
        )
        .into());
    }
    Ok(held_out)
}

fn evaluate(
    args: &TableArgs,
    saved: &Saved,
    record: &DialogRecord,
    held_out: &HeldOut,
    search: &BeamSearch,
    by_length: Option<&BeamSearch>,
) -> Result<Evaluated, Failure> {
    let name = record.path.display();
    if record.last.is_none() {
        let (done, epochs) = (record.epochs_done(), record.config.train.epochs);
        print_note(format_args!("`{name}` is not finished: {done} of {epochs} epochs"));
    }
    let mut answers = Answers::new(saved, held_out, args.device, args.again)?;
    let perplexities = answers.perplexities()?;
    let mut found = |search| -> Result<_, Failure> {
        let responses = answers.responses(search, &name.to_string())?;
        Ok((held_out.score(search, responses.seconds, responses.words()), responses))
    };
    let (searched, responses) = found(search)?;
    let (searched_by_length, by_length) = by_length.map(found).transpose()?.unzip();
    let outcome = Outcome::new(record, perplexities, searched, searched_by_length);
    Ok(Evaluated { outcome, window: saved.config.model.window, responses, by_length })
}

/// The first run of every cell, by either search.
fn voices<'a>(cells: &[Cell], evaluated: &'a [Evaluated]) -> Vec<Voice<'a>> {
    let different = different_settings(cells);
    let mut voices = vec![];
    for cell in cells {
        let first = evaluated.iter().find(|run| run.outcome.run == cell.first().run);
        let Some(Evaluated { responses, by_length, .. }) = first else { continue };
        let name = cell.name(&different);
        voices.push(Voice { name: name.clone(), responses });
        voices.extend(
            by_length.iter().map(|responses| Voice { name: format!("{name}, by length"), responses }),
        );
    }
    voices
}
