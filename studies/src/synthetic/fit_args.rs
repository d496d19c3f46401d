//! Options that all experiments have.

use std::path::PathBuf;
use std::time::Duration;

use awd_lstm::HeadKind;
use clap::Args;
use runs::Error;
use runs::error::check;
use serde::Serialize;

use program::args::{DistinctList, Head, HeadSizes, minutes};
use program::device::DeviceChoice;
use program::files::Force;

/// Those of [`FitArgs`] that outcomes of before leave nothing for.
pub const FITTING: [&str; 7] =
    ["components", "knots", "units", "seeds", "device", "checkpoint_every", "max_time"];

/// Options of every experiment.
#[derive(Debug, Clone, Args)]
pub struct FitArgs {
    /// Components of a mixture.
    #[arg(long, default_value_t = 3)]
    pub components: usize,
    /// Pieces of a PLIF.
    #[arg(long, default_value_t = 1000)]
    pub knots: usize,
    /// Units of the monotonic network.
    #[arg(long, default_value_t = 8)]
    pub units: usize,
    /// Seeds of the truth and of the training, separated by commas; results are means over them.
    #[arg(long, visible_alias = "seed", value_name = "SEEDS", default_value = "28")]
    pub seeds: DistinctList<u64>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// Folder for the pictures, and for every finished fit (fits.jsonl) and the one under way: the same command, or one with
    /// more values, goes on with what is there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whether the pictures replace files that are not of the folder's own fits.
    #[command(flatten)]
    pub force: Force,
    /// Save the fit under way every so many minutes, and when it is interrupted.
    #[arg(long, value_name = "MIN", default_value_t = 5.0)]
    pub checkpoint_every: f64,
    /// Stop after so much time, with units: 45s, 90m, 2h. The same command goes on.
    #[arg(long, value_name = "TIME", requires = "out", value_parser = minutes)]
    pub max_time: Option<f64>,
    /// One JSON object a setting and head on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What a head has of sizes besides those of the vocabulary; the same in another head's settings would say nothing.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HeadParts {
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    knots: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<usize>,
}

impl FitArgs {
    /// Checks all numbers, those of the experiment's learning rates and its heads too.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn validate(&self, heads: &[Head], rates: &[f64]) -> Result<(), Error> {
        for head in heads {
            let expected = "heads that read one layer and have no clusters of words";
            let fits = !head.reads_layers() && *head != Head::Common(HeadKind::Adaptive);
            check(fits, "heads", head, expected)?;
        }
        for (name, value) in [("components", self.components), ("knots", self.knots), ("units", self.units)] {
            check(value >= 1, name, value, "at least 1")?;
        }
        for lr in rates {
            check(*lr > 0.0 && lr.is_finite(), "lr", lr, "finite and above 0")?;
        }
        let minutes = self.checkpoint_every;
        let is_time = Duration::try_from_secs_f64(60.0 * minutes).is_ok();
        check(is_time, "checkpoint-every", minutes, "minutes, not negative and at most 3e17")
    }

    /// The sizes that this head has.
    pub fn parts(&self, head: Head) -> HeadParts {
        HeadParts {
            components: head.is_mixture().then_some(self.components),
            knots: head.has_plif().then_some(self.knots),
            units: (head == Head::MonotonicNet).then_some(self.units),
        }
    }

    /// All sizes of a head whose hidden states and decoder rows have `d` numbers.
    pub fn sizes(&self, d: usize, vocab: usize) -> HeadSizes {
        HeadSizes {
            d_hidden: d,
            d_embedding: d,
            vocab,
            components: self.components,
            lower: (d, 1),
            knots: self.knots,
            cap: HeadSizes::CAP,
            units: self.units,
        }
    }
}
