//! The search for responses.

use clap::Args;
use highrank::{BeamSearch, FinishedHypotheses};
use program::failure::Failure;
use runs::error::check;
use seq2seq::generate::beam_search;

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
}
