//! `runs`: the runs below a folder, with their settings and results.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use awd_lstm::train::AwdLstm;
use clap::{Args, ValueEnum};
use gpt::Transformer;
use highrank::ContextConfig;
use program::device;
use program::failure::Failure;
use program::files::absolute;
use program::print::{print_json, print_note, shown, terminal_columns};
use program::statistics::{decimal, grouped};
use runs::{EndReason, Error, Procedure, Record, RunState, Settings, kind_of_run};
use seq2seq::train::Dialogues;
use serde::Serialize;

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

/// Lists runs, of language models, of models of dialogues and of transformers, with their settings, results and states. Runs that cannot be read are listed with the reason.
pub fn run(args: &RunsArgs) -> Result<(), Failure> {
    let mut paths = vec![];
    for folder in &args.folders {
        if !folder.is_dir() {
            return Err(format!("`{}` is no folder; name one that holds runs", folder.display()).into());
        }
        search(folder, &mut paths)?;
    }
    // However they are named.
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(absolute(path)));
    paths.sort();
    let mut runs: Vec<Listed> = paths.iter().map(|path| Listed::read(path)).collect();
    runs.sort_by(|a, b| args.sort.compare(a, b));
    if runs.is_empty() {
        print_note("no runs there");
        return Ok(());
    }
    let name = |path: &PathBuf| shown(&path.display().to_string()).chars().count();
    let width = paths.iter().map(name).max().unwrap_or(0).max(3);
    let narrow = terminal_columns().is_some_and(|columns| columns < Listed::header(width, false).len());
    if !args.json {
        println!("{}", Listed::header(width, narrow));
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
    if Record::<AwdLstm>::exists(folder) {
        paths.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        // Of links those to runs alone are followed, so that the search ends.
        let kind = entry.file_type().map_err(Error::io("read", folder))?;
        if kind.is_dir() || kind.is_symlink() && Record::<AwdLstm>::exists(&entry.path()) {
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
    /// The order of two runs. Ones without the number come last, and those that cannot be read after all others.
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

/// A folder that holds a run, or should.
#[derive(Debug, Serialize)]
struct Listed {
    run: String,
    #[serde(flatten)]
    content: Content,
}

/// What a folder holds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Run(Box<Summary>),
    /// Something that cannot be read.
    Unread {
        /// Damaged, or of another version of the program.
        state: &'static str,
        /// Why, in one line.
        reason: String,
    },
}

/// Settings and results of a run.
#[derive(Debug, Serialize)]
struct Summary {
    /// What it trains, by the names of `--model`.
    kind: &'static str,
    state: RunState,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<EndReason>,
    preset: String,
    head: String,
    parameters: usize,
    d_embedding: usize,
    /// Sizes of the LSTM layers; of a model of dialogues, the encoders of utterances and contexts and the decoder. A transformer has
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lstm_sizes: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<usize>,
    seed: u64,
    finetunes: bool,
    device: String,
    epochs_done: usize,
    /// Epochs that it may have.
    epochs: usize,
    /// Perplexity of the training text in the epoch of the best model.
    train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model so far.
    valid_ppl: Option<f64>,
    test_ppl: Option<f64>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Listed {
    fn read(path: &Path) -> Self {
        let content = match Summary::read(path) {
            Ok(summary) => Content::Run(Box::new(summary)),
            Err(error) => {
                let reason = error.to_string().replace('\n', " ");
                let state = match error.downcast_ref() {
                    Some(Error::RunFormat { .. }) => "other-version",
                    _ => "damaged",
                };
                Content::Unread { state, reason }
            }
        };
        Self { run: path.display().to_string(), content }
    }

    fn summary(&self) -> Option<&Summary> {
        match &self.content {
            Content::Run(summary) => Some(summary),
            Content::Unread { .. } => None,
        }
    }

    /// The titles of the columns of [`line`](Self::line), after a name of this width.
    fn header(width: usize, narrow: bool) -> String {
        let end = if narrow { String::new() } else { format!(" {:>9}  {:<15}", "seconds", "ended") };
        format!(
            "{:<width$} {:<8} {:<13} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9}{end} state",
            "run", "kind", "head", "parameters", "d", "K", "epochs", "valid", "test"
        )
    }

    /// The run in one line; a `narrow` one does not say how it ended and how long it took.
    fn line(&self, width: usize, narrow: bool) -> String {
        let name = shown(&self.run);
        match &self.content {
            Content::Unread { state, reason } => {
                format!("{name:<width$} {}: {reason}", state.replace('-', " "))
            }
            Content::Run(run) => {
                let number = |value: Option<f64>| value.map_or("-".into(), |value| decimal(value, 2));
                let ended = serde_json::to_value(run.ended).unwrap_or_default();
                let ended = ended.as_str().unwrap_or("-");
                let end = if narrow { String::new() } else { format!(" {:>9.0}  {ended:<15}", run.seconds) };
                let failed = run.failed.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
                format!(
                    "{name:<width$} {:<8} {:<13} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9}{end} {}{}{failed}",
                    run.kind,
                    run.head,
                    grouped(run.parameters),
                    run.d_embedding,
                    run.components.map_or("-".into(), |components| components.to_string()),
                    format!("{}/{}", run.epochs_done, run.epochs),
                    number(run.valid_ppl),
                    number(run.test_ppl),
                    run.state,
                    if run.finetunes { ", from another run" } else { "" },
                )
            }
        }
    }
}

impl Summary {
    fn read(path: &Path) -> Result<Self, Failure> {
        match kind_of_run(path)?.as_str() {
            Dialogues::KIND => Ok(Self::of_dialogues(&Record::read(path)?)),
            Transformer::KIND => Self::of_transformer(&Record::read(path)?),
            // Whatever cannot be told is a language model, whose reader says what is wrong.
            _ => Ok(Self::of_language_model(&Record::read(path)?)),
        }
    }

    /// What every kind of run has.
    fn of<S: Settings>(record: &Record<S>) -> Self {
        let (config, train) = (&record.config, record.config.train.common());
        Self {
            kind: S::KIND,
            state: record.state,
            ended: record.last.as_ref().map(|last| last.ended),
            preset: config.preset.clone(),
            head: String::new(),
            parameters: 0,
            d_embedding: 0,
            lstm_sizes: vec![],
            components: None,
            seed: train.seed,
            finetunes: config.finetunes.is_some(),
            device: config.device.clone(),
            epochs_done: record.epochs_done(),
            epochs: train.epochs,
            train_ppl: record.train_ppl(),
            valid_ppl: record.valid_ppl(),
            test_ppl: record.test_ppl(),
            seconds: record.seconds(),
            failed: record.failure.clone(),
        }
    }

    fn of_language_model(record: &Record<AwdLstm>) -> Self {
        let model = &record.config.model;
        Self {
            head: model.head.to_string(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: model.lstm_sizes.clone(),
            components: model.head.is_mixture().then_some(model.components),
            ..Self::of(record)
        }
    }

    fn of_dialogues(record: &Record<Dialogues>) -> Self {
        let model = &record.config.model;
        Self {
            head: model.head.to_string(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: vec![model.d_utterance, model.d_context, model.d_decoder],
            components: model.head.is_mixture().then_some(model.components),
            ..Self::of(record)
        }
    }

    fn of_transformer(record: &Record<Transformer>) -> Result<Self, Failure> {
        let model = &record.config.model;
        Ok(Self {
            head: record.config.preset.clone(),
            // Parameters are created when they are first used: this allocates hardly any.
            parameters: model.num_params(&device::open(device::cpu_or_fastest())?)?,
            d_embedding: model.head.d_embedding,
            components: match model.head.context {
                ContextConfig::Direct(_) => None,
                _ => Some(model.head.context.components()),
            },
            ..Self::of(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_line_leaves_out_how_a_run_ended() {
        let [wide, narrow] = [false, true].map(|narrow| Listed::header(4, narrow));
        assert!(
            wide.contains("seconds  ended") && wide.len() > narrow.len() && narrow.ends_with("test state")
        );
        for (state, line) in
            [("damaged", "a\\u{1b}b damaged: gone"), ("other-version", "a\\u{1b}b other version: gone")]
        {
            let content = Content::Unread { state, reason: "gone".into() };
            let listed = Listed { run: "a\u{1b}b".into(), content };
            assert_eq!(listed.line(3, true), line);
        }
    }
}
