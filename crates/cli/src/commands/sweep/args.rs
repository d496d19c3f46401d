//! Options of `sweep`.

use std::path::{Path, PathBuf};

use awd_lstm::HeadKind;
use clap::{Args, ValueEnum};
use program::args::{DistinctList, finite};
use program::failure::Failure;

use crate::args::{Overrides, TrainingArgs};
use crate::commands::sweep::grid::{Grid, PerHead};

/// Options of `sweep`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct SweepArgs {
    /// Folder with train.txt, valid.txt and test.txt [default: that of the file of --config].
    #[arg(long, value_name = "DIR", required_unless_present_any = ["config", "from"])]
    pub data: Option<PathBuf>,
    /// Folder to write runs, results, table and pictures to. The same command goes on with what is there [default:
    /// runs/sweep, or runs/sweep-2 and so on where it holds another sweep; with --from, the file's path without its ending].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Output layers, separated by commas, or all: softmax, moc, mos, doc, mixtape, sigsoftmax, gss, plif, mos-plif,
    /// adaptive. A setting that a head does not have, such as the components of a softmax, makes no further runs of that head
    /// [default: that of the file of --config; softmax,mos; with --from, all there].
    #[arg(long, value_parser = heads)]
    pub heads: Option<DistinctList<HeadKind>>,
    /// Seeds, separated by commas; everything is trained with each [default: the preset's].
    #[arg(long)]
    pub seeds: Option<DistinctList<u64>>,
    /// What is equal: sizes (as given) or parameters [default: sizes; parameters if --parameters is given]. For equal
    /// parameters a size of every model is solved for: the embedding, and with it the last LSTM of a head without mixture;
    /// or, where --d-embedding is given, the LSTMs in the proportions that they have, but the last of a head without
    /// mixture and one of --last-lstm. A mixture of more components, or of a wider last LSTM, thus has a narrower embedding.
    /// (The last LSTM of a head without mixture, unless it is untied, always is as wide as its embedding: --last-lstm is the
    /// width of both, and the other LSTMs are solved for.) What cannot be met is left out with a line that says why.
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub equal: Option<Equal>,
    /// Numbers of parameters that models come as near to as they can, separated by commas [default: that of the mixture of
    /// softmaxes, the first of all values given].
    #[arg(long, value_name = "N")]
    pub parameters: Option<DistinctList<usize>>,
    /// Settings of one head instead of those of all, such as mos:dropout-latent=0.2,lr=15; several values with colons
    /// between them; may be given for several heads.
    #[arg(long = "for", value_name = "HEAD:SETTING=VALUE,...")]
    pub per_head: Vec<PerHead>,
    /// Train nothing: draw the table and the pictures of these results anew, files such as results.jsonl.
    #[arg(hide = true, long, value_name = "FILE", num_args = 1.., conflicts_with_all = [
        "data", "seeds", "equal", "parameters", "per_head", "finetune", "rank", "dry_run", "preset", "device", "checkpoint_every",
        "log_every", "characters", "lower_case", "vocab_size", "token_cache", "token_cache_from",
    ])]
    pub from: Vec<PathBuf>,
    /// Replace results of other runs in the folder; with --from, draw into a folder that holds something.
    #[arg(hide = true, long)]
    pub force: bool,
    /// Finetune every run after it, with averaged weights, for at most so many passes over the text [default: as many as
    /// the run's].
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1)]
    pub finetune: Option<Option<usize>>,
    /// Learning rate of the finetuning [default: the preset's; that of the run where --lr is given].
    #[arg(hide = true, long, value_name = "LR", requires = "finetune", value_parser = finite)]
    pub finetune_lr: Option<f64>,
    /// Compute the rank of every run's log-probabilities in the first N contexts of the validation text.
    #[arg(long, value_name = "N")]
    pub rank: Option<usize>,
    /// List the runs, with their sizes and what is done of them, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// What is trained and how.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub grid: Grid,
}

impl SweepArgs {
    /// The folder of the text.
    pub fn data(&self) -> Result<&Path, Failure> {
        self.training.data(self.data.as_deref(), "sweep")
    }

    /// The folder of runs and results; where none is given, the first to try.
    pub fn out(&self) -> PathBuf {
        let beside = self.from.first().map(|file| file.with_extension(""));
        self.out.clone().or(beside).unwrap_or_else(|| Path::new("runs").join("sweep"))
    }

    /// The output layers that are asked for, if any are.
    pub fn named_heads(&self) -> Option<Vec<HeadKind>> {
        let of_file = || self.training.config.as_ref().and_then(|file| file.head).map(|head| vec![head]);
        self.heads.as_ref().map(|heads| heads.0.clone()).or_else(of_file)
    }

    pub fn heads(&self) -> Vec<HeadKind> {
        self.named_heads().unwrap_or_else(|| vec![HeadKind::Softmax, HeadKind::Mos])
    }

    pub fn seeds(&self) -> Result<Vec<u64>, Failure> {
        match &self.seeds {
            Some(seeds) => Ok(seeds.0.clone()),
            None => Ok(vec![self.training.procedure(&self.common())?.seed]),
        }
    }

    /// The settings that all runs have in common.
    pub fn common(&self) -> Overrides {
        Overrides::of(self.grid.set.clone())
    }

    pub fn equal(&self) -> Equal {
        let default = if self.parameters.is_some() { Equal::Parameters } else { Equal::Sizes };
        self.equal.unwrap_or(default)
    }
}

/// Output layers on a command line.
fn heads(text: &str) -> Result<DistinctList<HeadKind>, String> {
    match text {
        "all" => Ok(DistinctList(HeadKind::ALL.to_vec())),
        list => list.parse(),
    }
}

/// What the models of a sweep have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Equal {
    /// Sizes, as they are given.
    Sizes,
    /// The number of parameters, as nearly as sizes allow.
    Parameters,
}
