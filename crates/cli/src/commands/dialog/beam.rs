//! The search for responses.

use std::time::Instant;

use clap::Args;
use highrank::{BeamSearch, FinishedHypotheses};
use program::failure::Failure;
use program::progress::ShareBar;
use runs::error::check;
use seq2seq::Seq2Seq;
use seq2seq::data::{Contexts, Pair, Split};
use seq2seq::generate::{CONTEXTS_AT_ONCE, Response, beam_search};

/// Options of the search.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Beam search")]
pub struct BeamArgs {
    /// Hypotheses that go on from word to word [default: 10].
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// The most words of a response, its end among them [default: 30].
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,
    /// Responses to each context: the best that are found [default: 5].
    #[arg(long, value_name = "N")]
    pub n_best: Option<usize>,
    /// Order the responses by log-probability / length^A: 0 favours short ones, 1 takes the mean of a word [default: 0].
    #[arg(long, value_name = "A")]
    pub alpha: Option<f64>,
    /// Let finished hypotheses leave the beam instead of keeping their places.
    #[arg(long)]
    pub leave_beam: bool,
}

impl BeamArgs {
    /// The search.
    ///
    /// # Errors
    /// An option out of range.
    pub fn search(&self) -> Result<BeamSearch, Failure> {
        let mut search = beam_search();
        search.width = self.width.unwrap_or(search.width);
        search.max_length = self.max_length.unwrap_or(search.max_length);
        search.n_best = self.n_best.unwrap_or(search.n_best);
        search.alpha = self.alpha.unwrap_or(search.alpha);
        if self.leave_beam {
            search.finished = FinishedHypotheses::LeaveBeam;
        }
        search.validate()?;
        // A narrower beam cannot find so many.
        check(search.n_best <= search.width, "n_best", search.n_best, "at most the width of the beam")?;
        Ok(search)
    }
}

/// The responses to some contexts.
#[derive(Debug, Clone)]
pub struct Found {
    /// Those to each context, best first.
    pub responses: Vec<Vec<Response>>,
    /// Wall-clock time of the search.
    pub seconds: f64,
}

impl Found {
    /// The words of the responses to each context.
    pub fn words(&self) -> impl Iterator<Item = Vec<&[u32]>> {
        self.responses.iter().map(|found| found.iter().map(|response| response.words.as_slice()).collect())
    }
}

/// Searches responses to the contexts of some pairs. A bar shows how far it is, with `what` in front.
///
/// # Errors
/// What the search says.
pub fn respond(
    model: &Seq2Seq,
    split: &Split,
    pairs: &[Pair],
    search: &BeamSearch,
    what: &str,
) -> Result<Found, Failure> {
    let (bar, started) = (ShareBar::new(what), Instant::now());
    let mut responses = Vec::with_capacity(pairs.len());
    for pairs_at_once in pairs.chunks(CONTEXTS_AT_ONCE) {
        let contexts = Contexts::new(split, pairs_at_once, model.window());
        responses.extend(model.respond(&contexts, search)?);
        bar.set(responses.len() as f64 / pairs.len() as f64);
    }
    Ok(Found { responses, seconds: started.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_is_the_published_one_unless_options_say_otherwise() {
        let search = BeamArgs::default().search().unwrap();
        assert_eq!((search.width, search.max_length, search.n_best, search.alpha), (10, 30, 5, 0.0));
        assert_eq!(search.finished, FinishedHypotheses::KeepPlace);
        let given = BeamArgs { width: Some(3), max_length: Some(7), n_best: Some(2), ..Default::default() };
        let search = BeamArgs { alpha: Some(0.5), leave_beam: true, ..given }.search().unwrap();
        assert_eq!((search.width, search.max_length, search.n_best, search.alpha), (3, 7, 2, 0.5));
        assert_eq!(search.finished, FinishedHypotheses::LeaveBeam);
    }

    #[test]
    fn options_out_of_range_are_named() {
        let message = |args: BeamArgs| args.search().unwrap_err().to_string();
        let good = BeamArgs::default;
        assert!(message(BeamArgs { width: Some(0), ..good() }).contains("width"));
        assert!(message(BeamArgs { max_length: Some(0), ..good() }).contains("max_length"));
        assert!(message(BeamArgs { alpha: Some(-1.0), ..good() }).contains("alpha"));
        let many = message(BeamArgs { n_best: Some(11), ..good() });
        assert_eq!(many, "n_best is 11, but must be at most the width of the beam");
    }
}
