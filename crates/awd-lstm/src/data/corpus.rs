//! A corpus of three token streams with one vocabulary.

use std::path::Path;

use super::vocabulary::{EOS, Vocabulary};
use crate::error::{Error, Result};

/// Training, validation and test text as word ids.
///
/// Every id is below `vocabulary.len()`: this is checked once, when the corpus is made, so that training
/// and evaluation need not check it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    vocabulary: Vocabulary,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

/// What to do with a word that the vocabulary lacks.
enum Words<'a> {
    Collect(&'a mut Vocabulary),
    Require(&'a Vocabulary),
}

impl Corpus {
    /// Reads `train.txt`, `valid.txt` and `test.txt` of `folder`, in the format of the Penn Treebank files.
    ///
    /// Each line is split on blanks and ended by [`EOS`]; the vocabulary is numbered by first appearance over
    /// the three files in that order.
    ///
    /// # Errors
    /// [`Error::MissingFolder`], [`Error::MissingFile`], [`Error::EmptyFile`], [`Error::NotUtf8`] (with the
    /// line) or [`Error::Io`].
    pub fn load(folder: &Path) -> Result<Self> {
        let mut vocabulary = Vocabulary::new();
        let train = read_split(folder, "train.txt", &mut Words::Collect(&mut vocabulary))?;
        let valid = read_split(folder, "valid.txt", &mut Words::Collect(&mut vocabulary))?;
        let test = read_split(folder, "test.txt", &mut Words::Collect(&mut vocabulary))?;
        Ok(Self { vocabulary, train, valid, test })
    }

    /// Reads `valid.txt` and `test.txt` of `folder` in the words of a trained model; the training text stays
    /// empty.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`Error::UnknownWord`] for a word that `vocabulary` lacks.
    pub fn load_held_out(folder: &Path, vocabulary: Vocabulary) -> Result<Self> {
        let valid = read_split(folder, "valid.txt", &mut Words::Require(&vocabulary))?;
        let test = read_split(folder, "test.txt", &mut Words::Require(&vocabulary))?;
        Ok(Self { vocabulary, train: Vec::new(), valid, test })
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
        Ok(Self { vocabulary, train, valid, test })
    }

    /// The words.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The training text.
    pub fn train(&self) -> &[u32] {
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
}

/// Reads one file of `folder` as word ids.
fn read_split(folder: &Path, name: &str, words: &mut Words<'_>) -> Result<Vec<u32>> {
    if !folder.is_dir() {
        return Err(Error::MissingFolder { path: folder.to_path_buf() });
    }
    let path = folder.join(name);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::MissingFile { path });
        }
        Err(error) => return Err(Error::io("read", &path)(error)),
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        // Count line ends in front of the bad byte; the bytes themselves need not be text for that.
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Error::NotUtf8 { path: path.clone(), line }
    })?;
    // A byte-order mark is no part of the first word.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);

    let mut ids = Vec::new();
    let mut empty = true;
    for (index, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            ids.push(id_of(words, word, &path, index + 1)?);
            empty = false;
        }
        ids.push(id_of(words, EOS, &path, index + 1)?);
    }
    if empty { Err(Error::EmptyFile { path }) } else { Ok(ids) }
}

fn id_of(words: &mut Words<'_>, word: &str, path: &Path, line: usize) -> Result<u32> {
    match words {
        Words::Collect(vocabulary) => Ok(vocabulary.insert(word)),
        Words::Require(vocabulary) => vocabulary.id(word).ok_or_else(|| Error::UnknownWord {
            path: path.to_path_buf(),
            line,
            word: word.to_string(),
            vocab: vocabulary.len(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(train: &[u8], valid: &[u8], test: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.txt"), train).unwrap();
        fs::write(folder.path().join("valid.txt"), valid).unwrap();
        fs::write(folder.path().join("test.txt"), test).unwrap();
        folder
    }

    #[test]
    fn splits_on_blanks_and_ends_every_line() {
        let folder = folder(b" the cat  sat \n\nthe\tdog\n", b"a cat", b"sat\r\nhere\n");
        let corpus = Corpus::load(folder.path()).unwrap();
        // Order of first appearance: the cat sat <eos> dog | a | here.
        assert_eq!(corpus.vocabulary().words(), ["the", "cat", "sat", EOS, "dog", "a", "here"]);
        assert_eq!(corpus.train(), [0, 1, 2, 3, 3, 0, 4, 3]);
        assert_eq!(corpus.valid(), [5, 1, 3]);
        assert_eq!(corpus.test(), [2, 3, 6, 3]);
    }

    #[test]
    fn names_what_is_wrong_with_a_file() {
        let good = b"a b\n".as_slice();
        let cases: [(&[u8], &str); 3] = [
            (b"a\nb \xff c\n", "test.txt`, line 2: not UTF-8"),
            (b"", "test.txt` is empty"),
            (b" \n\n", "test.txt` is empty"),
        ];
        for (bytes, expected) in cases {
            let message = Corpus::load(folder(good, good, bytes).path()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn tells_a_missing_file_from_a_missing_folder() {
        let folder = folder(b"a\n", b"a\n", b"a\n");
        fs::remove_file(folder.path().join("valid.txt")).unwrap();
        assert!(
            matches!(Corpus::load(folder.path()), Err(Error::MissingFile { path }) if path.ends_with("valid.txt"))
        );
        let nowhere = folder.path().join("nowhere");
        assert!(matches!(Corpus::load(&nowhere), Err(Error::MissingFolder { path }) if path == nowhere));
    }

    #[test]
    fn held_out_text_must_keep_to_the_vocabulary() {
        let folder = folder(b"", b"a b\nb a\n", b"a a\nb zebra\n");
        let vocabulary = Vocabulary::from(vec!["b".to_string(), "a".into(), EOS.into()]);
        let message = Corpus::load_held_out(folder.path(), vocabulary.clone()).unwrap_err().to_string();
        assert!(message.contains("test.txt`, line 2: word `zebra`"), "{message}");
        fs::write(folder.path().join("test.txt"), "a\n").unwrap();
        let corpus = Corpus::load_held_out(folder.path(), vocabulary).unwrap();
        assert_eq!(corpus.valid(), [1, 0, 2, 0, 1, 2]);
        assert_eq!(corpus.test(), [1, 2]);
    }

    #[test]
    fn ready_made_ids_are_checked() {
        let vocabulary = Vocabulary::from(vec!["a".to_string(), "b".into()]);
        let error = Corpus::from_ids(vocabulary.clone(), vec![0, 1], vec![1], vec![0, 1, 2]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test text: token 2 has the id 2, but the vocabulary has 2 words, 0 to 1"
        );
        assert!(Corpus::from_ids(vocabulary, vec![0, 1], vec![1], vec![0]).is_ok());
    }
}
