//! Folders that results are written to.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Creates `folder` with its parents, if it is not there.
///
/// # Errors
/// A folder that cannot be created.
pub fn create_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot create `{}`: {error}", folder.display()).into())
}
