//! The text that a model is trained on.

use std::path::Path;

use awd_lstm::language::{Language, LanguageConfig};
use program::failure::Failure;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::Error;
use runs::data::{Corpus, TextConfig, Vocabulary};

/// Lengths of the generated texts in tokens.
const TRAIN_TOKENS: usize = 100_000;
const VALID_TOKENS: usize = 20_000;
const TEST_TOKENS: usize = 10_000;
/// Seed of the generated texts.
const TEXT_SEED: u64 = 1;

/// Texts that are drawn from a language, always the same ones.
pub fn generated(language: &Language) -> Result<Corpus, Error> {
    let mut rng = Pcg64Mcg::seed_from_u64(TEXT_SEED);
    let mut draw = |tokens| language.generate(tokens, &mut rng);
    Corpus::from_ids(language.vocabulary(), draw(TRAIN_TOKENS), draw(VALID_TOKENS), draw(TEST_TOKENS))
}

/// A corpus, and the language that it was drawn from, if it is known.
#[derive(Debug, Clone)]
pub struct Text {
    pub corpus: Corpus,
    language: Option<Language>,
}

impl Text {
    /// The texts of a folder, or generated ones; held-out ones in the words of a saved model if its `vocabulary` is given.
    pub fn load(
        data: Option<&Path>,
        text: &TextConfig,
        vocabulary: Option<Vocabulary>,
    ) -> Result<Self, Failure> {
        let corpus = match (data, vocabulary) {
            (None, _) => return Self::generate(text),
            (Some(folder), None) => Corpus::load(folder, text)?,
            (Some(folder), Some(vocabulary)) => Corpus::load_held_out(folder, vocabulary, text)?,
        };
        Ok(Self { corpus, language: None })
    }

    fn generate(text: &TextConfig) -> Result<Self, Failure> {
        let options = [("--characters", text.characters), ("--lower-case", text.lower_case)];
        if let Some((option, _)) = options.into_iter().find(|(_, given)| *given) {
            return Err(
                format!("{option} is given, but the generated language has words only: give --data").into()
            );
        }
        text.validate()?;
        let mut config = LanguageConfig::default();
        config.vocab = text.vocab_size.map_or(config.vocab, |size| size.min(config.vocab));
        let language = Language::new(config)?;
        Ok(Self { corpus: generated(&language)?, language: Some(language) })
    }

    /// The lowest perplexity that the first `tokens` tokens of the test text can be expected to have, where it is known.
    pub fn floor_ppl(&self, tokens: usize) -> Option<f64> {
        let test = self.corpus.test();
        self.language.as_ref().map(|language| language.mean_nll(&test[..tokens.min(test.len())]).exp())
    }
}
