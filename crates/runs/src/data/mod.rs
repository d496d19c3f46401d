//! Text as a stream of token ids, and the words that the ids stand for.

mod corpus;
mod fingerprint;
mod kept;
mod text;
mod tokens;
mod vocabulary;

pub use corpus::Corpus;
pub use fingerprint::{Fingerprint, Part};
pub use kept::{Kept, TokenCache};
pub use text::{Joiner, TextConfig};
pub use tokens::{TokenFile, Tokens};
pub use vocabulary::{EOS, UNKNOWN, Vocabulary, check_prompt};
