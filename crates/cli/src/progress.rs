//! Progress on standard error: bars, and a line an epoch.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use awd_lstm::train::{EpochMetrics, Interval, TrainObserver};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;
use crate::print::{bits_text, print_json, print_note, with_bits};

/// A bar on standard error that looks as `template` says; a length that is not known yet may be set later.
pub fn bar(length: Option<u64>, template: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr())
        .with_style(style.progress_chars("=> "))
}

/// Steps of a bar that shows a share.
const SHARES: u64 = 1000;

/// A bar for work that reports the share of it that is done; removed when dropped.
pub struct ShareBar(ProgressBar);

impl ShareBar {
    /// A bar with `what` in front.
    pub fn new(what: &str) -> Self {
        let bar = bar(Some(SHARES), "{msg} [{bar:30}] {percent:>3}%, {eta} left");
        Self(bar.with_message(what.to_string()))
    }

    /// Shows that this share of the work is done.
    pub fn set(&self, share: f64) {
        self.0.set_position(position(share));
    }
}

impl Drop for ShareBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn position(share: f64) -> u64 {
    (share * SHARES as f64) as u64
}

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
    /// When training began in this process, and the share of its work that was done by then.
    start: (Instant, f64),
    /// The share that is done.
    share: f64,
    interrupt: Option<Interrupt>,
    /// Whether tokens are characters, so that bits per character are reported too.
    characters: bool,
}

impl Progress {
    /// A reporter; with `json`, every epoch is one object on standard output.
    pub fn new(json: bool) -> Self {
        Self {
            bar: bar(None, "{prefix} [{bar:30}] {percent:>3}% {msg}"),
            terminal: std::io::stderr().is_terminal(),
            json,
            epochs: true,
            label: String::new(),
            start: (Instant::now(), 0.0),
            share: 0.0,
            interrupt: None,
            characters: false,
        }
    }

    /// Stops training as soon as there is an interrupt.
    pub fn until(mut self, interrupt: &Interrupt) -> Self {
        self.interrupt = Some(interrupt.clone());
        self
    }

    /// A reporter that shows the bar alone, with `label` in front.
    pub fn bar_only(label: impl Into<String>) -> Self {
        Self { epochs: false, label: label.into(), ..Self::new(false) }
    }

    /// The same reporter with bits per character beside perplexities, if tokens are `characters`.
    pub fn with_characters(self, characters: bool) -> Self {
        Self { characters, ..self }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Time that the rest of the work takes at the speed so far; none before there is any.
    fn left(&self) -> Option<Duration> {
        let (began, before) = self.start;
        let done = self.share - before;
        (done > 0.0).then(|| began.elapsed().mul_f64((1.0 - self.share) / done))
    }

    fn line(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            print_note(line);
        }
    }
}

impl TrainObserver for Progress {
    fn on_start(&mut self, share: f64) {
        self.start = (Instant::now(), share);
        self.share = share;
    }

    fn on_interval(&mut self, interval: &Interval) {
        let Interval { epoch, epochs, tokens_per_s, nll, ppl, share, .. } = interval;
        self.share = *share;
        self.bar.set_length(SHARES);
        self.bar.set_position(position(*share));
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        let left = self.left().map_or(String::new(), |left| format!(", {} left", short(left)));
        self.bar.set_message(format!("{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}{left}"));
    }

    fn stop(&mut self) -> bool {
        let Some(interrupt) = &self.interrupt else { return false };
        if let Some(notice) = interrupt.notice() {
            self.line(notice);
        }
        interrupt.is_noted()
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.share = share;
        if !self.epochs {
            return;
        }
        let EpochMetrics { epoch, seconds, tokens_per_s, train_ppl, valid_ppl, averaging, best, .. } =
            metrics;
        self.line(&format!(
            "epoch {epoch}: {seconds:.1} s, {tokens_per_s:.0} tokens/s, perplexity train {train_ppl:.2}, \
             valid {valid_ppl:.2}{}{}{}{}",
            bits_text(self.characters, &[("train", *train_ppl), ("valid", *valid_ppl)]),
            if *averaging { ", averaged" } else { "" },
            if *best { ", best" } else { "" },
            self.left().map_or(String::new(), |left| format!(", {} left", short(left))),
        ));
        if self.json {
            let bits = [("train_bpc", *train_ppl), ("valid_bpc", *valid_ppl)];
            print_json(&with_bits(metrics, self.characters, &bits));
        }
    }

    fn on_message(&mut self, message: &str) {
        if self.epochs {
            self.line(message);
        }
    }
}

/// A time in two units, such as `3 h 05 min`.
fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 86400, seconds / 3600, seconds / 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {:02} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {:02} min", minutes % 60),
        (days, hours, _) => format!("{days} d {:02} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units() {
        let text = |seconds| short(Duration::from_secs(seconds));
        assert_eq!([7, 61, 3600, 90_061].map(text), ["7 s", "1 min 01 s", "1 h 00 min", "1 d 01 h"]);
    }

    #[test]
    fn the_time_left_counts_this_process_only() {
        let mut progress = Progress::bar_only("");
        assert!(progress.left().is_none());
        progress.on_start(0.5);
        progress.start.0 -= Duration::from_secs(10);
        progress.share = 0.6;
        let left = progress.left().unwrap().as_secs_f64();
        assert!((39.9..41.0).contains(&left), "{left}");
    }
}
