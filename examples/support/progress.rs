//! Training progress on standard error.

use std::io::{IsTerminal, Write};

use awd_lstm::train::{EpochMetrics, Interval, TrainObserver};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar with tokens/s, loss, perplexity and time left, and a line an epoch.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    /// Epoch lines go to standard output as JSON objects.
    json: bool,
    /// Whether epochs are reported at all.
    epochs: bool,
    /// In front of every epoch line.
    label: String,
}

impl Progress {
    /// A reporter; with `json`, every epoch is one object on standard output.
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {msg}, {eta} left")
            .expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        Self { bar, terminal, json, epochs: true, label: String::new() }
    }

    /// A reporter that shows the bar alone, with `label` in front.
    pub fn bar_only(label: impl Into<String>) -> Self {
        Self { epochs: false, label: label.into(), ..Self::new(false) }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }
}

impl TrainObserver for Progress {
    fn on_interval(&mut self, interval: &Interval) {
        let Interval { epoch, epochs, step, steps, tokens_per_s, nll, ppl } = interval;
        // Epochs differ a little in their number of steps: positions are shares of an epoch.
        let position = (epoch - 1) as f64 + *step as f64 / *steps as f64;
        self.bar.set_length(*epochs as u64 * 1000);
        self.bar.set_position((position * 1000.0) as u64);
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        self.bar.set_message(format!("{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}"));
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics) {
        if !self.epochs {
            return;
        }
        let EpochMetrics { epoch, seconds, tokens_per_s, train_ppl, valid_ppl, averaging, best, .. } =
            metrics;
        self.line(&format!(
            "epoch {epoch}: {seconds:.1} s, {tokens_per_s:.0} tokens/s, perplexity train {train_ppl:.2}, \
             valid {valid_ppl:.2}{}{}",
            if *averaging { ", averaged" } else { "" },
            if *best { ", best" } else { "" },
        ));
        if self.json {
            print_json(metrics);
        }
    }

    fn on_message(&mut self, message: &str) {
        if self.epochs {
            self.line(message);
        }
    }
}

/// Prints `value` as one line of JSON on standard output, at once.
pub fn print_json(value: &impl serde::Serialize) {
    let line = serde_json::to_string(value).expect("metrics are plain numbers and names");
    let mut out = std::io::stdout().lock();
    // A reader that went away is no reason to stop training.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
