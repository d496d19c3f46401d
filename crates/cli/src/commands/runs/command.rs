//! The command itself: folders searched, runs sorted and printed.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use program::failure::Failure;
use program::print::{print_json, print_note, shown, terminal_columns};
use runs::Error;

use crate::commands::runs::listed::Listed;
use crate::training::Record;

/// Options of `runs`.
#[derive(Debug, Clone, Args)]
pub struct RunsArgs {
    /// Folders to look for runs in and below.
    #[arg(value_name = "DIR", default_value = "runs")]
    pub folders: Vec<PathBuf>,
    /// What comes first: the lowest valid, test, seconds or parameters, or by name, head, kind or state.
    #[arg(long, value_name = "BY", default_value = "name", hide_possible_values = true)]
    pub sort: Order,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Lists runs, of language models, of models of dialogues and of transformers, with their settings, results and states. Runs that cannot be read are listed as damaged.
pub fn run(args: &RunsArgs) -> Result<(), Failure> {
    let mut paths = vec![];
    for folder in &args.folders {
        if !folder.is_dir() {
            return Err(format!("`{}` is no folder; name one that holds runs", folder.display()).into());
        }
        search(folder, &mut paths)?;
    }
    paths.sort();
    paths.dedup();
    let mut runs: Vec<Listed> = paths.iter().map(|path| Listed::read(path)).collect();
    runs.sort_by(|a, b| args.sort.compare(a, b));
    if runs.is_empty() {
        print_note("no runs there");
        return Ok(());
    }
    let name = |path: &PathBuf| shown(&path.display().to_string()).chars().count();
    let width = paths.iter().map(name).max().unwrap_or(0).max(3);
    let header = Listed::header(width, false);
    let narrow = terminal_columns().is_some_and(|columns| columns < header.len());
    if !args.json {
        println!("{}", if narrow { Listed::header(width, true) } else { header });
    }
    for run in &runs {
        match args.json {
            true => print_json(run),
            false => println!("{}", run.line(width, narrow)),
        }
    }
    Ok(())
}

/// Adds every run in `folder` and below to `paths`. A run's own folders hold no other.
fn search(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if Record::exists(folder) {
        paths.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        // Links are not followed, so that the search ends.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // The others are listed all the same.
            search(&entry.path(), paths)
                .unwrap_or_else(|error| print_note(format_args!("left out: {error}")));
        }
    }
    Ok(())
}

/// What runs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The folder.
    Name,
    /// What it trains.
    Kind,
    /// The output layer.
    Head,
    /// Where they stand.
    State,
    /// Number of parameters.
    Parameters,
    /// Perplexity of the validation text.
    Valid,
    /// Perplexity of the test text.
    Test,
    /// Time of training.
    Seconds,
}

impl Order {
    /// The order of two runs. Ones without the number come last, and damaged ones after all others.
    fn compare(self, a: &Listed, b: &Listed) -> Ordering {
        let (Some(a), Some(b)) = (a.summary(), b.summary()) else {
            return a.summary().is_none().cmp(&b.summary().is_none());
        };
        let numbers = |a: Option<f64>, b: Option<f64>| {
            a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY))
        };
        match self {
            // They are sorted by it already.
            Self::Name => Ordering::Equal,
            Self::Kind => a.kind.cmp(b.kind),
            Self::Head => a.head.cmp(&b.head),
            Self::State => a.state.cmp(&b.state),
            Self::Parameters => a.parameters.cmp(&b.parameters),
            Self::Valid => numbers(a.valid_ppl, b.valid_ppl),
            Self::Test => numbers(a.test_ppl, b.test_ppl),
            Self::Seconds => a.seconds.total_cmp(&b.seconds),
        }
    }
}
