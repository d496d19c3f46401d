//! How a run is recorded while it is trained.

use super::time::minutes;
use clap::Args;

/// How often a run is saved, and written about.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// Also checkpoint within epochs, every so often: minutes, or a time with its unit such as 30s, 90m or 1h.
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = minutes_or_time, allow_hyphen_values = true)]
    pub checkpoint_every: f64,
    /// Write a line to steps.jsonl every N training steps, and to the log where there is no terminal [default: every 20
    /// steps, and a line of the log at most every 10 seconds].
    #[arg(hide = true, long, value_name = "N")]
    pub log_every: Option<usize>,
}

/// A time in minutes, which are meant where there is no unit.
fn minutes_or_time(text: &str) -> Result<f64, String> {
    text.parse().or_else(|_| minutes(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_minutes_and_a_time_has_its_unit() {
        assert_eq!(["10", "0.5", "30s", "1h30m"].map(minutes_or_time), [10.0, 0.5, 0.5, 90.0].map(Ok));
        assert!(minutes_or_time("soon").unwrap_err().contains("90m"));
    }
}
