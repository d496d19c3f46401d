//! Files and folders that results are written to, and lines of results that are read again.
//!
//! No command writes over what it did not make. Each checks its files and folders here before its work begins, and writes a file as
//! [`replace`](runs::files::replace) does: beside it first, then renamed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use awd_lstm::train::RunFolder;
use clap::Args;
use runs::Error;
use runs::text::line_fault;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Whether output files that exist are replaced.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Force {
    /// Replace output files that exist.
    #[arg(long)]
    pub force: bool,
}

impl Force {
    /// Checks that the file `path` may be written.
    ///
    /// # Errors
    /// A file that exists, unless it is to be replaced; a folder in its place; or no folder to write it to.
    pub fn check(self, path: &Path) -> Result<(), Failure> {
        let (shown, parent) = (path.display(), path.parent().filter(|parent| !parent.as_os_str().is_empty()));
        if path.is_dir() {
            Err(format!("`{shown}` is a folder; name a file").into())
        } else if parent.is_some_and(|parent| !parent.is_dir()) {
            Err(format!("cannot write `{shown}`: its folder does not exist").into())
        } else if !self.force && fs::symlink_metadata(path).is_ok() {
            Err(format!("`{shown}` exists already; name another file, or replace it with --force").into())
        } else {
            Ok(())
        }
    }

    /// Checks that files of these names may be written to `folder`, which need not exist.
    ///
    /// # Errors
    /// As [`check`](Self::check), or a file in the place of the folder.
    pub fn check_in(self, folder: &Path, names: &[impl AsRef<Path>]) -> Result<(), Failure> {
        refuse_file(folder)?;
        match folder.is_dir() {
            true => names.iter().try_for_each(|name| self.check(&folder.join(name))),
            false => Ok(()),
        }
    }
}

/// Refuses a file where a folder is named, which need not exist.
///
/// # Errors
/// Something else than a folder at `path`.
pub fn refuse_file(path: &Path) -> Result<(), Failure> {
    match path.exists() && !path.is_dir() {
        true => Err(format!("`{}` is a file; name a folder", path.display()).into()),
        false => Ok(()),
    }
}

/// The folder of a run's text: the given one, or the one that the run's record names.
///
/// # Errors
/// A recorded folder that is not there any more: who did not name it is told how.
pub fn text_folder<'a>(given: Option<&'a Path>, recorded: &'a Path) -> Result<&'a Path, Failure> {
    match given {
        Some(given) => Ok(given),
        None if recorded.exists() => Ok(recorded),
        None => Err(format!(
            "data folder `{}` does not exist; the run was made from it: name its new place with --data",
            recorded.display()
        )
        .into()),
    }
}

/// Checks that the folder `path` is new, or holds nothing but files and folders that are `own`, by their names, a lock, and a log that
/// the command's output may go to.
///
/// # Errors
/// Something in it that is not; a file in its place; a folder that cannot be read.
pub fn check_folder(path: &Path, own: impl Fn(&str) -> bool) -> Result<(), Failure> {
    refuse_file(path)?;
    if !path.is_dir() {
        return Ok(());
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.map_err(Error::io("read", path))?.into_iter();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let log = |name: &str| name == "lock" || name.starts_with("log.") || name.ends_with(".log");
    match names.filter(|name| !log(name) && !own(name)).min() {
        None => Ok(()),
        Some(name) => {
            let shown = path.display();
            Err(format!("`{shown}` holds `{name}`; name a folder that is new or empty").into())
        }
    }
}

/// Checks that a new run may be put into the folder `path`: it is new, empty, or was left by a start that was cut off.
///
/// # Errors
/// [`Error::RunExists`], or as [`check_folder`].
pub fn check_run_folder(path: &Path) -> Result<(), Failure> {
    if RunFolder::exists(path) {
        return Err(Error::RunExists { path: path.to_path_buf() }.into());
    }
    // A start makes its lock first: without it, such files are not its own.
    let was_started = path.join("lock").is_file();
    let left = ["vocab.txt", "hashes.json", "best"];
    check_folder(path, |name| was_started && (left.contains(&name) || name.starts_with(".replacing-")))
}

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

/// The last part of a path, or all of one that ends in none, such as `..`.
pub fn last_part(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
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
            .map_err(|error| damaged(format!("line {}: no {what}: {}", number + 1, line_fault(&error))))
    });
    match objects.collect::<Result<Vec<T>, _>>()? {
        none if none.is_empty() => Err(damaged("it has no result".into())),
        objects => Ok(objects),
    }
}

/// Creates an empty folder under `runs/` with a name that begins with `name`. Programs that are started side by side get one each.
///
/// If none can be created, it is the first that is not there: who writes to it will say what is wrong.
pub fn fresh_folder(name: &str) -> PathBuf {
    fresh_in(Path::new("runs"), name)
}

fn fresh_in(folder: &Path, name: &str) -> PathBuf {
    let taken = |path: &Path| match fs::create_dir(path) {
        Ok(()) => false,
        Err(error) => error.kind() == ErrorKind::AlreadyExists || path.exists(),
    };
    // Whatever is wrong is found below.
    let _ = fs::create_dir_all(folder);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_string())
        .chain(numbered)
        .map(|name| folder.join(name))
        .find(|path| !taken(path))
        .expect("there is no end of numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_side_by_side_get_a_folder_each() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("runs");
        let mut made = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(|| fresh_in(&folder, "a")));
            threads.map(|thread| thread.join().unwrap())
        });
        made.sort();
        assert!(
            made.windows(2).all(|pair| pair[0] != pair[1]) && made.iter().all(|path| path.is_dir()),
            "{made:?}"
        );
        assert_eq!(fresh_in(&folder, "a"), folder.join("a-9"));
        // A file in its place is said by whoever writes to it.
        fs::write(root.path().join("file"), "").unwrap();
        assert_eq!(fresh_in(&root.path().join("file"), "a"), root.path().join("file/a"));
    }
}
