//! What the commands do alike: they open runs, read one text, visit run by run and print a table.

use std::collections::HashSet;
use std::path::Path;

use burn::tensor::Device;
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::files::{create_folder, read_json_lines};
use program::print::{print_json, print_note, shown, wrapped};
use runs::data::Fingerprint;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::analysis::args::{HeldOutArgs, SourceArgs, Split};
use crate::commands::analysis::model::Model;
use crate::commands::analysis::runs::SavedRun;
use crate::commands::analysis::text::{Text, Window};
use crate::training::{TEST, VALID, load_held_out, other_texts, require_test};

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

    fn header() -> String;

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
    let data = args.data.as_ref().or(first.data.as_ref()).ok_or_else(|| {
        first.failure("it has learned a generated text, which is in no folder: give --data DIR")
    })?;
    let corpus = load_held_out(data, &first.text, first.vocabulary.clone())?;
    if args.split == Split::Test {
        require_test(&corpus, data)?;
    }
    let (what, ids) = match args.split {
        Split::Valid => (VALID, corpus.valid()),
        Split::Test => (TEST, corpus.test()),
    };
    other_texts(&first.corpus, &Fingerprint::of(&corpus), &[what]).iter().for_each(print_note);
    if let Some(tokens) = args.tokens.filter(|tokens| *tokens < needed) {
        return Err(format!("tokens is {tokens}, but must be at least {needed}").into());
    }
    Text::of(what, ids, args.tokens, needed)
}

/// The rows that `look` finds and prints, or, printed again, those `what` that the command printed as JSON before; then the folder
/// for pictures is created here.
pub fn rows<R: Row + DeserializeOwned>(
    source: &SourceArgs,
    what: &str,
    out: Option<&Path>,
    look: impl FnOnce() -> Result<Vec<R>, Failure>,
) -> Result<Vec<R>, Failure> {
    if source.from.is_empty() {
        return look();
    }
    let found = source.from.iter().map(|path| read_json_lines::<R>(path, what));
    let (mut rows, mut seen, mut again) = (vec![], HashSet::new(), 0);
    for row in found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        match seen.insert(serde_json::to_string(&row)?) {
            true => rows.push(row),
            false => again += 1,
        }
    }
    if again > 0 {
        print_note(format_args!("left out: {again} of the lines, which are given twice"));
    }
    if let Some(out) = out {
        create_folder(out)?;
    }
    print_all(rows.into_iter().map(Ok), source.text.json)
}

fn print_all<R: Row>(rows: impl Iterator<Item = Result<R, Failure>>, json: bool) -> Result<Vec<R>, Failure> {
    if !json {
        println!("{}", R::header());
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
