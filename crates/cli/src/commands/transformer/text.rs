//! The text that a model is trained on.

use std::path::Path;

use awd_lstm::language::{Language, LanguageConfig};
use program::failure::Failure;
use program::files::refuse_file;
use runs::data::{Corpus, TextConfig, Vocabulary};

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
        data.map_or(Ok(()), refuse_file)?;
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
        Ok(Self { corpus: language.corpus()?, language: Some(language) })
    }

    /// The lowest perplexity that the first `tokens` tokens of the test text can be expected to have, where it is known.
    pub fn floor_ppl(&self, tokens: usize) -> Option<f64> {
        let test = self.corpus.test();
        self.language.as_ref().map(|language| language.mean_nll(&test[..tokens.min(test.len())]).exp())
    }
}
