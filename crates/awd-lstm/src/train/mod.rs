//! Training as a library: the loop, held-out perplexity, dynamic evaluation, checkpoints and the run folder.
//!
//! Nothing here writes to a terminal. A [`TrainObserver`] receives the progress.

mod checkpoint;
mod dynamic;
mod evaluate;
mod fingerprint;
mod observer;
mod pass;
mod run;
mod step;
mod trainer;

pub use checkpoint::{load_weights, save_weights};
pub use dynamic::{StatisticsOrigin, dynamic_nll, gradient_statistics, load_statistics, save_statistics};
pub use evaluate::{EVALUATION_TOKENS, mean_nll};
pub use fingerprint::{Fingerprint, Part};
pub use observer::{EpochMetrics, FinalMetrics, Interval, Silent, TrainObserver};
pub use pass::{LOG_INTERVAL, Position};
pub use run::{RunConfig, RunFolder, Versions};
pub use step::{Stepped, step};
pub use trainer::{Best, Fitted, Trainer, TrainerState};
