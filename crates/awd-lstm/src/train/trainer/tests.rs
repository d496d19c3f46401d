use super::*;
use crate::config::{Dropouts, HeadKind};
use crate::language::{Language, LanguageConfig};
use crate::train::Silent;
use burn::backend::{Autodiff, Flex};
use burn::store::ModuleSnapshot;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::fs;

type B = Autodiff<Flex>;

fn corpus() -> Corpus {
    let config = LanguageConfig { vocab: 30, topics: 3, classes: 3, favourites: 4, ..Default::default() };
    let language = Language::new(config).unwrap();
    let text = |tokens: usize, seed| language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
    Corpus::from_ids(language.vocabulary(), text(4000, 1), text(400, 2), text(300, 3)).unwrap()
}

/// No dropout: other tests draw from the same global random numbers at the same time.
fn model(head: HeadKind) -> ModelConfig {
    ModelConfig {
        vocab: 30,
        d_embedding: 8,
        lstm_sizes: vec![12, 8],
        head,
        components: 2,
        knots: 100,
        plif_bound: 20.0,
        dropouts: Dropouts::NONE,
        tied: true,
    }
}

fn config(epochs: usize) -> TrainConfig {
    TrainConfig {
        batch: 8,
        bptt: 12,
        lr: 5.0,
        clip: 0.25,
        weight_decay: 1.2e-6,
        alpha: 2.0,
        beta: 1.0,
        nonmono: 5,
        max_seq_len_delta: 10,
        eval_batch: 4,
        test_batch: 1,
        epochs,
        seed: 28,
        average_from_start: false,
    }
}

fn trainer(config: &TrainConfig) -> Trainer<B> {
    Trainer::new(&model(HeadKind::Mos), config, &corpus(), &Default::default()).unwrap()
}

fn folder() -> (tempfile::TempDir, RunFolder) {
    use crate::train::{RunConfig, Versions};
    let root = tempfile::tempdir().unwrap();
    let config = RunConfig {
        versions: Versions::current(),
        preset: "small".into(),
        device: "flex".into(),
        data: "generated".into(),
        model: model(HeadKind::Mos),
        train: config(3),
    };
    let run = RunFolder::create(root.path(), &config, corpus().vocabulary()).unwrap();
    (root, run)
}

/// All weights, in the order of their names.
fn weights(model: &LanguageModel<B>) -> Vec<Vec<f32>> {
    let tensors = model.collect(None, None, false);
    tensors.iter().map(|tensor| tensor.to_data().unwrap().to_vec().unwrap()).collect()
}

#[derive(Default)]
struct Notes {
    intervals: Vec<Interval>,
    epochs: Vec<EpochMetrics>,
    messages: Vec<String>,
}

impl TrainObserver for Notes {
    fn on_interval(&mut self, interval: &Interval) {
        self.intervals.push(*interval);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics) {
        self.epochs.push(metrics.clone());
    }

    fn on_message(&mut self, message: &str) {
        self.messages.push(message.to_string());
    }
}

#[test]
fn learns_and_reports() {
    let mut notes = Notes::default();
    let last = trainer(&config(3)).fit(None, &mut notes).unwrap();
    let ppl: Vec<f64> = notes.epochs.iter().map(|metrics| metrics.valid_ppl).collect();
    assert_eq!(ppl.len(), 3);
    // A uniform guess has perplexity 30.
    assert!(ppl[0] < 30.0 && ppl[2] < ppl[0], "{ppl:?}");
    assert!(last.test_ppl < 30.0);
    assert_eq!(last.valid_ppl, ppl[last.best_epoch - 1]);
    let ends = notes.intervals.iter().filter(|interval| interval.step == interval.steps).count();
    assert_eq!(ends, 3);
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
    let nll = trainer.pass(1, &mut Silent).unwrap();
    let expected = mean_nll(&trainer.model().valid(), &trainer.train, &trainer.device);
    assert!((nll - expected).abs() < 2e-3, "{nll} against {expected}");
}

#[test]
fn the_rule_starts_averaging_and_the_average_is_what_is_evaluated() {
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
    let averaged = mean_nll(&trainer.evaluated(), &trainer.valid, &trainer.device);
    assert_eq!(averaged.exp(), notes.epochs[7].valid_ppl);
    let latest = mean_nll(&trainer.model().valid(), &trainer.valid, &trainer.device);
    assert_ne!(averaged, latest);
}

#[test]
fn a_restored_checkpoint_continues_to_the_same_weights() {
    let config = TrainConfig { nonmono: 0, lr: 40.0, ..config(6) };
    let (_root, run) = folder();
    let mut straight = trainer(&config);
    let start = straight.model.clone();
    let mut notes = Notes::default();
    let expected = straight.fit(Some(&run), &mut notes).unwrap();
    assert!(notes.epochs[3].averaging, "the checkpoint should hold averages: {:?}", notes.epochs);

    let (_root, run) = folder();
    let mut interrupted = trainer(&TrainConfig { epochs: 4, ..config.clone() });
    interrupted.model = start;
    interrupted.fit(Some(&run), &mut Silent).unwrap();
    // Other first weights: all of them must come from the checkpoint.
    let mut resumed = trainer(&TrainConfig { seed: 99, ..config.clone() });
    resumed.config = config;
    resumed.restore(&run).unwrap();
    assert_eq!(resumed.state().epoch, 4);
    let got = resumed.fit(Some(&run), &mut Silent).unwrap();
    assert_eq!(weights(resumed.model()), weights(straight.model()));
    assert_eq!(
        (got.best_epoch, got.valid_ppl, got.test_ppl),
        (expected.best_epoch, expected.valid_ppl, expected.test_ppl)
    );
}

#[test]
fn the_best_weights_are_kept_and_read_back() {
    let (_root, run) = folder();
    let mut trainer = trainer(&config(3));
    let last = trainer.fit(Some(&run), &mut Silent).unwrap();
    let device = Default::default();
    let fresh = model(HeadKind::Mos).try_init::<Flex>(&device).unwrap();
    let loaded = load_weights(fresh, &run.best_weights().unwrap()).unwrap();
    assert_eq!(mean_nll(&loaded, &trainer.valid, &device).exp(), last.valid_ppl);
    assert_eq!(mean_nll(&loaded, &trainer.test, &device).exp(), last.test_ppl);
    let lines = fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 4);
}

#[test]
fn a_loss_that_is_not_finite_stops_and_leaves_the_checkpoint() {
    let (_root, run) = folder();
    let mut trainer = trainer(&config(2));
    trainer.epoch(&mut Silent).unwrap();
    trainer.save(&run, true).unwrap();
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
    let device = Default::default();
    let refused = |model: &ModelConfig, config: &TrainConfig| {
        Trainer::<B>::new(model, config, &corpus(), &device).err().expect("refused").to_string()
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
