//! A model learns a language in which each word determines the next, and Burn's metrics of it are right.

use std::fs;
use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use burn::train::LearnerSummary;
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRendererEvaluation, MetricsRendererTraining,
};
use highrank::HeadConfig;
use runs::data::Vocabulary;

use super::*;
use crate::config::GptConfig;
use crate::evaluate::evaluate;

const VOCAB: u32 = 12;

/// Notes the final values of the validation text, and stops a training after some steps.
#[derive(Clone, Default)]
struct Recorder {
    /// Loss, perplexity and accuracy of each round.
    valid: Arc<Mutex<Vec<f64>>>,
    stop: Option<(usize, Interrupter)>,
}

impl MetricsRendererTraining for Recorder {
    fn update_train(&mut self, _state: MetricState) {}

    fn update_valid(&mut self, state: MetricState) {
        if let MetricState::Numeric(_, Some(NumericEntry::Final(value))) = state {
            self.valid.lock().unwrap().push(value);
        }
    }

    fn on_train_end(&mut self, _: Option<LearnerSummary>) -> Result<(), Box<dyn std::error::Error>> {
        Ok(())
    }
}

impl TrainingProgressLogger for Recorder {
    fn start(&mut self, _: usize, _: usize, _: Option<usize>, _: Option<&str>) {}
    fn update_epoch(&mut self, _: usize) {}
    fn start_split(&mut self, _: &str, _: usize) {}
    fn update_split(&mut self, items: usize) {
        if let Some((after, interrupter)) = &self.stop
            && items >= *after
        {
            interrupter.stop(None);
        }
    }
    fn end_split(&mut self) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, _: String) {}
}

impl MetricsRendererEvaluation for Recorder {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
}

impl EvaluationProgressLogger for Recorder {
    fn start_global_progress(&mut self, _: usize) {}
    fn start_test(&mut self, _: &str, _: usize) {}
    fn update_test_progress(&mut self, _: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _: String) {}
}

impl MetricsRenderer for Recorder {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: MetricDefinition) {}
}

fn corpus() -> Corpus {
    let words = (0..VOCAB).map(|word| format!("w{word}")).collect::<Vec<_>>();
    let text = |start, tokens| -> Vec<u32> {
        std::iter::successors(Some(start), |word| Some((word * 5 + 3) % VOCAB)).take(tokens).collect()
    };
    Corpus::from_ids(Vocabulary::from(words), text(1, 200), text(2, 43), text(0, 30)).unwrap()
}

fn model(device: &Device) -> Gpt {
    device.seed(6);
    let head = HeadConfig::mos(16, 12, VOCAB as usize, 2).with_tied(true);
    let config = GptConfig::new(16, head).with_layers(1).with_context(8).with_dropout(0.0);
    config.try_init(device).unwrap()
}

fn config() -> TrainConfig {
    TrainConfig::new(60).with_rounds(2).with_batch(4).with_lr(0.01).with_warmup(5)
}

#[test]
fn a_model_learns_and_its_metrics_are_right() {
    let (device, corpus, folder) = (Device::flex(), corpus(), tempfile::tempdir().unwrap());
    let (recorder, stop) = (Recorder::default(), Interrupter::new());
    let fresh = model(&device.clone().autodiff());
    let before = evaluate(&fresh.valid(), corpus.valid(), 4, |_| ()).unwrap();
    assert_eq!(before.tokens, 42);
    let trained = train(fresh, &config(), &corpus, folder.path(), Box::new(recorder.clone()), stop).unwrap();
    assert!(trained.error.is_none() && trained.interrupted.is_none());

    let mut shares = vec![];
    let after = evaluate(&trained.model, corpus.valid(), 4, |share| shares.push(share)).unwrap();
    assert!(
        after.perplexity() < before.perplexity() / 2.0,
        "{} then {}",
        before.perplexity(),
        after.perplexity()
    );
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    // What Burn's Learner was told of the same text after the last round, its last batch shorter than the others.
    let noted = recorder.valid.lock().unwrap();
    let [_, perplexity, accuracy] = noted[3..] else { panic!("{noted:?}") };
    assert!((perplexity / after.perplexity() - 1.0).abs() < 1e-4, "{perplexity} and {}", after.perplexity());
    assert!((accuracy - after.accuracy()).abs() < 1e-6, "{accuracy} and {}", after.accuracy());
    let log = fs::read_to_string(folder.path().join("valid/epoch-2/Perplexity.log")).unwrap();
    assert_eq!(log.lines().last(), Some(format!("{perplexity},final").as_str()));
}

#[test]
fn training_stops_when_it_is_asked_to() {
    let (device, corpus, folder) = (Device::flex(), corpus(), tempfile::tempdir().unwrap());
    let stop = Interrupter::new();
    let recorder = Recorder { stop: Some((8, stop.clone())), ..Default::default() };
    let fresh = model(&device.autodiff());
    let trained = train(fresh, &config(), &corpus, folder.path(), Box::new(recorder.clone()), stop).unwrap();
    assert!(trained.interrupted.is_some());
    assert!(recorder.valid.lock().unwrap().is_empty());
}

#[test]
fn a_text_that_is_too_short_is_refused() {
    let (device, folder) = (Device::flex().autodiff(), tempfile::tempdir().unwrap());
    let vocabulary = || Vocabulary::from(vec!["a".to_string(), "b".into()]);
    let cases = [
        (vec![0; 8], vec![0; 5], "context is 8, but must be less than"),
        (vec![0; 9], vec![0], "the validation text is shorter than one batch: 1 tokens"),
    ];
    for (text, held_out, expected) in cases {
        let corpus = Corpus::from_ids(vocabulary(), text, held_out, vec![0; 5]).unwrap();
        let head = HeadConfig::softmax(4, 2).with_tied(true);
        let model = GptConfig::new(4, head).with_context(8).try_init(&device).unwrap();
        let error = train(
            model,
            &config(),
            &corpus,
            folder.path(),
            Box::new(Recorder::default()),
            Interrupter::new(),
        );
        let message = error.err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_learning_rate_rises_and_falls() {
    let mut schedule = schedule(&TrainConfig::new(20).with_warmup(4).with_lr(0.4));
    let rates: Vec<f64> = (0..20).map(|_| schedule.step().base()).collect();
    assert!(rates[..4].is_sorted() && (rates[0] - 0.1).abs() < 1e-9, "{rates:?}");
    assert!(
        (rates[4] - 0.4).abs() < 1e-9 && rates[4..].is_sorted_by(|a, b| a > b) && rates[19] < 0.01,
        "{rates:?}"
    );
}
