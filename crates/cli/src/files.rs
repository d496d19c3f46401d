//! Folders that results are written to, and their paths.

use std::fs;
use std::path::{Path, PathBuf};

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
