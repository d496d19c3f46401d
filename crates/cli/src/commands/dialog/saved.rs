//! The best model of a saved run.

use std::path::Path;

use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::statistics::grouped;
use runs::data::{Part, Vocabulary};
use runs::load_weights;
use seq2seq::data::{SPECIAL, load_vocabulary};
use seq2seq::train::{RunConfig, RunFolder};
use seq2seq::{ModelConfig, Seq2Seq};

/// A saved run.
pub struct Saved {
    pub folder: RunFolder,
    pub config: RunConfig,
    pub vocabulary: Vocabulary,
}

impl Saved {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let folder = RunFolder::open(path)?;
        let config = folder.config()?;
        let vocabulary = folder.vocabulary()?;
        load_vocabulary(&path.join("vocab.txt"))?;
        let words = vocabulary.words().iter().flat_map(|word| [word.as_bytes(), b"\n"]);
        if Part::of(vocabulary.len(), words) != config.corpus.vocabulary {
            return Err(format!(
                "`{}` is not the vocabulary of the run: it has other words than the model was trained on",
                path.join("vocab.txt").display()
            )
            .into());
        }
        Ok(Self { folder, config, vocabulary })
    }

    /// The best model, on a device.
    pub fn model(&self, device: DeviceChoice) -> Result<Seq2Seq, Failure> {
        let device = device::open(device::resolve(device))?;
        Ok(load_weights(self.config.model.try_init(&device)?, &self.folder.best_weights()?)?)
    }
}

/// Words as text, with blanks between them.
pub fn text(words: &[u32], vocabulary: &Vocabulary) -> String {
    let words = words.iter().filter_map(|&word| vocabulary.word(word));
    words.collect::<Vec<_>>().join(" ")
}

/// A model in a few words.
pub fn summary(model: &ModelConfig) -> String {
    format!(
        "{} with {} parameters, {} of them in the head, {} words",
        model.head,
        grouped(model.num_params()),
        grouped(model.head_params()),
        // What a text can hold.
        grouped(model.vocab - SPECIAL.len())
    )
}
