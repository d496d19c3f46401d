//! Folders that results are written to, their paths, and lines of results that are read again.

use std::fs;
use std::path::{Path, PathBuf};

use runs::Error;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Creates `folder` with its parents, if it is not there.
///
/// # Errors
/// A folder that cannot be created.
pub fn create_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot create `{}`: {error}", folder.display()).into())
}

/// The path that names a folder from everywhere, as far as the system knows it.
pub fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}

/// The JSON objects in a file, one a line and at least one, each of them a `what`.
///
/// # Errors
/// A file that cannot be read, or a line that is something else.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Vec<T>, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let damaged = |reason| Error::Damaged { path: path.to_path_buf(), reason };
    let objects = lines.map(|(number, line)| {
        serde_json::from_str(line)
            .map_err(|error| damaged(format!("line {}: no {what}: {error}", number + 1)))
    });
    match objects.collect::<Result<Vec<T>, _>>()? {
        none if none.is_empty() => Err(damaged("it has no result".into())),
        objects => Ok(objects),
    }
}
