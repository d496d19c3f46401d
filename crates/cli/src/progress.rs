//! Progress on standard error: bars on a terminal, lines elsewhere, and a line an epoch.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use runs::{EpochMetrics, StepMetrics, TrainObserver, ValidationMetrics};

use crate::interrupt::Interrupt;
use crate::print::{bits_text, print_json, print_note, with_bits};
use crate::sparkline::Curves;

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

/// Time between two lines about steps, unless every interval is to have one.
const QUIET: Duration = Duration::from_secs(10);

/// A line an epoch and, on a terminal, a progress bar with tokens/s, loss, perplexity, learning rate, gradient norm and time
/// left, above curves of the loss and of the validation perplexity; without a terminal, such lines every now and then.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    /// Whether every interval is a line, if there is no terminal.
    every_interval: bool,
    /// When the last line about steps was written, or training began.
    logged: Instant,
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
    /// Shown below the bar.
    curves: Curves,
}

impl Progress {
    /// A reporter; with `json`, every epoch is one object on standard output.
    pub fn new(json: bool) -> Self {
        Self {
            bar: bar(None, "{prefix} [{bar:30}] {percent:>3}% {msg}"),
            terminal: std::io::stderr().is_terminal(),
            every_interval: false,
            logged: Instant::now(),
            json,
            epochs: true,
            label: String::new(),
            start: (Instant::now(), 0.0),
            share: 0.0,
            interrupt: None,
            characters: false,
            curves: Curves::default(),
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

    /// The same reporter, which writes a line for every interval where there is no terminal, if that is asked for.
    pub fn with_every_interval(self, every_interval: bool) -> Self {
        Self { every_interval, ..self }
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

    /// Whether it is time for a line about steps.
    fn is_due(&self) -> bool {
        !self.terminal && self.epochs && (self.every_interval || self.logged.elapsed() >= QUIET)
    }

    /// What an interval's line in `steps.jsonl` says, for people.
    fn step_line(&self, interval: &StepMetrics) -> String {
        let StepMetrics { epoch, epochs, step, steps, tokens_per_s, nll, ppl, .. } = *interval;
        let [lr, norm, ar, tar] =
            [interval.lr, interval.gradient_norm, interval.ar.unwrap_or(0.0), interval.tar.unwrap_or(0.0)]
                .map(three_digits);
        format!(
            "{}epoch {epoch}/{epochs} step {step}/{steps} loss {nll:.3} ppl {ppl:.2}{} lr {lr} norm {norm} \
             clipped {:.0} % ar {ar} tar {tar} {tokens_per_s:.0} tokens/s{}{}",
            self.label,
            if self.characters { format!(" bpc {:.4}", ppl.log2()) } else { String::new() },
            interval.clipped * 100.0,
            if interval.averaging == Some(true) { " averaging" } else { "" },
            self.left().map_or(String::new(), |left| format!(" eta {}", short(left))),
        )
    }
}

impl TrainObserver for Progress {
    fn on_start(&mut self, share: f64) {
        self.start = (Instant::now(), share);
        self.share = share;
        self.logged = Instant::now();
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        let StepMetrics { epoch, epochs, tokens_per_s, nll, ppl, share, .. } = *interval;
        self.share = share;
        if self.is_due() {
            self.line(&self.step_line(interval));
            self.logged = Instant::now();
        }
        self.bar.set_length(SHARES);
        self.bar.set_position(position(share));
        self.bar.set_prefix(format!("{}epoch {epoch}/{epochs}", self.label));
        let left = self.left().map_or(String::new(), |left| format!(", {} left", short(left)));
        let (lr, norm) = (three_digits(interval.lr), three_digits(interval.gradient_norm));
        self.curves.add_loss(nll);
        let curves = if self.terminal { self.curves.below() } else { String::new() };
        self.bar.set_message(format!(
            "{tokens_per_s:.0} tokens/s, loss {nll:.3}, perplexity {ppl:.1}, lr {lr}, gradient norm {norm}{left}{curves}"
        ));
    }

    fn stop(&mut self) -> bool {
        let Some(interrupt) = &self.interrupt else { return false };
        if let Some(notice) = interrupt.notice() {
            self.line(notice);
        }
        interrupt.is_noted()
    }

    fn on_validation(&mut self, metrics: &ValidationMetrics, share: f64) {
        self.share = share;
        self.curves.add_perplexity(metrics.valid_ppl);
        if !self.epochs {
            return;
        }
        let ValidationMetrics { epoch, step, steps, train_ppl, valid_ppl, averaging, best, .. } = metrics;
        let bits = [("train", *train_ppl), ("valid", *valid_ppl)];
        self.line(&format!(
            "epoch {epoch}, step {step} of {steps}: perplexity train {train_ppl:.2}, valid {valid_ppl:.2}{}{}{}",
            bits_text(self.characters, &bits),
            if *averaging == Some(true) { ", averaged" } else { "" },
            if *best { ", best" } else { "" },
        ));
        if self.json {
            let bits = [("train_bpc", *train_ppl), ("valid_bpc", *valid_ppl)];
            print_json(&with_bits(metrics, self.characters, &bits));
        }
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.share = share;
        self.curves.add_perplexity(metrics.valid_ppl);
        if !self.epochs {
            return;
        }
        let EpochMetrics { epoch, seconds, tokens_per_s, train_ppl, valid_ppl, averaging, best, .. } =
            metrics;
        self.line(&format!(
            "epoch {epoch}: {seconds:.1} s, {tokens_per_s:.0} tokens/s, perplexity train {train_ppl:.2}, \
             valid {valid_ppl:.2}{}{}{}{}",
            bits_text(self.characters, &[("train", *train_ppl), ("valid", *valid_ppl)]),
            if *averaging == Some(true) { ", averaged" } else { "" },
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

/// Three digits of a number that is not negative, without powers of ten down to a millionth.
fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    match 2 - value.abs().log10().floor() as i32 {
        decimals @ ..=8 => format!("{value:.0$}", decimals.max(0) as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A time in two units, such as `3 h 05 min`.
pub fn short(time: Duration) -> String {
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
    fn numbers_have_three_digits() {
        let numbers = [14.2, 0.212_66, 0.001_234, 1.2e-6, 3.456e-9, 123.4, 98_765.0, 0.0, f64::INFINITY];
        let texts = ["14.2", "0.213", "0.00123", "0.00000120", "3.46e-9", "123", "98765", "0", "inf"];
        assert_eq!(numbers.map(three_digits), texts);
    }

    fn interval() -> StepMetrics {
        StepMetrics {
            epoch: 3,
            epochs: 40,
            step: 200,
            steps: 664,
            tokens: 1_000_000,
            seconds: 300.0,
            tokens_per_s: 8123.4,
            lr: 14.2,
            nll: 2.0,
            ppl: 7.389,
            gradient_norm: 0.2127,
            clipped: 0.35,
            latent_share: None,
            prior_cv: None,
            ar: Some(0.0312),
            tar: Some(0.0),
            averaging: Some(true),
            share: 0.5,
            waiting: None,
        }
    }

    #[test]
    fn a_line_says_what_steps_jsonl_says() {
        let interval = interval();
        let mut progress = Progress::new(false);
        progress.start.0 -= Duration::from_secs(4320);
        progress.share = 0.5;
        assert_eq!(
            progress.step_line(&interval),
            "epoch 3/40 step 200/664 loss 2.000 ppl 7.39 lr 14.2 norm 0.213 clipped 35 % ar 0.0312 tar 0 \
             8123 tokens/s averaging eta 1 h 12 min"
        );
        let line = progress.with_characters(true).step_line(&interval);
        assert!(line.contains(" ppl 7.39 bpc 2.8854 lr"), "{line}");
    }

    #[test]
    fn lines_are_seldom_unless_every_interval_is_wanted() {
        let mut progress = Progress { terminal: false, ..Progress::new(false) };
        assert!(!progress.is_due());
        progress.logged -= QUIET;
        assert!(progress.is_due());
        let progress = Progress { terminal: false, ..Progress::new(false) }.with_every_interval(true);
        assert!(progress.is_due());
        assert!(!Progress { terminal: true, ..progress }.is_due());
        assert!(!Progress { terminal: false, ..Progress::bar_only("") }.with_every_interval(true).is_due());
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

    #[test]
    fn curves_are_for_terminals_alone() {
        for terminal in [true, false] {
            let mut progress = Progress { terminal, ..Progress::bar_only("softmax ") };
            progress.on_interval(&interval());
            assert!(!progress.bar.message().contains('\n'), "one loss is no curve");
            progress.on_interval(&StepMetrics { nll: 1.0, ..interval() });
            let message = progress.bar.message();
            assert!(message.starts_with("8123 tokens/s, loss 1.000, "), "{message}");
            assert_eq!(message.ends_with("\nloss 2.000 █▁ 1.000"), terminal, "{message}");
            assert_eq!(message.contains('█'), terminal, "{message}");
        }
    }
}
