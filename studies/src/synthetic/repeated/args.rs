//! Options of `synthetic repeated`.

use std::path::PathBuf;

use clap::Args;
use runs::Error;
use runs::error::check;

use crate::synthetic::fit_args::{FITTING, FitArgs};
use program::args::{DistinctList, Head};

/// Options of `synthetic repeated`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct RepeatedArgs {
    /// Numbers of symbols V, separated by commas.
    #[arg(long, value_name = "SIZES", default_value = "1000,10000,100000")]
    pub vocab: DistinctList<usize>,
    /// Widths d of the embedding, of the hidden state and of a decoder row, separated by commas.
    #[arg(long, value_name = "SIZES", default_value = "32")]
    pub d: DistinctList<usize>,
    /// Heads, separated by commas: softmax, moc, mos, mixtape, sigsoftmax, gss, plif, mos-plif, soft-cap, monotonic-net.
    #[arg(long, value_name = "HEADS", default_value = "softmax,mos,plif,sigsoftmax")]
    pub heads: DistinctList<Head>,
    /// Training steps.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub steps: usize,
    /// More steps where they are needed to see each symbol so often, on average.
    #[arg(long, value_name = "TIMES")]
    pub visits: Option<f64>,
    /// Sequences of a training step.
    #[arg(long, default_value_t = 1000)]
    pub batch: usize,
    /// Learning rates of Adam at the start, separated by commas; each falls linearly to 0. Every head is fitted with each, and
    /// the one whose loss at the end is lowest, in the mean over seeds, is reported.
    #[arg(long, value_name = "LRS", default_value = "0.01")]
    pub lr: DistinctList<f64>,
    /// Train nothing: table and pictures of what this experiment printed with --json, files with such lines.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["vocab", "d", "heads", "steps", "visits", "batch", "lr"])]
    #[arg(conflicts_with_all = FITTING)]
    pub from: Vec<PathBuf>,
    /// What all experiments have.
    #[command(flatten)]
    pub fits: FitArgs,
}

impl RepeatedArgs {
    /// Checks all numbers.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn validate(&self) -> Result<(), Error> {
        self.fits.validate(&self.heads.0, &self.lr.0)?;
        for (name, value) in [("steps", self.steps), ("batch", self.batch)] {
            check(value >= 1, name, value, "at least 1")?;
        }
        for vocab in &self.vocab.0 {
            check(*vocab >= 2, "vocab", vocab, "at least 2")?;
        }
        for d in &self.d.0 {
            check(*d >= 1, "d", d, "at least 1")?;
        }
        match self.visits {
            Some(visits) => check(visits > 0.0 && visits.is_finite(), "visits", visits, "finite and above 0"),
            None => Ok(()),
        }
    }

    /// Training steps with so many symbols.
    pub fn steps(&self, vocab: usize) -> usize {
        let visits = self.visits.unwrap_or(0.0);
        self.steps.max((visits * vocab as f64 / self.batch as f64).ceil() as usize)
    }

    /// Number of fits.
    pub fn count(&self) -> usize {
        let lists = [self.vocab.0.len(), self.d.0.len(), self.heads.0.len(), self.lr.0.len()];
        lists.iter().product::<usize>() * self.fits.seeds.0.len()
    }
}
