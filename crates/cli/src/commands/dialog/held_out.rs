//! The held-out text that saved models are evaluated on.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use highrank::BeamSearch;
use program::failure::Failure;
use program::files::refuse_file;
use program::progress::{ShareBar, Working};
use seq2seq::Seq2Seq;
use seq2seq::data::{Contexts, Corpus, Pair, References};
use seq2seq::generate::{CONTEXTS_AT_ONCE, Response};
use seq2seq::metrics::BleuForm;
use seq2seq::train::mean_nll;
use serde::Serialize;

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
    /// Reads the text as a run has read it.
    ///
    /// # Errors
    /// Dialogues or references that cannot be read.
    pub fn load(&self, saved: &Saved) -> Result<HeldOut, Failure> {
        let data = self.data.as_ref().unwrap_or(&saved.config.data);
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

/// Perplexities, a search for responses, how long it took, and how good they are.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// Perplexity of the validation text.
    pub valid_ppl: f64,
    /// Perplexity of the test text.
    pub test_ppl: f64,
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

impl Evaluation {
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
    /// The perplexities of a model, of the validation and of the test text.
    ///
    /// # Errors
    /// One that is not finite.
    pub fn perplexities(&self, model: &Seq2Seq) -> Result<[f64; 2], Failure> {
        let of = |split, what| {
            let _scoring = Working::new(format!("scoring {what}"));
            let ppl = mean_nll(model, split).exp();
            if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
        };
        Ok([of(self.corpus.valid(), VALID)?, of(self.corpus.test(), TEST)?])
    }

    /// The responses of a model to each context, best first, and the seconds that they took. A bar shows how far it is.
    ///
    /// # Errors
    /// What the search says.
    pub fn respond(
        &self,
        model: &Seq2Seq,
        search: &BeamSearch,
    ) -> Result<(Vec<Vec<Response>>, f64), Failure> {
        let (bar, started) = (ShareBar::new("responses"), Instant::now());
        let mut responses = Vec::with_capacity(self.pairs.len());
        for pairs in self.pairs.chunks(CONTEXTS_AT_ONCE) {
            let contexts = Contexts::new(self.corpus.test(), pairs, model.window());
            responses.extend(model.respond(&contexts, search)?);
            bar.set(responses.len() as f64 / self.pairs.len() as f64);
        }
        Ok((responses, started.elapsed().as_secs_f64()))
    }

    /// How good a model of these perplexities is, with its responses to the contexts and the seconds that they took.
    pub fn score(
        &self,
        [valid_ppl, test_ppl]: [f64; 2],
        search: &BeamSearch,
        (responses, seconds): (&[Vec<Response>], f64),
    ) -> Evaluation {
        let words =
            responses.iter().map(|found| found.iter().map(|response| response.words.as_slice()).collect());
        let references = self.places.iter().map(|&place| self.references.of(place));
        Evaluation {
            valid_ppl,
            test_ppl,
            width: search.width,
            max_length: search.max_length,
            n_best: search.n_best,
            alpha: search.alpha,
            seconds,
            scores: Scores::new(self.form, self.several, words.zip(references)),
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
