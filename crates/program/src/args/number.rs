//! Numbers on command lines.

/// A finite number: settings are kept as JSON, which has no other.
///
/// # Errors
/// If the text is none.
pub fn finite(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "a finite number is needed, such as 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_finite() {
        assert_eq!([" 0.5", "-1e3", "7"].map(finite), [Ok(0.5), Ok(-1000.0), Ok(7.0)]);
        for text in ["", "x", "nan", "inf", "-infinity", "1e400"] {
            assert!(finite(text).unwrap_err().contains("finite"), "{text}");
        }
    }
}
