//! Options of `theorems`.

use std::path::PathBuf;

use clap::Parser;

use program::args::DistinctList;
use program::files::Force;

/// Measures what the papers prove: the rank of a softmax, and theorems 1, 2, 5, 6 and 7 of Ganea et al. (ICML 2019).
///
/// Small random matrices in f64 on the CPU; seconds. The exit status is 2 if a theorem does not hold.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct TheoremsArgs {
    /// Which, separated by commas: rank, floor (theorem 1), entropy (2), powers (5), square (6), plif (7) [default: all].
    #[arg(long, value_name = "NAMES")]
    pub only: Option<DistinctList<Theorem>>,
    /// Seed of the matrices.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
    /// Folder for the pictures, theorem-NAME.svg each.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whether the pictures replace files.
    #[command(flatten)]
    pub force: Force,
    /// One JSON object a theorem on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Something that is proved, and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theorem {
    /// The rank of the log-probabilities of a softmax.
    Rank,
    /// Theorem 1: the floor of the squared error.
    Floor,
    /// Theorem 2: cross-entropy and entropy.
    Entropy,
    /// Theorem 5: ranks of elementwise powers.
    Powers,
    /// Theorem 6: elements squared.
    Square,
    /// Theorem 7: a PLIF's error.
    Plif,
}

impl Theorem {
    /// The name of its picture, without `.svg`.
    pub fn stem(self) -> String {
        format!("theorem-{}", self.name())
    }
}

runs::by_name! {
    Theorem, "theorem":
    Rank => "rank", Floor => "floor", Entropy => "entropy", Powers => "powers", Square => "square", Plif => "plif",
}
