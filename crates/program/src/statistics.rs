//! Means and spreads, and large numbers as text.

use indicatif::HumanCount;

/// Mean and sample standard deviation; the latter is 0 for a single value.
pub fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// A number with so many decimal digits. From a million on nobody asks for them, and the perplexity of a training that diverges would
/// have hundreds: it is then a power of ten.
pub fn decimal(value: f64, digits: usize) -> String {
    match value.is_finite() && value.abs() >= 1e6 && digits > 0 {
        true => format!("{value:.1e}"),
        false => format!("{value:.digits$}"),
    }
}

/// A mean with its spread where there are several values, both with so many decimal digits, as [`decimal`] writes them.
pub fn mean_and_spread_text(values: &[f64], digits: usize) -> String {
    let (mean, spread) = mean_and_spread(values);
    match values.len() {
        1 => decimal(mean, digits),
        _ => format!("{} ± {}", decimal(mean, digits), decimal(spread, digits)),
    }
}

/// A number with commas between its thousands.
pub fn grouped(number: usize) -> String {
    HumanCount(number as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([1, 999, 1000, 21_500_620].map(grouped), ["1", "999", "1,000", "21,500,620"]);
    }

    #[test]
    fn large_numbers_have_no_digits_to_read() {
        let numbers = [0.0, 12.345, 999_999.0, 1e6, 1.234e300, -2e7, f64::INFINITY, f64::NAN];
        let texts = ["0.00", "12.35", "999999.00", "1.0e6", "1.2e300", "-2.0e7", "inf", "NaN"];
        assert_eq!(numbers.map(|number| decimal(number, 2)), texts);
        assert_eq!(decimal(21_500_620.4, 0), "21500620");
        assert_eq!(mean_and_spread_text(&[1e8, 3e8], 2), "2.0e8 ± 1.4e8");
    }

    #[test]
    fn spread_is_the_sample_standard_deviation() {
        let (mean, spread) = mean_and_spread(&[1.0, 2.0, 6.0]);
        assert_eq!((mean, spread), (3.0, 7.0_f64.sqrt()));
        assert_eq!(mean_and_spread(&[4.0]), (4.0, 0.0));
        assert_eq!(mean_and_spread_text(&[1.0, 2.0, 6.0], 1), "3.0 ± 2.6");
        assert_eq!(mean_and_spread_text(&[4.0], 0), "4");
    }
}
