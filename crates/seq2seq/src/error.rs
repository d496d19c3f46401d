//! The crate's error type. Every message is a single line: what was wrong, where, and what would be right.

use std::path::PathBuf;

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong while dialogues are read and settings are checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that language models have too: a file that cannot be read, a setting out of range, an unknown name.
    #[error(transparent)]
    Base(#[from] runs::Error),

    /// The data folder does not exist.
    #[error("data folder `{}` does not exist; it should hold train.jsonl, valid.jsonl and test.jsonl", path.display())]
    MissingFolder {
        /// The folder that was asked for.
        path: PathBuf,
    },

    /// One of the three data files is not there, or is a folder.
    #[error("there is no file `{}`; a data folder holds train.jsonl, valid.jsonl and test.jsonl", path.display())]
    MissingFile {
        /// The file that was looked for.
        path: PathBuf,
    },

    /// A data file holds no dialogue.
    #[error("data file `{}` is empty; it should hold dialogues, one JSON object a line", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },

    /// A line of a data file is wrong.
    #[error("data file `{}`, line {line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        fault: Fault,
    },

    /// A line of a file of references is not of the test text's next response.
    #[error("data file `{}`, line {line}: {fault}", path.display())]
    OtherReferences {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// How it differs.
        fault: Fault,
    },

    /// A file of references ends too early.
    #[error("data file `{}` has references for {found} responses, but the test text has {expected}", path.display())]
    TooFewReferences {
        /// The file.
        path: PathBuf,
        /// Responses that have references.
        found: usize,
        /// Responses of the test text.
        expected: usize,
    },

    /// A vocabulary does not begin with the special tokens of dialogues.
    #[error("`{}` is not a vocabulary of dialogues: its first words must be {expected}", path.display())]
    ForeignVocabulary {
        /// The file.
        path: PathBuf,
        /// The special tokens in order, separated by commas.
        expected: String,
    },
}

/// What is wrong with a line of a data file, or with a dialogue, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);
