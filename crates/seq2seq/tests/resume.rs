//! Training with dropout that was stopped and resumed. In a file of its own: the random numbers of the CPU's backend are those of
//! all threads of a process, so no other test may draw meanwhile.
#![cfg(feature = "flex")]

use std::path::Path;

use awd_lstm::HeadKind;
use burn::tensor::Device;
use runs::testing::{self, fit_with_stops};
use seq2seq::config::StopConfig;
use seq2seq::data::{Corpus, DialogConfig};
use seq2seq::synthetic::{Language, LanguageConfig, Sizes};
use seq2seq::train::{DialogTask, RunConfig, Trainer, fingerprint};
use seq2seq::{ModelConfig, Preset, Seq2Seq, TrainConfig};

#[test]
fn a_run_that_was_stopped_anywhere_ends_in_the_same_bits_with_dropout() {
    let data = tempfile::tempdir().unwrap();
    let language =
        LanguageConfig { words: 12, utterances: 10, classes: 3, max_words: 3, ..Default::default() };
    let sizes = Sizes { train: 12, valid: 2, test: 2 };
    Language::new(language).unwrap().write_corpus(data.path(), sizes, 1).unwrap();
    let corpus = Corpus::load(data.path(), &DialogConfig::default()).unwrap();
    let config = |dropout| -> RunConfig {
        let model = ModelConfig {
            d_embedding: 6,
            d_utterance: 5,
            d_context: 6,
            d_decoder: 8,
            components: 2,
            dropout,
            ..Preset::Small.model(HeadKind::Mos, corpus.vocabulary().len())
        };
        let train = TrainConfig {
            batch: 12,
            updates: 4,
            epochs: 2,
            lr: 1e-2,
            stop: StopConfig { patience: 9, ..StopConfig::default() },
            ..Preset::Small.train()
        };
        testing::config(fingerprint(&corpus), model, train)
    };
    // The weights after training and those of the best model, as bytes, and the metrics without times.
    let fit = |path: &Path, config: &RunConfig, start: Option<&Seq2Seq>, stops: &[usize]| {
        let task = || DialogTask::new(&config.model, &config.train, &corpus, &Device::flex()).unwrap();
        let made = fit_with_stops(path, config, corpus.vocabulary(), || Trainer::new(task()), start, stops);
        assert_eq!(made.1.len(), config.train.epochs + 1);
        made
    };
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let whole = fit(&path("whole"), &config(0.3), None, &[]);
    assert!(whole.0 != fit(&path("without"), &config(0.0), None, &[]).0);
    for (name, stops) in [("once", &[2][..]), ("at the end", &[4]), ("often", &[1, 0, 2, 3])] {
        assert!(fit(&path(name), &config(0.3), None, stops) == whole, "{stops:?}");
    }

    // A model that comes with numbers of its own for its parameters, which are those of the optimiser's state.
    let given = config(0.3).model.try_init(&Device::flex().autodiff()).unwrap();
    let straight = fit(&path("given"), &config(0.3), Some(&given), &[]);
    assert!(straight.0 != whole.0);
    assert!(fit(&path("given, often"), &config(0.3), Some(&given), &[1, 2]) == straight);
}
