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

/// Puts `value` as indented JSON in the place of the file `path`, as [`replace`] does.
pub(super) fn replace_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| Error::Io {
        action: "write",
        path: path.to_path_buf(),
        source: error.into(),
    })?;
    text.push('\n');
    replace(path, text.as_bytes())
}

/// Reads what [`replace_json`] wrote.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Damaged { path: path.to_path_buf(), reason: error.to_string() })
}

/// Waits until the file `path` is on the disk.
pub(super) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("write", path))
}

/// Puts `bytes` in the place of the file `path`, so that whoever reads it, whenever, finds the old bytes or the new ones.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = beside(path, "new");
    let written = write(&new, bytes)
        .and_then(|()| fs::rename(&new, path).map_err(Error::io("rename", &new)))
        .and_then(|()| sync_parent(path));
    if written.is_err() {
        // A half written file on a full disk is of no use to anybody.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Replaces the folder `target` by what `fill` writes into an empty one. One process at a time.
///
/// The new folder is filled beside the old one and put on the disk, the old one is renamed, then the new one. At every
/// instant one of the three is complete, and which one it is can be told from the names alone:
///
/// | `target` | `target.old` | `target.new` | complete |
/// |---|---|---|---|
/// | yes | any (a part perhaps) | any (a part perhaps) | `target` |
/// | no | yes | yes | `target.new`, and `target.old` |
/// | no | no | any (a part perhaps) | none was ever there |
///
/// [`recover_folder`] goes on from there.
pub(super) fn replace_folder(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (new, old) = (beside(target, "new"), beside(target, "old"));
    remove_folder(&new)?;
    let filled = fs::create_dir_all(&new)
        .map_err(Error::io("create", &new))
        .and_then(|()| fill(&new))
        .and_then(|()| sync_folder(&new))
        .and_then(|()| sync_parent(&new));
    if filled.is_err() {
        let _ = fs::remove_dir_all(&new);
        return filled;
    }
    remove_folder(&old)?;
    if target.exists() {
        fs::rename(target, &old).map_err(Error::io("rename", target))?;
    }
    fs::rename(&new, target).map_err(Error::io("rename", &new))?;
    sync_parent(target)?;
    remove_folder(&old)
}

/// Finishes a [`replace_folder`] that was cut off between its two renames.
pub(super) fn recover_folder(target: &Path) -> Result<()> {
    let (new, old) = (beside(target, "new"), beside(target, "old"));
    // Without an old folder the new one may be half written: the first rename had not been reached.
    if !target.exists() && old.exists() {
        let complete = if new.exists() { new } else { old };
        fs::rename(&complete, target).map_err(Error::io("rename", &complete))?;
        sync_parent(target)?;
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

/// Puts the name of a file or folder on the disk.
fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
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

    /// All there is after a process died: which of the three folders exist, and whether the new one is whole.
    #[test]
    fn a_replacement_that_was_cut_off_anywhere_is_recovered() {
        // (target, old, new) and what is found afterwards.
        let cases = [
            ([None, None, None], None),
            ([None, None, Some("half")], None),
            ([Some("one"), None, None], Some("one")),
            ([Some("one"), None, Some("half")], Some("one")),
            ([Some("one"), Some("half"), Some("two")], Some("one")),
            ([None, Some("one"), Some("two")], Some("two")),
            ([None, Some("one"), None], Some("one")),
            ([Some("two"), Some("one"), None], Some("two")),
        ];
        for (there, found) in cases {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("checkpoint");
            let paths = [folder.clone(), beside(&folder, "old"), beside(&folder, "new")];
            for (path, text) in paths.iter().zip(there) {
                if let Some(text) = text {
                    fs::create_dir(path).unwrap();
                    write(&path.join("a"), text.as_bytes()).unwrap();
                }
            }
            recover_folder(&folder).unwrap();
            assert_eq!(fs::read_to_string(folder.join("a")).ok().as_deref(), found, "{there:?}");
            // And the next one is made as ever.
            filled(&folder, "three");
            assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "three", "{there:?}");
            assert_eq!(entries(root.path()), ["checkpoint"], "{there:?}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("best.safetensors");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::create_dir(beside(&path, "new")).unwrap();
        assert!(replace(&path, b"three").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
