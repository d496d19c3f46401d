//! The programs, each from its command line to its exit status.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use program::failure::Failure;
use program::{exit, ranks, start_among};
use runs::ranks::{Ranks, started_as_one_of};

use crate::commands::analysis::{compare, gradient_loss, kl, plif, rank};
use crate::commands::{curves, dialog, dynamic_eval, eval, export, generate, import};
use crate::commands::{runs as list, scores, sweep, train, transformer};
use crate::front;

/// Every command there is.
pub fn highrank() -> ExitCode {
    start_among("highrank", in_front::<Highrank>, |cli: Highrank, program, ranks| match cli.command {
        Some(command) => command.run(program, ranks),
        // Help was printed.
        None => Ok(()),
    })
}

/// Whether [`highrank`](fn@highrank) understands these arguments. A file of settings that they name is read; nothing is done.
///
/// # Errors
/// One line that says what is wrong with them.
pub fn check(arguments: impl IntoIterator<Item = String>) -> Result<(), String> {
    let words = arguments.into_iter().map(OsString::from).collect();
    let words = front::words(&commands(), words).map_err(|error| error.to_string())?;
    match Highrank::try_parse_from(std::iter::once("highrank".into()).chain(words)) {
        Err(error) if !exit::is_answer(&error) => Err(exit::line_of(&error)),
        _ => Ok(()),
    }
}

/// The same, and without a command `study`, which works in one process and has options of its own.
pub fn ptb_mos<T: Args>(study: impl FnOnce(&T) -> Result<(), Failure>) -> ExitCode {
    start_among("ptb_mos", in_front::<PtbMos<T>>, |cli: PtbMos<T>, program, ranks| match cli.command {
        None => ranks::refuse(ranks, "the built-in study").and_then(|()| study(&cli.study)),
        Some(command) => command.run(program, ranks),
    })
}

/// What [`highrank`](fn@highrank) understands.
pub(crate) fn commands() -> clap::Command {
    Highrank::command()
}

/// The words of a command line as the command reads them that does the work.
fn in_front<T: CommandFactory>(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    if started_as_one_of().is_some_and(|size| size > 1) {
        front::check_resumed(&words)?;
    }
    front::words(&T::command(), words)
}

/// A small GPT on Burn's transformer.
pub fn transformer() -> ExitCode {
    start_among("transformer", Ok, |args, program, ranks| transformer::run(&args, program.into(), ranks))
}

/// Trains, evaluates and analyses language models with high-rank output layers.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Highrank {
    /// What to do.
    #[command(subcommand)]
    command: Option<Command>,
}

/// Trains AWD-LSTM language models with high-rank output layers.
///
/// Without a command, trains a softmax and a Mixture of Softmaxes of equal size on a generated language and sets both
/// against the truth; that takes 9 to 45 seconds on two cores.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct PtbMos<T: Args> {
    /// What to do.
    #[command(subcommand)]
    command: Option<Command>,
    /// Options of the built-in study.
    #[command(flatten)]
    study: T,
}

/// What can be done. Those that are hidden are what the others become.
#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model on the text in a folder, continue a run (--resume), or start from a run's best model (--from): LSTMs are
    /// finetuned, a transformer's softmax goes on under another head.
    ///
    /// --model says what is trained: awd-lstm (a language model of LSTMs, the default), gpt (a transformer) or seq2seq (responses in
    /// dialogues); `train --model gpt --help` has the options of that one. A run says itself what it is of.
    #[command(override_usage = TRAIN)]
    Train(Box<train::TrainArgs>),
    /// Perplexity of a run's best model; with --dynamic, while it learns from what it was scored on.
    ///
    /// `highrank eval RUN --help` has the options of that run's model.
    #[command(override_usage = EVAL)]
    Eval(scores::EvalArgs),
    /// Text from a run's best model; of a model of dialogues, answers to the lines of standard input.
    ///
    /// `highrank generate RUN --help` has the options of that run's model.
    #[command(override_usage = "highrank generate RUN [OPTIONS]")]
    Generate(generate::GenerateArgs),
    /// What runs of language models have learned: rank, kl, plif, gradient, compare.
    Analyse {
        /// What is asked of the runs.
        #[command(subcommand)]
        what: Analysis,
    },
    /// Train heads by values of settings by seeds, and set them side by side in a table and pictures.
    ///
    /// FILE is a TOML file with the options by their names: `data = "ptb"`, `heads = ["softmax", "mos"]`, `lr = [10, 20]`.
    #[command(
        override_usage = "highrank sweep FILE.toml [OPTIONS]\n       highrank sweep --data DIR [OPTIONS]"
    )]
    Sweep(Box<sweep::SweepArgs>),
    /// List the runs below folders, with their settings, results and states.
    Runs(list::RunsArgs),
    /// Draw the curves of runs, or what analyse rank, gradient or plif, or sweep printed with --json.
    Plot {
        /// Folders of runs, or files with lines that were printed with --json.
        #[arg(required = true, value_name = "RUN or FILE")]
        what: Vec<PathBuf>,
        /// Folder for the picture [default: the present one; for results of a sweep, their path without its ending].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Replace a picture that is there.
        #[arg(long)]
        force: bool,
    },
    /// Make a run of a PyTorch model's weights.
    Import(import::ImportArgs),
    /// Write a run's best model for PyTorch.
    #[command(override_usage = "highrank export RUN --out FILE [OPTIONS]")]
    Export(export::ExportArgs),
    /// Validation perplexities of runs, of any model, in one picture.
    #[command(hide = true, override_usage = "highrank plot RUN ... [OPTIONS]")]
    Curves(curves::CurvesArgs),
    /// Perplexity of a saved run's best model while it learns from what it was scored on.
    #[command(hide = true, override_usage = "highrank eval RUN --dynamic [OPTIONS]")]
    DynamicEval(dynamic_eval::DynamicEvalArgs),
    #[command(hide = true, override_usage = TRAIN_GPT, disable_version_flag = true)]
    Transformer(Box<transformer::TransformerArgs>),
    #[command(hide = true)]
    Dialog(Box<dialog::DialogArgs>),
}

/// How `train` is used.
const TRAIN: &str =
    "highrank train DATA [--model MODEL] [--preset PRESET] [--head HEAD] [--set KEY=VALUE ...] [--out RUN]
       highrank train --resume RUN [--epochs N]
       highrank train --from RUN [OPTIONS]";

/// How `eval` is used.
const EVAL: &str = "highrank eval RUN [--split SPLIT] [--limit N] [--weights WEIGHTS] [OPTIONS]
       highrank eval RUN --dynamic [OPTIONS]";

/// How `train` is used for transformers.
const TRAIN_GPT: &str =
    "highrank train [DATA] --model gpt [--head HEAD] [--set KEY=VALUE ...] [--out RUN] [OPTIONS]
       highrank train --resume RUN
       highrank train --from RUN --head HEAD [OPTIONS]";

/// What can be asked of runs.
#[derive(Debug, Subcommand)]
enum Analysis {
    /// Empirical rank and spectrum of the log-probabilities.
    #[command(override_usage = "highrank analyse rank RUN ... [OPTIONS]")]
    Rank(rank::RankArgs),
    /// Expected divergence between the next-word distributions of two contexts.
    #[command(override_usage = "highrank analyse kl RUN ... [OPTIONS]")]
    Kl(kl::KlArgs),
    /// The functions that PLIFs have learned.
    #[command(override_usage = "highrank analyse plif RUN ... [OPTIONS]")]
    Plif(plif::PlifArgs),
    /// Share of the logits' gradient that the decoder keeps from the hidden state.
    #[command(override_usage = "highrank analyse gradient RUN ... [OPTIONS]")]
    Gradient(gradient_loss::GradientLossArgs),
    /// Where one run beats another, token by token.
    #[command(override_usage = "highrank analyse compare RUN RUN [OPTIONS]")]
    Compare(compare::CompareArgs),
}

impl Command {
    fn run(self, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
        match self {
            Self::Train(args) => train::run(&args, program, ranks),
            Self::Eval(args) => eval::run(&args, ranks),
            Self::Sweep(args) => sweep::run(&args, program, ranks),
            Self::Transformer(args) => transformer::run(&args, format!("{program} train"), ranks),
            Self::Dialog(args) => dialog::run(&args, program, ranks),
            _ if ranks.are_several() => ranks::refuse(ranks, "this command"),
            Self::Analyse { what } => match what {
                Analysis::Rank(args) => rank::run(&args),
                Analysis::Kl(args) => kl::run(&args),
                Analysis::Plif(args) => plif::run(&args),
                Analysis::Gradient(args) => gradient_loss::run(&args),
                Analysis::Compare(args) => compare::run(&args),
            },
            Self::Curves(args) => curves::run(&args),
            Self::DynamicEval(args) => dynamic_eval::run(&args),
            Self::Runs(args) => list::run(&args),
            Self::Plot { .. } => Err("plot needs a run, or a file that analyse or sweep printed".into()),
            Self::Generate(args) => generate::run(&args),
            Self::Import(args) => import::run(&args),
            Self::Export(args) => export::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_consistent() {
        Highrank::command().debug_assert();
        PtbMos::<program::files::Force>::command().debug_assert();
        for command in [transformer::TransformerArgs::command(), dialog::DialogArgs::command()] {
            command.debug_assert();
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Highrank::command().get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{name}");
        }
    }

    #[test]
    fn help_lists_no_more_than_anyone_reads() {
        let shown = |command: &clap::Command| {
            let options = command.get_arguments().filter(|arg| !arg.is_hide_set()).count();
            assert!(options <= 25, "{} shows {options} options", command.get_name());
        };
        // What `train --model` shows of transformers and dialogues has names of its own.
        Highrank::command().get_subcommands().for_each(shown);
        dialog::DialogArgs::command().get_subcommands().for_each(shown);
        Highrank::command().find_subcommand("analyse").unwrap().get_subcommands().for_each(shown);
    }

    #[test]
    fn a_command_line_is_checked_without_being_run() {
        let check = |line: &str| super::check(line.split(' ').map(String::from));
        assert_eq!(check("train --data nowhere --head mos"), Ok(()));
        assert_eq!(check("train --help"), Ok(()));
        let error = check("train --data nowhere --head best").unwrap_err();
        assert!(error.contains("'best'") && !error.contains('\n'), "{error}");
    }
}
