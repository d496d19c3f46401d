use super::*;
use crate::config::{Dropouts, HeadKind};
use crate::language::{Language, LanguageConfig};
use crate::testing::alone;
use crate::train::evaluate::mean_nll;
use crate::train::observer::{EpochMetrics, Silent, ValidationMetrics};
use crate::train::run::{RunConfig, Versions};
use burn::store::{ModuleSnapshot, bridge};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::MODEL;
use runs::data::Fingerprint;
use serde_json::Value;
use std::fs;

mod among;
mod extension;
mod limits;
mod saves;
mod steps;
mod validation;

fn corpus() -> Corpus {
    let config = LanguageConfig { vocab: 30, topics: 3, classes: 3, favourites: 4, ..Default::default() };
    let language = Language::new(config).unwrap();
    let text = |tokens: usize, seed| language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
    Corpus::from_ids(language.vocabulary(), text(4000, 1), text(400, 2), text(300, 3)).unwrap()
}

/// No dropout: other tests draw from the same random numbers at the same time.
fn model(head: HeadKind) -> ModelConfig {
    ModelConfig::tiny(head, 30)
}

fn config(epochs: usize) -> TrainConfig {
    TrainConfig {
        batch: 8,
        small_batch: None,
        bptt: 12,
        lr: 5.0,
        latent_lr: 1.0,
        clip: 0.25,
        weight_decay: 1.2e-6,
        alpha: 2.0,
        beta: 1.0,
        prior_cv: 0.0,
        nonmono: 5,
        max_seq_len_delta: 10,
        eval_batch: 4,
        test_batch: 1,
        epochs,
        seed: 28,
        average_from_start: false,
        validate_every: None,
        patience: None,
        lr_decay: None,
        max_minutes: None,
        test: true,
    }
}

fn trainer(config: &TrainConfig) -> Trainer {
    Trainer::new(&model(HeadKind::Mos), config, &corpus(), &Device::flex()).unwrap()
}

fn folder() -> (tempfile::TempDir, RunFolder) {
    run_of(&config(3))
}

/// A run of `train` in a folder of its own.
fn run_of(train: &TrainConfig) -> (tempfile::TempDir, RunFolder) {
    let root = tempfile::tempdir().unwrap();
    let config = RunConfig {
        text: Default::default(),
        versions: Versions::current(),
        preset: "small".into(),
        device: "flex".into(),
        data: "generated".into(),
        corpus: Fingerprint::of(&corpus()),
        finetunes: None,
        tokens: None,
        model: model(HeadKind::Mos),
        train: train.clone(),
        extensions: vec![],
    };
    let run = RunFolder::create(root.path(), &config, corpus().vocabulary()).unwrap();
    (root, run)
}

/// All weights, in the order of their names.
fn weights(model: &LanguageModel) -> Vec<Vec<f32>> {
    let tensors = model.collect(None, None, false);
    tensors.iter().map(|tensor| bridge::to_data(tensor).unwrap().try_to_vec().unwrap()).collect()
}

fn finished(fitted: Fitted) -> FinalMetrics {
    let Fitted::Finished(metrics) = fitted else { panic!("it was stopped") };
    metrics
}

/// Stops after so many questions whether to, that is before so many steps and chunks.
struct StopAfter(usize);

impl TrainObserver for StopAfter {
    fn stop(&mut self) -> bool {
        let stop = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        stop
    }
}

#[derive(Default)]
struct Notes {
    intervals: Vec<Interval>,
    validations: Vec<ValidationMetrics>,
    epochs: Vec<EpochMetrics>,
    messages: Vec<String>,
}

impl TrainObserver for Notes {
    fn on_interval(&mut self, interval: &Interval) {
        self.intervals.push(*interval);
    }

    fn on_validation(&mut self, metrics: &ValidationMetrics, _share: f64) {
        self.validations.push(metrics.clone());
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, _share: f64) {
        self.epochs.push(metrics.clone());
    }

    fn on_message(&mut self, message: &str) {
        self.messages.push(message.to_string());
    }
}

#[test]
fn learns_and_reports() {
    let mut notes = Notes::default();
    let last = finished(trainer(&config(3)).fit(None, &mut notes).unwrap());
    let ppl: Vec<f64> = notes.epochs.iter().map(|metrics| metrics.valid_ppl).collect();
    assert_eq!(ppl.len(), 3);
    // A uniform guess has perplexity 30.
    assert!(ppl[0] < 30.0 && ppl[2] < ppl[0], "{ppl:?}");
    assert!(last.test_ppl.unwrap() < 30.0);
    assert_eq!(last.valid_ppl, ppl[last.best_epoch - 1]);
    let ends = notes.intervals.iter().filter(|interval| interval.step == interval.steps).count();
    assert_eq!(ends, 3);
    let shares: Vec<f64> = notes.intervals.iter().map(|interval| interval.share).collect();
    assert!(shares.is_sorted() && shares[0] > 0.0 && shares[shares.len() - 1] < 1.0, "{shares:?}");
    for interval in &notes.intervals {
        assert!(interval.step % LOG_INTERVAL == 0 || interval.step == interval.steps);
        assert!((interval.ppl.ln() - interval.nll).abs() < 1e-9);
    }
}

#[test]
fn training_perplexity_is_the_mean_over_all_tokens() {
    // Without learning, the training pass is an evaluation pass but for the rows that it may leave out.
    let config = TrainConfig { lr: 1e-12, alpha: 0.0, beta: 0.0, ..config(1) };
    let mut trainer = trainer(&config);
    assert!(trainer.pass(None, &mut Silent).unwrap());
    let whole = trainer.pass.as_ref().unwrap().whole;
    let nll = whole.nll / whole.tokens as f64;
    let expected = mean_nll(&trainer.model().valid(), &trainer.train);
    assert!((nll - expected).abs() < 2e-3, "{nll} against {expected}");
}

#[test]
fn the_rule_starts_averaging_and_the_average_is_what_is_evaluated() {
    alone(module_path!(), "the_rule_starts_averaging_and_the_average_is_what_is_evaluated", || {
        // With a rule that looks at every loss and a rate far too high, losses soon rise.
        let config = TrainConfig { nonmono: 0, lr: 40.0, ..config(8) };
        let mut notes = Notes::default();
        let mut trainer = trainer(&config);
        trainer.fit(None, &mut notes).unwrap();
        let began = notes.epochs.iter().position(|metrics| metrics.averaging).expect("averaging began");
        assert_eq!(notes.messages, [format!("averaging begins after epoch {began}")]);
        assert!(notes.epochs[began..].iter().all(|metrics| metrics.averaging));
        let losses = trainer.state().rule.losses();
        assert_eq!(losses.len(), began);
        assert!(losses[began - 1] > losses[..began - 1].iter().copied().fold(f64::INFINITY, f64::min));
        let averaged = mean_nll(&trainer.evaluated(), &trainer.valid);
        assert_eq!(averaged.exp(), notes.epochs[7].valid_ppl);
        let latest = mean_nll(&trainer.model().valid(), &trainer.valid);
        assert_ne!(averaged, latest);
    });
}

/// Lines of `metrics.jsonl` without wall-clock times.
fn timeless(run: &RunFolder) -> Vec<Value> {
    without_times(&run.metrics().unwrap())
}

fn without_times(lines: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        line["seconds"] = 0.into();
        line["tokens_per_s"] = 0.into();
    }
    lines
}

/// Trains with dropout, once in one go and once with many stops, inside of epochs, before and within their evaluations, and at
/// their ends. Returns what was reported of the former.
fn stopped_anywhere(config: &TrainConfig, pauses: &[usize]) -> Notes {
    let mut model = model(HeadKind::Mos);
    model.dropouts =
        Dropouts { output: 0.2, hidden: 0.1, input: 0.2, latent: 0.1, embedding: 0.1, weight: 0.3 };
    let fresh = || {
        let trainer = Trainer::new(&model, config, &corpus(), &Device::flex()).unwrap();
        trainer.with_log_every(8)
    };
    let (_root, straight_run) = folder();
    let mut straight = fresh();
    let mut notes = Notes::default();
    let expected = finished(straight.fit(Some(&straight_run), &mut notes).unwrap());

    let (_root, run) = folder();
    let mut stops = 0;
    let (resumed, got) = loop {
        let mut trainer = fresh();
        assert_eq!(trainer.restore(&run).unwrap(), stops > 0);
        match trainer.fit(Some(&run), &mut StopAfter(pauses[stops % pauses.len()])).unwrap() {
            Fitted::Finished(metrics) => break (trainer, metrics),
            Fitted::Stopped => stops += 1,
        }
    };
    assert!(stops > 10, "{stops}");
    assert_eq!(weights(resumed.model()), weights(straight.model()));
    assert_eq!(FinalMetrics { seconds: expected.seconds, ..got }, expected);
    assert_eq!(timeless(&run), timeless(&straight_run));
    assert_eq!(without_times(&run.steps().unwrap()), without_times(&straight_run.steps().unwrap()));
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
        assert!(notes.epochs[3].averaging, "averages should be part of it: {:?}", notes.epochs);
    });
}

#[test]
fn what_a_run_left_behind_is_set_back_to_its_checkpoint() {
    alone(module_path!(), "what_a_run_left_behind_is_set_back_to_its_checkpoint", || {
        let (_root, run) = folder();
        let mut trainer = trainer(&config(3));
        assert_eq!(trainer.fit(Some(&run), &mut StopAfter(60)).unwrap(), Fitted::Stopped);
        let lines = run.metrics().unwrap();
        assert_eq!(lines.lines().count(), 1);
        let best = fs::read(run.best_weights().unwrap()).unwrap();
        // As a process leaves it that dies after its checkpoint, and while it adds a line.
        fs::write(run.path().join("metrics.jsonl"), format!("{lines}{lines}{{\"epo")).unwrap();
        trainer.restore(&run).unwrap();
        assert_eq!(run.metrics().unwrap(), lines);

        // As one that dies between the checkpoint of its best epoch and the file of the best model.
        let (_root, run) = folder();
        let mut trainer = self::trainer(&config(3));
        assert!(trainer.advance(None, &mut Silent).unwrap());
        trainer.save(Some(&run)).unwrap();
        assert!(run.best_weights().is_err());
        self::trainer(&config(3)).restore(&run).unwrap();
        assert!(fs::read(run.best_weights().unwrap()).unwrap() == best);
        assert_eq!(timeless(&run).len(), 1);
    });
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_named() {
    let (_root, run) = folder();
    let mut trainer = trainer(&config(3));
    trainer.fit(Some(&run), &mut StopAfter(10)).unwrap();
    let mut message = |path: &str, bytes: &[u8]| {
        let path = run.checkpoint().join(path);
        let good = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let message = trainer.restore(&run).unwrap_err().to_string();
        fs::write(&path, good).unwrap();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    let state = fs::read_to_string(run.checkpoint().join("state.json")).unwrap();
    assert!(message("state.json", b"{").contains("state.json` is damaged"));
    let lr = message("state.json", state.replace(r#""lr": 5.0"#, r#""lr": 6.0"#).as_bytes());
    assert!(lr.contains("train.lr is 5.0 now, but 6.0 in the run"), "{lr}");
    let step = message("state.json", state.replace(r#""step": 10"#, r#""step": 1000"#).as_bytes());
    assert!(step.contains("it is at step 1000, but the epoch has"), "{step}");
    for name in ["model.safetensors", "epoch.safetensors"] {
        let mut bytes = fs::read(run.checkpoint().join(name)).unwrap();
        assert!(message(name, &bytes[..bytes.len() - 3]).contains("is damaged"));
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(message(name, &bytes).contains("holds a value that is not finite"));
    }
    trainer.restore(&run).unwrap();
    // Without any checkpoint, but with epochs that were done.
    fs::rename(run.checkpoint(), run.path().join("elsewhere")).unwrap();
    assert!(!trainer.restore(&run).unwrap());
    run.append_metrics("{}\n").unwrap();
    assert!(trainer.restore(&run).unwrap_err().to_string().contains("but no checkpoint"));
}

#[test]
fn a_finetuning_averages_from_its_first_step_and_ends_by_the_rule() {
    alone(module_path!(), "a_finetuning_averages_from_its_first_step_and_ends_by_the_rule", || {
        let (_root, run) = folder();
        finished(trainer(&config(2)).fit(Some(&run), &mut Silent).unwrap());
        let weights = run.best_weights().unwrap();
        // Far too high a rate: it gets worse, and the model that it started from remains the best.
        let config = TrainConfig { nonmono: 1, lr: 300.0, average_from_start: true, ..config(50) };
        let (_root, tuned) = folder();
        let mut trainer = trainer(&config);
        trainer.start_from(&weights).unwrap();
        let start = trainer.state().best.unwrap();
        assert_eq!(start.epoch, 0);
        let mut notes = Notes::default();
        let last = finished(trainer.fit(Some(&tuned), &mut notes).unwrap());
        assert!(notes.epochs.iter().all(|metrics| metrics.averaging));
        let epochs = notes.epochs.len();
        assert!(epochs < 50);
        assert_eq!(notes.messages, [format!("finetuning ends after epoch {epochs}")]);
        let losses = trainer.state().rule.losses();
        let mut rule = NonMonotone::new(1);
        assert_eq!(losses.iter().position(|&loss| rule.observe(loss)), Some(epochs - 1));
        assert!(last.valid_ppl <= start.nll.exp());
        if last.best_epoch == 0 {
            assert_eq!(fs::read(tuned.best_weights().unwrap()).unwrap(), fs::read(&weights).unwrap());
        }
        // A gentle one improves on it.
        let config = TrainConfig { nonmono: 5, lr: 3.0, average_from_start: true, ..self::config(3) };
        let mut trainer = self::trainer(&config);
        trainer.start_from(&weights).unwrap();
        let last = finished(trainer.fit(None, &mut Silent).unwrap());
        assert!(last.best_epoch > 0 && last.valid_ppl < start.nll.exp(), "{last:?} from {}", start.nll.exp());
    });
}

#[test]
fn the_best_weights_are_kept_and_read_back() {
    let (_root, run) = folder();
    let mut trainer = trainer(&config(3));
    let last = finished(trainer.fit(Some(&run), &mut Silent).unwrap());
    let fresh = model(HeadKind::Mos).try_init(&Device::flex()).unwrap();
    let loaded = load_weights(fresh, &run.best_weights().unwrap()).unwrap();
    assert_eq!(mean_nll(&loaded, &trainer.valid).exp(), last.valid_ppl);
    assert_eq!(Some(mean_nll(&loaded, &trainer.test).exp()), last.test_ppl);
    let lines = fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 4);
}

#[test]
fn a_loss_that_is_not_finite_stops_and_leaves_the_checkpoint() {
    let (_root, run) = folder();
    let mut trainer = trainer(&config(2));
    trainer.advance(None, &mut Silent).unwrap();
    trainer.save(Some(&run)).unwrap();
    let before = fs::read(run.checkpoint().join(MODEL)).unwrap();
    // Clipping bounds every step, so only an absurd rate leaves the range of f32.
    trainer.config.lr = 1e38;
    let error = trainer.fit(Some(&run), &mut Silent).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::NonFiniteLoss { epoch: 2, .. }), "{message}");
    assert!(message.contains("epoch 2") && message.contains("step") && !message.contains('\n'), "{message}");
    assert_eq!(fs::read(run.checkpoint().join(MODEL)).unwrap(), before);
    assert!(!run.path().join("checkpoint.new").exists());
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let refused = |model: &ModelConfig, config: &TrainConfig| {
        Trainer::new(model, config, &corpus(), &Device::flex()).err().expect("refused").to_string()
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
