//! How a run is recorded while it is trained.

use clap::Args;

/// How often a run is saved, and written about.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// Save a run inside of epochs too, every so many minutes.
    #[arg(long, value_name = "MIN", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    /// Write a line to steps.jsonl every N training steps, and to the log where there is no terminal [default: every 20
    /// steps, and a line of the log at most every 10 seconds].
    #[arg(hide = true, long, value_name = "N")]
    pub log_every: Option<usize>,
}
