//! One head fitted with several learning rates and seeds, and the learning rate that counts.

use serde::{Deserialize, Serialize};

use crate::synthetic::report::distinct;
use program::statistics::{mean_and_spread, mean_and_spread_text};

/// A fit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Try<R> {
    /// Adam's learning rate at the start.
    pub lr: f64,
    /// Of the truth and of the training.
    pub seed: u64,
    /// What came of it.
    #[serde(flatten)]
    pub result: R,
}

/// The learning rate whose training loss is lowest, in the mean over seeds; none if each diverged with some seed. `loss`: what training
/// makes small, or that up to a constant; none if training diverged.
pub fn best_rate<R>(tries: &[Try<R>], loss: impl Fn(&R) -> Option<f64>) -> Option<f64> {
    let mean_loss = |lr: f64| {
        let losses: Option<Vec<f64>> =
            tries.iter().filter(|one| one.lr == lr).map(|one| loss(&one.result)).collect();
        losses.map(|losses| losses.iter().sum::<f64>() / losses.len() as f64)
    };
    let rates = tries.iter().filter_map(|one| Some((one.lr, mean_loss(one.lr)?)));
    rates.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(lr, _)| lr)
}

/// Mean of a value of every fit with a learning rate, and its spread over seeds; none without a rate.
pub fn mean<R>(
    tries: &[Try<R>],
    lr: Option<f64>,
    value: impl Fn(&R) -> Option<f64>,
) -> (Option<f64>, Option<f64>) {
    let values = values(tries, lr, value);
    (!values.is_empty()).then(|| mean_and_spread(&values)).unzip()
}

/// As [`mean`], as text with so many decimal digits.
pub fn mean_text<R>(
    tries: &[Try<R>],
    lr: Option<f64>,
    digits: usize,
    value: impl Fn(&R) -> Option<f64>,
) -> String {
    match values(tries, lr, value) {
        values if values.is_empty() => "diverged".to_string(),
        values => mean_and_spread_text(&values, digits),
    }
}

/// What a legend says of seeds and learning rates, where there are several; `lowest`: what the training makes small.
pub fn legend<'a, R: 'a>(fits: impl Iterator<Item = &'a [Try<R>]> + Clone, lowest: &str) -> String {
    let most = |count: fn(&[Try<R>]) -> usize| fits.clone().map(count).max().unwrap_or(0);
    let seeds = most(|fits| distinct(fits.iter().map(|fit| fit.seed)).len());
    let rates = most(|fits| distinct(fits.iter().map(|fit| fit.lr)).len());
    let mut text = String::new();
    if seeds > 1 {
        text += &format!("; mean ± standard deviation over {seeds} seeds");
    }
    if rates > 1 {
        text += &format!("; lr: the learning rate with the lowest {lowest} in the mean over seeds");
    }
    text
}

fn values<R>(tries: &[Try<R>], lr: Option<f64>, value: impl Fn(&R) -> Option<f64>) -> Vec<f64> {
    tries.iter().filter(|one| Some(one.lr) == lr).filter_map(|one| value(&one.result)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(losses: &[(f64, Option<f64>)]) -> Vec<Try<Option<f64>>> {
        losses.iter().map(|&(lr, result)| Try { lr, seed: 1, result }).collect()
    }

    #[test]
    fn the_lowest_mean_counts_and_a_divergence_rules_a_rate_out() {
        let all = tries(&[
            (0.1, Some(2.0)),
            (1.0, Some(0.1)),
            (0.3, Some(1.0)),
            (0.1, Some(1.0)),
            (1.0, None),
            (0.3, Some(1.5)),
        ]);
        assert_eq!(best_rate(&all, |loss| *loss), Some(0.3));
        assert_eq!(mean(&all, Some(0.3), |loss| *loss), (Some(1.25), Some(0.125f64.sqrt())));
        assert_eq!(mean_text(&all, Some(0.3), 2, |loss| *loss), "1.25 ± 0.35");
        assert_eq!(best_rate(&tries(&[(0.1, None), (0.3, Some(1.0)), (0.3, None)]), |loss| *loss), None);
        assert_eq!(mean(&all, None, |loss| *loss), (None, None));
        assert_eq!(mean_text(&all, None, 2, |loss| *loss), "diverged");
    }
}
