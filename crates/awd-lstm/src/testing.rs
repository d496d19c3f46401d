//! What tests of several modules share.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::data::Corpus;

use crate::language::{Language, LanguageConfig};

/// A corpus of a small language, of 30 words, with as many tokens for training and for validation, and 300 for the test.
pub(crate) fn corpus_of(train: usize, valid: usize) -> Corpus {
    let config = LanguageConfig { vocab: 30, topics: 3, classes: 3, favourites: 4, ..Default::default() };
    let language = Language::new(config).unwrap();
    let text = |tokens: usize, seed| language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
    Corpus::from_ids(language.vocabulary(), text(train, 1), text(valid, 2), text(300, 3)).unwrap()
}
