//! What an experiment found before.

use std::fmt::Display;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::commands::synthetic::fit_args::FitArgs;
use crate::failure::Failure;
use crate::files::{create_folder, read_json_lines};

/// Outcomes that `experiment` printed with `--json`, of all files; the folder for pictures is created. `setting` names what an
/// outcome is of.
///
/// # Errors
/// A file that cannot be read, a line that is no outcome of the experiment, two outcomes of one setting, a folder that cannot be
/// created.
pub fn read<R: DeserializeOwned, S: PartialEq + Display>(
    files: &[PathBuf],
    args: &FitArgs,
    experiment: &str,
    setting: impl Fn(&R) -> S,
) -> Result<Vec<R>, Failure> {
    let what = format!("result that `{experiment} --json` printed");
    let mut all: Vec<R> = vec![];
    for path in files {
        for outcome in read_json_lines::<R>(path, &what)? {
            let of = setting(&outcome);
            if all.iter().any(|other| setting(other) == of) {
                return Err(format!("`{}` has a second result of {of}", path.display()).into());
            }
            all.push(outcome);
        }
    }
    if let Some(out) = &args.out {
        create_folder(out)?;
    }
    Ok(all)
}

/// Different values, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = vec![];
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
