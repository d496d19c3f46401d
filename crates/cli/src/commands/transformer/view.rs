//! The training as it is seen: a bar and a line a round on standard error.

use std::io::IsTerminal;

use gpt::TrainConfig;
use indicatif::ProgressBar;
use runs::{EpochMetrics, StepMetrics, TrainObserver};
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note};
use crate::progress::bar;

/// What came of a round.
#[derive(Debug, Clone, Serialize)]
struct Round {
    /// Its number, from 1.
    round: usize,
    /// Steps of the optimiser so far.
    step: usize,
    /// Time since the training began, validation included.
    seconds: f64,
    /// Speed of its training alone.
    tokens_per_s: f64,
    /// Of the training text as met, with dropout.
    train_ppl: f64,
    /// In percent.
    train_accuracy: f64,
    /// Of the beginning of the validation text.
    valid_ppl: f64,
    /// In percent.
    valid_accuracy: f64,
}

/// Shows a training.
pub struct View {
    bar: ProgressBar,
    terminal: bool,
    json: bool,
    interrupt: Interrupt,
    steps_of_round: usize,
    rounds: usize,
    /// Time of the rounds so far.
    seconds: f64,
}

impl View {
    /// A view of a training as `config` says, after earlier rounds that took `seconds`; with `json`, every round is one object on
    /// standard output.
    pub fn new(config: &TrainConfig, json: bool, interrupt: &Interrupt, seconds: f64) -> Self {
        Self {
            bar: bar(Some(config.steps as u64), "{prefix} [{bar:30}] {percent:>3}% {msg}, {eta} left"),
            terminal: std::io::stderr().is_terminal(),
            json,
            interrupt: interrupt.clone(),
            steps_of_round: config.steps / config.rounds,
            rounds: config.rounds,
            seconds,
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            print_note(line);
        }
    }
}

impl TrainObserver for View {
    fn on_interval(&mut self, metrics: &StepMetrics) {
        let StepMetrics { epoch, step, tokens_per_s, nll, ppl, .. } = *metrics;
        self.bar.set_prefix(format!("round {epoch}/{}", self.rounds));
        self.bar.set_position(((epoch - 1) * self.steps_of_round + step) as u64);
        self.bar.set_message(format!("{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}"));
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, _share: f64) {
        self.seconds += metrics.seconds;
        let round = Round {
            round: metrics.epoch,
            step: metrics.epoch * self.steps_of_round,
            seconds: self.seconds,
            tokens_per_s: metrics.tokens_per_s,
            train_ppl: metrics.train_ppl,
            train_accuracy: metrics.train_accuracy.unwrap_or(f64::NAN),
            valid_ppl: metrics.valid_ppl,
            valid_accuracy: metrics.valid_accuracy.unwrap_or(f64::NAN),
        };
        self.line(&format!(
            "round {}/{}, step {}: {:.1} s, {:.0} tokens/s, perplexity train {:.2}, valid {:.2}, \
             accuracy train {:.1} %, valid {:.1} %",
            round.round,
            self.rounds,
            round.step,
            round.seconds,
            round.tokens_per_s,
            round.train_ppl,
            round.valid_ppl,
            round.train_accuracy,
            round.valid_accuracy
        ));
        if self.json {
            print_json(&round);
        }
    }

    fn stop(&mut self) -> bool {
        self.interrupt.is_noted()
    }
}
