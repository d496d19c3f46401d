//! How many threads the Flex device computes on.

use program::device::DeviceName;
use program::failure::Failure;

/// The most threads that a measurement may ask for: starting very many does not end.
const MOST: usize = 1024;

/// Lets everything that Flex computes in this process run on `count` threads; to be called before anything is computed. Without
/// a count it stays with as many as the machine runs at a time.
///
/// # Errors
/// A count of 0 or of more than 1,024, one for another device, or threads that cannot be started.
pub fn use_threads(name: DeviceName, count: Option<usize>) -> Result<(), Failure> {
    match count {
        None => Ok(()),
        Some(0) => Err("--threads is 0, but work needs at least 1".into()),
        Some(count) if count > MOST => Err(format!("--threads is {count}, but may be at most {MOST}").into()),
        #[cfg(feature = "flex")]
        Some(count) if name == DeviceName::Flex => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build_global();
            pool.map_err(|error| format!("cannot start {count} threads: {error}").into())
        }
        Some(_) => Err(format!("--threads is given, but only the device flex has it, not {name}").into()),
    }
}

/// Threads that a device computes on, where that is known.
pub fn threads(name: DeviceName) -> Option<usize> {
    match name {
        #[cfg(feature = "flex")]
        DeviceName::Flex => Some(rayon::current_num_threads()),
        _ => None,
    }
}
