//! The crate's error type. Every message is a single line: what was wrong, where, and what would be right.

use std::path::{Path, PathBuf};

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

    /// One of the three data files does not exist.
    #[error("data file `{}` does not exist; a data folder holds train.jsonl, valid.jsonl and test.jsonl", path.display())]
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

/// What is wrong with a line of a data file, or with a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not UTF-8.
    #[error("not UTF-8 text")]
    NotUtf8,

    /// More bytes than a line may have.
    #[error("longer than {limit} bytes; a line holds one JSON object")]
    TooLong {
        /// The most bytes of a line.
        limit: usize,
    },

    /// Not JSON.
    #[error("not JSON, at column {column}: {reason}")]
    NotJson {
        /// Where it stops being JSON, counted in bytes from 1.
        column: usize,
        /// The parser's reason.
        reason: String,
    },

    /// A JSON value is of another type than it must be.
    #[error("{place} is {found}, but must be {expected}")]
    WrongType {
        /// Which value, such as `the text of turn 3`.
        place: String,
        /// Its type, with an article.
        found: &'static str,
        /// The right type, with an article.
        expected: &'static str,
    },

    /// An object lacks a field.
    #[error("the field `{field}` is missing")]
    MissingField {
        /// Its name.
        field: &'static str,
    },

    /// A turn is not a pair.
    #[error("turn {turn} has length {length}, but must be a pair: [speaker, text]")]
    NotAPair {
        /// The turn, counted from 1.
        turn: usize,
        /// The length of its list.
        length: usize,
    },

    /// A dialogue has no response: one needs an utterance to answer.
    #[error("too few turns: {turns}; a dialogue has at least 2")]
    TooFewTurns {
        /// Number of turns.
        turns: usize,
    },

    /// The name of a speaker is empty.
    #[error("turn {turn} has no speaker")]
    NoSpeaker {
        /// The turn, counted from 1.
        turn: usize,
    },

    /// An utterance has no token.
    #[error("turn {turn} has no word")]
    NoWord {
        /// The turn, counted from 1.
        turn: usize,
    },

    /// More speakers than two.
    #[error("turn {turn} is by a third speaker, `{speaker}`; a dialogue has two, here `{}` and `{}`", known[0], known[1])]
    ThirdSpeaker {
        /// The turn, counted from 1.
        turn: usize,
        /// Its speaker, shortened.
        speaker: String,
        /// The speakers before, shortened.
        known: [String; 2],
    },

    /// References stand at the place of another response.
    #[error(
        "references for turn {} of dialogue {}, but the test text's next response is turn {} of dialogue {}",
        found.turn, found.dialogue, expected.turn, expected.dialogue
    )]
    WrongPair {
        /// The response that the line names.
        found: Place,
        /// The response of the test text at this line.
        expected: Place,
    },

    /// References for more responses than there are.
    #[error("one line too many: the test text has {expected} responses")]
    TooManyReferences {
        /// Responses of the test text.
        expected: usize,
    },

    /// A response has no reference.
    #[error("no reference")]
    NoReference,

    /// A reference is empty.
    #[error("reference {reference} has no word")]
    EmptyReference {
        /// The reference, counted from 1.
        reference: usize,
    },

    /// The first reference is not the response that the test text has there.
    #[error("the first reference is not the response of the test text")]
    NotTheResponse,
}

/// Where a response stands in a data file: both numbers as in the files of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The dialogue, counted from 0.
    pub dialogue: u64,
    /// The turn, counted from 1.
    pub turn: u64,
}

impl Fault {
    /// An [`Error::Line`].
    pub fn at(self, path: &Path, line: usize) -> Error {
        Error::Line { path: path.to_path_buf(), line, fault: self }
    }
}
