//! What the commands do alike: they open runs, read one text, visit run by run and print a table.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use program::chart::Chart;
use program::device::{self, DeviceChoice, DeviceName};
use program::failure::Failure;
use program::files::{Force, create_folder, read_json_lines, text_folder};
use program::picture;
use program::print::{print_json, print_note, shown, wrapped};
use runs::data::Fingerprint;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::analysis::model::Model;
use crate::commands::analysis::runs::SavedRun;
use crate::commands::analysis::text::{Text, Window};
use crate::training::{TEST, VALID, load_held_out, note_other_texts, require_test};

/// Which text is read, where, and how results are printed.
#[derive(Debug, Clone, Args)]
pub struct HeldOutArgs {
    /// Folder with valid.txt and test.txt [default: the first run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which text: valid or test. It is read in one column, from a zero state.
    #[arg(long, default_value = "test", hide_possible_values = true)]
    pub split: Split,
    /// Read only the first N contexts of the text.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub tokens: Option<usize>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// JSON objects on standard output, one a line, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The runs that are looked into and the text, or what was found of them before, and where it is drawn.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// Folder for the plot.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whether files are replaced.
    #[command(flatten)]
    pub force: Force,
    /// Folder of a run; several may be given.
    #[arg(long = "run", value_name = "RUN", required_unless_present = "from", num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// Table and plot of what this command found before: files with the lines that it printed with --json.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["runs", "data", "split", "tokens", "device"])]
    pub from: Vec<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// A held-out text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Split {
    /// `valid.txt`
    Valid,
    /// `test.txt`
    Test,
}

/// Saved runs over the same words, a text in these words, and the device.
pub struct Analysis {
    pub runs: Vec<SavedRun>,
    pub text: Text,
    pub device: Device,
    pub device_name: DeviceName,
    json: bool,
}

/// A run's line of a table.
pub trait Row: Serialize {
    /// What a reader has to know about the columns.
    const LEGEND: &'static str;

    /// The titles of the columns.
    const HEADER: &'static str;

    /// The cells below them.
    fn line(&self) -> String;
}

impl Analysis {
    /// Reads the text for these runs, at least so many contexts of it, creates the folder for pictures and opens the
    /// device.
    pub fn open(
        runs: Vec<SavedRun>,
        args: &HeldOutArgs,
        contexts: usize,
        out: Option<&Path>,
    ) -> Result<Self, Failure> {
        SavedRun::same_vocabulary(&runs)?;
        let text = text(args, &runs, contexts)?;
        if let Some(out) = out {
            create_folder(out)?;
        }
        let device_name = device::resolve(args.device);
        let device = device::open(device_name)?;
        Ok(Self { runs, text, device, device_name, json: args.json })
    }

    /// Prints the row of every run as soon as it is there: as a table, or as one JSON object a line. Returns them.
    pub fn print_rows<R: Row>(
        &self,
        mut row: impl FnMut(&SavedRun, &Model) -> Result<R, Failure>,
    ) -> Result<Vec<R>, Failure> {
        print_all(self.runs.iter().map(|run| row(run, &run.model(&self.device)?)), self.json)
    }

    /// Walks a run's model through the text, with a bar on standard error.
    pub fn windows<'a>(&'a self, run: &SavedRun, model: &'a Model) -> impl Iterator<Item = Window> + use<'a> {
        model.windows(&self.text, &self.device, &format!("looking into {}", run.name))
    }
}

/// Reads the text that the arguments name, in the words of the first run; `needed` contexts at least.
fn text(args: &HeldOutArgs, runs: &[SavedRun], needed: usize) -> Result<Text, Failure> {
    let first = runs.first().ok_or("no run given: name at least one")?;
    let data = match (args.data.as_deref(), first.data.as_deref()) {
        (Some(data), _) => data,
        (None, Some(data)) => text_folder(None, data)?,
        (None, None) => {
            let reason = "it has learned a generated text, which is in no folder: give --data DIR";
            return Err(first.failure(reason));
        }
    };
    let corpus = load_held_out(data, &first.text, first.vocabulary.clone())?;
    if args.split == Split::Test {
        require_test(&corpus, data)?;
    }
    let (what, ids) = match args.split {
        Split::Valid => (VALID, corpus.valid()),
        Split::Test => (TEST, corpus.test()),
    };
    if let Some(tokens) = args.tokens.filter(|tokens| *tokens < needed) {
        return Err(format!("tokens is {tokens}, but must be at least {needed}").into());
    }
    let text = Text::of(what, ids, args.tokens, needed)?;
    note_other_texts(&first.corpus, &Fingerprint::of(&corpus), &[what]);
    Ok(text)
}

/// Prints what `look` finds of runs, or what is in files, where a line is a `what`; and draws it as the picture `stem`, if there is a
/// folder for it.
pub fn run<R: Row + DeserializeOwned>(
    source: &SourceArgs,
    (what, stem): (&str, &str),
    look: impl FnOnce(&SourceArgs) -> Result<Vec<R>, Failure>,
    chart: impl FnOnce(Vec<R>) -> Chart,
) -> Result<(), Failure> {
    if let Some(out) = &source.out {
        source.force.check_in(out, &[format!("{stem}.svg")])?;
    }
    let rows = if source.from.is_empty() { look(source)? } else { again(source, what)? };
    match &source.out {
        Some(out) => picture::save(&chart(rows), &out.join(stem)),
        None => Ok(()),
    }
}

/// Prints the rows that were printed as JSON before, each of them a `what`, and creates the folder for pictures.
fn again<R: Row + DeserializeOwned>(source: &SourceArgs, what: &str) -> Result<Vec<R>, Failure> {
    let found = source.from.iter().map(|path| read_json_lines::<R>(path, what));
    let (mut rows, mut seen, mut twice) = (vec![], HashSet::new(), 0);
    for row in found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        match seen.insert(serde_json::to_string(&row)?) {
            true => rows.push(row),
            false => twice += 1,
        }
    }
    if twice > 0 {
        print_note(format_args!("left out: {twice} of the lines, which are given twice"));
    }
    source.out.as_deref().map_or(Ok(()), create_folder)?;
    print_all(rows.into_iter().map(Ok), source.text.json)
}

fn print_all<R: Row>(rows: impl Iterator<Item = Result<R, Failure>>, json: bool) -> Result<Vec<R>, Failure> {
    if !json {
        println!("{}", R::HEADER);
    }
    let mut printed = vec![];
    for row in rows {
        let row = row?;
        match json {
            true => print_json(&row),
            false => println!("{}", shown(&row.line())),
        }
        printed.push(row);
    }
    if !json {
        println!("{}", wrapped(R::LEGEND, 80));
    }
    Ok(printed)
}
