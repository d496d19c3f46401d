//! The training as it is seen: a bar and a line a round on standard error, and what came of the rounds.

use std::error::Error;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{LossMetric, Metric, MetricDefinition, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary};
use gpt::TrainConfig;
use highrank::train::{AccuracyMetric, PerplexityMetric};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note};
use crate::progress::bar;

/// What came of a round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    /// Its number, from 1.
    pub round: usize,
    /// Steps of the optimiser so far.
    pub step: usize,
    /// Time since the training began, validation included.
    pub seconds: f64,
    /// Speed of its training alone.
    pub tokens_per_s: f64,
    /// Of the training text as met, with dropout.
    pub train_ppl: f64,
    /// In percent.
    pub train_accuracy: f64,
    /// Of the beginning of the validation text.
    pub valid_ppl: f64,
    /// In percent.
    pub valid_accuracy: f64,
}

/// What came of the training so far.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The finished rounds.
    pub rounds: Vec<Round>,
    /// Tokens that the model was trained on, and the seconds that took.
    pub trained: (usize, f64),
    /// Why the training had to stop.
    pub failure: Option<String>,
}

/// Shows a training.
pub struct View {
    bar: ProgressBar,
    terminal: bool,
    json: bool,
    /// Asked by the system.
    interrupt: Interrupt,
    /// Asks Burn.
    interrupter: Interrupter,
    history: Arc<Mutex<History>>,
    metrics: Metrics,
    batch: usize,
    steps_of_round: usize,
    rounds: usize,
    start: Instant,
    split: Split,
    round: Round,
}

/// How Burn names the metrics.
struct Metrics {
    loss: MetricId,
    perplexity: MetricId,
    accuracy: MetricId,
}

/// The text that is being read.
struct Split {
    training: bool,
    start: Instant,
    tokens: usize,
    nll: f64,
}

impl Split {
    fn new(training: bool) -> Self {
        Self { training, start: Instant::now(), tokens: 0, nll: 0.0 }
    }
}

impl View {
    /// A view of a training as `config` says; with `json`, every round is one object on standard output. An interrupt stops
    /// the training through `interrupter`.
    pub fn new(config: &TrainConfig, json: bool, interrupt: &Interrupt, interrupter: &Interrupter) -> Self {
        Self {
            bar: bar(Some(config.steps as u64), "{prefix} [{bar:30}] {percent:>3}% {msg}, {eta} left"),
            terminal: std::io::stderr().is_terminal(),
            json,
            interrupt: interrupt.clone(),
            interrupter: interrupter.clone(),
            history: Arc::default(),
            metrics: Metrics {
                loss: MetricId::new(LossMetric::new().name()),
                perplexity: MetricId::new(PerplexityMetric::new().name()),
                accuracy: MetricId::new(AccuracyMetric::new().name()),
            },
            batch: config.batch,
            steps_of_round: config.steps / config.rounds,
            rounds: config.rounds,
            start: Instant::now(),
            split: Split::new(true),
            round: Round::default(),
        }
    }

    /// What came of the training, to be read when it has ended.
    pub fn history(&self) -> Arc<Mutex<History>> {
        self.history.clone()
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finished(&self) -> usize {
        self.lock().rounds.len()
    }

    fn read(&mut self, state: MetricState) {
        let MetricState::Numeric(entry, Some(value)) = state else { return };
        let metric = &entry.metric_id;
        match value {
            NumericEntry::Final(value) if *metric == self.metrics.perplexity => match self.split.training {
                true => self.round.train_ppl = value,
                false => self.round.valid_ppl = value,
            },
            NumericEntry::Final(value) if *metric == self.metrics.accuracy => match self.split.training {
                true => self.round.train_accuracy = value,
                false => self.round.valid_accuracy = value,
            },
            NumericEntry::Aggregated { aggregated_value, count } if *metric == self.metrics.perplexity => {
                self.split.tokens += count;
                self.split.nll += aggregated_value.ln() * count as f64;
            }
            value if *metric == self.metrics.loss && self.split.training && !value.current().is_finite() => {
                self.fail();
            }
            _ => {}
        }
    }

    /// Stops the training because its loss is no number.
    fn fail(&self) {
        let round = self.finished() + 1;
        let line = format!(
            "the loss is not finite in round {round} of {}: training stopped; a lower --lr may help",
            self.rounds
        );
        self.lock().failure.get_or_insert(line);
        self.interrupter.stop(Some("the loss is not finite"));
    }

    fn line(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            print_note(line);
        }
    }
}

impl MetricsRendererTraining for View {
    fn update_train(&mut self, state: MetricState) {
        self.read(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.read(state);
    }

    fn on_train_end(&mut self, _summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

impl TrainingProgressLogger for View {
    fn start(&mut self, _epochs: usize, _first: usize, _items: Option<usize>, _label: Option<&str>) {
        self.start = Instant::now();
    }

    fn start_split(&mut self, split: &str, _items: usize) {
        self.split = Split::new(split == "train");
        let (round, what) = (self.finished() + 1, if self.split.training { "" } else { ", validation" });
        self.bar.set_prefix(format!("round {round}/{}{what}", self.rounds));
    }

    fn update_split(&mut self, items: usize) {
        if self.interrupt.is_noted() {
            self.interrupter.stop(Some("interrupted"));
        }
        if self.split.training {
            let done = self.finished() * self.steps_of_round + items.div_ceil(self.batch);
            self.bar.set_position(done as u64);
            let Split { start, tokens, nll, .. } = self.split;
            let (speed, mean) = (tokens as f64 / start.elapsed().as_secs_f64(), nll / tokens as f64);
            self.bar
                .set_message(format!("{speed:.0} tokens/s, loss {mean:.3}, perplexity {:.1}", mean.exp()));
        }
    }

    fn end_split(&mut self) {
        if self.split.training {
            let (tokens, seconds) = (self.split.tokens, self.split.start.elapsed().as_secs_f64());
            self.round.tokens_per_s = tokens as f64 / seconds;
            let mut history = self.lock();
            history.trained.0 += tokens;
            history.trained.1 += seconds;
        }
    }

    fn update_epoch(&mut self, epoch: usize) {
        let seconds = self.start.elapsed().as_secs_f64();
        let round = Round {
            round: epoch,
            step: epoch * self.steps_of_round,
            seconds,
            ..std::mem::take(&mut self.round)
        };
        self.line(&format!(
            "round {epoch}/{}, step {}: {seconds:.1} s, {:.0} tokens/s, perplexity train {:.2}, valid {:.2}, \
             accuracy train {:.1} %, valid {:.1} %",
            self.rounds,
            round.step,
            round.tokens_per_s,
            round.train_ppl,
            round.valid_ppl,
            round.train_accuracy,
            round.valid_accuracy
        ));
        if self.json {
            print_json(&round);
        }
        self.lock().rounds.push(round);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }

    fn log_event_training(&mut self, _event: String) {}
}

// Burn asks for one type that shows evaluations as well; none is run.
impl MetricsRendererEvaluation for View {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl EvaluationProgressLogger for View {
    fn start_global_progress(&mut self, _tests: usize) {}

    fn start_test(&mut self, _name: &str, _items: usize) {}

    fn update_test_progress(&mut self, _items: usize) {}

    fn end_test(&mut self) {}

    fn end_global_progress(&mut self) {}

    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for View {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, _definition: MetricDefinition) {}
}
