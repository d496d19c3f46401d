//! Dialogues: reading them, their tokens and vocabulary, pairs of context and response, and batches of them.
//!
//! A data folder holds `train.jsonl`, `valid.jsonl` and `test.jsonl`, one dialogue a line:
//!
//! ```json
//! {"topic": "MUSIC", "turns": [["A", "do you like jazz"], ["B", "uh-huh"], ["B", "i play it too"]]}
//! ```
//!
//! `turns` are pairs of speaker and text. A dialogue has two speakers, whatever their names, at least two turns, and in every
//! turn a word. `topic` may be missing; other fields are ignored, and so are blank lines.
//!
//! As a model sees it, a dialogue of n turns is n + 1 *entries*: entry 0 is `<s> <d> </s>`, the mark of its beginning, and
//! entry t is the t-th utterance, `<s> w₁ … </s>`, cut after 38 words. The *pair* t has entry t as its response and the entries
//! before it, in a window, as its context. There is a pair for t = 1 .. n − 1: the first utterance answers the beginning alone,
//! and the last is no response, as in the published program of Zhao et al. (arXiv 1703.10960).

mod batch;
mod corpus;
mod dialogue;
mod lines;
mod references;
mod schedule;
mod split;
mod tokens;
mod vocabulary;

pub use batch::{Batch, Contexts, Padded};
pub use corpus::Corpus;
pub(crate) use corpus::split_file;
pub use dialogue::{Dialogue, Turn, dialogues};
pub(crate) use lines::write_lines;
pub use lines::{MAX_LINE_BYTES, next_line};
pub use references::References;
pub(crate) use references::ReferencesLine;
pub use schedule::Schedule;
pub(crate) use schedule::check_batch;
pub use split::{DialogConfig, Pair, Run, Split};
pub use tokens::{for_each_token, tokens};
pub use vocabulary::{BOD, BOS, EOS, PAD, SPECIAL, UNK, build_vocabulary, load_vocabulary};
