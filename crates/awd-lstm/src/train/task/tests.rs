//! A language model's training: what is its own of it. What every task has is tested with the trainer.

mod among;
mod reports;
mod rules;
mod shared;

use std::fs;
use std::sync::Mutex;

use runs::data::Fingerprint;
use runs::ranks::{Grid, threads};
use runs::testing::{self, AtEnd, NEVER, alone, assert_near, finished, near, train_among, without_times};
use runs::{EndReason, FinalMetrics, Fitted, Notes, StepMetrics, distance};

use super::*;
use crate::config::{DecayWhen, Dropouts, HeadKind, LrDecay, Preset};
use crate::testing::{corpus_of, weights};
use crate::train::{RunFolder, mean_nll};

fn corpus() -> Corpus {
    corpus_of(4000, 400)
}

/// No dropout: other tests draw from the same random numbers at the same time.
fn model(head: HeadKind) -> ModelConfig {
    ModelConfig::tiny(head, 30)
}

fn config(epochs: usize) -> TrainConfig {
    TrainConfig {
        batch: 8,
        bptt: 12,
        lr: 5.0,
        max_seq_len_delta: 10,
        eval_batch: 4,
        epochs,
        ..Preset::Small.train()
    }
}

fn trainer(config: &TrainConfig) -> Trainer {
    of_head(HeadKind::Mos, config)
}

fn of_head(head: HeadKind, config: &TrainConfig) -> Trainer {
    of_model(&model(head), config)
}

fn of_model(model: &ModelConfig, config: &TrainConfig) -> Trainer {
    Trainer::new(LmTask::new(model, config, &corpus(), &Device::flex()).unwrap())
}

/// Trains to the end. Returns the results, and what was reported.
fn fit(trainer: &mut Trainer, run: Option<&RunFolder>) -> (FinalMetrics, Notes) {
    let mut notes = Notes::default();
    let metrics = finished(trainer.fit(run, &mut notes).unwrap());
    (metrics, notes)
}

/// A run of `train` in a folder of its own.
fn run_of(train: &TrainConfig) -> (tempfile::TempDir, RunFolder) {
    run_of_model(&model(HeadKind::Mos), train)
}

fn run_of_model(model: &ModelConfig, train: &TrainConfig) -> (tempfile::TempDir, RunFolder) {
    let config = testing::config(Fingerprint::of(&corpus()), model.clone(), train.clone());
    let root = tempfile::tempdir().unwrap();
    let run = RunFolder::create(root.path(), &config, corpus().vocabulary()).unwrap();
    (root, run)
}

/// Trains as ranks of this [shape](train_among), from the run's checkpoint if it has one. `config` is that of a rank.
fn train(
    shape: (usize, usize),
    model: &ModelConfig,
    config: impl Fn(usize) -> TrainConfig + Sync,
    run: Option<&RunFolder>,
    stop: usize,
) -> Vec<AtEnd<LmTask>> {
    // First weights are drawn by one rank at a time.
    let fresh = Mutex::new(());
    let trainer = |grid: &Grid| {
        let _guard = fresh.lock().unwrap();
        let config = config(grid.all.rank());
        let task = LmTask::among(&grid.vocabulary, model, &config, &corpus(), &Device::flex());
        Trainer::new(task.unwrap()).with_log_every(8)
    };
    train_among(shape, trainer, run, stop)
}

#[test]
fn learns_and_reports() {
    let (last, notes) = fit(&mut trainer(&config(3)), None);
    let ppl: Vec<f64> = notes.epochs.iter().map(|metrics| metrics.valid_ppl).collect();
    // A uniform guess has perplexity 30.
    assert!(ppl.len() == 3 && ppl[0] < 30.0 && ppl[2] < ppl[0], "{ppl:?}");
    assert!(last.test_ppl.unwrap() < 30.0);
}

#[test]
fn training_perplexity_is_the_mean_over_all_tokens() {
    // Without learning, the training pass is an evaluation pass but for the rows that it may leave out.
    let config = TrainConfig { lr: 1e-12, alpha: 0.0, beta: 0.0, ..config(1) };
    let mut trainer = trainer(&config);
    let (_, notes) = fit(&mut trainer, None);
    let nll = notes.epochs[0].train_ppl.ln();
    let expected = mean_nll(&trainer.model().valid(), &trainer.task().train);
    assert!((nll - expected).abs() < 2e-3, "{nll} against {expected}");
}

/// Trains with dropout, once in one go and once with many stops, inside of epochs, before and within their evaluations, and at
/// their ends. Returns what was reported of the former.
fn stopped_anywhere(config: &TrainConfig, pauses: &[usize]) -> Notes {
    let mut model = model(HeadKind::Mos);
    model.dropouts =
        Dropouts { output: 0.2, hidden: 0.1, input: 0.2, latent: 0.1, embedding: 0.1, weight: 0.3 };
    let fresh = || of_model(&model, config).with_log_every(8);
    let (_root, straight_run) = run_of_model(&model, config);
    let mut straight = fresh();
    let (expected, notes) = fit(&mut straight, Some(&straight_run));

    let (_root, run) = run_of_model(&model, config);
    let mut stops = 0;
    let (resumed, got) = loop {
        let mut trainer = fresh();
        assert_eq!(trainer.restore(&run).unwrap(), stops > 0);
        match trainer.fit(Some(&run), &mut Notes::stopping_after(pauses[stops % pauses.len()])).unwrap() {
            Fitted::Finished(metrics) => break (trainer, metrics),
            Fitted::Stopped => stops += 1,
        }
    };
    assert!(stops > 10, "{stops}");
    assert_eq!(weights(resumed.model()), weights(straight.model()));
    assert_eq!(
        FinalMetrics { seconds: expected.seconds, tokens_per_s: expected.tokens_per_s, ..got },
        expected
    );
    let lines = |run: &RunFolder| [run.metrics(), run.steps()].map(|lines| without_times(&lines.unwrap()));
    assert_eq!(lines(&run), lines(&straight_run));
    let best = |run: &RunFolder| fs::read(run.best_weights().unwrap()).unwrap();
    assert!(best(&run) == best(&straight_run));
    notes
}

#[test]
fn training_that_was_stopped_anywhere_goes_on_to_the_same_bits() {
    alone(module_path!(), "training_that_was_stopped_anywhere_goes_on_to_the_same_bits", || {
        // With averaging from early on.
        let config = TrainConfig { nonmono: 0, lr: 40.0, ..config(5) };
        let notes = stopped_anywhere(&config, &[0, 1, 3, 19, 20, 21, 7, 50]);
        assert!(notes.epochs[3].averaging == Some(true), "averages should be part of it: {:?}", notes.epochs);
    });
}

/// Each is refused with one line, and an extension that fails so changes nothing.
#[test]
fn damaged_averages_and_states_are_noticed() {
    let config = TrainConfig { average_from_start: true, ..config(3) };
    let (root, run) = run_of(&config);
    trainer(&config).fit(Some(&run), &mut Notes::stopping_after(7)).unwrap();
    let settings = fs::read(root.path().join("config.json")).unwrap();
    for name in [AVERAGE, EPOCH, "model.safetensors", "state.json"] {
        let path = run.checkpoint().join(name);
        let good = fs::read(&path).unwrap();
        let mut bytes = good.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        for bytes in [&bytes, &good[..good.len() / 2]] {
            fs::write(&path, bytes).unwrap();
            let longer = runs::Extension { epochs: Some(7), ..Default::default() };
            let go_on = || -> Result<bool> {
                let run = run.extend(&longer)?;
                trainer(&run.config()?.train).restore(&run)
            };
            let message = go_on().unwrap_err().to_string();
            assert!(message.starts_with(&format!("`{}` is damaged: ", path.display())), "{message}");
        }
        fs::write(&path, good).unwrap();
    }
    assert_eq!(fs::read(root.path().join("config.json")).unwrap(), settings);
    assert!(trainer(&config).restore(&run).unwrap());
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let refused = |model: &ModelConfig, config: &TrainConfig| {
        LmTask::new(model, config, &corpus(), &Device::flex()).err().expect("refused").to_string()
    };
    let wide = TrainConfig { batch: 2000, ..config(1) };
    let message = refused(&model(HeadKind::Mos), &wide);
    assert!(message.contains("the training text is shorter than one batch: 4000 tokens"), "{message}");
    let wide = TrainConfig { eval_batch: 300, ..config(1) };
    assert!(refused(&model(HeadKind::Mos), &wide).contains("the validation text"));
    let other = ModelConfig { vocab: 31, ..model(HeadKind::Mos) };
    assert!(refused(&other, &config(1)).contains("vocab is 31"));
    let none = ModelConfig { components: 0, ..model(HeadKind::Mos) };
    assert!(refused(&none, &config(1)).contains("components"));
}
