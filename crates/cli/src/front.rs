//! One command line for all kinds of models.
//!
//! `train`, `eval`, `generate` and `export` are the same words for a language model, a transformer and a model of dialogues. Which of them
//! is meant, `--model` says, or the run that the line names; `plot` looks at what it is to draw, and `sweep` reads its options from a
//! file. Here the words of a line become those of the command that does the work, and the words of earlier versions today's.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::path::Path;

use awd_lstm::train::AwdLstm;
use clap::{ArgAction, Command};
use gpt::Transformer;
use program::failure::Failure;
use runs::{Error, Settings, kind_of_run};
use seq2seq::train::Dialogues;
use toml::Value;

/// What is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    AwdLstm,
    Seq2seq,
    Gpt,
}

impl Model {
    /// The model of the run in a folder; none if the folder is no run that this version reads, of which the command will speak.
    fn of_run(path: &OsStr) -> Option<Self> {
        kind_of_run(Path::new(path)).ok()?.parse().ok()
    }
}

// By the kinds of their runs.
runs::by_name! {
    Model, "model":
    AwdLstm => AwdLstm::KIND, Seq2seq => Dialogues::KIND, Gpt => Transformer::KIND,
}

/// The words of the command that does the work, of the words after the program's name. `commands` is what the program understands.
pub fn words(commands: &Command, words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let mut line = Line { commands, words };
    let Some(first) = line.words.first().and_then(|word| word.to_str()).map(str::to_string) else {
        return Ok(line.words);
    };
    line.words.remove(0);
    match first.as_str() {
        "train" => line.train(),
        "eval" => line.eval(),
        "generate" => match line.model_of_run(&[&["generate"], &["dialog", "respond"]]) {
            Some(Model::Seq2seq) => line.nameless(&["dialog", "respond"]),
            _ => line.named("--run", &["generate"]),
        },
        "export" => match line.model_of_run(&[&["export"]]) {
            Some(Model::Gpt) => {
                Err("a transformer needs no export: its tensors are in `best/model.safetensors` of the run"
                    .into())
            }
            _ => line.named("--run", &["export"]),
        },
        "import" => match line.model()? {
            Some(Model::Seq2seq) => Ok(line.becomes(&["dialog", "import"])),
            Some(Model::Gpt) => Err("import knows no transformer: --model awd-lstm or seq2seq".into()),
            _ => Ok(line.becomes(&["import"])),
        },
        "analyse" if !line.words.is_empty() && !line.words[0].to_string_lossy().starts_with('-') => {
            let what = line.words.remove(0).to_string_lossy().into_owned();
            line.named("--run", &["analyse", &what])
        }
        "plot" => line.plot(),
        "sweep" => line.sweep(),
        "finetune" => line.finetune(),
        "transformer" => line.transformer(),
        "dialog" if line.words.first().is_some_and(|word| word == "export") => {
            line.words.remove(0);
            line.named("--run", &["export"])
        }
        "help" => {
            if line.words.first().is_some_and(|word| word == "dialog") && line.has("export") {
                line.words.remove(0);
            }
            let of = line.words.first().map_or(vec![], |of| today(of.to_str().unwrap_or_default()));
            let of: Vec<OsString> = of.into_iter().map(OsString::from).collect();
            line.words.splice(0..of.len().min(1), of);
            Ok(line.becomes(&["help"]))
        }
        name => Ok(line.becomes(&today(name))),
    }
}

/// The words for a command by the name that it had before, or has.
fn today(name: &str) -> Vec<&str> {
    match name {
        "rank" | "kl" | "compare" | "plif" => vec!["analyse", name],
        "gradient-loss" => vec!["analyse", "gradient"],
        "finetune" => vec!["train"],
        _ => vec![name],
    }
}

/// Checks that the run which a line resumes is there. The run says which command does the work: of several processes, one without it
/// would do another.
///
/// # Errors
/// What [`kind_of_run`] says.
pub fn check_resumed(words: &[OsString]) -> Result<(), Failure> {
    match value(words, "--resume") {
        Some((run, _)) => Ok(kind_of_run(Path::new(&run)).map(drop)?),
        None => Ok(()),
    }
}

/// The value of an option, and which words say it.
fn value(words: &[OsString], option: &str) -> Option<(OsString, Range<usize>)> {
    words.iter().enumerate().find_map(|(at, word)| match word.to_str()?.strip_prefix(option)? {
        "" => Some((words.get(at + 1)?.clone(), at..at + 2)),
        joined => Some((joined.strip_prefix('=')?.into(), at..at + 1)),
    })
}

/// The words after a command's name.
struct Line<'a> {
    commands: &'a Command,
    words: Vec<OsString>,
}

impl Line<'_> {
    fn train(mut self) -> Result<Vec<OsString>, Failure> {
        let asked = self.model()?;
        let from = self.take("--from")?;
        if from.is_some() && self.has("--resume") {
            return Err("--from starts a new run and --resume continues one: give one of them".into());
        }
        let run = from.clone().or_else(|| value(&self.words, "--resume").map(|(run, _)| run));
        let of_run: Option<Model> = match &from {
            // What is no run is said at once: otherwise the options of another model would be found wrong.
            Some(run) => kind_of_run(Path::new(run))?.parse().ok(),
            None => run.as_deref().and_then(Model::of_run),
        };
        if let (Some(asked), Some(of_run), Some(run)) = (asked, of_run, &run)
            && asked != of_run
        {
            return Err(format!("--model is {asked}, but `{}` is a run of {of_run}", run.display()).into());
        }
        let model = of_run.or(asked).unwrap_or(Model::AwdLstm);
        if model == Model::Seq2seq && from.is_some() {
            return Err("--from is for language models and transformers; seq2seq has no such training".into());
        }
        self.start_from(from);
        match model {
            Model::AwdLstm => self.named("--data", &["train"]),
            Model::Gpt => self.transformer(),
            Model::Seq2seq => self.named("--data", &["dialog", "train"]),
        }
    }

    /// What `train --from` was called before, for language models of LSTMs.
    fn finetune(mut self) -> Result<Vec<OsString>, Failure> {
        let run = self.take("--run")?;
        if run.is_none() && !self.has("--help") && !self.has("-h") {
            return Err("finetune needs --run <RUN>, the run to start from".into());
        }
        self.start_from(run);
        Ok(self.becomes(&["train"]))
    }

    /// A transformer's training; with a run it was what `eval` is.
    fn transformer(mut self) -> Result<Vec<OsString>, Failure> {
        if !self.has("--run") {
            return self.named("--data", &["transformer"]);
        }
        if self.has("--from") {
            return Err("--run scores a run and --from starts from one: give one of them".into());
        }
        let tokens = self.take("--eval-tokens")?;
        self.words.extend(tokens.into_iter().flat_map(|tokens| ["--max-tokens".into(), tokens]));
        Ok(self.becomes(&["eval"]))
    }

    fn start_from(&mut self, run: Option<OsString>) {
        self.words.splice(0..0, run.into_iter().flat_map(|run| ["--from".into(), run]));
    }

    fn eval(mut self) -> Result<Vec<OsString>, Failure> {
        let dynamic = self.words.iter().position(|word| word == "--dynamic");
        let dynamic = dynamic.map(|at| self.words.remove(at)).is_some();
        let commands: &[&[&str]] = &[&["eval"], &["dynamic-eval"], &["dialog", "eval"]];
        match (self.model_of_run(commands), dynamic) {
            (Some(Model::Seq2seq), false) => self.nameless(&["dialog", "eval"]),
            (_, false) => self.named("--run", &["eval"]),
            (Some(Model::AwdLstm) | None, true) => {
                let others = ["--split", "--limit", "--max-tokens", "--weights"];
                match others.into_iter().find(|option| self.has(option)) {
                    Some(option) => Err(format!(
                        "--dynamic scores all of the validation and the test text with the best weights: leave {option} out"
                    )
                    .into()),
                    None => self.named("--run", &["dynamic-eval"]),
                }
            }
            (Some(model), true) => {
                Err(format!("--dynamic is for runs of awd-lstm; this is a run of {model}").into())
            }
        }
    }

    /// Runs are drawn as their curves; a file of lines, as the command that printed them draws it.
    fn plot(self) -> Result<Vec<OsString>, Failure> {
        let (places, has_out) = (self.places(&["plot"]), self.has("--out"));
        let Some(&first) = places.first() else { return Ok(self.becomes(&["plot"])) };
        let path = Path::new(&self.words[first]);
        let paths = || places.iter().map(|&at| Path::new(&self.words[at]));
        let (run, file) = (paths().find(|path| path.is_dir()), paths().find(|path| path.is_file()));
        if let (Some(run), Some(file)) = (run, file) {
            let (file, run) = (file.display(), run.display());
            return Err(format!(
                "`{file}` is a file and `{run}` a folder: plot draws runs or files of lines, not both"
            )
            .into());
        }
        if path.is_dir() {
            return self.named("--run", &["curves"]);
        }
        // Here it is read for its kind, then by the command that draws it.
        if path.exists() && !path.is_file() {
            let path = path.display();
            return Err(
                format!("`{path}` is a pipe or a device, but plot reads a file twice: name a file").into()
            );
        }
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        // Blank lines are passed over, as where all lines are read.
        let first = text.lines().enumerate().find(|(_, line)| !line.trim().is_empty());
        let line: serde_json::Value = match first {
            Some((number, line)) => serde_json::from_str(line).map_err(|_| Error::Damaged {
                path: path.to_path_buf(),
                reason: format!("line {} is not JSON", number + 1),
            })?,
            None => serde_json::Value::Null,
        };
        let commands = [
            ("singular_values", "rank"),
            ("squared_share", "gradient-loss"),
            ("slope_mean", "plif"),
            ("best_epoch", "sweep"),
            ("lstm_sizes", "sweep"),
        ];
        match commands.into_iter().find(|(key, _)| !line[*key].is_null()) {
            Some((_, command)) => {
                let files: Vec<_> = places.iter().map(|&at| self.words[at].clone()).collect();
                let mut words = self.words;
                places.iter().rev().for_each(|&at| drop(words.remove(at)));
                if command != "sweep" && !has_out {
                    words.push("--out=.".into());
                }
                let command = today(command).into_iter().chain(["--from"]).map(OsString::from);
                Ok(command.chain(files).chain(words).collect())
            }
            None => {
                let kinds = "of runs, or of the lines that rank, gradient, plif or sweep print with --json";
                Err(format!("`{}` holds nothing to draw: plot is {kinds}", path.display()).into())
            }
        }
    }

    /// The options of a sweep in a file, each by its name; those of the line come before them.
    fn sweep(mut self) -> Result<Vec<OsString>, Failure> {
        let file = self.places(&["sweep"]).first().map(|&at| self.words.remove(at));
        let Some(file) = file else { return Ok(self.becomes(&["sweep"])) };
        let path = Path::new(&file);
        if path.is_dir() {
            let path = path.display();
            let right = format!("sweep reads a file of options: a text is `--data {path}`");
            return Err(format!("`{path}` is a folder, but {right}").into());
        }
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let damaged = |reason: &str| Error::Damaged {
            path: path.to_path_buf(),
            reason: reason.trim().replace('\n', " "),
        };
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| damaged(&fault(&text, &error)))?;
        let twice = |key: &&String| key.contains('-') && table.contains_key(&key.replace('-', "_"));
        if let Some(key) = table.keys().find(twice) {
            let other = key.replace('-', "_");
            return Err(damaged(&format!("{key} and {other} are one setting: leave one of them out")).into());
        }
        for (key, value) in table {
            let option = format!("--{}", key.replace('_', "-"));
            if self.has(&option) {
                continue;
            }
            let (values, form) = match value {
                Value::Boolean(true) => {
                    self.words.push(option.into());
                    continue;
                }
                // A flag is left out; an option is given, or refused.
                Value::Boolean(false) => {
                    if !self.is_flag(&["sweep"], &option) {
                        self.words.push(format!("{option}=false").into());
                    }
                    continue;
                }
                // Options that are given several times.
                Value::Array(values) if ["for", "set", "from"].contains(&key.as_str()) => {
                    if values.iter().any(Value::is_array) {
                        return Err(
                            damaged(&format!("{key} must be a list of values without lists in it")).into()
                        );
                    }
                    (values, "a list of values")
                }
                value => (vec![value], "a value, a list of values, or a list of lists of them"),
            };
            for value in values {
                let value = plain(&value).ok_or_else(|| damaged(&format!("{key} must be {form}")))?;
                self.words.push(format!("{option}={value}").into());
            }
        }
        Ok(self.becomes(&["sweep"]))
    }

    /// The value of `--model`, which is taken away.
    fn model(&mut self) -> Result<Option<Model>, Failure> {
        Ok(self.take("--model")?.map(|name| name.to_string_lossy().parse()).transpose()?)
    }

    /// The model of the first run that the line names, as one of these commands reads it: to the others its flags are unknown. The
    /// value of another option may have the name of a run, too.
    fn model_of_run(&self, commands: &[&[&str]]) -> Option<Model> {
        let named = value(&self.words, "--run").map(|(run, _)| run);
        let mut places: Vec<usize> = commands.iter().flat_map(|command| self.places(command)).collect();
        places.sort_unstable();
        let places = places.into_iter().map(|at| self.words[at].clone());
        named.into_iter().chain(places).find_map(|run| Model::of_run(&run))
    }

    /// Whether the line has an option.
    fn has(&self, option: &str) -> bool {
        let joined = format!("{option}=");
        self.words.iter().any(|word| word == option || word.to_string_lossy().starts_with(&joined))
    }

    /// The value of an option, which is taken away with it.
    fn take(&mut self, option: &str) -> Result<Option<OsString>, Failure> {
        match value(&self.words, option) {
            Some((value, words)) => {
                self.words.drain(words);
                Ok(Some(value))
            }
            None if self.words.iter().any(|word| word == option) => {
                Err(format!("{option} needs a value").into())
            }
            None => Ok(None),
        }
    }

    /// The words that are neither options nor values of options of a command.
    fn places(&self, command: &[&str]) -> Vec<usize> {
        let Some(command) = self.command(command) else { return vec![] };
        let (mut places, mut values) = (vec![], 0);
        for (at, word) in self.words.iter().enumerate() {
            let text = word.to_string_lossy();
            if let Some(option) =
                text.strip_prefix("--").or_else(|| text.strip_prefix('-').filter(|_| values == 0))
            {
                let is_meant = |arg: &&clap::Arg| {
                    arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&option))
                };
                let arg = command.get_arguments().find(is_meant);
                values = match arg {
                    // `--` alone.
                    _ if option.is_empty() => 0,
                    Some(arg) if matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) => {
                        // Its value is written with `=`.
                        arg.get_num_args().map_or(1, |range| {
                            if arg.is_require_equals_set() { 0 } else { range.max_values() }
                        })
                    }
                    Some(_) => 0,
                    // Clap adds it later than here.
                    None if option == "help" => 0,
                    // What is misspelt is refused for its name, not for its value.
                    None => usize::from(text.starts_with("--") && !option.contains('=')),
                };
            } else if values > 0 {
                values -= 1;
            } else {
                places.push(at);
            }
        }
        places
    }

    /// The line as one of another command, in which what has no name is the value of `option`.
    fn named(mut self, option: &str, command: &[&str]) -> Result<Vec<OsString>, Failure> {
        let places = self.places(command);
        let is_one = self.command(command).into_iter().flat_map(Command::get_arguments).any(|arg| {
            arg.get_long() == option.strip_prefix("--") && matches!(arg.get_action(), ArgAction::Set)
        });
        if let (true, [.., last]) = (is_one && places.len() + usize::from(self.has(option)) > 1, &places[..])
        {
            // By the name that help has for it.
            let what = if option == "--data" { "DATA" } else { "RUN" };
            return Err(self.left_over(what, *last));
        }
        for &at in places.iter().rev() {
            self.words.insert(at, option.into());
        }
        Ok(self.becomes(command))
    }

    /// The line as one of another command, in which the run is not the value of an option.
    fn nameless(mut self, command: &[&str]) -> Result<Vec<OsString>, Failure> {
        let run = self.take("--run")?;
        let places = self.places(command);
        if let (true, [.., last]) = (places.len() + usize::from(run.is_some()) > 1, &places[..]) {
            return Err(self.left_over("RUN", *last));
        }
        self.words.splice(0..0, run);
        Ok(self.becomes(command))
    }

    /// What is said of a word where one that means the same is given already.
    fn left_over(&self, what: &str, at: usize) -> Failure {
        format!("one {what} is given already: leave `{}` out", self.words[at].to_string_lossy()).into()
    }

    /// A command by its name and those above it.
    fn command(&self, names: &[&str]) -> Option<&Command> {
        names.iter().try_fold(self.commands, |command, name| command.find_subcommand(name))
    }

    /// Whether a command has this option, and it takes no value.
    fn is_flag(&self, command: &[&str], option: &str) -> bool {
        let mut args = self.command(command).into_iter().flat_map(Command::get_arguments);
        args.any(|arg| arg.get_long() == option.strip_prefix("--") && !arg.get_action().takes_values())
    }

    fn becomes(self, command: &[&str]) -> Vec<OsString> {
        command.iter().map(OsString::from).chain(self.words).collect()
    }
}

/// A value as it is written on a command line: commas between the items of a list, colons between lists.
fn plain(value: &Value) -> Option<String> {
    let Value::Array(values) = value else { return scalar(value) };
    let is_list = |value: &Value| value.is_array() || value.as_str().is_some_and(|text| text.contains(','));
    match values.iter().any(is_list) {
        // A number among lists says neither.
        true if !values.iter().all(|value| value.is_array() || value.is_str()) => None,
        true => joined(values, ":", |value| match value {
            Value::Array(items) => joined(items, ",", scalar),
            text => scalar(text),
        }),
        false => joined(values, ",", scalar),
    }
}

fn joined(values: &[Value], between: &str, text: impl Fn(&Value) -> Option<String>) -> Option<String> {
    Some(values.iter().map(text).collect::<Option<Vec<_>>>()?.join(between))
}

/// A value that is no list.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    }
}

/// What is wrong with a TOML text, and in which line.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(String::new(), |before| format!("line {}: ", before.matches('\n').count() + 1));
    line + error.message()
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
