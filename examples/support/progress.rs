//! Training progress on standard error.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use awd_lstm::train::{EpochMetrics, Interval, TrainObserver};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;

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
    /// Whether tokens are characters, so that bits a character are reported too.
    characters: bool,
}

impl Progress {
    /// A reporter; with `json`, every epoch is one object on standard output.
    pub fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {msg}")
            .expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        Self {
            bar,
            terminal,
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

    /// The same reporter with bits a character beside perplexities, if tokens are `characters`.
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
            eprintln!("{line}");
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
        self.bar.set_length(1000);
        self.bar.set_position((share * 1000.0) as u64);
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        let left = self.left().map_or(String::new(), |left| format!(", {} left", short(left)));
        self.bar.set_message(format!("{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}{left}"));
    }

    fn stop(&mut self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_noted)
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

/// Metrics with bits a character beside them.
#[derive(Debug, serde::Serialize)]
pub struct WithBits<'a, T> {
    #[serde(flatten)]
    metrics: &'a T,
    #[serde(flatten)]
    bits: BTreeMap<&'static str, f64>,
}

/// Metrics with bits a character under the given names for some perplexities, if tokens are `characters`.
pub fn with_bits<'a, T>(metrics: &'a T, characters: bool, ppls: &[(&'static str, f64)]) -> WithBits<'a, T> {
    let bits = ppls.iter().filter(|_| characters).map(|&(name, ppl)| (name, ppl.log2())).collect();
    WithBits { metrics, bits }
}

/// Bits a character as the end of a line about perplexities, if tokens are `characters`.
pub fn bits_text(characters: bool, ppls: &[(&str, f64)]) -> String {
    if !characters {
        return String::new();
    }
    let bits: Vec<String> = ppls.iter().map(|(name, ppl)| format!("{name} {:.4}", ppl.log2())).collect();
    format!(", bits per character {}", bits.join(", "))
}

/// Prints `value` as one line of JSON on standard output, at once.
pub fn print_json(value: &impl serde::Serialize) {
    let line = serde_json::to_string(value).expect("metrics are plain numbers and names");
    let mut out = std::io::stdout().lock();
    // A reader that went away is no reason to stop training.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
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
