//! A generated language of dialogues whose distribution of responses is known exactly.
//!
//! A context has several right answers, each with a known probability. A model trained on dialogues of this language can be
//! compared with the truth: its perplexity with the lowest possible one, its responses with the right answers. The answers
//! depend on who spoke last and on the utterance before the last, so a model must read the floor and more than one utterance.

mod config;
mod corpus;
mod floor;
mod language;
mod law;
mod words;

pub use config::LanguageConfig;
pub use corpus::Sizes;
pub use floor::Floor;
pub use language::{Answer, Found, Language};
