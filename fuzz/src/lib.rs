//! What the fuzz targets share.

mod run;

use std::path::PathBuf;

pub use run::Run;
use tempfile::TempDir;

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("TMPDIR can be written to");
}

/// Writes a file of this thread's folder and returns its path. The next input replaces it.
pub fn file(name: &str, content: &[u8]) -> PathBuf {
    FOLDER.with(|folder| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("TMPDIR can be written to");
        path
    })
}

/// A damaged file: made up, or a whole one of which bytes are changed and the end is cut off.
pub fn damaged(whole: &[u8], input: &[u8]) -> Vec<u8> {
    let Some((how, input)) = input.split_first() else { return whole.to_vec() };
    if how % 4 == 0 {
        return input.to_vec();
    }
    let mut bytes = whole.to_vec();
    let changes = input.chunks_exact(3);
    if let (&[low, ..], 1) = (changes.remainder(), how % 4) {
        bytes.truncate(bytes.len() * usize::from(low) / 256);
    }
    for change in changes {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        // Headers are at the start, or, of a zip file, at the end.
        let at = if how & 4 == 0 { Some(at) } else { bytes.len().checked_sub(at + 1) };
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
            *byte = change[2];
        }
    }
    bytes
}

/// The input up to the first line `---`, and the rest.
pub fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut rest = input;
    std::array::from_fn(|_| {
        let end = rest.windows(5).position(|window| window == b"\n---\n");
        let (part, after) = match end {
            Some(end) => (&rest[..end + 1], &rest[end + 5..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = after;
        part
    })
}
