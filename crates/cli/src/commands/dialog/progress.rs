//! Progress of training on standard error: a bar on a terminal, lines elsewhere, and a line an epoch.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use plotters::prelude::SeriesLabelPosition;
use runs::{EpochMetrics, StepMetrics, TrainObserver};
use seq2seq::train::RunFolder;

use crate::chart::{Chart, Scale};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::picture;
use crate::print::{print_json, print_note};
use crate::progress::{bar, short};
use crate::sparkline::Curves;

/// Time between two lines about steps, unless every interval is to have one.
const QUIET: Duration = Duration::from_secs(10);
/// Steps of the bar, which shows a share.
const SHARES: f64 = 1000.0;

/// Reports the training of a model.
pub struct View<'a> {
    bar: ProgressBar,
    terminal: bool,
    /// In front of every line.
    label: String,
    /// Whether epochs are reported.
    epochs: bool,
    /// Whether epochs go to standard output as JSON objects.
    json: bool,
    /// Whether every interval is a line where there is no terminal.
    every_interval: bool,
    /// When the last line about steps was written, or training began.
    logged: Instant,
    /// When training began in this process, and the share of its work that was done by then.
    start: (Instant, f64),
    /// The share that is done.
    share: f64,
    /// What stops the training.
    interrupt: Option<Interrupt>,
    /// Where curves are drawn after every epoch.
    run: Option<&'a RunFolder>,
    /// Shown below the bar.
    curves: Curves,
}

impl<'a> View<'a> {
    /// Shows a bar alone, with `label` in front.
    pub fn bar_only(label: String) -> Self {
        Self {
            bar: bar(Some(SHARES as u64), "{prefix} [{bar:30}] {percent:>3}% {msg}"),
            terminal: std::io::stderr().is_terminal(),
            label,
            epochs: false,
            json: false,
            every_interval: false,
            logged: Instant::now(),
            start: (Instant::now(), 0.0),
            share: 0.0,
            interrupt: None,
            run: None,
            curves: Curves::default(),
        }
    }

    /// Reports steps and epochs of a run, draws its curves, and stops it after an interrupt.
    pub fn of_run(run: &'a RunFolder, interrupt: &Interrupt, json: bool, every_interval: bool) -> Self {
        Self {
            epochs: true,
            json,
            every_interval,
            interrupt: Some(interrupt.clone()),
            run: Some(run),
            ..Self::bar_only(String::new())
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

    /// Whether it is time for a line about steps.
    fn is_due(&self) -> bool {
        !self.terminal && self.epochs && (self.every_interval || self.logged.elapsed() >= QUIET)
    }

    /// Time that the rest of the work takes at the speed so far, as the end of a line.
    fn left(&self) -> String {
        let (began, before) = self.start;
        let done = self.share - before;
        if done <= 0.0 {
            return String::new();
        }
        format!(", {} left", short(began.elapsed().mul_f64((1.0 - self.share) / done)))
    }
}

impl TrainObserver for View<'_> {
    fn on_start(&mut self, share: f64) {
        self.start = (Instant::now(), share);
        self.share = share;
        self.logged = Instant::now();
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        let StepMetrics { epoch, epochs, step, steps, tokens_per_s, nll, ppl, gradient_norm, share, .. } =
            *interval;
        self.share = share;
        let figures = format!(
            "{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}, gradient norm {gradient_norm:.2}{}",
            self.left()
        );
        if self.is_due() {
            self.line(&format!("{}epoch {epoch}/{epochs}, step {step} of {steps}: {figures}", self.label));
            self.logged = Instant::now();
        }
        self.bar.set_position((share * SHARES) as u64);
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        self.curves.add_loss(nll);
        let curves = if self.terminal { self.curves.below() } else { String::new() };
        self.bar.set_message(format!("{figures}{curves}"));
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.share = share;
        self.curves.add_perplexity(metrics.valid_ppl);
        if !self.epochs {
            return;
        }
        let EpochMetrics { epoch, seconds, tokens_per_s, train_ppl, valid_ppl, best, .. } = metrics;
        self.line(&format!(
            "{}epoch {epoch}: {seconds:.1} s, {tokens_per_s:.0} tokens/s, perplexity train {train_ppl:.2}, valid \
             {valid_ppl:.2}{}{}",
            self.label,
            if *best { ", best" } else { "" },
            self.left(),
        ));
        if self.json {
            print_json(metrics);
        }
        // A picture is no reason to stop training.
        if let Some(Err(error)) = self.run.map(draw) {
            self.line(&format!("the curves were not drawn: {error}"));
        }
    }

    fn stop(&mut self) -> bool {
        let Some(interrupt) = &self.interrupt else { return false };
        if let Some(notice) = interrupt.notice() {
            self.line(notice);
        }
        interrupt.is_noted()
    }
}

/// Draws `curves.svg` and `curves.png` in a run's folder from its `metrics.jsonl`.
fn draw(run: &RunFolder) -> Result<(), Failure> {
    let lines = run.metrics()?;
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let points = |of: fn(&EpochMetrics) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|metrics| (metrics.epoch as f64, of(metrics))).collect()
    };
    let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let chart = Chart {
        caption: format!("Perplexity, {name}"),
        x: ("epoch", Scale::Linear),
        y: ("perplexity (log)", Scale::Logarithmic),
        lines: vec![
            ("validation".into(), points(|metrics| metrics.valid_ppl)),
            ("training, as met (with dropout)".into(), points(|metrics| metrics.train_ppl)),
        ],
        labels: SeriesLabelPosition::UpperRight,
    };
    picture::save(&chart, &run.path().join("curves"))
}
