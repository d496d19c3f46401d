use std::path::Path;

use awd_lstm::HeadKind;
use burn::module::Module;

use runs::testing::{self, without_times};
use runs::{EndReason, Extended, Extension, FinalMetrics, Fitted, Notes, Silent, distance};

use super::*;
use crate::config::{Preset, StopConfig};
use crate::data::DialogConfig;
use crate::synthetic::{Language, LanguageConfig, Sizes};
use crate::testing::with_fixed_weights;
use crate::train::{RunConfig, RunFolder, fingerprint, mean_nll};

mod among;

/// A corpus of a tiny language.
fn corpus(folder: &Path) -> Corpus {
    let language =
        LanguageConfig { words: 12, utterances: 10, classes: 3, max_words: 3, ..Default::default() };
    let language = Language::new(language).unwrap();
    language.write_corpus(folder, Sizes { train: 12, valid: 2, test: 2 }, 1).unwrap();
    Corpus::load(folder, &DialogConfig::default()).unwrap()
}

fn model(corpus: &Corpus, head: HeadKind) -> ModelConfig {
    ModelConfig {
        d_embedding: 6,
        d_utterance: 5,
        d_context: 6,
        d_decoder: 8,
        components: 2,
        window: 3,
        dropout: 0.0,
        ..Preset::Small.model(head, corpus.vocabulary().len())
    }
}

fn train() -> TrainConfig {
    let stop = StopConfig { patience: 50, ..StopConfig::default() };
    TrainConfig { batch: 12, run: 6, updates: 4, epochs: 2, lr: 1e-2, clip: 5.0, stop, seed: 3 }
}

/// A trainer with fixed first weights.
fn trainer<'a>(corpus: &'a Corpus, config: &TrainConfig) -> Trainer<'a> {
    let mut task = DialogTask::new(&model(corpus, HeadKind::Mos), config, corpus, &Device::flex()).unwrap();
    task.model = task.model.map(|model| with_fixed_weights(model, 0.3));
    Trainer::new(task).with_log_every(3)
}

fn run(path: &Path, corpus: &Corpus, config: &TrainConfig) -> RunFolder {
    RunFolder::create(path, &configuration(corpus, config), corpus.vocabulary()).unwrap()
}

fn configuration(corpus: &Corpus, config: &TrainConfig) -> RunConfig {
    testing::config(fingerprint(corpus), model(corpus, HeadKind::Mos), config.clone())
}

#[test]
fn a_handful_of_pairs_is_learned_by_heart() {
    let turns = [["do you like jazz", "yes i do"], ["how old are you", "ten"], ["is it cold", "not here no"]];
    let line = |[question, answer]: [&str; 2]| {
        format!("{{\"turns\": [[\"A\", \"{question}\"], [\"B\", \"{answer}\"], [\"A\", \"well\"]]}}\n")
    };
    let text: String = turns.map(line).concat();
    let folder = tempfile::tempdir().unwrap();
    for name in ["train", "valid", "test"] {
        std::fs::write(folder.path().join(format!("{name}.jsonl")), &text).unwrap();
    }
    let corpus = Corpus::load(folder.path(), &DialogConfig::default()).unwrap();
    for head in [HeadKind::Softmax, HeadKind::Mos] {
        // The first utterances answer the same nothing: three are equally right, and nothing else is.
        let config = TrainConfig { batch: 6, run: 2, updates: 300, epochs: 1, lr: 1e-2, ..train() };
        let model = ModelConfig { d_decoder: 16, ..model(&corpus, head) };
        let mut task = DialogTask::new(&model, &config, &corpus, &Device::flex()).unwrap();
        task.model = task.model.map(|model| with_fixed_weights(model, 0.5));
        let mut trainer = Trainer::new(task);
        trainer.fit(None, &mut Silent).unwrap();
        let best = trainer.best().unwrap();
        let tokens = corpus.train().response_tokens() as f64;
        let least = 3.0 * 3.0f64.ln() / tokens;
        let nll = mean_nll(best, corpus.test());
        assert!(nll > least * 0.99 && nll < least + 0.15, "{head}: {nll}, at least {least}");
        let id = |word: &str| corpus.vocabulary().id(word).unwrap();
        let pairs: Vec<_> = corpus.test().pairs().filter(|pair| pair.turn == 2).collect();
        let contexts = crate::data::Contexts::new(corpus.test(), &pairs, best.window());
        let found = best.respond(&contexts, &crate::generate::beam_search()).unwrap();
        assert_eq!(found[1][0].words, [id("ten")], "{head}");
        assert_eq!(found[2][0].words, ["not", "here", "no"].map(id), "{head}");
    }
}

#[test]
fn training_ends_by_the_rule_and_tests_the_best_model() {
    let data = tempfile::tempdir().unwrap();
    let corpus = corpus(data.path());
    // A learning rate that ruins the model at once: every validation is worse than the first.
    let stop = StopConfig { patience: 2, increase: 1, ..StopConfig::default() };
    let config = TrainConfig { epochs: 9, lr: 0.5, updates: 2, stop, ..train() };
    let mut notes = Notes::default();
    let mut trainer = trainer(&corpus, &config);
    let Fitted::Finished(metrics) = trainer.fit(None, &mut notes).unwrap() else { panic!() };
    assert_eq!(metrics.ended, EndReason::EarlyStop);
    assert!(notes.epochs.len() < 9 && trainer.state().epoch == notes.epochs.len());
    assert_eq!(metrics.best_epoch, trainer.state().best.unwrap().epoch);
    assert_eq!(metrics.test_ppl, Some(mean_nll(trainer.best().unwrap(), corpus.test()).exp()));
    assert_eq!(metrics.valid_ppl, trainer.state().task.best().unwrap().exp());
    // One at the end of every epoch.
    assert!(notes.intervals.iter().all(|interval| interval.step == 2 && interval.gradient_norm > 0.0));
    assert!(notes.intervals.iter().all(|interval| (0.0..=1.0).contains(&interval.share)));
}

fn refused_extension(folder: &RunFolder, change: &Extension) -> String {
    let before = (folder.config().unwrap(), folder.metrics().unwrap());
    let message = folder.extend(change).unwrap_err().to_string();
    assert_eq!((folder.config().unwrap(), folder.metrics().unwrap()), before);
    message
}

#[test]
fn an_extended_run_is_one_that_was_started_for_longer() {
    let data = tempfile::tempdir().unwrap();
    let corpus = corpus(data.path());
    let root = tempfile::tempdir().unwrap();
    // A learning rate that ruins the model at once: the rule ends it after the first epoch that it may.
    let stop = |patience| StopConfig { patience, increase: 1, ..StopConfig::default() };
    let config = |epochs, patience| TrainConfig { epochs, lr: 0.5, stop: stop(patience), ..train() };
    let started = |name: &str, config: &TrainConfig| {
        let folder = run(&root.path().join(name), &corpus, config);
        let mut trainer = trainer(&corpus, config);
        let Fitted::Finished(last) = trainer.fit(Some(&folder), &mut Silent).unwrap() else { panic!() };
        (folder, trainer.model().valid(), last)
    };
    let (straight, expected, expected_last) = started("straight", &config(5, 4));
    assert_eq!(expected_last.ended, EndReason::EarlyStop);
    let (folder, ..) = started("extended", &config(2, 3));
    let epochs = |epochs| Extension { epochs: Some(epochs), ..Extension::default() };
    let patience = |patience| Extension { patience: Some(patience), ..Extension::default() };

    let refused = |change: &Extension| refused_extension(&folder, change);
    assert!(refused(&epochs(1)).ends_with("epochs is 1, but epoch 2 is done: give more"));
    assert!(refused(&patience(9)).ends_with("`: epoch 2 of 2 is done: give more epochs"));
    assert!(refused(&patience(2)).contains("patience is 2, but 3 in the run: it can only grow"));
    let minutes = Extension { max_minutes: Some(3.0), ..Extension::default() };
    assert!(refused(&minutes).contains("no limit of time"));
    let go_on = |folder: &RunFolder| {
        let mut trainer = trainer(&corpus, &folder.config().unwrap().train);
        assert!(trainer.restore(folder).unwrap());
        let Fitted::Finished(last) = trainer.fit(Some(folder), &mut Silent).unwrap() else { panic!() };
        (trainer.model().valid(), last)
    };
    assert_eq!(go_on(&folder.extend(&epochs(5)).unwrap()).1.ended, EndReason::EarlyStop);
    let message = refused(&epochs(9));
    assert!(
        message.ends_with("ended it after epoch 3, and its patience is 3: give a larger one than 3"),
        "{message}"
    );
    let (found, last) = go_on(&folder.extend(&patience(4)).unwrap());
    assert_eq!(distance(&found, &expected), 0.0);
    assert_eq!(
        FinalMetrics { seconds: 0.0, tokens_per_s: 0.0, ..last },
        FinalMetrics { seconds: 0.0, tokens_per_s: 0.0, ..expected_last }
    );
    assert_eq!(without_times(&folder.metrics().unwrap()), without_times(&straight.metrics().unwrap()));
    assert_eq!(without_times(&folder.steps().unwrap()), without_times(&straight.steps().unwrap()));
    let change = |after_epoch, setting: &str, from: usize, to: usize| Extended {
        after_epoch,
        setting: setting.into(),
        from: from.into(),
        to: to.into(),
    };
    let expected = [change(2, "train.epochs", 2, 5), change(3, "train.stop.patience", 3, 4)];
    assert_eq!(folder.config().unwrap().extensions, expected);
}

#[test]
fn a_damaged_optimiser_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let corpus = corpus(data.path());
    let root = tempfile::tempdir().unwrap();
    let folder = run(root.path(), &corpus, &train());
    trainer(&corpus, &train()).fit(Some(&folder), &mut Notes::stopping_after(3)).unwrap();
    let path = folder.checkpoint().join(OPTIMISER);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let longer = folder.extend(&Extension { epochs: Some(7), ..Extension::default() }).unwrap();
    let message = trainer(&corpus, &longer.config().unwrap().train).restore(&longer).unwrap_err().to_string();
    assert!(message.starts_with(&format!("`{}` is damaged: ", path.display())), "{message}");
    assert_eq!(folder.config().unwrap().train.epochs, 2);
    std::fs::write(&path, bytes).unwrap();
    assert!(trainer(&corpus, &train()).restore(&folder).unwrap());
}

#[test]
fn a_trainer_checks_its_texts_and_settings() {
    let data = tempfile::tempdir().unwrap();
    let corpus = corpus(data.path());
    let new = |model: &ModelConfig, config: &TrainConfig| {
        DialogTask::new(model, config, &corpus, &Device::flex()).err().unwrap().to_string()
    };
    let right = model(&corpus, HeadKind::Mos);
    let vocab = ModelConfig { vocab: 99, ..right.clone() };
    assert!(new(&vocab, &train()).contains("vocab is 99, but must be the number of words of the corpus"));
    assert!(new(&right, &TrainConfig { lr: 0.0, ..train() }).contains("lr is 0"));
    let empty =
        Corpus::load_held_out(data.path(), corpus.vocabulary().clone(), &DialogConfig::default()).unwrap();
    let message = DialogTask::new(&right, &train(), &empty, &Device::flex()).err().unwrap().to_string();
    assert!(message.contains("pairs of the training text is 0"), "{message}");
}
