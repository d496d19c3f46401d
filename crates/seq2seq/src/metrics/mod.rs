//! Scores of responses: smoothed sentence BLEU, and its precision and recall over the hypotheses and references of a context.

mod bleu;
mod scores;

pub use bleu::{BleuForm, ORDERS, sentence_bleu};
pub use scores::{BleuMean, BleuScores, mean_length};
