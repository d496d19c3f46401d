//! Times on command lines.

use std::fmt;
use std::str::FromStr;

/// A time above 0, written with units: `45s`, `90m`, `8h`, `2d`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeLimit {
    minutes: f64,
}

/// Units, and their minutes.
const UNITS: [(char, f64); 4] = [('s', 1.0 / 60.0), ('m', 1.0), ('h', 60.0), ('d', 1440.0)];

impl TimeLimit {
    /// The time in minutes.
    pub fn minutes(self) -> f64 {
        self.minutes
    }
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let failed = || "a time needs its unit and must be above 0: 45s, 90m, 8h, 2d or 1h30m".to_string();
        let mut minutes = 0.0;
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = rest.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(failed)?;
            let (number, from_unit) = rest.split_at(end);
            let number: f64 = number.parse().map_err(|_| failed())?;
            let (_, unit) =
                UNITS.into_iter().find(|(unit, _)| from_unit.starts_with(*unit)).ok_or_else(failed)?;
            minutes += number * unit;
            rest = &from_unit[1..];
        }
        if minutes.is_finite() && minutes > 0.0 { Ok(Self { minutes }) } else { Err(failed()) }
    }
}

impl fmt::Display for TimeLimit {
    /// In minutes, which is read back to the same time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}m", self.minutes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes() {
        for (text, minutes) in
            [("45s", 0.75), ("90m", 90.0), ("8h", 480.0), ("2d", 2880.0), ("1h30m", 90.0), (" 0.5h ", 30.0)]
        {
            let time: TimeLimit = text.parse().unwrap();
            assert!((time.minutes() - minutes).abs() < 1e-9, "{text}: {time:?}");
            assert_eq!(time.to_string().parse::<TimeLimit>().unwrap(), time);
        }
        for text in ["", "90", "0m", "-5m", "8x", "m", "1h30", "infs", "nanm", "1e400d", "5µ"] {
            let message = text.parse::<TimeLimit>().unwrap_err();
            assert!(message.contains("90m"), "{text}: {message}");
        }
    }
}
