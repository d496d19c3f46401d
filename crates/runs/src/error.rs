//! The crate's error type. Every message is a single line: what was wrong, where, and what would be right.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::text::{comma_list, place};

/// Result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong while reading data, building a model, training it or reading it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write a file or folder.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `read`, `write`, `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// The data folder does not exist.
    #[error("data folder `{}` does not exist; it should hold train.txt, valid.txt and test.txt", path.display())]
    MissingFolder {
        /// The folder that was asked for.
        path: PathBuf,
    },

    /// One of the three data files is not there, or is a folder.
    #[error("there is no file `{}`; a data folder holds train.txt, valid.txt and test.txt", path.display())]
    MissingFile {
        /// The file that was looked for.
        path: PathBuf,
    },

    /// A data file holds no word.
    #[error("data file `{}` is empty; it should hold text, one sentence a line", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },

    /// A text of characters in one file is too short to be parted.
    #[error(
        "data file `{}` has {characters} characters, but needs at least {needed}: its last two twentieths are the validation and the \
         test text",
        path.display()
    )]
    FileTooShort {
        /// The file.
        path: PathBuf,
        /// Its length.
        characters: usize,
        /// The least length.
        needed: usize,
    },

    /// A data folder has a text twice: in a file, and in a folder of files.
    #[error("`{}` and the folder `{}` are both there, and the text is one of them: move the other away", file.display(), folder.display())]
    TwoTexts {
        /// The file.
        file: PathBuf,
        /// The folder.
        folder: PathBuf,
    },

    /// A data file is not UTF-8 text.
    #[error("data file `{}`, line {line}: not UTF-8 text", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first bad line, counted from 1.
        line: usize,
    },

    /// A token stream cannot be cut into the columns that were asked for.
    #[error("{}", too_short(what, *tokens, *batch, *needed))]
    CorpusTooShort {
        /// Which stream, such as `the training text`.
        what: &'static str,
        /// Its length in tokens.
        tokens: usize,
        /// Columns that it was to be cut into.
        batch: usize,
        /// The least number of tokens for that many columns.
        needed: usize,
    },

    /// A text holds a word that the vocabulary of a trained model lacks.
    #[error("data file `{}`, line {line}: word `{word}` is not among the {vocab} words of the vocabulary", path.display())]
    UnknownWord {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The word.
        word: String,
        /// Size of the vocabulary.
        vocab: usize,
    },

    /// A token stream holds an id that is no word of the vocabulary.
    #[error("{what}: token {index} has the id {id}, but the vocabulary has {vocab} words, numbered from 0")]
    TokenOutOfVocabulary {
        /// Which stream.
        what: &'static str,
        /// Position in the stream, counted from 0.
        index: usize,
        /// The id found there.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },

    /// A name that stands for one of a few choices is none of them.
    #[error("unknown {what} `{given}`; known: {known}")]
    UnknownName {
        /// What the name should name: `preset`, `head`, `device`.
        what: &'static str,
        /// The name given.
        given: String,
        /// The names that exist, separated by commas.
        known: String,
    },

    /// A setting lies outside its range.
    #[error("{name} is {given}, but must be {expected}")]
    InvalidSetting {
        /// The setting's name.
        name: &'static str,
        /// The value given.
        given: String,
        /// The values that are allowed, in words.
        expected: &'static str,
    },

    /// A model of no size has as many parameters as were asked for.
    #[error("parameters is {parameters}, but {reason}")]
    Size {
        /// The number that was asked for.
        parameters: usize,
        /// What stands against it, and what may be given instead.
        reason: String,
    },

    /// The folder for a new run already holds one.
    #[error("`{}` already holds a run; choose another output folder", path.display())]
    RunExists {
        /// The folder.
        path: PathBuf,
    },

    /// A folder that should hold a saved run does not.
    #[error("`{}` is not a run folder: it has no {missing}", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// The file or folder that was looked for.
        missing: &'static str,
    },

    /// A run is of another kind than it should be.
    #[error("`{}` is a run of {found}, but this takes one of a {expected}", path.display())]
    OtherKind {
        /// The folder.
        path: PathBuf,
        /// Its kind.
        found: String,
        /// What it should have trained.
        expected: &'static str,
    },

    /// A run does not have the weights that were asked for.
    #[error("run `{}` has no {missing}", path.display())]
    NoWeights {
        /// The folder.
        path: PathBuf,
        /// Which weights, and why there are none.
        missing: &'static str,
    },

    /// Another process works on the run.
    #[error("`{}` is in use: another process is training this run", path.display())]
    RunInUse {
        /// The folder.
        path: PathBuf,
    },

    /// A run is to be resumed with other settings than it was started with.
    #[error(
        "cannot resume: {setting} is {now} now, but {before} in the run; leave it out or start a new run"
    )]
    ConfigChanged {
        /// The first setting that differs, as a path in `config.json`.
        setting: String,
        /// Its value in the run, as JSON.
        before: String,
        /// Its value now.
        now: String,
    },

    /// A run is to be extended in a way that leaves nothing to train.
    #[error("cannot extend `{}`: {reason}", path.display())]
    CannotExtend {
        /// The run's folder.
        path: PathBuf,
        /// Why not, and what would do.
        reason: String,
    },

    /// A run is to be used with other text than it was started with.
    #[error("{what} is not the one that the run was started with ({now} now, {before} then)")]
    DataChanged {
        /// What differs, such as `the training text`.
        what: &'static str,
        /// Size and hash in the run.
        before: String,
        /// Size and hash now.
        now: String,
    },

    /// A run was written by another version of the program, with another layout of the run folder.
    #[error(
        "`{}` has the run format {found}, but this program reads {expected}; {reader} reads it",
        path.display()
    )]
    RunFormat {
        /// The run's `config.json`.
        path: PathBuf,
        /// The format found there.
        found: u64,
        /// The format that this program reads.
        expected: u32,
        /// The version that reads the run.
        reader: &'static str,
    },

    /// A file of a run cannot be read.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, in one line.
        reason: String,
    },

    /// A checkpoint holds NaN or infinite weights.
    #[error("weights `{}`: tensor {tensor} holds a value that is not finite", path.display())]
    NonFiniteTensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },

    /// A file from PyTorch holds something else than a state dict.
    #[error(
        "`{}` holds {found} instead of a state dict (nothing of it was run); in PyTorch, beside the program that \
         wrote it: `torch.save(torch.load(FILE, weights_only=False).state_dict(), NEW_FILE)`",
        path.display()
    )]
    NotAStateDict {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
    },

    /// A file does not have exactly the tensors of a model.
    #[error("`{}` does not fit the model: {}", path.display(), some(problems))]
    WeightsMismatch {
        /// The file.
        path: PathBuf,
        /// Every tensor that is missing, left over or of another shape, one a string.
        problems: Vec<String>,
    },

    /// The training loss became NaN or infinite, or a weight did.
    #[error(
        "the {what} not finite in epoch {epoch}, at or before step {step} of {steps}: training stopped, \
         the last checkpoint is untouched; a lower learning rate may help"
    )]
    NonFiniteLoss {
        /// Which: `loss is` or `weights are`.
        what: &'static str,
        /// The epoch, counted from 1.
        epoch: usize,
        /// The step in the epoch at which it was seen, counted from 1.
        step: usize,
        /// Steps of that epoch.
        steps: usize,
    },

    /// The perplexity of held-out text is NaN or infinite.
    #[error(
        "the {what} perplexity is not finite {}",
        with_weights(*epoch, *step)
    )]
    NonFinitePerplexity {
        /// Which text: `validation` or `test`.
        what: &'static str,
        /// The epoch whose weights it is of, counted from 1; 0 is for those that training starts from.
        epoch: usize,
        /// The step of that epoch after which it was; `None` at its end.
        step: Option<usize>,
    },

    /// The perplexity became NaN or infinite in dynamic evaluation.
    #[error("the perplexity of {what} is not finite; a lower lr, or a larger eps, may help")]
    NonFiniteDynamicLoss {
        /// Which text.
        what: &'static str,
    },

    /// A batch has too few columns for the processes that are to share it.
    #[error(
        "{ranks} ranks{} cannot share a batch of {batch}: every {} needs at least one column",
        if *width > 1 { format!(" in groups of {width}") } else { String::new() },
        if *width > 1 { "group" } else { "rank" }
    )]
    TooManyRanks {
        /// Number of processes.
        ranks: usize,
        /// Processes of a group that shares a vocabulary.
        width: usize,
        /// Columns.
        batch: usize,
    },

    /// Processes cannot be parted into groups that share a vocabulary.
    #[error("--vocab-parallel is {width}, but must divide the number of ranks, which is {ranks}")]
    Groups {
        /// Number of processes.
        ranks: usize,
        /// Processes of a group.
        width: usize,
    },

    /// The processes of a training were started with different settings, texts or versions.
    #[error("rank {rank} differs from rank 0: {setting} is {other} there, but {first} at rank 0")]
    RankDiffers {
        /// The first process that differs.
        rank: usize,
        /// What differs, as a path in `config.json`.
        setting: String,
        /// Its value at rank 0, as JSON.
        first: String,
        /// Its value at that process.
        other: String,
    },

    /// A process of a training failed, not this one, or not as this one did.
    #[error("rank {rank}: {reason}")]
    RankFailed {
        /// The process.
        rank: usize,
        /// Its error.
        reason: String,
    },

    /// The processes of a training cannot reach each other.
    #[error("rank {rank}: {reason}")]
    Communication {
        /// The process that noticed it.
        rank: usize,
        /// What MPI says.
        reason: String,
    },

    /// A head was configured wrongly.
    #[error(transparent)]
    Head(#[from] highrank::HeadError),

    /// A vocabulary cannot be shared out.
    #[error(transparent)]
    Shard(#[from] highrank::shard::ShardError),

    /// Settings do not go together, each of which is in its range.
    #[error("{reason}")]
    Settings {
        /// Which, and what would do.
        reason: String,
    },
}

impl Error {
    /// An [`Error::Io`] for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// An [`Error::Damaged`].
    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_path_buf(), reason: reason.to_string() }
    }

    /// Whether every rank of a training has this error, if one has it: it follows from what they all know.
    pub fn is_everywhere(&self) -> bool {
        matches!(
            self,
            Self::NonFiniteLoss { .. }
                | Self::NonFinitePerplexity { .. }
                | Self::TooManyRanks { .. }
                | Self::Groups { .. }
                | Self::RankDiffers { .. }
                | Self::RankFailed { .. }
        )
    }

    /// An [`Error::UnknownName`] from the names of the choices.
    pub fn unknown_name(what: &'static str, given: &str, known: impl IntoIterator<Item: Display>) -> Self {
        Self::UnknownName { what, given: given.to_string(), known: comma_list(known) }
    }

    /// An [`Error::InvalidSetting`].
    pub fn invalid(name: &'static str, given: impl ToString, expected: &'static str) -> Self {
        Self::InvalidSetting { name, given: given.to_string(), expected }
    }
}

/// `Ok` if a setting is good, otherwise an [`Error::InvalidSetting`].
///
/// # Errors
/// If `good` is false.
pub fn check(good: bool, name: &'static str, value: impl Display, expected: &'static str) -> Result<()> {
    if good { Ok(()) } else { Err(Error::invalid(name, value, expected)) }
}

/// A text that is too short for its columns; one column is no batch.
fn too_short(what: &str, tokens: usize, batch: usize, needed: usize) -> String {
    match batch {
        1 => format!("{what} is too short: at least {needed} tokens are needed, but it has {tokens}"),
        _ => format!(
            "{what} is shorter than one batch: {tokens} tokens, but {batch} columns need at least {needed}"
        ),
    }
}

/// The weights of a perplexity, and what follows if training made them.
fn with_weights(epoch: usize, step: Option<usize>) -> String {
    match epoch {
        0 => "with the weights that training starts from".into(),
        _ => format!("after {}: training stopped, the last checkpoint is untouched", place(epoch, step)),
    }
}

/// A message of another library, whose lines and runs of blanks become single blanks.
pub(crate) fn one_line(message: &impl Display) -> String {
    message.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first of several problems in one line, and how many there are besides.
fn some(problems: &[String]) -> String {
    const MOST: usize = 5;
    let shown = problems[..problems.len().min(MOST)].join("; ");
    match problems.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
