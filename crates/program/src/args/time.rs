//! Times on command lines.

/// The minutes of a time above 0 that is written with units: `45s`, `90m`, `8h`, `2d`, `1h30m`.
///
/// # Errors
/// If the text is no such time.
pub fn minutes(text: &str) -> Result<f64, String> {
    match humantime::parse_duration(text.trim()) {
        Ok(time) if !time.is_zero() => Ok(time.as_secs_f64() / 60.0),
        _ => Err("a time needs its unit and must be above 0: 45s, 90m, 8h, 2d or 1h30m".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes() {
        for (text, expected) in
            [("45s", 0.75), ("90m", 90.0), ("8h", 480.0), ("2d", 2880.0), ("1h30m", 90.0), (" 0.5h ", 30.0)]
        {
            let made = minutes(text).unwrap();
            assert!((made - expected).abs() < 1e-9, "{text}: {made}");
        }
        for text in ["", "90", "0m", "-5m", "8x", "m", "1h30", "infs", "nanm", "1e400d", "5µ"] {
            let message = minutes(text).unwrap_err();
            assert!(message.contains("90m"), "{text}: {message}");
        }
    }
}
