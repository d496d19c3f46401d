//! Options that these commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use program::device::DeviceChoice;

/// Which text is read, where, and how results are printed.
#[derive(Debug, Clone, Args)]
pub struct HeldOutArgs {
    /// Folder with valid.txt and test.txt [default: the first run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which text: valid or test. It is read in one column, from a zero state.
    #[arg(long, default_value = "test", hide_possible_values = true)]
    pub split: Split,
    /// Read only the first N contexts of the text.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub tokens: Option<usize>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// JSON objects on standard output, one a line, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The runs that are looked into and the text, or what was found of them before.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// Folder of a run; several may be given.
    #[arg(long = "run", value_name = "RUN", required_unless_present = "from", num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// Table and plot of what this command found before: files with the lines that it printed with --json.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["runs", "data", "split", "tokens", "device"])]
    pub from: Vec<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// A held-out text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Split {
    /// `valid.txt`
    Valid,
    /// `test.txt`
    Test,
}
