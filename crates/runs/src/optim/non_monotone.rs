//! The rule that says when averaging begins.

use serde::{Deserialize, Serialize};

/// The non-monotone criterion of NT-ASGD (arXiv 1708.02182, algorithm 1).
///
/// Evaluation e, counted from 0, meets it if
///
/// ```text
/// e > nonmono   and   loss_e > min(loss_0 … loss_{e - nonmono - 1})
/// ```
///
/// that is, if the loss is worse than the best of all earlier ones but the last `nonmono`. The comparison is
/// strict, and the current loss is not among the earlier ones. A NaN loss never meets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonMonotone {
    nonmono: usize,
    #[serde(with = "crate::exact::list")]
    losses: Vec<f64>,
}

impl NonMonotone {
    /// The rule before any evaluation.
    pub fn new(nonmono: usize) -> Self {
        Self { nonmono, losses: Vec::new() }
    }

    /// Notes the latest validation loss and says whether it meets the criterion.
    ///
    /// It may be met again later: who switches to averaging does so the first time.
    pub fn observe(&mut self, valid_loss: f64) -> bool {
        let considered = self.losses.len().saturating_sub(self.nonmono);
        let met = self.losses[..considered].iter().any(|&earlier| valid_loss > earlier);
        self.losses.push(valid_loss);
        met
    }

    /// All losses so far, oldest first.
    pub fn losses(&self) -> &[f64] {
        &self.losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first evaluation that meets the criterion.
    fn trigger(nonmono: usize, losses: &[f64]) -> Option<usize> {
        let mut rule = NonMonotone::new(nonmono);
        losses.iter().position(|&loss| rule.observe(loss))
    }

    #[test]
    fn waits_for_nonmono_evaluations_and_one_more() {
        assert_eq!(trigger(2, &[1.0, 2.0, 3.0, 4.0]), Some(3));
        assert_eq!(trigger(0, &[1.0, 2.0]), Some(1));
        assert_eq!(trigger(5, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), None);
        assert_eq!(trigger(5, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), Some(6));
    }

    #[test]
    fn an_equal_loss_is_not_worse() {
        assert_eq!(trigger(1, &[3.0, 2.0, 3.0, 3.0]), Some(3));
        assert_eq!(trigger(1, &[2.0, 5.0, 2.0, 2.0]), None);
    }

    #[test]
    fn the_current_loss_and_the_last_nonmono_are_not_compared_with() {
        // With the current loss appended first the window would reach one further and end at 1.0.
        assert_eq!(trigger(2, &[5.0, 4.0, 1.0, 4.5, 3.0]), None);
        assert_eq!(trigger(2, &[5.0, 4.0, 1.0, 4.5, 3.0, 3.5]), Some(5));
    }

    #[test]
    fn falling_losses_never_trigger_and_neither_does_nan() {
        let falling: Vec<f64> = (0..30).map(|e| 10.0 - f64::from(e) / 10.0).collect();
        assert_eq!(trigger(3, &falling), None);
        assert_eq!(trigger(0, &[1.0, f64::NAN, 0.5]), None);
    }

    #[test]
    fn goes_on_after_being_saved() {
        let mut rule = NonMonotone::new(1);
        // A sum that has no short decimal form.
        for loss in [0.1 + 0.2 + 3.0, 2.0] {
            assert!(!rule.observe(loss));
        }
        let json = serde_json::to_string(&rule).unwrap();
        let mut back: NonMonotone = serde_json::from_str(&json).unwrap();
        assert_eq!(back, rule);
        assert!(!back.observe(2.5));
        assert!(back.observe(2.6));
        assert_eq!(back.losses(), [0.1 + 0.2 + 3.0, 2.0, 2.5, 2.6]);
    }
}
