//! Wall-clock times of work, and its memory.

use std::time::Instant;

use burn::tensor::Device;
use program::device::{DeviceName, memory_bytes};
use program::failure::Failure;

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

/// The middle value, halfway between the two middle ones of an even number; none of no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some((values[(values.len() - 1) / 2] + upper) / 2.0)
}

/// What the first of two runs gives, and by how much both raise the peak of memory, in bytes: on a GPU what the runtime has taken
/// after them less what was in use before. `None` where it is not known.
///
/// # Errors
/// What the work says.
pub fn added_peak<T>(
    name: DeviceName,
    device: &Device,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<(T, Option<u64>), Failure> {
    forget_peak();
    let before = memory_bytes(name, device);
    let first = work()?;
    work()?;
    let after = memory_bytes(name, device);
    Ok((first, before.zip(after).map(|((in_use, _), (_, taken))| taken.saturating_sub(in_use))))
}

/// Starts a new measurement of the process's largest resident memory: what was needed before counts no more. Without
/// effect where the system does not let a process do so, and on GPUs.
fn forget_peak() {
    // Linux; elsewhere there is no such file, and no peak is known either.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_values_are_below_the_median() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
