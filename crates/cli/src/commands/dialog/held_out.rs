//! The held-out text that saved models are evaluated on.

use std::path::{Path, PathBuf};

use clap::Args;
use highrank::BeamSearch;
use program::failure::Failure;
use program::files::refuse_file;
use program::progress::Working;
use runs::data::{Fingerprint, Part};
use runs::error::check;
use seq2seq::Seq2Seq;
use seq2seq::data::{Corpus, Pair, References};
use seq2seq::metrics::BleuForm;
use seq2seq::train::{fingerprint, mean_nll};
use serde::Serialize;

use super::beam::{Found, respond};
use super::saved::Saved;
use super::scores::Scores;
use crate::training::{TEST, VALID};

/// What models are evaluated on, and how.
#[derive(Debug, Clone, Args)]
pub struct HeldOutArgs {
    /// Folder with valid.jsonl and test.jsonl [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// File with several references for each test response [default: test_refs.jsonl of the data folder, if it is there].
    #[arg(long, value_name = "FILE")]
    pub refs: Option<PathBuf>,
    /// Form of BLEU: four_orders, short_weights or repository_2017. Figures of different forms must not be compared.
    #[arg(long, value_name = "FORM", default_value_t)]
    pub bleu: BleuForm,
    /// Respond to so many test contexts only, at equal distances.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub contexts: Option<usize>,
}

impl HeldOutArgs {
    /// Checks what needs no file.
    ///
    /// # Errors
    /// An option out of range.
    pub fn check(&self) -> Result<(), Failure> {
        Ok(check(self.contexts != Some(0), "contexts", 0, "at least 1")?)
    }

    /// The folder of the text.
    pub fn data<'a>(&'a self, saved: &'a Saved) -> &'a Path {
        self.data.as_ref().unwrap_or(&saved.config.data)
    }

    /// Reads the text as a run has read it.
    ///
    /// # Errors
    /// Dialogues or references that cannot be read.
    pub fn load(&self, saved: &Saved) -> Result<HeldOut, Failure> {
        let data = self.data(saved);
        refuse_file(data)?;
        let corpus = Corpus::load_held_out(data, saved.vocabulary.clone(), &saved.config.text)?;
        let test = corpus.test();
        let beside = Some(data.join("test_refs.jsonl")).filter(|path| path.exists());
        let several = self.refs.clone().or(beside);
        let references = match &several {
            Some(path) => References::read(path, test, corpus.vocabulary())?,
            None => References::single(test),
        };
        let places = spread(test.num_pairs(), self.contexts);
        let all: Vec<Pair> = test.pairs().collect();
        let pairs = places.iter().map(|&place| all[place]).collect();
        Ok(HeldOut { corpus, references, several: several.is_some(), places, pairs, form: self.bleu })
    }
}

/// The held-out text with the test contexts that are responded to.
pub struct HeldOut {
    /// The validation and the test text.
    pub corpus: Corpus,
    /// The contexts with their true responses.
    pub pairs: Vec<Pair>,
    /// Their places among all pairs of the test text.
    places: Vec<usize>,
    references: References,
    /// Whether there are references besides the true responses.
    several: bool,
    form: BleuForm,
}

/// Perplexities of the held-out texts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Perplexities {
    /// Of the validation text.
    pub valid_ppl: f64,
    /// Of the test text.
    pub test_ppl: f64,
}

/// A search, how long it took, and how good its responses are.
#[derive(Debug, Clone, Serialize)]
pub struct Searched {
    /// Hypotheses of the beam.
    pub width: usize,
    /// The most words of a response.
    pub max_length: usize,
    /// Responses to each context.
    pub n_best: usize,
    /// The responses are in order of log-probability / length^alpha.
    pub alpha: f64,
    /// Time of the search for responses.
    pub seconds: f64,
    /// How good the responses are.
    #[serde(flatten)]
    pub scores: Scores,
}

impl Searched {
    /// The search in words.
    pub fn text(&self) -> String {
        let Self { width, max_length, n_best, alpha, .. } = self;
        let by_length = match *alpha > 0.0 {
            true => format!(", in order of log-probability / length^{alpha}"),
            false => String::new(),
        };
        format!("{n_best} best of a beam of {width}, at most {max_length} words{by_length}")
    }
}

impl HeldOut {
    /// The perplexities of a model.
    ///
    /// # Errors
    /// One that is not finite.
    pub fn perplexities(&self, model: &Seq2Seq) -> Result<Perplexities, Failure> {
        let of = |split, what| {
            let _scoring = Working::new(format!("scoring {what}"));
            let ppl = mean_nll(model, split).exp();
            if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
        };
        Ok(Perplexities {
            valid_ppl: of(self.corpus.valid(), VALID)?,
            test_ppl: of(self.corpus.test(), TEST)?,
        })
    }

    /// Sizes and hashes of the validation and the test text.
    pub fn parts(&self) -> [Part; 2] {
        let Fingerprint { valid, test, .. } = fingerprint(&self.corpus);
        [valid, test]
    }

    /// The responses of a model. A bar shows how far it is, with `what` in front.
    ///
    /// # Errors
    /// What the search says.
    pub fn respond(&self, model: &Seq2Seq, search: &BeamSearch, what: &str) -> Result<Found, Failure> {
        respond(model, self.corpus.test(), &self.pairs, search, what)
    }

    /// How good the responses to the contexts are.
    pub fn score<'a>(
        &'a self,
        search: &BeamSearch,
        seconds: f64,
        responses: impl Iterator<Item = Vec<&'a [u32]>>,
    ) -> Searched {
        let references = self.places.iter().map(|&place| self.references.of(place));
        Searched {
            width: search.width,
            max_length: search.max_length,
            n_best: search.n_best,
            alpha: search.alpha,
            seconds,
            scores: Scores::new(self.form, self.several, responses.zip(references)),
        }
    }
}

/// At most so many of `count` places, at equal distances.
pub fn spread(count: usize, most: Option<usize>) -> Vec<usize> {
    let most = most.unwrap_or(count).min(count);
    (0..count).step_by((count / most.max(1)).max(1)).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_contexts_are_spread_over_all() {
        assert_eq!(spread(5, None), [0, 1, 2, 3, 4]);
        assert_eq!(spread(10, Some(3)), [0, 3, 6]);
        assert_eq!(spread(3, Some(9)), [0, 1, 2]);
        assert!(spread(0, Some(2)).is_empty());
    }
}
