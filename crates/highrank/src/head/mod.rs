//! The output head: context, logit map and decoder behind one interface.

/// Methods that set one field.
macro_rules! setters {
    ($($with:ident($field:ident: $type:ty)),+ $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            pub fn $with(self, $field: $type) -> Self {
                Self { $field, ..self }
            }
        )+
    };
}

mod adaptive;
mod beam;
mod candidates;
mod clusters;
mod config;
mod continuation;
mod distillation;
mod input;
#[cfg(feature = "analysis")]
mod logit_gradients;
mod logits;
mod losses;
mod output;
mod predict;
mod sampling;
mod select;
mod words;

pub(crate) use beam::by_top_k;
pub use beam::{BeamSearch, BeamState, FinishedHypotheses, Hypothesis, LiveHypotheses, LiveHypothesis};
pub use clusters::{AdaptiveConfig, Clusters, Tail};
pub use config::HeadConfig;
#[cfg(all(test, feature = "flex"))]
pub(crate) use config::examples;
pub(crate) use input::Inputs;
pub use output::{OutputHead, TiedMatrix};
pub use predict::TopK;
pub(crate) use predict::{draw_components, integers, read};
pub use sampling::Sampling;
pub(crate) use sampling::{numbers, word_of};
pub(crate) use select::{best_first, best_pairs};
pub use words::{LogProbOptions, TokenLogProbs};
