//! Files that are replaced as a whole.

use std::fs;
use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::exit::Failure;

/// Puts `bytes` in the place of `path`, so that whoever looks at it sees the old file or the new one.
///
/// # Errors
/// A file that cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(bytes)?;
        // Temporary files are for their owner alone; a result is for whoever may read the folder.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
}
