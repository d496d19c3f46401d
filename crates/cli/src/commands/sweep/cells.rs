//! Runs that differ in their seed alone, together.

use awd_lstm::HeadKind;
use program::statistics::mean_and_spread;

use crate::commands::sweep::outcome::Outcome;

/// The runs of a head with one combination of values, one a seed.
pub struct Cell<'a> {
    /// The runs; at least one.
    pub runs: Vec<&'a Outcome>,
}

impl<'a> Cell<'a> {
    /// Outcomes cell by cell, in the order of the first of each.
    pub fn all(outcomes: &'a [Outcome]) -> Vec<Self> {
        let mut cells: Vec<Self> = vec![];
        for outcome in outcomes {
            let same = |cell: &&mut Self| (cell.head(), cell.settings()) == (outcome.head, &outcome.settings);
            match cells.iter_mut().find(same) {
                Some(cell) => cell.runs.push(outcome),
                None => cells.push(Self { runs: vec![outcome] }),
            }
        }
        cells
    }

    /// A run that stands for the head and sizes of all.
    pub fn first(&self) -> &'a Outcome {
        self.runs[0]
    }

    pub fn head(&self) -> HeadKind {
        self.first().head
    }

    /// The settings that vary for its head.
    pub fn settings(&self) -> &'a Vec<(String, String)> {
        &self.first().settings
    }

    /// The mean of a value over all runs; none if one of them has none.
    pub fn mean(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| of(run)).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The mean of the values of the runs that have one, with the lowest and the highest; none if no run has one.
    pub fn mean_and_ends(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<(f64, [f64; 2])> {
        let values = self.values(of);
        let (mean, _) = mean_and_spread(&values);
        let ends = [f64::min, f64::max].map(|pick| values.iter().copied().fold(mean, pick));
        (!values.is_empty()).then_some((mean, ends))
    }

    /// The values of the runs that have one.
    pub fn values(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(|run| of(run)).collect()
    }
}

/// Perplexity of the validation text.
pub fn valid_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref().map(|trained| trained.valid_ppl)
}

/// What settings are chosen by: perplexity of the validation text, after finetuning if there is any.
pub fn chosen_by(outcome: &Outcome) -> Option<f64> {
    finetuned_valid_ppl(outcome).or_else(|| valid_ppl(outcome)).filter(|_| outcome.failed.is_none())
}

/// Perplexity of the test text of the run that came last: after finetuning, if there is any.
pub fn final_test_ppl(outcome: &Outcome) -> Option<f64> {
    match &outcome.finetuned {
        Some(tuned) => tuned.test_ppl,
        None => test_ppl(outcome),
    }
}

/// Whether every run that was trained was finetuned too.
pub fn all_finetuned(outcomes: &[Outcome]) -> bool {
    let mut trained = outcomes.iter().filter(|outcome| outcome.trained.is_some()).peekable();
    trained.peek().is_some() && trained.all(|outcome| outcome.finetuned.is_some())
}

/// Perplexity of the test text.
pub fn test_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref().and_then(|trained| trained.test_ppl)
}

/// Perplexity of the validation text after finetuning.
pub fn finetuned_valid_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.finetuned.as_ref().map(|trained| trained.valid_ppl)
}

/// Rank of the log-probabilities.
pub fn rank(outcome: &Outcome) -> Option<f64> {
    outcome.rank.as_ref().map(|rank| rank.rank as f64)
}

/// A setting as a reader of pictures knows it.
pub fn symbol(flag: &str) -> &str {
    match flag {
        "d-embedding" => "d",
        "components" => "K",
        "lr" => "learning rate",
        flag => flag,
    }
}

/// A setting and its value in labels.
pub fn named(flag: &str, value: &str) -> String {
    format!("{} {value}", symbol(flag))
}
