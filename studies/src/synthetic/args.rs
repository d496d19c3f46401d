//! Options of `synthetic`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::synthetic::fit_args::{FITTING, FitArgs};
use crate::synthetic::repeated::RepeatedArgs;
use program::args::{DistinctList, Head};

/// Fits next-word distributions drawn from Dir(alpha) with every head, over a grid of alpha, vocabulary and dimension.
///
/// Each context has a free vector of d numbers; decoder, logit map and mixture are shared. Trained on the cross-entropy
/// with the full distributions, so what is left of the divergence is what the head cannot express (or has not yet learned).
#[derive(Debug, Clone, Parser)]
#[command(version, allow_negative_numbers = true, args_conflicts_with_subcommands = true)]
pub struct SyntheticArgs {
    /// Another experiment.
    #[command(subcommand)]
    pub mode: Option<Mode>,
    /// The paper's grid: 100,000 contexts, up to 10,000 words and 200 dimensions. Other options still replace its values.
    #[arg(long)]
    pub full: bool,
    /// Number of contexts [default: 1500, full: 100000].
    #[arg(long, value_name = "N")]
    pub contexts: Option<usize>,
    /// Concentrations of the Dirichlet law, separated by commas [default: 0.01,0.1,1].
    #[arg(long, value_name = "ALPHAS")]
    pub alphas: Option<DistinctList<f64>>,
    /// Vocabulary sizes M, separated by commas [default: 100,400, full: 100,1000,10000].
    #[arg(long, value_name = "SIZES")]
    pub words: Option<DistinctList<usize>>,
    /// Dimensions d, separated by commas [default: 5,20,80, full: 10,50,100,200].
    #[arg(long, value_name = "SIZES")]
    pub dims: Option<DistinctList<usize>>,
    /// Heads, separated by commas: softmax, moc, mos, mixtape, sigsoftmax, gss, plif, mos-plif, soft-cap, monotonic-net
    /// [default: softmax,sigsoftmax,plif,monotonic-net,mos].
    #[arg(long, value_name = "HEADS")]
    pub heads: Option<DistinctList<Head>>,
    /// Passes over the contexts.
    #[arg(long, default_value_t = 100)]
    pub epochs: usize,
    /// Contexts of a training step.
    #[arg(long, default_value_t = 250)]
    pub batch: usize,
    /// Learning rates of Adam at the start, separated by commas; each falls linearly to 0. Every head is fitted with each, and
    /// the one whose training loss is lowest, in the mean over seeds, is reported.
    #[arg(long, value_name = "LRS", default_value = "0.1")]
    pub lr: DistinctList<f64>,
    /// Train nothing: table and heat maps of what this experiment printed with --json, files with such lines.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["full", "contexts", "alphas", "words", "dims", "heads", "epochs", "batch", "lr"])]
    #[arg(conflicts_with_all = FITTING)]
    pub from: Vec<PathBuf>,
    /// What all experiments have.
    #[command(flatten)]
    pub fits: FitArgs,
}

/// Other experiments.
#[derive(Debug, Clone, Subcommand)]
pub enum Mode {
    /// A language in which each sequence repeats one symbol: which heads learn it, with few dimensions, as it grows.
    Repeated(RepeatedArgs),
}
