//! What a run consists of.

use std::path::{Path, PathBuf};

use runs::data::{Fingerprint, Part};
use runs::{Extended, Folder, RunSettings, unchanged};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{ModelConfig, TrainConfig};
use crate::data::{Corpus, DialogConfig, Pair, Split};
use crate::error::{Error, Result};

/// The folder of a run, with the files of a language model's: see [`Folder`]. Its `checkpoint/` also holds the optimiser's state in
/// `optimiser.bpk`.
pub type RunFolder = Folder<RunConfig>;

/// Everything that defines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The programs that made it.
    pub versions: Versions,
    /// The preset it started from.
    pub preset: String,
    /// The device it was started on.
    pub device: String,
    /// The data folder.
    pub data: PathBuf,
    /// Hashes of the dialogues in it. They must not change while the run lasts.
    pub corpus: Fingerprint,
    /// How the data is read.
    pub text: DialogConfig,
    /// The model.
    pub model: ModelConfig,
    /// The training procedure, with the seed.
    pub train: TrainConfig,
    /// What was changed since the run was started, oldest first: see [`Folder::extend`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extended>,
}

/// Versions of the programs that made a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// This crate.
    pub seq2seq: String,
    /// Burn.
    pub burn: String,
    /// The layout of the run folder.
    pub format: u32,
}

impl Versions {
    /// The layout that this version of the crate writes and reads.
    pub const FORMAT: u32 = 1;

    /// The versions of the running program.
    pub fn current() -> Self {
        Self {
            seq2seq: env!("CARGO_PKG_VERSION").to_string(),
            burn: awd_lstm::train::Versions::BURN.to_string(),
            format: Self::FORMAT,
        }
    }
}

impl RunConfig {
    /// Whether a run with this configuration can be resumed with the configuration `now`.
    ///
    /// # Errors
    /// [`ConfigChanged`](runs::Error::ConfigChanged) names the first setting of the device, the text, the model or the
    /// procedure that differs.
    pub fn check(&self, now: &Self) -> Result<()> {
        unchanged("device", &self.device, &now.device)?;
        unchanged("text", &self.text, &now.text)?;
        unchanged("model", &self.model, &now.model)?;
        Ok(unchanged("train", &self.train, &now.train)?)
    }

    /// Whether the run was started with the dialogues of `corpus`.
    ///
    /// # Errors
    /// [`DataChanged`](runs::Error::DataChanged) names the first part that differs.
    pub fn check_corpus(&self, corpus: &Corpus) -> Result<()> {
        match self.corpus.difference(&fingerprint(corpus)) {
            Some((what, [before, now])) => Err(runs::Error::DataChanged { what, before, now }.into()),
            None => Ok(()),
        }
    }
}

impl RunSettings for RunConfig {
    type Error = Error;

    fn check_format(path: &Path, content: &Value) -> Result<()> {
        let versions = &content["versions"];
        if versions["seq2seq"].is_null() {
            let path = path.parent().unwrap_or(path).to_path_buf();
            return Err(runs::Error::NotARun { path, missing: "model of dialogues" }.into());
        }
        match versions["format"].as_u64() {
            Some(found) if found != u64::from(Versions::FORMAT) => Err(runs::Error::RunFormat {
                path: path.to_path_buf(),
                found,
                expected: Versions::FORMAT,
                reader: "a newer version of highrank",
            }
            .into()),
            _ => Ok(()),
        }
    }

    fn validate(&self) -> Result<()> {
        self.text.validate()?;
        self.model.validate()?;
        self.train.validate()
    }

    fn vocab(&self) -> usize {
        self.model.vocab
    }
}

/// Sizes and hashes of the parts of a corpus: words, and all entries of the dialogues with their speakers.
pub fn fingerprint(corpus: &Corpus) -> Fingerprint {
    let words = corpus.vocabulary().words();
    Fingerprint {
        vocabulary: Part::of(words.len(), words.iter().flat_map(|word| [word.as_bytes(), b"\n"])),
        train: part(corpus.train()),
        valid: part(corpus.valid()),
        test: part(corpus.test()),
    }
}

/// The entries of a split. Each ends with `</s>` and the first of a dialogue is its mark, so nothing else separates them.
fn part(split: &Split) -> Part {
    let entries = || {
        (0..split.len()).flat_map(|dialogue| {
            (0..=split.utterances(dialogue)).map(move |turn| (Pair { dialogue, turn: 1 }, turn))
        })
    };
    let tokens = entries().map(|(first, turn)| split.entry(first.dialogue, turn).len()).sum();
    let bytes = entries().map(|(first, turn)| {
        let ids = split.entry(first.dialogue, turn).iter().flat_map(|id| id.to_le_bytes());
        ids.chain([u8::from(split.is_own(first, turn))]).collect::<Vec<u8>>()
    });
    Part::of(tokens, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(train: &[&str]) -> Corpus {
        let folder = tempfile::tempdir().unwrap();
        let held_out = r#"{"turns": [["A", "a b"], ["B", "b"]]}"#;
        for (name, text) in [("train", train.join("\n").as_str()), ("valid", held_out), ("test", held_out)] {
            std::fs::write(folder.path().join(format!("{name}.jsonl")), text).unwrap();
        }
        Corpus::load(folder.path(), &DialogConfig::default()).unwrap()
    }

    #[test]
    fn a_fingerprint_tells_words_dialogues_and_speakers_apart() {
        let first = r#"{"turns": [["A", "a b"], ["B", "b"], ["A", "a"], ["B", "a"]]}"#;
        let of = |train: &[&str]| fingerprint(&corpus(train));
        let base = of(&[first]);
        assert_eq!(base, of(&[first]));
        assert_eq!(base.train.length, 3 + 4 + 3 * 3);
        for other in [
            r#"{"turns": [["A", "a b"], ["B", "a"], ["A", "b"], ["B", "a"]]}"#,
            r#"{"turns": [["A", "a b"], ["B", "b"], ["B", "a"], ["B", "a"]]}"#,
        ] {
            let other = of(&[other]);
            assert_ne!(other.train, base.train);
            assert_eq!(base.difference(&other).unwrap().0, "the training text");
        }
        let two = [r#"{"turns": [["A", "a b"], ["B", "b"]]}"#, r#"{"turns": [["A", "a"], ["B", "a"]]}"#];
        assert_ne!(of(&two).train, base.train);
    }
}
