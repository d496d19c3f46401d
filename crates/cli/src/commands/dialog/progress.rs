//! Progress of training on standard error: a bar on a terminal, lines elsewhere, and a line an epoch.

use std::io::IsTerminal;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use plotters::prelude::SeriesLabelPosition;
use runs::{EpochMetrics, LOG_INTERVAL, StepMetrics, TrainObserver};
use seq2seq::train::RunFolder;

use crate::chart::{Chart, Keyed, Scale};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::picture;
use crate::print::{print_json, print_note};
use crate::progress::{Pulse, SharedCurves, short, training_bar};
use crate::sparkline::Curves;
use crate::statistics::decimal;
use crate::training::{AS_MET, Output, WITHIN};

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
    curves: SharedCurves,
    pulse: Pulse,
}

impl<'a> View<'a> {
    /// Shows a bar alone, with `label` in front.
    pub fn bar_only(label: String) -> Self {
        let curves = SharedCurves::default();
        Self {
            bar: training_bar(&curves),
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
            curves,
            pulse: Pulse::new(LOG_INTERVAL),
        }
    }

    /// Reports steps and epochs of a run, draws its curves, and stops it after an interrupt.
    pub fn of_run(run: &'a RunFolder, output: &Output, every_interval: bool) -> Self {
        Self {
            epochs: true,
            json: output.json,
            every_interval,
            interrupt: Some(output.interrupt.clone()),
            pulse: Pulse::new(output.log_every()),
            run: Some(run),
            ..Self::bar_only(String::new())
        }
    }

    fn curves(&self) -> MutexGuard<'_, Curves> {
        self.curves.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.pulse.started(None);
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        let StepMetrics { epoch, epochs, step, steps, tokens_per_s, nll, ppl, gradient_norm, share, .. } =
            *interval;
        self.share = share;
        self.pulse.reported(step == steps);
        let figures = format!(
            "ppl {}, {tokens_per_s:.0} tokens/s{}, gradient norm {gradient_norm:.2}",
            decimal(ppl, 1),
            self.left()
        );
        if self.is_due() {
            self.line(&format!("{}epoch {epoch}/{epochs}, step {step} of {steps}: {figures}", self.label));
            self.logged = Instant::now();
        }
        self.bar.set_position((share * SHARES) as u64);
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        self.curves().add_loss(nll);
        self.bar.set_message(figures);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.share = share;
        self.pulse.reported(false);
        self.curves().add_perplexity(metrics.valid_ppl);
        if !self.epochs {
            return;
        }
        let EpochMetrics { epoch, seconds, train_ppl, valid_ppl, best, .. } = metrics;
        self.line(&format!(
            "{}epoch {epoch}: train {}, valid {}{}; {seconds:.1} s{}",
            self.label,
            decimal(*train_ppl, 2),
            decimal(*valid_ppl, 2),
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
        if let Some(sign) = self.pulse.asked() {
            self.bar.set_message(sign.message());
            if let Some(line) = sign.line().filter(|_| !self.terminal && self.epochs) {
                self.line(&line);
            }
        }
        self.interrupt.as_ref().is_some_and(Interrupt::is_noted)
    }
}

/// Draws `curves.svg` in a run's folder from its `metrics.jsonl`.
fn draw(run: &RunFolder) -> Result<(), Failure> {
    let lines = run.metrics()?;
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let points = |back: f64, of: fn(&EpochMetrics) -> f64| -> Vec<(f64, f64)> {
        epochs.iter().map(|metrics| (metrics.epoch as f64 - back, of(metrics))).collect()
    };
    let name = run.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let chart = Chart {
        caption: format!("Perplexity, {name}"),
        x: ("epoch", Scale::Linear),
        y: ("perplexity (log)", Scale::Logarithmic),
        lines: vec![
            ("validation".into(), points(0.0, |metrics| metrics.valid_ppl)),
            (AS_MET.into(), points(WITHIN, |metrics| metrics.train_ppl)),
        ],
        labels: SeriesLabelPosition::UpperRight,
    };
    picture::save(&Keyed(chart), &run.path().join("curves"))
}
