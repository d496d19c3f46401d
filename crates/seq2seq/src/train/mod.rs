//! Training as a library: the loop, held-out perplexity, checkpoints and the run folder.
//!
//! Nothing here writes to a terminal. A [`TrainObserver`] receives the progress.

mod evaluate;
mod extend;
mod observer;
mod pass;
mod run;
mod step;
mod trainer;

pub use evaluate::{EVALUATION_PAIRS, mean_nll, mean_nll_unless};
pub use observer::{EndReason, EpochMetrics, FinalMetrics, Interval, Silent, StepMetrics, TrainObserver};
pub use pass::{LOG_INTERVAL, Position, Sum};
pub use run::{RunConfig, RunFolder, Versions, fingerprint};
pub use step::{Stepped, step};
pub use trainer::{Best, Fitted, Trainer, TrainerState};
