//! Text as a stream of word ids: reading it, cutting it into columns, and walking through the columns.

mod batches;
mod corpus;
mod schedule;
mod vocabulary;

pub use batches::{Batches, Window};
pub use corpus::Corpus;
pub use schedule::{Schedule, TrainStep, mix_seed};
pub use vocabulary::{EOS, Vocabulary};
