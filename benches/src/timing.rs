//! Wall-clock times of work.

use std::time::Instant;

use highrank_cli::failure::Failure;
use highrank_cli::statistics::median;

/// Wall-clock time of one run, in seconds.
///
/// # Errors
/// What the work says.
pub fn seconds_of<T>(mut work: impl FnMut() -> Result<T, Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Median time of `repeats` runs in seconds; NaN if there are none.
///
/// # Errors
/// What the work says.
pub fn median_seconds<T>(
    repeats: usize,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<f64, Failure> {
    let times = (0..repeats).map(|_| seconds_of(&mut work)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(times).unwrap_or(f64::NAN))
}
