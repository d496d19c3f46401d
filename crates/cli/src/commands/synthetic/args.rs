//! Options of `synthetic`.

use std::path::PathBuf;

use clap::Parser;

use crate::args::List;
use crate::commands::synthetic::head::Head;
use crate::device::DeviceChoice;

/// Fits next-word distributions drawn from Dir(alpha) with every head, over a grid of alpha, vocabulary and dimension.
///
/// Each context has a free vector of d numbers; decoder, logit map and mixture are shared. Trained on the cross-entropy
/// with the full distributions, so what is left of the divergence is what the head cannot express (or has not yet learnt).
#[derive(Debug, Clone, Parser)]
#[command(version, allow_negative_numbers = true)]
pub struct SyntheticArgs {
    /// The paper's grid: 100,000 contexts, up to 10,000 words and 200 dimensions. Other options still replace its values.
    #[arg(long)]
    pub full: bool,
    /// Number of contexts [default: 1500, full: 100000].
    #[arg(long, value_name = "N")]
    pub contexts: Option<usize>,
    /// Concentrations of the Dirichlet law, separated by commas [default: 0.01,0.1,1].
    #[arg(long, value_name = "ALPHAS")]
    pub alphas: Option<List<f64>>,
    /// Vocabulary sizes M, separated by commas [default: 100,400, full: 100,1000,10000].
    #[arg(long, value_name = "SIZES")]
    pub words: Option<List<usize>>,
    /// Dimensions d, separated by commas [default: 5,20,80, full: 10,50,100,200].
    #[arg(long, value_name = "SIZES")]
    pub dims: Option<List<usize>>,
    /// Heads, separated by commas: softmax, sigsoftmax, plif, monotonic-net, mos [default: all].
    #[arg(long, value_name = "HEADS")]
    pub heads: Option<List<Head>>,
    /// Passes over the contexts.
    #[arg(long, default_value_t = 100)]
    pub epochs: usize,
    /// Contexts of a training step.
    #[arg(long, default_value_t = 250)]
    pub batch: usize,
    /// Learning rate of Adam at the start; it falls linearly to 0.
    #[arg(long, default_value_t = 0.1)]
    pub lr: f64,
    /// Components of the mixture.
    #[arg(long, default_value_t = 3)]
    pub components: usize,
    /// Pieces of the PLIF.
    #[arg(long, default_value_t = 1000)]
    pub knots: usize,
    /// Units of the monotonic network.
    #[arg(long, default_value_t = 8)]
    pub units: usize,
    /// Seed of the distributions and of the training.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// Folder for the heat maps: kl.svg, kl.png, mode_match.svg and mode_match.png.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object a setting and head on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}
