//! Files and folders that are replaced as a whole: a crash leaves the old content or the new one, never a part of each.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// How the names of temporary files begin.
const TEMPORARY: &str = ".replacing-";

/// Puts `bytes` in the place of the file `path`. Whoever reads the file at any time finds the old bytes or the new ones.
///
/// The bytes go to a temporary file in the same folder, which is synced to the disk and renamed. Several processes may replace
/// the same file at once.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written, or if its name is that of a folder, a pipe or a device. What was there is then
/// untouched, and nothing is left beside it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    // A rename would put a file in the place of a pipe or a device.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Error::io("write", path)(io::Error::other("it is not a regular file")));
    }
    let mut temporary = tempfile::Builder::new();
    temporary.prefix(TEMPORARY);
    // As for any new file, what the process's umask allows; by default a temporary file is for its owner alone.
    #[cfg(unix)]
    temporary.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let created = temporary.tempfile_in(folder_of(path)).map_err(without_path);
    let written = created.and_then(|mut file| {
        file.as_file_mut().write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map_err(Error::io("write", path))?;
    sync_folder(folder_of(path))
}

/// The error without the name of a temporary file, which is nobody's.
fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path ") {
        Some((reason, _)) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

/// Removes the temporary files that a process left in `folder` when it died within a [`replace`]. No other process may be
/// replacing files there.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_temporary(folder: &Path) -> Result<()> {
    for entry in if_found(fs::read_dir(folder), "read", folder)?.into_iter().flatten() {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.file_name().is_some_and(is_temporary) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Whether a temporary file of [`replace`] has this name.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
}

/// Puts `value` as indented JSON in the place of the file `path`, as [`replace`] does.
///
/// # Errors
/// As [`replace`].
pub fn replace_json(path: &Path, value: &impl Serialize) -> Result<()> {
    replace(path, &json(path, value)?)
}

/// `value` as indented JSON, for the file `path`.
pub(crate) fn json(path: &Path, value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::io("write", path)(error.into()))?;
    Ok((text + "\n").into_bytes())
}

/// Reads what [`replace_json`] wrote.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] if it is something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| Error::damaged(path, error))
}

/// Writes `bytes` to a new file `path` and waits until they are on the disk.
///
/// # Errors
/// [`Error::Io`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
}

/// Waits until the file `path` is on the disk.
///
/// # Errors
/// [`Error::Io`].
pub fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("write", path))
}

/// Locks the file `path`, created if it is not there, for this process; `None` if another process holds it. The system releases the
/// lock when the file is dropped or the process ends, however it ends.
///
/// # Errors
/// [`Error::Io`].
pub fn lock(path: &Path) -> Result<Option<File>> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let opened = opened.map_err(Error::io("create", path))?;
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
    }
}

/// Replaces the folder `target` by what `fill` writes into an empty one. Only one process may do so at a time.
///
/// The new folder is filled beside the old one and synced to the disk. Then the old folder is renamed, and after it the new one.
/// A complete folder always exists, and the names alone tell which one it is:
///
/// | `target` | `target.old` | `target.new` | complete |
/// |---|---|---|---|
/// | yes | perhaps, in parts | perhaps, in parts | `target` |
/// | no | yes | yes | `target.new` and `target.old` |
/// | no | yes | no | `target.old` |
/// | no | no | perhaps, in parts | none: there never was a folder |
///
/// [`recover_folder`] finishes a replacement that was cut off, here before another begins.
///
/// # Errors
/// [`Error::Io`], and those of `fill`; the old folder is then still there.
pub fn replace_folder(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    recover_folder(target)?;
    let [new, old] = ["new", "old"].map(|name| target.with_added_extension(name));
    remove_folder(&new)?;
    // Not its parents: a folder that was moved away is not made anew.
    let filled = fs::create_dir(&new)
        .map_err(Error::io("create", &new))
        .and_then(|()| fill(&new))
        .and_then(|()| sync_folder(&new))
        .and_then(|()| sync_folder(folder_of(&new)));
    if filled.is_err() {
        let _ = fs::remove_dir_all(&new);
        return filled;
    }
    remove_folder(&old)?;
    if target.exists() {
        fs::rename(target, &old).map_err(Error::io("rename", target))?;
    }
    fs::rename(&new, target).map_err(Error::io("rename", &new))?;
    sync_folder(folder_of(target))?;
    remove_folder(&old)
}

/// Finishes a [`replace_folder`] that was cut off between its two renames.
///
/// # Errors
/// [`Error::Io`].
pub fn recover_folder(target: &Path) -> Result<()> {
    let [new, old] = ["new", "old"].map(|name| target.with_added_extension(name));
    // Without an old folder the new one may be half written: the first rename had not been reached.
    if !target.exists() && old.exists() {
        let complete = if new.exists() { new } else { old };
        fs::rename(&complete, target).map_err(Error::io("rename", &complete))?;
        sync_folder(folder_of(target))?;
    }
    Ok(())
}

/// The complete folder, for who only reads: `target`, unless a [`replace_folder`] was cut off between its two renames. `None` if
/// there never was one.
pub(crate) fn complete_folder(target: &Path) -> Option<PathBuf> {
    let [new, old] = ["new", "old"].map(|name| target.with_added_extension(name));
    let is_between = || !target.exists() && old.exists();
    if is_between() {
        // A process at work is there for a moment only.
        std::thread::sleep(Duration::from_millis(20));
        if is_between() {
            return Some(if new.exists() { new } else { old });
        }
    }
    target.exists().then(|| target.to_path_buf())
}

/// The folder that holds `path`.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a folder with all that it holds, if it is there.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    if_found(fs::remove_dir_all(path), "remove", path).map(drop)
}

/// What an operation on `path` returned; `None` if nothing is there.
pub(crate) fn if_found<T>(done: io::Result<T>, action: &'static str, path: &Path) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some).map_err(Error::io(action, path)),
    }
}

/// Waits until the names in a folder are on the disk.
fn sync_folder(path: &Path) -> Result<()> {
    // Only Unix can open and sync a folder; elsewhere the system orders renames.
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
        // What holds it was moved away.
        assert!(replace_folder(&root.path().join("gone/checkpoint"), |_| Ok(())).is_err());
        assert_eq!(entries(root.path()), ["checkpoint"]);
    }

    #[test]
    fn a_fill_that_fails_leaves_what_a_process_before_it_left() {
        for (there, found) in [(["old", "new"].as_slice(), "new"), (&["old"], "old")] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("checkpoint");
            for name in there {
                let path = folder.with_added_extension(name);
                fs::create_dir(&path).unwrap();
                write(&path.join("a"), name.as_bytes()).unwrap();
            }
            let failed = replace_folder(&folder, |new| Err(Error::EmptyFile { path: new.to_path_buf() }));
            assert!(matches!(failed, Err(Error::EmptyFile { .. })), "{failed:?}");
            assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), found);
        }
    }

    /// What a process that died may leave: which of the three folders exist, and whether the new one is complete.
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
            let [old, new] = ["old", "new"].map(|name| folder.with_added_extension(name));
            let paths = [folder.clone(), old, new];
            for (path, text) in paths.iter().zip(there) {
                if let Some(text) = text {
                    fs::create_dir(path).unwrap();
                    write(&path.join("a"), text.as_bytes()).unwrap();
                }
            }
            let complete = complete_folder(&folder).map(|path| fs::read_to_string(path.join("a")).unwrap());
            assert_eq!(complete.as_deref(), found, "{there:?}");
            recover_folder(&folder).unwrap();
            assert_eq!(fs::read_to_string(folder.join("a")).ok().as_deref(), found, "{there:?}");
            // The next replacement works as usual.
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
        assert_eq!(entries(root.path()), ["best.safetensors"]);
        let folder = root.path().join("folder");
        filled(&folder, "old");
        let message = replace(&folder, b"new").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write `{}`: ", folder.display())), "{message}");
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "old");
        assert_eq!(entries(root.path()), ["best.safetensors", "folder"]);
        let nowhere = root.path().join("nowhere/file");
        let message = replace(&nowhere, b"new").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write `{}`: ", nowhere.display())), "{message}");
        assert!(!message.contains(TEMPORARY), "{message}");
    }

    #[test]
    fn a_reader_finds_one_whole_file_among_several_writers() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let content = |byte: u8| vec![byte; 1 << 18];
        replace(&path, &content(0)).unwrap();
        std::thread::scope(|scope| {
            let repeat = |byte| (0..20).for_each(|_| replace(&path, &content(byte)).unwrap());
            let writers = [1, 2, 3].map(|byte| scope.spawn(move || repeat(byte)));
            while writers.iter().any(|writer| !writer.is_finished()) {
                let found = fs::read(&path).unwrap();
                assert!(found == content(found[0]), "bytes of several writers");
            }
        });
        assert_eq!(entries(root.path()), ["file"]);
    }

    #[test]
    fn only_temporary_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        for name in [".replacing-x1", "best.safetensors", ".hidden"] {
            write(&root.path().join(name), b"").unwrap();
        }
        remove_temporary(root.path()).unwrap();
        assert_eq!(entries(root.path()), [".hidden", "best.safetensors"]);
        remove_temporary(&root.path().join("nowhere")).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [socket, "/dev/null".into()] {
            let message = replace(&path, b"new").unwrap_err().to_string();
            assert!(message.ends_with("it is not a regular file"), "{message}");
            assert!(!fs::metadata(&path).unwrap().is_file(), "{message}");
        }
        // A link to a file is.
        let [file, link] = ["file", "link"].map(|name| root.path().join(name));
        write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"new");
        assert_eq!(entries(root.path()), ["file", "link", "socket"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_is_for_everyone_that_the_system_allows() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(root.path().join(name)).unwrap().permissions().mode();
        replace(&root.path().join("replaced"), b"").unwrap();
        fs::write(root.path().join("written"), b"").unwrap();
        assert_eq!(mode("replaced"), mode("written"));
    }
}
