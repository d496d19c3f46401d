//! `dialog`: responses to the last utterances of a conversation, by an encoder-decoder that ends in any output layer. What the commands
//! `train`, `eval`, `generate` and `import` become for such models.

mod eval;
mod respond;
mod saved;
mod settings;
mod train;
mod weights;

use clap::{Parser, Subcommand};
use runs::ranks::Ranks;

use self::eval::EvalArgs;
use self::respond::RespondArgs;
use self::train::TrainArgs;
use self::weights::ImportArgs;
pub use self::weights::export;
use program::failure::Failure;
use program::ranks::refuse;

/// Models that answer in a conversation.
///
/// A data folder holds train.jsonl, valid.jsonl and test.jsonl, one dialogue a line:
/// {"topic": "MUSIC", "turns": [["A", "do you like jazz"], ["B", "uh-huh"]]}
#[derive(Debug, Clone, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct DialogArgs {
    /// What to do.
    #[command(subcommand)]
    command: DialogCommand,
}

/// What can be done with dialogues, besides `export`.
#[derive(Debug, Clone, Subcommand)]
enum DialogCommand {
    /// Train on dialogues.
    #[command(
        override_usage = "highrank train DATA --model seq2seq [--head HEAD] [--set KEY=VALUE ...] [--out RUN] [OPTIONS]\n       highrank train --resume RUN [--epochs N]"
    )]
    Train(Box<TrainArgs>),
    /// Perplexity and BLEU of a saved run's best model.
    #[command(override_usage = "highrank eval RUN [OPTIONS]")]
    Eval(EvalArgs),
    /// Answer the lines of standard input by a saved run's best model.
    ///
    /// Each line is said by the user. The most probable responses follow with their log-probabilities in nats, and the
    /// conversation goes on as if the first of them had been given. An empty line begins a new conversation.
    #[command(override_usage = "highrank generate RUN [OPTIONS]")]
    Respond(RespondArgs),
    /// Make a run of a PyTorch model's weights.
    #[command(
        override_usage = "highrank import --model seq2seq [OPTIONS] --weights FILE --data DIR --out RUN"
    )]
    Import(Box<ImportArgs>),
}

/// Does what the command line asks for; `program` is the one that was started. Several processes train together. Nothing is written before
/// all input is found to be good.
pub fn run(args: &DialogArgs, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
    match &args.command {
        DialogCommand::Train(args) => train::run(args, program, ranks),
        _ if ranks.are_several() => refuse(ranks, "this command"),
        DialogCommand::Eval(args) => eval::run(args),
        DialogCommand::Respond(args) => respond::run(args),
        DialogCommand::Import(args) => weights::import(args),
    }
}
