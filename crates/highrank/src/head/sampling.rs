//! Drawing a word from log-probabilities: temperature, top-k, top-p.

use burn::config::Config;
use rand::{Rng, RngExt};

use crate::error::HeadError;

/// How to draw a word from a distribution.
///
/// Applied in this order: temperature, top-k, top-p (nucleus sampling, Holtzman et al., ICLR 2020); what remains is
/// renormalised.
///
/// ```
/// use highrank::Sampling;
///
/// let sampling = Sampling::new().with_temperature(0.8).with_top_k(Some(40)).with_top_p(Some(0.95));
/// assert!(sampling.validate().is_ok());
/// assert!(sampling.with_temperature(-1.0).validate().is_err());
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the log-probabilities; 0 takes the most probable word.
    #[config(default = 1.0)]
    pub temperature: f64,
    /// Keeps the `k` most probable words.
    #[config(default = "None")]
    pub top_k: Option<usize>,
    /// Keeps the fewest most probable words whose probabilities sum to at least `p`.
    #[config(default = "None")]
    pub top_p: Option<f64>,
}

impl Default for Sampling {
    /// The distribution itself: temperature 1, no truncation.
    fn default() -> Self {
        Self::new()
    }
}

impl Sampling {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// [`HeadError::Sampling`] with the option, its value and the allowed range.
    pub fn validate(&self) -> Result<(), HeadError> {
        let error = |name, value, expected| Err(HeadError::Sampling { name, value, expected });
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return error("temperature", self.temperature, "a finite number of at least 0");
        }
        if self.top_k == Some(0) {
            return error("top_k", 0.0, "at least 1");
        }
        match self.top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => error("top_p", p, "a number in (0, 1]"),
            _ => Ok(()),
        }
    }

    /// Whether words are drawn from the distribution itself.
    pub(crate) fn is_neutral(&self) -> bool {
        self.temperature == 1.0 && self.top_k.is_none() && self.top_p.is_none_or(|p| p == 1.0)
    }

    /// Draws the index of one word from log-probabilities, in f64.
    pub(crate) fn draw(&self, log_probs: &[f64], rng: &mut impl Rng) -> usize {
        if self.is_neutral() {
            let weights: Vec<f64> = log_probs.iter().map(|x| x.exp()).collect();
            return pick(&weights, rng);
        }
        let mut order: Vec<usize> = (0..log_probs.len()).collect();
        // Stable, so equal probabilities keep the order of the vocabulary.
        order.sort_by(|&a, &b| log_probs[b].total_cmp(&log_probs[a]));
        if self.temperature == 0.0 {
            return order[0];
        }
        order.truncate(self.top_k.unwrap_or(order.len()));
        let best = log_probs[order[0]];
        let mut weights: Vec<f64> =
            order.iter().map(|&word| ((log_probs[word] - best) / self.temperature).exp()).collect();
        if let Some(p) = self.top_p {
            let enough = p * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let before = weights.iter().take_while(|&&weight| {
                sum += weight;
                sum < enough
            });
            let kept = before.count() + 1;
            weights.truncate(kept);
        }
        order[pick(&weights, rng)]
    }
}

/// An index with probability proportional to its weight.
fn pick(weights: &[f64], rng: &mut impl Rng) -> usize {
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|&weight| {
        left -= weight;
        left < 0.0
    });
    // Rounding can leave a remainder after the last weight; it belongs to the last word that can occur.
    drawn.or_else(|| weights.iter().rposition(|&weight| weight > 0.0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn frequencies(sampling: &Sampling, probs: &[f64]) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(7);
        let log_probs: Vec<f64> = probs.iter().map(|p| p.ln()).collect();
        let mut counts = vec![0.0; probs.len()];
        for _ in 0..20_000 {
            counts[sampling.draw(&log_probs, &mut rng)] += 1.0 / 20_000.0;
        }
        counts
    }

    fn assert_close(got: &[f64], want: &[f64]) {
        // Four standard deviations of a frequency of 20,000 draws are at most 0.0142.
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 0.015), "{got:?} against {want:?}");
    }

    const PROBS: [f64; 4] = [0.1, 0.5, 0.15, 0.25];

    #[test]
    fn neutral_options_draw_the_distribution() {
        assert_close(&frequencies(&Sampling::default(), &PROBS), &PROBS);
    }

    #[test]
    fn temperature_sharpens_and_zero_takes_the_best() {
        let half = Sampling::new().with_temperature(0.5);
        let squares: f64 = PROBS.iter().map(|p| p * p).sum();
        assert_close(&frequencies(&half, &PROBS), &PROBS.map(|p| p * p / squares));
        assert_eq!(frequencies(&Sampling::new().with_temperature(0.0), &PROBS)[1].round(), 1.0);
    }

    #[test]
    fn top_k_and_top_p_keep_the_most_probable() {
        let two = Sampling::new().with_top_k(Some(2));
        assert_close(&frequencies(&two, &PROBS), &[0.0, 0.5 / 0.75, 0.0, 0.25 / 0.75]);
        let nucleus = Sampling::new().with_top_p(Some(0.8));
        assert_close(&frequencies(&nucleus, &PROBS), &[0.0, 0.5 / 0.9, 0.15 / 0.9, 0.25 / 0.9]);
        let exact = Sampling::new().with_top_p(Some(0.5));
        assert_close(&frequencies(&exact, &PROBS), &[0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn impossible_words_are_never_drawn() {
        let frequencies = frequencies(&Sampling::default(), &[0.0, 1.0, 0.0]);
        assert_eq!((frequencies[0], frequencies[2]), (0.0, 0.0));
    }

    #[test]
    fn ranges_are_checked() {
        for wrong in [
            Sampling::new().with_temperature(f64::NAN),
            Sampling::new().with_top_k(Some(0)),
            Sampling::new().with_top_p(Some(0.0)),
            Sampling::new().with_top_p(Some(1.1)),
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
