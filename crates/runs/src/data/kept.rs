//! Encoded texts that are kept from one process to the next.
//!
//! A text of many gigabytes takes minutes to encode. A [`TokenCache`] keeps the ids, and the next process reads them in their
//! place, if no file of the text has changed its size or its time, and the ids still have the hashes that they were kept with.
//!
//! | file | |
//! |---|---|
//! | `NAME/kept.json` | which text this is, and its [`Fingerprint`] |
//! | `NAME/vocabulary.json` | the words, in the order of their ids |
//! | `NAME/train.ids`, `NAME/valid.ids`, `NAME/test.ids` | ids as little-endian 32-bit words |
//! | `NAME.lock` | locked by the process that is writing `NAME` |
//!
//! NAME is made of how the text is read, so one text takes the place of its older forms.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};

use super::corpus::{Corpus, Texts};
use super::fingerprint::Fingerprint;
use super::text::{BLOCK_BYTES, TextConfig};
use super::tokens::{TokenFile, Tokens};
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::files;
use crate::hashes::hex;

/// Where encoded texts are kept: see [`Corpus::load_kept`].
#[derive(Debug, Clone)]
pub struct TokenCache {
    /// May keep any number of texts and is made if it is not there; `None`: the folder `.encoded` of each data folder.
    pub folder: Option<PathBuf>,
    /// The size of a text that is kept: training, validation and test text together.
    pub min_bytes: u64,
    /// Whether only what is kept there already is read.
    pub read_only: bool,
}

/// What was done about keeping an encoded text.
#[derive(Debug)]
pub enum Kept {
    /// It was encoded and not to be kept: it is small, or the cache is to be read only.
    Encoded,
    /// It was read, not encoded.
    Read,
    /// It was encoded and kept for the next time.
    Written {
        /// What was wrong with the one that had been kept, if there was one, in one line.
        because: Option<String>,
    },
    /// It was encoded and could not be kept.
    Failed {
        /// Why, in one line.
        reason: String,
    },
}

/// Name of the folder beside the text.
const BESIDE: &str = ".encoded";
const MANIFEST: &str = "kept.json";
const VOCABULARY: &str = "vocabulary.json";
const TRAIN: &str = "train.ids";
const VALID: &str = "valid.ids";
const TEST: &str = "test.ids";

impl TokenCache {
    /// The size of a text, in bytes, from which on it is kept by default: below it is encoded within seconds.
    pub const MIN_BYTES: u64 = 1 << 26;

    /// The folder of a text, and the one that it is in.
    fn place(&self, data: &Path, text: &TextConfig) -> Result<Place> {
        let mut name = Sha256::new();
        let settings = serde_json::to_string(text).expect("settings of a text are plain values");
        name.update(settings);
        let folder = match &self.folder {
            None => data.join(BESIDE),
            Some(folder) => {
                // Several data folders may share it.
                let whole = fs::canonicalize(data).map_err(Error::io("read", data))?;
                name.update(whole.as_os_str().as_encoded_bytes());
                folder.clone()
            }
        };
        let name = hex(&name.finalize()[..8]);
        Ok(Place { lock: folder.join(format!("{name}.lock")), kept: folder.join(name), folder })
    }
}

impl Corpus {
    /// As [`load`](Self::load), but a large text is encoded once and then read from where it is kept. It is read if it was encoded
    /// with the same settings, no file has another size or time of change, and all its [hashes](Fingerprint) are those that it was
    /// kept with; whoever changes a file and sets its time back is not noticed.
    ///
    /// The kept text takes four bytes a token. One process writes it at a time, under another name until it is complete. A folder
    /// that cannot be written, or a full disk, is no error: the text is then encoded each time.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_kept(folder: &Path, text: &TextConfig, cache: &TokenCache) -> Result<(Self, Kept)> {
        text.validate()?;
        let texts = Texts::find(folder, text)?;
        let manifest = || Manifest::of(folder, &texts, text);
        let before = manifest()?;
        if before.bytes() < cache.min_bytes {
            return Ok((Self::encode(&texts, text)?, Kept::Encoded));
        }
        let place = cache.place(folder, text)?;
        if !cache.read_only {
            place.recover();
        }
        let because = match place.read(&before, &texts) {
            Ok(Some(corpus)) => return Ok((corpus, Kept::Read)),
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        let corpus = Self::encode(&texts, text)?;
        if cache.read_only {
            return Ok((corpus, Kept::Encoded));
        }
        if manifest()? != before {
            let reason = "the text changed while it was read".to_string();
            return Ok((corpus, Kept::Failed { reason }));
        }
        match place.write(&corpus, before) {
            // From now on in the named file: the one without a name gives its room back.
            Ok(()) => Ok(match (corpus.train(), TokenFile::open(&place.kept.join(TRAIN))) {
                (Tokens::Disk(old), Ok(new)) if old.len() == new.len() => {
                    (corpus.with_train(Tokens::Disk(new)), Kept::Written { because })
                }
                _ => (corpus, Kept::Written { because }),
            }),
            Err(error) => Ok((corpus, Kept::Failed { reason: error.to_string() })),
        }
    }
}

/// Which text was encoded, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    text: TextConfig,
    files: Vec<Stamp>,
    /// Of what was made of them.
    #[serde(default)]
    corpus: Option<Fingerprint>,
}

/// A file of text and what tells that it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    /// In the data folder.
    path: PathBuf,
    bytes: u64,
    /// Time of the last change, in nanoseconds since 1970; 0 where the system has no such time.
    modified: u64,
}

impl Manifest {
    // 2: several byte-order marks are no part of a word, and a `text8` has the vocabulary of its training part.
    const FORMAT: u32 = 2;

    fn of(folder: &Path, texts: &Texts, text: &TextConfig) -> Result<Self> {
        let files = texts.files().map(|path| Stamp::of(folder, path)).collect::<Result<_>>()?;
        Ok(Self { format: Self::FORMAT, text: text.clone(), files, corpus: None })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl Stamp {
    fn of(folder: &Path, path: &Path) -> Result<Self> {
        let data = fs::metadata(path).map_err(Error::io("read", path))?;
        let time = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            path: path.strip_prefix(folder).unwrap_or(path).to_path_buf(),
            bytes: data.len(),
            modified: time.map_or(0, |time| time.as_nanos() as u64),
        })
    }
}

/// The place of one text in a cache.
struct Place {
    /// The cache.
    folder: PathBuf,
    /// The folder of the text.
    kept: PathBuf,
    lock: PathBuf,
}

impl Place {
    /// Finds what a process left that died while it replaced the text. A folder that cannot be written keeps nothing, and another
    /// process that is writing there finishes by itself.
    fn recover(&self) {
        if !self.kept.exists()
            && self.folder.is_dir()
            && let Ok(_lock) = self.lock()
        {
            let _ = files::recover_folder(&self.kept);
        }
    }

    /// The text that is kept here, if it is the one that `now` describes; nothing if none is kept.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    fn read(&self, now: &Manifest, texts: &Texts) -> Result<Option<Corpus>, String> {
        let manifest = self.kept.join(MANIFEST);
        if !manifest.exists() {
            return Ok(None);
        }
        let found: Manifest = files::read_json(&manifest).map_err(|error| error.to_string())?;
        let Some(fingerprint) = found.corpus.clone() else {
            return Err(format!("`{}` has no hashes", manifest.display()));
        };
        if (Manifest { corpus: None, ..found }) != *now {
            return Err(format!("the text is not the one that `{}` was made of", self.kept.display()));
        }
        let corpus = self.corpus(texts.train.sharded).map_err(|error| error.to_string())?;
        let damaged = |what: &str| format!("`{}` is damaged: {what}", self.kept.display());
        if let Some((what, [before, now])) = fingerprint.difference(corpus.fingerprint()) {
            return Err(damaged(&format!("{what} is not the one that was kept ({now} now, {before} then)")));
        }
        if corpus.largest_id().is_some_and(|id| id as usize >= corpus.vocabulary().len()) {
            return Err(damaged("an id is that of no word"));
        }
        Ok(Some(corpus))
    }

    fn corpus(&self, on_disk: bool) -> Result<Corpus> {
        let open = |name: &str| TokenFile::open(&self.kept.join(name)).map(Tokens::Disk);
        let ids = |name: &str| open(name).map(|tokens| tokens.get(0..tokens.len()));
        let vocabulary: Vocabulary = files::read_json(&self.kept.join(VOCABULARY))?;
        let train = if on_disk { open(TRAIN)? } else { Tokens::Memory(ids(TRAIN)?) };
        Ok(Corpus::of_parts(vocabulary, train, ids(VALID)?, ids(TEST)?))
    }

    /// Keeps a text here in the place of the one before.
    fn write(&self, corpus: &Corpus, manifest: Manifest) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        let _lock = self.lock()?;
        let manifest = Manifest { corpus: Some(corpus.fingerprint().clone()), ..manifest };
        files::replace_folder(&self.kept, |folder| {
            write_ids(&folder.join(TRAIN), corpus.train())?;
            for (name, ids) in [(VALID, corpus.valid()), (TEST, corpus.test())] {
                write_ids(&folder.join(name), &Tokens::Memory(ids.to_vec()))?;
            }
            files::replace_json(&folder.join(VOCABULARY), corpus.vocabulary())?;
            files::replace_json(&folder.join(MANIFEST), &manifest)
        })
    }

    fn lock(&self) -> Result<File> {
        let busy = || std::io::Error::other("another process is writing there");
        files::lock(&self.lock)?.ok_or_else(|| Error::io("lock", &self.lock)(busy()))
    }
}

fn write_ids(path: &Path, tokens: &Tokens) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(BLOCK_BYTES, File::create(path)?);
        let mut written = Ok(());
        tokens.for_each_block(|ids| {
            if written.is_ok() {
                written = ids.iter().try_for_each(|id| file.write_all(&id.to_le_bytes()));
            }
        });
        written?;
        file.into_inner().map_err(|error| error.into_error())?.sync_all()
    };
    write().map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests;
