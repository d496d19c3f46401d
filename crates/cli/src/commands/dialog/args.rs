//! The command line.

use clap::{Parser, Subcommand};

use super::eval::EvalArgs;
use super::respond::RespondArgs;
use super::retrieve::RetrieveArgs;
use super::study::StudyArgs;
use super::table::TableArgs;
use super::train::TrainArgs;
use super::weights::{ExportArgs, ImportArgs};

/// Trains models that answer in a conversation; without a command, softmax, MoC and MoS on a generated language of dialogues
/// whose right answers are known, in a few minutes.
///
/// A data folder holds train.jsonl, valid.jsonl and test.jsonl, one dialogue a line:
/// {"topic": "MUSIC", "turns": [["A", "do you like jazz"], ["B", "uh-huh"]]}
#[derive(Debug, Clone, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct DialogArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<DialogCommand>,
    /// Options of the built-in study.
    #[command(flatten)]
    pub study: StudyArgs,
}

/// What can be done with dialogues.
#[derive(Debug, Clone, Subcommand)]
pub enum DialogCommand {
    /// Train on dialogues.
    Train(Box<TrainArgs>),
    /// Perplexity and BLEU of a saved run's best model.
    Eval(EvalArgs),
    /// Evaluate several saved runs and print a table for each kind of references, a line a head, means over seeds.
    ///
    /// Perplexities and responses are kept in each run's folder, so that another table of the same runs takes seconds.
    Table(Box<TableArgs>),
    /// Answer the lines of standard input by a saved run's best model.
    ///
    /// Each line is said by the user. The most probable responses follow with their log-probabilities in nats, and the
    /// conversation goes on as if the first of them had been given. An empty line begins a new conversation.
    Respond(RespondArgs),
    /// Find references for test responses: what was answered in similar training contexts.
    Retrieve(RetrieveArgs),
    /// Make a run of a PyTorch model's weights.
    Import(Box<ImportArgs>),
    /// Write a run's best model for PyTorch.
    Export(ExportArgs),
}
