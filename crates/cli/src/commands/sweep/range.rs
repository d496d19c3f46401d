//! Ranges of values that trials draw from.

use rand::RngExt;

/// All numbers from one to another, both among them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    low: f64,
    high: f64,
    /// Whether only whole numbers are values.
    whole: bool,
    /// Whether each factor is as likely as another, rather than each step.
    by_factors: bool,
}

/// Settings whose values are spread by steps even so: probabilities, shares and small counts.
const BY_STEPS: [&str; 4] = ["dropout-", "lr-decay", "layers", "nonmono"];

/// Whether values of the setting `flag` are spread by steps even above 0.
pub fn is_by_steps(flag: &str) -> bool {
    BY_STEPS.iter().any(|name| flag.starts_with(name))
}

impl Range {
    /// The range that is written `LOW..HIGH`, of the setting `flag`; none if `text` is of another form.
    ///
    /// A range above 0 is spread by factors, as learning rates and widths are, but for probabilities and small counts.
    ///
    /// # Errors
    /// Ends that are no numbers, or not in their order.
    pub fn parse(flag: &str, text: &str, whole: bool) -> Option<Result<Self, String>> {
        let (low, high) = text.split_once("..")?;
        let number = |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        Some(match (number(low), number(high)) {
            (Some(low), Some(high)) if low < high => {
                let by_factors = low > 0.0 && !is_by_steps(flag);
                Ok(Self { low, high, whole, by_factors })
            }
            (Some(_), Some(_)) => {
                Err(format!("--{flag} is {text}, but a range goes from a number to a larger one"))
            }
            _ => Err(format!("--{flag} is {text}, but a range is of two numbers, as in 10..40")),
        })
    }

    /// A value, as it would be written; reals have three significant digits.
    pub fn draw(&self, rng: &mut impl RngExt) -> String {
        let Self { low, high, whole, by_factors } = *self;
        let share: f64 = rng.random();
        // Every whole number has its interval below the next.
        let end = if whole { high + 1.0 } else { high };
        let value = match by_factors {
            true => (low.ln() + share * (end.ln() - low.ln())).exp(),
            false => low + share * (end - low),
        };
        match whole {
            true => format!("{}", value.floor().clamp(low, high)),
            false => format!("{}", rounded(value).clamp(low, high)),
        }
    }
}

/// A number of three significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number that was written is read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn range(flag: &str, text: &str, whole: bool) -> Range {
        Range::parse(flag, text, whole).unwrap().unwrap()
    }

    fn draws(range: Range) -> Vec<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        (0..2000).map(|_| range.draw(&mut rng).parse().unwrap()).collect()
    }

    #[test]
    fn rates_are_spread_by_factors_and_probabilities_by_steps() {
        let below = |values: &[f64], middle: f64| {
            values.iter().filter(|value| **value < middle).count() as f64 / values.len() as f64
        };
        for (flag, text, middle) in [
            ("lr", "1..100", 10.0),
            ("latent-lr", "0.01..1", 0.1),
            ("dropout-latent", "0.2..0.6", 0.4),
            ("alpha", "0..4", 2.0),
        ] {
            let (low, high) = text.split_once("..").unwrap();
            let (low, high): (f64, f64) = (low.parse().unwrap(), high.parse().unwrap());
            let values = draws(range(flag, text, false));
            assert!(values.iter().all(|value| (low..=high).contains(value)), "{flag}");
            assert!((below(&values, middle) - 0.5).abs() < 0.04, "{flag}: {}", below(&values, middle));
            assert!(values.iter().all(|value| rounded(*value) == *value), "{flag}");
        }
    }

    #[test]
    fn whole_numbers_are_whole_and_all_of_them_are_drawn() {
        for (flag, text, count) in [("components", "3..9", 7), ("layers", "1..3", 3), ("nonmono", "0..4", 5)]
        {
            let mut values = draws(range(flag, text, true));
            assert!(values.iter().all(|value| value.fract() == 0.0));
            values.sort_by(f64::total_cmp);
            values.dedup();
            assert_eq!(values.len(), count, "{flag}: {values:?}");
        }
        let layers = draws(range("layers", "1..3", true));
        let ones = layers.iter().filter(|layers| **layers == 1.0).count() as f64 / layers.len() as f64;
        assert!((ones - 1.0 / 3.0).abs() < 0.04, "{ones}");
    }

    #[test]
    fn what_is_no_range_is_said() {
        assert!(Range::parse("lr", "10,20", false).is_none());
        for (text, expected) in [
            ("40..10", "--lr is 40..10, but a range goes from a number to a larger one"),
            ("4..4", "to a larger one"),
            ("a..4", "a range is of two numbers, as in 10..40"),
            ("1..", "a range is of two numbers"),
            ("1..inf", "a range is of two numbers"),
        ] {
            let message = Range::parse("lr", text, false).unwrap().unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
