//! Training with dropout that was stopped and resumed. In a file of its own: the random numbers of the CPU's backend are those of
//! all threads of a process, so no other test may draw meanwhile.
#![cfg(feature = "flex")]

use std::fs;
use std::path::Path;

use awd_lstm::HeadKind;
use burn::tensor::Device;
use runs::{Fitted, Notes, Versions};
use seq2seq::config::StopConfig;
use seq2seq::data::{Corpus, DialogConfig};
use seq2seq::synthetic::{Language, LanguageConfig, Sizes};
use seq2seq::train::{DialogTask, RunConfig, RunFolder, Trainer, fingerprint};
use seq2seq::{ModelConfig, Preset, Seq2Seq, TrainConfig};

/// The weights after training and those of the best model, as bytes. Training starts from `start`, if it is given.
fn fit(
    path: &Path,
    corpus: &Corpus,
    config: &RunConfig,
    start: Option<&Seq2Seq>,
    stops: &[usize],
) -> [Vec<u8>; 2] {
    let mut folder = RunFolder::create(path, config, corpus.vocabulary()).unwrap();
    for &steps in stops.iter().chain([&usize::MAX]) {
        let mut trainer =
            Trainer::new(DialogTask::new(&config.model, &config.train, corpus, &Device::flex()).unwrap());
        let is_begun = trainer.restore(&folder).unwrap();
        if let (false, Some(start)) = (is_begun, start) {
            trainer.start_with(start.clone()).unwrap();
        }
        let fitted = trainer.fit(Some(&folder), &mut Notes::stopping_after(steps)).unwrap();
        assert_eq!(fitted == Fitted::Stopped, steps != usize::MAX);
        drop(folder);
        folder = RunFolder::resume(path).unwrap();
    }
    assert_eq!(folder.metrics().unwrap().lines().count(), config.train.epochs + 1);
    [folder.checkpoint().join("model.safetensors"), folder.best_weights().unwrap()]
        .map(|file| fs::read(file).unwrap())
}

#[test]
fn a_run_that_was_stopped_anywhere_ends_in_the_same_bits_with_dropout() {
    let data = tempfile::tempdir().unwrap();
    let language =
        LanguageConfig { words: 12, utterances: 10, classes: 3, max_words: 3, ..Default::default() };
    let sizes = Sizes { train: 12, valid: 2, test: 2 };
    Language::new(language).unwrap().write_corpus(data.path(), sizes, 1).unwrap();
    let corpus = Corpus::load(data.path(), &DialogConfig::default()).unwrap();
    let config = |dropout| RunConfig {
        versions: Versions::current(),
        preset: "small".into(),
        device: "flex".into(),
        data: data.path().into(),
        corpus: fingerprint(&corpus),
        finetunes: None,
        tokens: None,
        text: DialogConfig::default(),
        model: ModelConfig {
            d_embedding: 6,
            d_utterance: 5,
            d_context: 6,
            d_decoder: 8,
            components: 2,
            dropout,
            ..Preset::Small.model(HeadKind::Mos, corpus.vocabulary().len())
        },
        train: TrainConfig {
            batch: 12,
            updates: 4,
            epochs: 2,
            lr: 1e-2,
            stop: StopConfig { patience: 9, ..StopConfig::default() },
            ..Preset::Small.train()
        },
        extensions: vec![],
    };
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let whole = fit(&path("whole"), &corpus, &config(0.3), None, &[]);
    assert_ne!(whole, fit(&path("without"), &corpus, &config(0.0), None, &[]));
    for (name, stops) in [("once", &[2][..]), ("at the end", &[4]), ("often", &[1, 0, 2, 3])] {
        assert!(fit(&path(name), &corpus, &config(0.3), None, stops) == whole, "{stops:?}");
    }

    // A model that comes with numbers of its own for its parameters, which are those of the optimiser's state.
    let given = config(0.3).model.try_init(&Device::flex().autodiff()).unwrap();
    let straight = fit(&path("given"), &corpus, &config(0.3), Some(&given), &[]);
    assert!(straight != whole);
    assert!(fit(&path("given, often"), &corpus, &config(0.3), Some(&given), &[1, 2]) == straight);
}
