//! How a language model of LSTMs is trained.

use std::path::Path;

use awd_lstm::train::{LmTask, RunConfig, RunFolder, Trainer};
use burn::tensor::Device;
use program::failure::Failure;
use program::print::print_note;
use program::ranks::agree;
use program::statistics::grouped;
use runs::data::{Corpus, Vocabulary};
use runs::ranks::Ranks;

use crate::training::frequency;
use crate::training::held_out::require_test;
use crate::training::job::Kind;
use crate::training::vocabulary::words;

impl Kind for &Corpus {
    type Task = LmTask;

    fn vocabulary(&self) -> &Vocabulary {
        Corpus::vocabulary(self)
    }

    fn parameters(config: &RunConfig, _device: &Device) -> Result<usize, Failure> {
        Ok(config.model.num_params())
    }

    fn task(&self, config: &RunConfig, vocabulary: &Ranks, device: &Device) -> Result<LmTask, Failure> {
        if config.train.test {
            require_test(self, &config.data)?;
        }
        // What the options are called, the library does not know.
        if vocabulary.are_several() && config.model.clusters().is_some() {
            return Err(
                "a softmax with clusters is not made by a head whose vocabulary is shared out: leave --cutoffs out and take another \
                 head than adaptive, or leave --vocab-parallel out"
                    .into(),
            );
        }
        Ok(LmTask::among(vocabulary, &config.model, &config.train, self, device)?)
    }

    fn start(trainer: &mut Trainer, origin: &Path, ranks: &Ranks) -> Result<(), Failure> {
        let best = || -> Result<_, Failure> { Ok(RunFolder::open(origin)?.best_weights()?) };
        let weights = agree(ranks, best())?;
        agree(ranks, trainer.start_from(&weights).map_err(Failure::from))
    }

    fn announce(&self, config: &RunConfig, parameters: usize, place: &str) {
        print_note(format_args!(
            "{} with {} parameters, {} training tokens, {place}",
            config.model.head,
            grouped(parameters),
            grouped(self.train().len()),
        ));
        print_note(words(&config.text, self));
        frequency::note(&config.model, self).iter().for_each(print_note);
    }

    fn characters(config: &RunConfig) -> bool {
        config.text.characters
    }
}
