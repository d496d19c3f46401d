//! Runs that differ in their seed alone, together.

use awd_lstm::HeadKind;
use program::statistics::mean_and_spread;

use crate::commands::sweep::grid::Varying;
use crate::commands::sweep::outcome::Outcome;

/// A quantity of a result, if it has it.
pub type Quantity = fn(&Outcome) -> Option<f64>;

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
    pub fn settings(&self) -> &'a Varying {
        &self.first().settings
    }

    /// Its head, with those of its settings that are `shown`, as a reader of pictures knows them.
    pub fn label(&self, shown: impl Fn(&str) -> bool) -> String {
        let settings = self.settings().iter().filter(|(flag, _)| shown(flag));
        let settings = settings.map(|(flag, value)| format!(", {} {value}", symbol(flag)));
        format!("{}{}", self.head(), settings.collect::<String>())
    }

    /// The mean of the values of the runs that have one, with the lowest and the highest; none if no run has one.
    pub fn mean_and_ends(&self, of: Quantity) -> Option<(f64, [f64; 2])> {
        let values = self.values(of);
        let (mean, _) = mean_and_spread(&values);
        let ends = [f64::min, f64::max].map(|pick| values.iter().copied().fold(mean, pick));
        (!values.is_empty()).then_some((mean, ends))
    }

    /// The values of the runs that have one.
    pub fn values(&self, of: Quantity) -> Vec<f64> {
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
    outcome.finetuned.as_ref().or(outcome.trained.as_ref())?.test_ppl
}

/// Whether every run that was trained, and there is one, has a quantity.
pub fn all_have(outcomes: &[Outcome], of: Quantity) -> bool {
    let mut trained = outcomes.iter().filter(|outcome| outcome.trained.is_some()).peekable();
    trained.peek().is_some() && trained.all(|outcome| of(outcome).is_some())
}

/// Perplexity of the test text.
pub fn test_ppl(outcome: &Outcome) -> Option<f64> {
    outcome.trained.as_ref()?.test_ppl
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
