//! What tests of the crates above share. No part of the public interface.

use std::process::Command;

/// Runs a test in a separate process. Its result depends on the seed, and all threads share the random numbers of the CPU
/// backend, so no other test may draw from them meanwhile. `module` is the `module_path!()` of the
/// test and `name` that of its function.
///
/// # Panics
/// If the test fails there.
pub fn alone(module: &str, name: &str, test: impl FnOnce()) {
    const ALONE: &str = "RUNS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    // Without the name of the crate, as tests are listed.
    let (_, module) = module.split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(ALONE, "")
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
