//! A generated language of dialogues whose distribution of responses is known exactly.
//!
//! A context has several right answers, each with a known probability, so the responses of a model trained on dialogues of this
//! language can be compared with the truth. The answers depend on who spoke last and on the utterance before the last, so a
//! model must read the floor and more than one utterance.

mod config;
mod corpus;
mod language;
mod law;
mod words;

pub use config::LanguageConfig;
pub use corpus::Sizes;
pub use language::{Answer, Language};
