//! Training as a library: the language model as a task of [`runs::Trainer`], held-out perplexity, and dynamic evaluation.

mod dynamic;
mod evaluate;
mod procedure;
mod run;
mod step;
mod task;

pub use dynamic::{StatisticsOrigin, dynamic_nll, gradient_statistics, load_statistics, save_statistics};
pub use evaluate::{EVALUATION_TOKENS, mean_nll, mean_nll_among};
pub use procedure::{LmTrainerState, ProcedureState};
pub use run::{AwdLstm, RunConfig, RunFolder};
pub use step::{Stepped, step, step_by};
pub use task::{LmTask, Trainer};
