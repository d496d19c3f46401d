//! Runs that differ in their seed alone, together.

use awd_lstm::HeadKind;

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

    /// The output layer.
    pub fn head(&self) -> HeadKind {
        self.first().head
    }

    /// The settings that vary for its head.
    pub fn settings(&self) -> &'a Vec<(String, String)> {
        &self.first().settings
    }

    /// The values of the runs that have one.
    pub fn values(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(|run| of(run)).collect()
    }
}

/// Perplexity of the training text.
pub fn train_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref().and_then(|trained| trained.train_ppl)
}

/// Perplexity of the validation text.
pub fn valid_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref().map(|trained| trained.valid_ppl)
}

/// Perplexity of the test text.
pub fn test_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref().and_then(|trained| trained.test_ppl)
}

/// Perplexity of the validation text after finetuning.
pub fn finetuned_valid_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.finetuned.as_ref().map(|trained| trained.valid_ppl)
}

/// Perplexity of the test text after finetuning.
pub fn finetuned_test_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.finetuned.as_ref().and_then(|trained| trained.test_ppl)
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
