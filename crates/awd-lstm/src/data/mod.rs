//! Text as a stream of token ids: reading it, cutting it into columns, and walking through the columns.

mod batches;
mod corpus;
mod fingerprint;
mod kept;
mod schedule;
mod text;
mod tokens;
mod vocabulary;

pub use batches::{Batches, Window};
pub use corpus::Corpus;
pub use fingerprint::{Fingerprint, Part};
pub use kept::{Kept, TokenCache};
pub use schedule::{Schedule, TrainStep, mix_seed};
pub use text::{Joiner, TextConfig};
pub use tokens::{TokenFile, Tokens};
pub use vocabulary::{EOS, UNKNOWN, Vocabulary};
