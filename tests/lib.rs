//! Reading the repository's own files, for the tests that do.

use std::fs;
use std::path::{Path, PathBuf};

/// The paths in a folder, in order.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = read.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The files below a folder whose names end so, in order: paths in it, and texts. `enter` says which folders are read, by their paths
/// in it.
pub fn files(folder: &Path, end: &str, enter: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let (mut found, mut open) = (vec![], vec![folder.to_path_buf()]);
    while let Some(path) = open.pop() {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().replace('\\', "/");
        if path.is_dir() && enter(&name) {
            open.extend(entries(&path).into_iter().rev());
        } else if name.ends_with(end) {
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    found
}
