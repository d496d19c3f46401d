//! The programs, each from its command line to its exit status.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use runs::ranks::Ranks;

use crate::commands::analysis::compare::{self, CompareArgs};
use crate::commands::analysis::gradient_loss::{self, GradientLossArgs};
use crate::commands::analysis::kl::{self, KlArgs};
use crate::commands::analysis::plif::{self, PlifArgs};
use crate::commands::analysis::rank::{self, RankArgs};
use crate::commands::curves::{self, CurvesArgs};
use crate::commands::dialog::{self, DialogArgs};
use crate::commands::dynamic_eval::{self, DynamicEvalArgs};
use crate::commands::eval::{self, EvalArgs};
use crate::commands::export::{self, ExportArgs};
use crate::commands::finetune::{self, FinetuneArgs};
use crate::commands::generate::{self, GenerateArgs};
use crate::commands::import::{self, ImportArgs};
use crate::commands::runs::{self as list, RunsArgs};
use crate::commands::study::{self, StudyArgs};
use crate::commands::sweep::{self, AblationArgs, SweepArgs};
use crate::commands::train::{self, TrainArgs};
use crate::commands::transformer::{self, TransformerArgs};
use crate::exit;
use crate::failure::Failure;
use crate::ranks;

/// Every command there is.
pub fn highrank() -> ExitCode {
    start_ranks("highrank", |cli: Highrank, program, ranks| match cli.command {
        Some(Command::Model(command)) => command.run(program, ranks),
        _ if ranks.are_several() => ranks::refuse(ranks, "this command"),
        // Help was printed.
        None => Ok(()),
        Some(Command::Transformer(args)) => transformer::run(&args, "highrank transformer"),
        Some(Command::Dialog(args)) => dialog::run(&args, "highrank dialog"),
    })
}

/// Whether [`highrank`](fn@highrank) understands these arguments. A file of settings that they name is read; nothing is done.
///
/// # Errors
/// One line that says what is wrong with them.
pub fn check(arguments: impl IntoIterator<Item = String>) -> Result<(), String> {
    let line = std::iter::once("highrank".to_string()).chain(arguments);
    match Highrank::try_parse_from(line) {
        Err(error) if !exit::is_answer(&error) => Err(exit::line_of(&error)),
        _ => Ok(()),
    }
}

/// The commands about language models alone.
pub fn ptb_mos() -> ExitCode {
    start_ranks("ptb_mos", |cli: PtbMos, program, ranks| match cli.command {
        None => ranks::refuse(ranks, "the built-in study").and_then(|()| study::run(&cli.study)),
        Some(command) => command.run(program, ranks),
    })
}

/// A small GPT on Burn's transformer.
pub fn transformer() -> ExitCode {
    start("transformer", |args, program| transformer::run(&args, program))
}

/// A program in one process: reads the command line, does what it says, and answers with an exit status. `work` is told the
/// program's name.
pub fn start<T: Parser>(
    program: &'static str,
    work: impl FnOnce(T, &'static str) -> Result<(), Failure>,
) -> ExitCode {
    start_ranks(program, |args, program, ranks| {
        ranks::refuse(ranks, program)?;
        work(args, program)
    })
}

/// The same, in as many processes as there are.
fn start_ranks<T: Parser>(
    program: &'static str,
    work: impl FnOnce(T, &'static str, &Ranks) -> Result<(), Failure>,
) -> ExitCode {
    let ranks = match ranks::join() {
        Ok(ranks) => ranks,
        Err(error) => return exit::exit(Err(error)),
    };
    match ranks::parse(program, &ranks) {
        Ok(args) => ranks::exit(&ranks, work(args, program, &ranks)),
        Err(status) => status,
    }
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
/// against the truth; that takes a few minutes.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct PtbMos {
    /// What to do.
    #[command(subcommand)]
    command: Option<ModelCommand>,
    /// Options of the built-in study.
    #[command(flatten)]
    study: StudyArgs,
}

/// The commands about language models.
#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Train on text: a folder with train.txt, valid.txt and test.txt, one sentence a line.
    Train(Box<TrainArgs>),
    /// Perplexity of a saved run's best model.
    Eval(EvalArgs),
    /// Empirical rank and spectrum of the log-probabilities of saved runs.
    Rank(RankArgs),
    /// Expected divergence between the next-word distributions of two contexts, for saved runs.
    Kl(KlArgs),
    /// Share of the logits' gradient that the decoders of saved runs keep from the hidden state.
    GradientLoss(GradientLossArgs),
    /// Where one saved run beats another, token by token.
    Compare(CompareArgs),
    /// The functions that saved runs with a PLIF have learnt.
    Plif(PlifArgs),
    /// Validation perplexities of runs, of any model, in one picture.
    Curves(CurvesArgs),
    /// Continue training a saved run's best model, with averaged weights from the first step.
    Finetune(Box<FinetuneArgs>),
    /// Perplexity of a saved run's best model while it learns from what it was scored on.
    DynamicEval(DynamicEvalArgs),
    /// Train heads by values of settings by seeds, and set them side by side in a table and pictures.
    Sweep(Box<SweepArgs>),
    /// The same with heads of equal numbers of parameters, unless the options say otherwise.
    Ablation(Box<AblationArgs>),
    /// List the runs below folders, with their settings, results and states.
    Runs(RunsArgs),
    /// Text from a saved run's best model.
    Generate(GenerateArgs),
    /// Make a run of a PyTorch model's weights.
    Import(ImportArgs),
    /// Write a run's best model for PyTorch.
    Export(ExportArgs),
}

impl ModelCommand {
    fn run(self, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
        match self {
            Self::Train(args) => train::run(&args, program, ranks),
            Self::Eval(args) => eval::run(&args, ranks),
            Self::Finetune(args) => finetune::run(&args, program, ranks),
            Self::Sweep(args) => sweep::run(&args, program, ranks),
            Self::Ablation(args) => sweep::run(&args.0, program, ranks),
            _ if ranks.are_several() => ranks::refuse(ranks, "this command"),
            Self::Rank(args) => rank::run(&args),
            Self::Kl(args) => kl::run(&args),
            Self::GradientLoss(args) => gradient_loss::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Plif(args) => plif::run(&args),
            Self::Curves(args) => curves::run(&args),
            Self::DynamicEval(args) => dynamic_eval::run(&args),
            Self::Runs(args) => list::run(&args),
            Self::Generate(args) => generate::run(&args),
            Self::Import(args) => import::run(&args),
            Self::Export(args) => export::run(&args),
        }
    }
}

// Without comments of their own the last ones keep the longer help texts of their options.
/// All commands.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Model(ModelCommand),
    Transformer(Box<TransformerArgs>),
    Dialog(Box<DialogArgs>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::Dropouts;
    use clap::CommandFactory;
    use highrank::Precision;

    #[test]
    fn the_command_lines_are_consistent() {
        Highrank::command().debug_assert();
        PtbMos::command().debug_assert();
        for command in [TransformerArgs::command(), DialogArgs::command()] {
            command.debug_assert();
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        let command = Highrank::command();
        for name in ["transformer", "dialog"] {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            assert!(about.is_some_and(|about| !about.to_string().is_empty()), "{name}");
        }
        assert_eq!(command.get_subcommands().count(), 18);
        assert_eq!(PtbMos::command().get_subcommands().count(), 16);
    }

    #[test]
    fn a_command_line_is_checked_without_being_run() {
        let check = |line: &str| super::check(line.split(' ').map(String::from));
        assert_eq!(check("train --data nowhere --head mos"), Ok(()));
        assert_eq!(check("train --help"), Ok(()));
        let error = check("train --data nowhere --head best").unwrap_err();
        assert!(error.contains("'best'") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn each_dropout_has_its_own_option() {
        let line = "ptb_mos train --data d --dropout-output 0.1 --dropout-hidden 0.2 --dropout-input 0.3 \
                    --dropout-latent 0.4 --dropout-embedding 0.5 --dropout-weight 0.6";
        let cli = PtbMos::parse_from(line.split_whitespace());
        let Some(ModelCommand::Train(args)) = cli.command else { panic!("train") };
        let dropouts = args.training.model(awd_lstm::HeadKind::Mos, 50).dropouts;
        let expected =
            Dropouts { output: 0.1, hidden: 0.2, input: 0.3, latent: 0.4, embedding: 0.5, weight: 0.6 };
        assert_eq!(dropouts, expected);
    }

    #[test]
    fn overrides_replace_the_presets_settings() {
        use awd_lstm::HeadKind;
        let line = "ptb_mos train --data d --head softmax --d-embedding 16 --dropout-weight 0.25 --seed 5 --lr 3 --precision tf32";
        let cli = PtbMos::parse_from(line.split(' '));
        let Some(ModelCommand::Train(args)) = cli.command else { panic!("train") };
        let model = args.training.model(HeadKind::Softmax, 50);
        assert_eq!((model.d_embedding, model.lstm_sizes.as_slice()), (16, [256, 16].as_slice()));
        assert_eq!((model.dropouts.weight, model.dropouts.output), (0.25, 0.2));
        assert_eq!((args.head, model.precision), (Some(HeadKind::Softmax), Precision::Tf32));
        let config = args.training.procedure().unwrap();
        assert_eq!((config.seed, config.lr, config.bptt), (5, 3.0, 35));
    }
}
