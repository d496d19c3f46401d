//! The command line of `highrank`, an argument a line, and a file of settings, which an absolute path names.

#![no_main]

use highrank_fuzz::{file, parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [arguments, settings] = parts::<2>(input);
    let path = file("settings.json", settings);
    let lines = String::from_utf8_lossy(arguments);
    // Other files are read by relative paths alone: runs, and the settings of a sweep.
    let own = |line: &str| match line.split_once("=/") {
        Some((flag, _)) => format!("{flag}={}", path.display()),
        None if line.starts_with('/') => path.display().to_string(),
        None => line.to_string(),
    };
    let arguments = lines.lines().map(own);
    if let Err(line) = highrank_cli::programs::check(arguments) {
        assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
    }
});
