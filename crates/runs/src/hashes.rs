//! SHA-256 of the files of a folder, noted in its `hashes.json`: a file that was changed or damaged since is noticed when it is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hmac_sha256::Hash as Sha256;

use crate::error::{Error, Result};
use crate::files;

/// The file with the hashes.
pub const HASHES: &str = "hashes.json";

/// The hashes that each file may have. There are two only while a file is being replaced: of the new content and of the old, which
/// is [`ABSENT`] if there was no old file.
type Hashes = BTreeMap<String, Vec<String>>;

/// In the place of a hash: there need not be such a file yet.
const ABSENT: &str = "";

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::hash(bytes))
}

/// Hexadecimal digits, two a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Notes the hashes of these files of `folder`, and of no others.
pub(crate) fn note(folder: &Path, names: &[&str]) -> Result<()> {
    let mut hashes = Hashes::new();
    for name in names {
        let path = folder.join(name);
        if let Some(bytes) = files::if_found(fs::read(&path), "read", &path)? {
            hashes.insert((*name).to_string(), vec![sha256(&bytes)]);
        }
    }
    files::replace_json(&folder.join(HASHES), &hashes)
}

/// Notes the hashes of all files of `folder`.
pub(crate) fn note_all(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| name != HASHES).collect();
    note(folder, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Puts `bytes` in the place of the file `name` of `folder`, and their hash in the place of its hash. At any moment the file has
/// one of the hashes that are noted.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let mut hashes = read(folder)?;
    let hash = sha256(bytes);
    let old = fs::read(&path).map_or(ABSENT.to_string(), |old| sha256(&old));
    hashes.insert(name.to_string(), vec![hash.clone(), old]);
    files::replace_json(&folder.join(HASHES), &hashes)?;
    files::replace(&path, bytes)?;
    hashes.insert(name.to_string(), vec![hash]);
    files::replace_json(&folder.join(HASHES), &hashes)
}

/// Removes the file `name` of `folder`, if there is one, and its hash. At any moment the file is one that is noted, or none need be.
pub(crate) fn remove(folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(name);
    let mut hashes = read(folder)?;
    let Some(noted) = hashes.get_mut(name) else { return Ok(()) };
    noted.push(ABSENT.to_string());
    files::replace_json(&folder.join(HASHES), &hashes)?;
    files::if_found(fs::remove_file(&path), "remove", &path)?;
    hashes.remove(name);
    files::replace_json(&folder.join(HASHES), &hashes)
}

/// The content of the file `name` of `folder`, checked; `None` if there is none and none is noted.
///
/// # Errors
/// [`Error::Damaged`] if it is not what was noted; [`Error::Io`].
pub(crate) fn checked(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    // Another process may be replacing it.
    for _ in 0..3 {
        if let Ok(found) = looked_at(folder, name) {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    looked_at(folder, name)
}

/// Checks all files of `folder` whose hashes are noted, and that those of `names` have one if they are there.
pub(crate) fn check_all(folder: &Path, names: &[&str]) -> Result<()> {
    let noted = read(folder)?;
    let others = names.iter().copied().filter(|name| !noted.contains_key(*name));
    noted.keys().map(String::as_str).chain(others).try_for_each(|name| checked(folder, name).map(drop))
}

fn looked_at(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    let found = files::if_found(fs::read(&path), "read", &path)?;
    let damaged = |reason: &str| Err(Error::damaged(&path, reason));
    match (found, read(folder)?.get(name)) {
        (None, None) => Ok(None),
        (None, Some(noted)) if noted.iter().any(|hash| hash == ABSENT) => Ok(None),
        (None, Some(_)) => damaged("it is missing, but its hash is noted"),
        (Some(bytes), noted) if noted.is_some_and(|noted| noted.contains(&sha256(&bytes))) => Ok(Some(bytes)),
        (Some(bytes), _) => damaged(&format!(
            "its {} bytes are not those that were written; their SHA-256 is not the one in {HASHES}",
            bytes.len()
        )),
    }
}

fn read(folder: &Path) -> Result<Hashes> {
    let path = folder.join(HASHES);
    match path.is_file() {
        true => files::read_json(&path),
        false => Err(Error::damaged(&path, "it is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is killed between the note and the file leaves a folder that can be gone on with.
    #[test]
    fn a_file_that_was_to_be_written_first_may_be_absent() {
        let folder = tempfile::tempdir().unwrap();
        note(folder.path(), &[]).unwrap();
        let file = folder.path().join("new");
        fs::create_dir(&file).unwrap();
        assert!(replace(folder.path(), "new", b"content").is_err());
        fs::remove_dir(&file).unwrap();
        check_all(folder.path(), &[]).unwrap();
        replace(folder.path(), "new", b"content").unwrap();
        assert_eq!(checked(folder.path(), "new").unwrap().unwrap(), b"content");
        fs::remove_file(&file).unwrap();
        assert!(checked(folder.path(), "new").is_err());
    }
}
