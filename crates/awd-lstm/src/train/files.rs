//! Writing files so that a crash leaves the old ones or the new ones, never half of each.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Writes `bytes` to `path` and waits until they are on the disk.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
}

/// Writes `value` to `path` as indented JSON.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| Error::Io {
        action: "write",
        path: path.to_path_buf(),
        source: error.into(),
    })?;
    text.push('\n');
    write(path, text.as_bytes())
}

/// Reads what [`write_json`] wrote.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Damaged { path: path.to_path_buf(), reason: error.to_string() })
}

/// Replaces the folder `target` by what `fill` writes into an empty one.
///
/// The new folder is filled beside the old one, put on the disk, and renamed into its place. A crash between the two
/// renames leaves no `target` but a complete new folder, which [`recover_folder`] moves into place.
pub(super) fn replace_folder(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (new, old) = (beside(target, "new"), beside(target, "old"));
    remove_folder(&new)?;
    fs::create_dir_all(&new).map_err(Error::io("create", &new))?;
    fill(&new)?;
    sync_folder(&new)?;
    remove_folder(&old)?;
    if target.exists() {
        fs::rename(target, &old).map_err(Error::io("rename", target))?;
    }
    fs::rename(&new, target).map_err(Error::io("rename", &new))?;
    if let Some(parent) = target.parent() {
        sync_folder(parent)?;
    }
    remove_folder(&old)
}

/// Finishes a [`replace_folder`] that was cut off between its two renames.
pub(super) fn recover_folder(target: &Path) -> Result<()> {
    let (new, old) = (beside(target, "new"), beside(target, "old"));
    // Without an old folder the new one may be half written: the first rename had not been reached.
    if !target.exists() && old.exists() && new.exists() {
        fs::rename(&new, target).map_err(Error::io("rename", &new))?;
    }
    Ok(())
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    target.with_added_extension(suffix)
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    // Only Unix lets a folder be opened and put on the disk; elsewhere renames are ordered by the system.
    if cfg!(unix) {
        File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("write", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(folder: &Path, text: &str) {
        replace_folder(folder, |new| write(&new.join("a"), text.as_bytes())).unwrap();
    }

    fn entries(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_replaced_whole() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("checkpoint");
        filled(&folder, "one");
        filled(&folder, "two");
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "two");
        assert_eq!(entries(root.path()), ["checkpoint"]);
    }

    #[test]
    fn a_failed_fill_leaves_the_old_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("checkpoint");
        filled(&folder, "one");
        let failed = replace_folder(&folder, |new| {
            write(&new.join("a"), b"half")?;
            Err(Error::EmptyFile { path: new.to_path_buf() })
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "one");
        filled(&folder, "two");
        assert_eq!(entries(root.path()), ["checkpoint"]);
    }

    #[test]
    fn a_cut_off_replacement_is_finished() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("checkpoint");
        filled(&beside(&folder, "old"), "one");
        filled(&beside(&folder, "new"), "two");
        recover_folder(&folder).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "two");
        // A new folder alone may be incomplete.
        let other = root.path().join("other");
        filled(&beside(&other, "new"), "half");
        recover_folder(&other).unwrap();
        assert!(!other.exists());
    }
}
