//! What a run of dialogues consists of, and its procedure as a trainer knows it.

use runs::data::{Fingerprint, Part};
use runs::{Common, EndReason, Extension, Folder, Procedure, Settings, TrainerState};

use crate::config::{EarlyStop, ModelConfig, TrainConfig};
use crate::data::{Corpus, DialogConfig, Pair, Split};

/// Runs of dialogues, the kind `seq2seq`. A run's `checkpoint/` also holds the optimiser's state in `optimiser.bpk`.
#[derive(Debug, Clone, PartialEq)]
pub enum Dialogues {}

/// Everything that defines a run.
pub type RunConfig = runs::RunConfig<Dialogues>;

/// The state of a trainer of dialogues.
pub type DialogState = TrainerState<EarlyStop>;

/// The folder of a run.
pub type RunFolder = Folder<Dialogues>;

impl Settings for Dialogues {
    const KIND: &'static str = "seq2seq";
    const TRAINS: &'static str = "model of dialogues";

    type Text = DialogConfig;
    type Model = ModelConfig;
    type Train = TrainConfig;

    fn validate(text: &DialogConfig, model: &ModelConfig) -> runs::error::Result<()> {
        text.validate()?;
        model.validate()
    }

    fn vocab(model: &ModelConfig) -> usize {
        model.vocab
    }
}

/// `patience` of an [`Extension`] is that of [`StopConfig`](crate::config::StopConfig), the first epoch after which training may end. It can
/// only grow. There is no limit of time.
impl Procedure for TrainConfig {
    type State = EarlyStop;

    const CHANGEABLE: &'static [&'static str] = &["train.epochs", "train.stop.patience"];

    fn validate(&self) -> runs::error::Result<()> {
        Self::validate(self)
    }

    fn common(&self) -> Common {
        let Self { epochs, seed, clip, .. } = *self;
        Common { epochs, seed, clip, validate_every: None, max_minutes: None, test: true }
    }

    fn rule(&self, state: &DialogState) -> Option<EndReason> {
        let stop = state.task.clone().with_patience(self.stop.patience);
        (state.position.is_none() && stop.is_over()).then_some(EndReason::EarlyStop)
    }

    fn extend(&mut self, change: &Extension) -> Result<(), String> {
        if change.max_minutes.is_some() {
            return Err("its training has no limit of time".into());
        }
        let before = self.stop.patience;
        self.epochs = change.epochs.unwrap_or(self.epochs);
        self.stop.patience = change.patience.unwrap_or(before);
        // What was decided by the larger one cannot be taken back.
        match self.stop.patience {
            less if less < before => {
                Err(format!("patience is {less}, but {before} in the run: it can only grow"))
            }
            _ => Ok(()),
        }
    }

    fn over(&self, state: &DialogState) -> String {
        format!(
            "its validation losses ended it after epoch {}, and its patience is {}: give a larger one than {0}",
            state.epoch, self.stop.patience
        )
    }
}

/// Whether the run was started with the dialogues of `corpus`.
///
/// # Errors
/// [`DataChanged`](runs::Error::DataChanged) names the first part that differs.
pub fn check_corpus(config: &RunConfig, corpus: &Corpus) -> runs::error::Result<()> {
    config.corpus.check_same(&fingerprint(corpus))
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
