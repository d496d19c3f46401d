//! Training as a library: the loop, held-out perplexity, dynamic evaluation, checkpoints and the run folder.
//!
//! Nothing here writes to a terminal. A [`TrainObserver`] receives the progress.

mod dynamic;
mod evaluate;
mod extend;
mod losses;
mod observer;
mod pass;
mod run;
mod stages;
mod step;
mod trainer;

pub use dynamic::{StatisticsOrigin, dynamic_nll, gradient_statistics, load_statistics, save_statistics};
pub use evaluate::{EVALUATION_TOKENS, mean_nll, mean_nll_among};
pub use losses::Losses;
pub use observer::{
    EndReason, EpochMetrics, FinalMetrics, Interval, Silent, StepMetrics, TrainObserver, ValidationMetrics,
    WaitMetrics,
};
pub use pass::{LOG_INTERVAL, Position};
pub use run::{KeptTokens, RunConfig, RunFolder, Versions};
pub use step::{Stepped, step, step_by};
pub use trainer::{Best, Fitted, Trainer, TrainerState};
