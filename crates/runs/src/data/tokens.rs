//! A stream of token ids, in memory or on the disk.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::text::BLOCK_BYTES;
use crate::error::{Error, Result};

/// A text as token ids: in memory, or in a file if the corpus is larger than memory.
#[derive(Debug, Clone)]
pub enum Tokens {
    /// In memory.
    Memory(Vec<u32>),
    /// On the disk.
    Disk(TokenFile),
}

impl Tokens {
    /// The tokens `ids` in a file without a name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn on_disk(ids: &[u32]) -> Result<Self> {
        let mut writer = TokenWriter::new()?;
        ids.iter().try_for_each(|&id| writer.push(id))?;
        Ok(Self::Disk(writer.finish()?))
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(ids) => ids.len(),
            Self::Disk(file) => file.len,
        }
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens at `range`.
    ///
    /// # Panics
    /// If they are not all there, or a file of tokens cannot be read any more.
    pub fn get(&self, range: Range<usize>) -> Vec<u32> {
        match self {
            Self::Memory(ids) => ids[range].to_vec(),
            Self::Disk(file) => {
                let mut ids = vec![0; range.len()];
                file.read(range.start, &mut ids);
                ids
            }
        }
    }

    /// Hands all tokens to `each` in order, in blocks of bounded size.
    ///
    /// # Panics
    /// If a file of tokens cannot be read any more.
    pub fn for_each_block(&self, mut each: impl FnMut(&[u32])) {
        match self {
            Self::Memory(ids) => ids.chunks(BLOCK_TOKENS).for_each(each),
            Self::Disk(file) => {
                let mut block = vec![0; BLOCK_TOKENS.min(file.len)];
                for start in (0..file.len).step_by(BLOCK_TOKENS) {
                    let block = &mut block[..BLOCK_TOKENS.min(file.len - start)];
                    file.read(start, block);
                    each(block);
                }
            }
        }
    }
}

const BLOCK_TOKENS: usize = BLOCK_BYTES / size_of::<u32>();

/// Token ids in a file: one without a name, which is deleted with its last handle, or one of a [`TokenCache`](super::TokenCache). It
/// takes four bytes a token, without a cache in the folder for temporary files (`TMPDIR` chooses it).
#[derive(Debug, Clone)]
pub struct TokenFile {
    file: Arc<Mutex<File>>,
    len: usize,
}

impl TokenFile {
    /// The tokens of a file that holds nothing else.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("read", path))?;
        let bytes = file.metadata().map_err(Error::io("read", path))?.len();
        let word = size_of::<u32>() as u64;
        if bytes % word != 0 {
            return Err(Error::damaged(path, format!("{bytes} bytes are no list of 32-bit words")));
        }
        let len = usize::try_from(bytes / word)
            .map_err(|error| Error::io("read", path)(std::io::Error::other(error)))?;
        Ok(Self { file: Arc::new(Mutex::new(file)), len })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `ids` with the tokens that begin at `start`.
    ///
    /// # Panics
    /// If they are not all there, or the file cannot be read any more.
    pub fn read(&self, start: usize, ids: &mut [u32]) {
        let mut bytes = vec![0; size_of_val(ids)];
        let at = (start * size_of::<u32>()) as u64;
        // A reader that panicked left the file usable: every read seeks first.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.read_exact(&mut bytes))
            .unwrap_or_else(|error| panic!("cannot read the file of tokens at token {start}: {error}"));
        for (id, bytes) in ids.iter_mut().zip(bytes.as_chunks().0) {
            *id = u32::from_le_bytes(*bytes);
        }
    }
}

/// Writes a [`TokenFile`].
pub(super) struct TokenWriter {
    file: BufWriter<File>,
    len: usize,
}

impl TokenWriter {
    pub(super) fn new() -> Result<Self> {
        let file = tempfile::tempfile().map_err(Error::io("create a file in", &std::env::temp_dir()))?;
        Ok(Self { file: BufWriter::with_capacity(BLOCK_BYTES, file), len: 0 })
    }

    pub(super) fn push(&mut self, id: u32) -> Result<()> {
        self.len += 1;
        self.file.write_all(&id.to_le_bytes()).map_err(Error::io("write a file in", &std::env::temp_dir()))
    }

    pub(super) fn finish(self) -> Result<TokenFile> {
        let file = self.file.into_inner().map_err(|error| error.into_error());
        let file = file.map_err(Error::io("write a file in", &std::env::temp_dir()))?;
        Ok(TokenFile { file: Arc::new(Mutex::new(file)), len: self.len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_whole_text() {
        for length in [0, 1, BLOCK_TOKENS, 2 * BLOCK_TOKENS + 5] {
            let ids: Vec<u32> = (0..length as u32).map(|id| id.wrapping_mul(2_654_435_761)).collect();
            for tokens in [Tokens::Memory(ids.clone()), Tokens::on_disk(&ids).unwrap()] {
                assert_eq!((tokens.len(), tokens.is_empty()), (length, length == 0));
                let mut read = Vec::new();
                tokens.for_each_block(|block| {
                    assert!(block.len() <= BLOCK_TOKENS);
                    read.extend_from_slice(block);
                });
                assert!(read == ids, "{length}");
            }
        }
    }
}
