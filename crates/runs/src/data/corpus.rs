//! A corpus of three token streams with one vocabulary.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::fingerprint::Fingerprint;
use super::text::TextConfig;
use super::tokens::{TokenWriter, Tokens};
use super::vocabulary::{EOS, UNKNOWN, Vocabulary};
use crate::error::{Error, Result};

/// Training, validation and test text as token ids.
///
/// Every id is below `vocabulary.len()`. This is checked when the corpus is made, so training and evaluation rely on it.
#[derive(Debug, Clone)]
pub struct Corpus {
    vocabulary: Vocabulary,
    train: Tokens,
    valid: Vec<u32>,
    test: Vec<u32>,
    fingerprint: OnceLock<Fingerprint>,
}

/// How to read a token that the vocabulary lacks.
enum Words {
    /// Give it the next id.
    Collect,
    /// Refuse it.
    Require,
    /// Read it as the token with this id.
    Replace(u32),
}

/// A text of characters in one file: nine tenths for training, a twentieth each for validation and test.
const SINGLE: &str = "text8";
/// Its least length: with it, there is a token to predict in each of the three texts.
const SHORTEST_SINGLE: usize = 40;

impl Corpus {
    /// Reads the texts `train`, `valid` and `test` of `folder`.
    ///
    /// Each is a file (`train.txt`) in the format of the Penn Treebank files, or a folder of such files (`train/`), read
    /// in the order of their names. A training text in a folder stays on the disk, as a
    /// [`TokenFile`](super::TokenFile): it may be larger than memory. With [`characters`](TextConfig::characters), a
    /// single file `text8` will do, whose last tenth is the validation and test text.
    ///
    /// A folder may do without the test text, or have an empty file in its place; the text is then empty.
    ///
    /// The vocabulary is numbered by first appearance over the three texts in that order; with a largest
    /// [size](TextConfig::vocab_size), after [`UNKNOWN`] and [`EOS`], by frequency in the training text.
    ///
    /// # Errors
    /// [`Error::MissingFolder`], [`Error::MissingFile`], [`Error::TwoTexts`], [`Error::EmptyFile`],
    /// [`Error::FileTooShort`], [`Error::NotUtf8`] (with the line), [`Error::InvalidSetting`] or [`Error::Io`].
    pub fn load(folder: &Path, text: &TextConfig) -> Result<Self> {
        text.validate()?;
        Self::encode(&Texts::find(folder, text)?, text)
    }

    /// Reads the texts.
    pub(super) fn encode(texts: &Texts, text: &TextConfig) -> Result<Self> {
        let Texts { train, held_out } = texts;
        let mut reader = match text.vocab_size {
            Some(size) => {
                let vocabulary = most_frequent(texts, text, size)?;
                let unknown = vocabulary.id(UNKNOWN).expect("a vocabulary with a largest size has it");
                Reader { text, vocabulary, words: Words::Replace(unknown) }
            }
            None => Reader { text, vocabulary: Vocabulary::new(), words: Words::Collect },
        };
        let Some([valid, test]) = held_out else {
            return Self::split(reader.ids(&train.files)?, reader.vocabulary, &train.files[0]);
        };
        let train = match train.sharded {
            true => reader.on_disk(&train.files)?,
            false => Tokens::Memory(reader.ids(&train.files)?),
        };
        let (valid, test) = (reader.ids(&valid.files)?, reader.test(test)?);
        Ok(Self::of_parts(reader.vocabulary, train, valid, test))
    }

    /// Reads `valid` and `test` of `folder` with the vocabulary of a trained model; the training text stays empty, and so does a test
    /// text that is not there or has no word.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`Error::UnknownWord`] for a token that a vocabulary without largest size lacks.
    pub fn load_held_out(folder: &Path, vocabulary: Vocabulary, text: &TextConfig) -> Result<Self> {
        let words = match vocabulary.id(UNKNOWN) {
            Some(unknown) if text.vocab_size.is_some() => Words::Replace(unknown),
            _ => Words::Require,
        };
        let mut reader = Reader { text, vocabulary, words };
        if let Some(file) = single(folder, text)? {
            let ids = reader.ids(std::slice::from_ref(&file))?;
            let Self { vocabulary, valid, test, .. } = Self::split(ids, reader.vocabulary, &file)?;
            return Ok(Self::of_parts(vocabulary, Tokens::Memory(Vec::new()), valid, test));
        }
        let valid = reader.ids(&Source::find(folder, "valid")?.files)?;
        let test = reader.test(&Source::of_test(folder)?)?;
        Ok(Self::of_parts(reader.vocabulary, Tokens::Memory(Vec::new()), valid, test))
    }

    /// A corpus of ready-made token streams.
    ///
    /// # Errors
    /// [`Error::TokenOutOfVocabulary`] if an id is `vocabulary.len()` or more.
    pub fn from_ids(
        vocabulary: Vocabulary,
        train: Vec<u32>,
        valid: Vec<u32>,
        test: Vec<u32>,
    ) -> Result<Self> {
        let vocab = vocabulary.len();
        for (what, ids) in [("training text", &train), ("validation text", &valid), ("test text", &test)] {
            if let Some(index) = ids.iter().position(|&id| id as usize >= vocab) {
                return Err(Error::TokenOutOfVocabulary { what, index, id: ids[index], vocab });
            }
        }
        Ok(Self::of_parts(vocabulary, Tokens::Memory(train), valid, test))
    }

    pub(super) fn of_parts(vocabulary: Vocabulary, train: Tokens, valid: Vec<u32>, test: Vec<u32>) -> Self {
        Self { vocabulary, train, valid, test, fingerprint: OnceLock::new() }
    }

    /// The same corpus with its training text in another place.
    pub(super) fn with_train(self, train: Tokens) -> Self {
        Self { train, ..self }
    }

    /// The corpus of the single stream in a file: its last two twentieths are the validation and the test text.
    fn split(mut ids: Vec<u32>, vocabulary: Vocabulary, file: &Path) -> Result<Self> {
        let characters = ids.len();
        if characters < SHORTEST_SINGLE {
            return Err(Error::FileTooShort {
                path: file.to_path_buf(),
                characters,
                needed: SHORTEST_SINGLE,
            });
        }
        let twentieth = characters / 20;
        let test = ids.split_off(ids.len() - twentieth);
        let valid = ids.split_off(ids.len() - twentieth);
        Ok(Self::of_parts(vocabulary, Tokens::Memory(ids), valid, test))
    }

    /// The words.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The training text.
    pub fn train(&self) -> &Tokens {
        &self.train
    }

    /// The validation text.
    pub fn valid(&self) -> &[u32] {
        &self.valid
    }

    /// The test text.
    pub fn test(&self) -> &[u32] {
        &self.test
    }

    /// The largest id of the three texts; none if they are empty.
    pub(super) fn largest_id(&self) -> Option<u32> {
        let mut largest = self.valid.iter().chain(&self.test).max().copied();
        self.train.for_each_block(|ids| largest = largest.max(ids.iter().max().copied()));
        largest
    }

    /// Sizes and hashes, measured once.
    pub(super) fn fingerprint(&self) -> &Fingerprint {
        self.fingerprint
            .get_or_init(|| Fingerprint::measure(&self.vocabulary, &self.train, &self.valid, &self.test))
    }
}

impl Fingerprint {
    /// The fingerprint of `corpus`. The text is read for the first one only.
    pub fn of(corpus: &Corpus) -> Self {
        corpus.fingerprint().clone()
    }

    /// Whether this is the fingerprint of `corpus`.
    ///
    /// # Errors
    /// [`Error::DataChanged`] names the first part that differs; texts come before the vocabulary, which depends on them.
    pub fn check(&self, corpus: &Corpus) -> Result<()> {
        self.check_same(corpus.fingerprint())
    }
}

/// Where the texts of a data folder are.
pub(super) struct Texts {
    pub(super) train: Source,
    /// The validation and the test text; `None` if they are the end of the one file.
    pub(super) held_out: Option<[Source; 2]>,
}

impl Texts {
    pub(super) fn find(folder: &Path, text: &TextConfig) -> Result<Self> {
        Ok(match single(folder, text)? {
            Some(file) => Self { train: Source { files: vec![file], sharded: false }, held_out: None },
            None => Self {
                train: Source::find(folder, "train")?,
                held_out: Some([Source::find(folder, "valid")?, Source::of_test(folder)?]),
            },
        })
    }

    /// All files, in the order in which they are read.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let held_out = self.held_out.iter().flatten();
        std::iter::once(&self.train).chain(held_out).flat_map(|source| &source.files)
    }
}

/// The files of one text.
pub(super) struct Source {
    pub(super) files: Vec<PathBuf>,
    /// Whether they are the files of a folder.
    pub(super) sharded: bool,
}

impl Source {
    /// The test text, which a folder may do without: it then has no files.
    fn of_test(folder: &Path) -> Result<Self> {
        match Self::find(folder, "test") {
            Err(Error::MissingFile { .. }) => Ok(Self { files: vec![], sharded: false }),
            found => found,
        }
    }

    /// The text called `name` in `folder`, which exists: the file `name.txt` or the files in the folder `name`.
    fn find(folder: &Path, name: &str) -> Result<Self> {
        let (file, shards) = (folder.join(format!("{name}.txt")), folder.join(name));
        if file.exists() && shards.is_dir() {
            return Err(Error::TwoTexts { file, folder: shards });
        }
        if !shards.is_dir() {
            return match file.is_file() {
                true => Ok(Self { files: vec![file], sharded: false }),
                false => Err(Error::MissingFile { path: file }),
            };
        }
        let entries = std::fs::read_dir(&shards).map_err(Error::io("read", &shards))?;
        let mut files = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("read", &shards)))
            .collect::<Result<Vec<_>>>()?;
        let hidden =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        files.retain(|path| !hidden(path));
        files.sort();
        // Without one of them it would be another text.
        for path in &files {
            let found = std::fs::metadata(path).map_err(Error::io("read", path))?;
            if !found.is_file() {
                let no_file = "it is no file, as all in the folder of a text must be";
                return Err(Error::io("read", path)(std::io::Error::other(no_file)));
            }
        }
        if files.is_empty() {
            return Err(Error::EmptyFile { path: shards });
        }
        Ok(Self { files, sharded: true })
    }
}

/// The single file of a text of characters, if that is what `folder` holds.
fn single(folder: &Path, text: &TextConfig) -> Result<Option<PathBuf>> {
    if !folder.is_dir() {
        return Err(Error::MissingFolder { path: folder.to_path_buf() });
    }
    let file = folder.join(SINGLE);
    let names = ["train", "valid", "test"];
    let is_listed = |name: &str| folder.join(format!("{name}.txt")).symlink_metadata().is_ok();
    if !text.characters || !file.is_file() || names.into_iter().any(is_listed) {
        return Ok(None);
    }
    let mut shards = names.into_iter().map(|name| folder.join(name));
    match shards.find(|shards| shards.is_dir()) {
        Some(folder) => Err(Error::TwoTexts { file, folder }),
        None => Ok(Some(file)),
    }
}

/// Reads files as ids.
struct Reader<'a> {
    text: &'a TextConfig,
    vocabulary: Vocabulary,
    words: Words,
}

impl Reader<'_> {
    fn ids(&mut self, files: &[PathBuf]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.for_each(files, |id| {
            ids.push(id);
            Ok(())
        })?;
        Ok(ids)
    }

    /// The test text: a file without a word is as good as none.
    fn test(&mut self, source: &Source) -> Result<Vec<u32>> {
        match self.ids(&source.files) {
            Err(Error::EmptyFile { .. }) if !source.sharded => Ok(Vec::new()),
            read => read,
        }
    }

    fn on_disk(&mut self, files: &[PathBuf]) -> Result<Tokens> {
        let mut writer = TokenWriter::new()?;
        self.for_each(files, |id| writer.push(id))?;
        Ok(Tokens::Disk(writer.finish()?))
    }

    fn for_each(&mut self, files: &[PathBuf], mut each: impl FnMut(u32) -> Result<()>) -> Result<()> {
        let Self { text, vocabulary, words } = self;
        for path in files {
            text.for_each(path, |token, line| {
                each(match (vocabulary.id(token), &words) {
                    (Some(id), _) => id,
                    (None, Words::Collect) => vocabulary.insert(token),
                    (None, Words::Replace(id)) => *id,
                    (None, Words::Require) => {
                        let (path, word) = (path.to_path_buf(), token.to_string());
                        return Err(Error::UnknownWord { path, line, word, vocab: vocabulary.len() });
                    }
                })
            })?;
        }
        Ok(())
    }
}

/// [`UNKNOWN`], [`EOS`] if the training text has it, and its most frequent tokens, `size` in all; of equally frequent ones the first to
/// appear.
fn most_frequent(texts: &Texts, text: &TextConfig, size: usize) -> Result<Vocabulary> {
    let mut counter = Reader { text, vocabulary: Vocabulary::new(), words: Words::Collect };
    let mut counts: Vec<u64> = Vec::new();
    let mut count = |id: u32| {
        let id = id as usize;
        counts.resize(counts.len().max(id + 1), 0);
        counts[id] += 1;
        Ok(())
    };
    let files = &texts.train.files;
    match texts.held_out {
        Some(_) => counter.for_each(files, count)?,
        // The end of the one file is no training text.
        None => {
            let corpus = Corpus::split(counter.ids(files)?, Vocabulary::new(), &files[0])?;
            corpus.train.get(0..corpus.train.len()).into_iter().try_for_each(&mut count)?;
        }
    }
    let all = counter.vocabulary;
    // By first appearance: those of the training text come first.
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    order.sort_by_key(|&id| std::cmp::Reverse(counts[id as usize]));
    let mut vocabulary = Vocabulary::new();
    vocabulary.insert(UNKNOWN);
    if all.id(EOS).is_some_and(|id| (id as usize) < counts.len()) {
        vocabulary.insert(EOS);
    }
    for word in order.iter().filter_map(|&id| all.word(id)) {
        if vocabulary.len() == size {
            break;
        }
        vocabulary.insert(word);
    }
    Ok(vocabulary)
}

#[cfg(test)]
mod tests;
