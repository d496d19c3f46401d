//! How a language model of LSTMs is trained, and what is said of its words.

use std::path::Path;

use awd_lstm::train::{LmTask, RunConfig, RunFolder, Trainer};
use awd_lstm::{ModelConfig, Preset, TrainConfig};
use burn::tensor::Device;
use program::device;
use program::failure::Failure;
use program::print::print_note;
use program::ranks::agree;
use program::statistics::grouped;
use runs::data::{Corpus, TextConfig, Vocabulary};
use runs::ranks::Ranks;

use crate::args::Overrides;
use crate::training::held_out::require_test;
use crate::training::job::Kind;

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
        rare_in_front(&config.model, self).iter().for_each(print_note);
    }

    fn characters(config: &RunConfig) -> bool {
        config.text.characters
    }
}

/// Refuses a run that training would refuse before its first step: its texts are missing or do not fill their columns, or its model, shared
/// by `vocab_parallel` ranks, needs more memory than there is.
pub fn check_run(config: &RunConfig, corpus: &Corpus, vocab_parallel: usize) -> Result<(), Failure> {
    if config.train.test {
        require_test(corpus, &config.data)?;
    }
    LmTask::check_texts(&config.train, corpus)?;
    device::check_room(config.device.parse()?, config.model.num_params() / vocab_parallel)
}

/// The procedure that finetunes after the procedure `origin` of a run that began with the preset `preset`, checked.
///
/// It is the run's own with averaging from the first step and the preset's learning rate for finetuning, which does not decay,
/// and `overrides`.
pub fn finetuning(preset: &str, origin: &TrainConfig, overrides: &Overrides) -> Result<TrainConfig, Failure> {
    let preset: Option<Preset> = preset.parse().ok();
    let mut train = origin.clone();
    train.lr = preset.map_or(train.lr, Preset::finetune_lr);
    train.lr_decay = None;
    train.average_from_start = true;
    let train = overrides.procedure(train)?;
    train.validate()?;
    if !train.average_from_start {
        return Err("train --from averages from the start: leave --average-from-start out".into());
    }
    Ok(train)
}

/// The vocabulary in words.
pub fn words(text: &TextConfig, corpus: &Corpus) -> String {
    let all = corpus.vocabulary().len();
    let kind = if text.characters { "characters" } else { "words" };
    // Those of the training text are numbered first, unless the size is bounded.
    let mut largest = None;
    corpus.train().for_each_block(|ids| largest = largest.max(ids.iter().max().copied()));
    let of = match (text.vocab_size, largest.map_or(0, |id| id as usize + 1)) {
        (Some(_), _) => ", the most frequent of the training text".to_string(),
        (None, training) if training < all => format!(
            ": {} of the training text and those of validation and test, as the papers' programs count",
            grouped(training)
        ),
        _ => String::new(),
    };
    format!("{} {kind}{of}", grouped(all))
}

/// Below this share of what the most frequent words would cover, words are not numbered by frequency.
const ENOUGH: f64 = 0.9;

/// What to say where the words that have gates of their own, or are in no cluster, are not the frequent ones of the training text.
fn rare_in_front(model: &ModelConfig, corpus: &Corpus) -> Option<String> {
    let words = model.favoured_words()?;
    let mut counts = vec![0u64; corpus.vocabulary().len()];
    corpus.train().for_each_block(|block| block.iter().for_each(|word| counts[*word as usize] += 1));
    let total: u64 = counts.iter().sum();
    let share = |counts: &[u64]| counts.iter().take(words).sum::<u64>() as f64 / total.max(1) as f64;
    let first = share(&counts);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let most = share(&counts);
    (first < ENOUGH * most).then(|| {
        format!(
            "note: the {words} words that the head {} takes for frequent are {:.0} % of the training text, its {words} most frequent \
             ones {:.0} %: --vocab-size {} numbers words by frequency",
            model.head,
            100.0 * first,
            100.0 * most,
            counts.len(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::HeadKind;

    /// A training text over so many words.
    fn corpus(words: usize, training: Vec<u32>) -> Corpus {
        let words: Vec<String> = (0..words).map(|word| format!("w{word}")).collect();
        Corpus::from_ids(words.into(), training, vec![0, 1], vec![0, 1]).unwrap()
    }

    /// Word `i` of ten occurs `counts[i]` times.
    fn counted(counts: [usize; 10]) -> Corpus {
        let ids = counts.iter().enumerate().flat_map(|(word, count)| vec![word as u32; *count]);
        corpus(counts.len(), ids.collect())
    }

    fn model(head: HeadKind, cutoffs: Vec<usize>) -> ModelConfig {
        ModelConfig { cutoffs, frequent: Some(3), ..ModelConfig::tiny(head, 10) }
    }

    #[test]
    fn words_that_training_never_meets_are_told() {
        let text = TextConfig::default();
        assert_eq!(
            words(&text, &corpus(1597, vec![0, 1224, 7])),
            "1,597 words: 1,225 of the training text and those of validation and test, as the papers' programs count"
        );
        assert_eq!(words(&text, &corpus(1597, vec![1596])), "1,597 words");
        let capped = TextConfig { vocab_size: Some(1597), characters: true, ..text };
        assert_eq!(
            words(&capped, &corpus(1597, vec![0])),
            "1,597 characters, the most frequent of the training text"
        );
    }

    #[test]
    fn rare_words_in_front_are_noted() {
        let rising = counted([1, 2, 3, 4, 5, 6, 7, 8, 9, 55]);
        let note = |head, cutoffs| rare_in_front(&model(head, cutoffs), &rising);
        assert_eq!(
            note(HeadKind::Mixtape, vec![]).unwrap(),
            "note: the 3 words that the head mixtape takes for frequent are 6 % of the training text, its 3 most frequent ones 72 %: \
             --vocab-size 10 numbers words by frequency"
        );
        assert!(note(HeadKind::Mos, vec![5]).unwrap().contains("the 5 words that the head mos"));
        // A head that favours none.
        assert_eq!(note(HeadKind::Softmax, vec![]), None);
    }

    #[test]
    fn frequent_words_in_front_are_not() {
        let falling = counted([55, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(rare_in_front(&model(HeadKind::Mixtape, vec![]), &falling), None);
        assert_eq!(rare_in_front(&model(HeadKind::Adaptive, vec![5]), &falling), None);
    }
}
