//! Progress on standard error: bars on a terminal, lines elsewhere, and a line an epoch.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use runs::{EpochMetrics, StepMetrics, TrainObserver, ValidationMetrics};

use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note, with_bits};
use crate::sparkline::Curves;
use crate::statistics::decimal;

/// Steps of a bar, which shows a share.
const SHARES: u64 = 1000;

/// A bar on standard error that looks as `template` says.
fn bar(template: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(SHARES), ProgressDrawTarget::stderr())
        .with_style(style.progress_chars("=> "))
}

/// Work that takes longer is named.
const PATIENCE: Duration = Duration::from_secs(2);

/// Work that shows nothing itself. If it takes longer than two seconds, a line on standard error says what it is. It ends when this is
/// dropped.
pub struct Working {
    /// Dropped with it, which ends the wait.
    _ends: Sender<()>,
}

impl Working {
    /// Work that `what` names, such as `reading the text`.
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        Self::that_tells(PATIENCE, move || print_note(what))
    }

    /// Work of which something is told if it takes longer than `patience`.
    fn that_tells(patience: Duration, tell: impl FnOnce() + Send + 'static) -> Self {
        let (ends, end) = channel::<()>();
        thread::spawn(move || {
            if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        });
        Self { _ends: ends }
    }
}

/// A bar for work that reports the share of it that is done; removed when dropped. Where there is no terminal, it is [`Working`].
pub struct ShareBar {
    bar: ProgressBar,
    _work: Option<Working>,
}

impl ShareBar {
    /// A bar with `what` in front.
    pub fn new(what: &str) -> Self {
        let bar = bar("{msg} [{bar:20}] {percent:>3}%, {eta} left").with_message(what.to_string());
        let work = (!std::io::stderr().is_terminal()).then(|| Working::new(what));
        Self { bar, _work: work }
    }

    /// Shows that this share of the work is done.
    pub fn set(&self, share: f64) {
        self.bar.set_position(position(share));
    }
}

impl Drop for ShareBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Columns of the bar of a training but for its prefix and its message.
const BESIDE_MESSAGE: usize = " [########] 100% ".len();

/// Curves that a bar and the observer of a training share.
type SharedCurves = Arc<Mutex<Curves>>;

/// The bar of a training, above its curves. Each line is drawn as wide as the terminal is at that moment, so nothing wraps.
fn training_bar(curves: &SharedCurves) -> ProgressBar {
    let curves = curves.clone();
    let below = move |_: &ProgressState, text: &mut dyn std::fmt::Write| {
        let curves = curves.lock().unwrap_or_else(PoisonError::into_inner);
        // A line that cannot be formatted is not shown.
        let _ = text.write_str(&curves.as_wide_as_terminal().unwrap_or_default());
    };
    // Beside its message it takes `BESIDE_MESSAGE` columns.
    let bar = bar("{prefix} [{bar:8}] {percent:>3}% {wide_msg}\n{curves}");
    let style = bar.style().with_key("curves", below);
    bar.with_style(style)
}

/// Signs of life of a training between its reports. Training asks whether to stop before every step, and before every piece of a text
/// that it scores.
struct Pulse {
    /// When training began, or the last report was made.
    since: Instant,
    /// How often training asked since.
    asked: usize,
    phase: Phase,
}

/// What a training is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before its first report in this process.
    First,
    Steps,
    /// After the last step of an epoch, until it is said.
    Scoring,
}

impl Pulse {
    fn new(phase: Phase) -> Self {
        Self { since: Instant::now(), asked: 0, phase }
    }

    /// What there is to tell when training asks whether to stop.
    fn asked(&mut self) -> Option<String> {
        self.asked += 1;
        let time = self.since.elapsed();
        match self.phase {
            Phase::First if self.asked == 2 && time >= PATIENCE => {
                Some(format!("first step: {}", short(time)))
            }
            Phase::Scoring if time >= PATIENCE => {
                self.phase = Phase::Steps;
                Some("scoring held-out text".into())
            }
            _ => None,
        }
    }
}

fn position(share: f64) -> u64 {
    (share * SHARES as f64) as u64
}

/// Time between two lines about steps, unless every interval is to have one.
const QUIET: Duration = Duration::from_secs(10);

/// What goes wrong with it is a line, and no reason to stop.
type EachEpoch<'a> = Box<dyn FnMut(&EpochMetrics) -> Result<(), String> + 'a>;

/// A line an epoch and, on a terminal, a progress bar with tokens/s, loss, perplexity, learning rate, gradient norm and time
/// left, above curves of the loss and of the validation perplexity; without a terminal, such lines every now and then.
pub struct Progress<'a> {
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
    /// In front of every line about steps.
    label: String,
    /// When training began in this process, and the share of its work that was done by then.
    start: (Instant, f64),
    /// The share that is done.
    share: f64,
    interrupt: Option<Interrupt>,
    /// Whether tokens are characters, so that bits per character are reported too.
    characters: bool,
    /// Shown below the bar.
    curves: SharedCurves,
    pulse: Pulse,
    /// Work after every epoch.
    each_epoch: EachEpoch<'a>,
}

impl<'a> Progress<'a> {
    /// A reporter; with `json`, every epoch is one object on standard output.
    pub fn new(json: bool) -> Self {
        let curves = SharedCurves::default();
        Self {
            bar: training_bar(&curves),
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
            curves,
            pulse: Pulse::new(Phase::First),
            each_epoch: Box::new(|_| Ok(())),
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

    /// The same reporter, which does `work` after every epoch. What goes wrong with it is a line, and no reason to stop training.
    pub fn with_each_epoch(self, work: impl FnMut(&EpochMetrics) -> Result<(), String> + 'a) -> Self {
        Self { each_epoch: Box::new(work), ..self }
    }

    fn curves(&self) -> std::sync::MutexGuard<'_, Curves> {
        self.curves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Perplexities of the training and the validation text, or bits per character.
    fn scores(&self, train_ppl: f64, valid_ppl: f64) -> String {
        match self.characters {
            true => format!("train {:.4}, valid {:.4} bits", train_ppl.log2(), valid_ppl.log2()),
            false => format!("train {}, valid {}", decimal(train_ppl, 2), decimal(valid_ppl, 2)),
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// Time that the rest of the work takes at the speed so far; none before there is any.
    fn left(&self) -> Option<Duration> {
        let (began, before) = self.start;
        let done = self.share - before;
        (done > 0.0).then(|| time_left(began.elapsed(), done, 1.0 - self.share))
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

    /// A finished epoch within 80 columns; its tokens a second are in `metrics.jsonl`.
    fn epoch_line(&self, metrics: &EpochMetrics) -> String {
        let EpochMetrics { epoch, seconds, train_ppl, valid_ppl, averaging, best, .. } = *metrics;
        format!(
            "epoch {epoch}: {}{}{}; {seconds:.*} s{}",
            self.scores(train_ppl, valid_ppl),
            if averaging == Some(true) { ", averaged" } else { "" },
            if best { ", best" } else { "" },
            usize::from(seconds < 100.0),
            left_text(self.left()),
        )
    }
}

impl TrainObserver for Progress<'_> {
    fn on_start(&mut self, share: f64) {
        self.start = (Instant::now(), share);
        self.share = share;
        self.logged = Instant::now();
        self.bar.set_position(position(share));
        self.pulse = Pulse::new(Phase::First);
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        let StepMetrics { epoch, epochs, step, steps, nll, share, .. } = *interval;
        self.share = share;
        self.pulse = Pulse::new(if step == steps { Phase::Scoring } else { Phase::Steps });
        let [line, message] = step_texts(interval, self.characters, self.left());
        if self.is_due() {
            self.line(&format!("{}{line}", self.label));
            self.logged = Instant::now();
        }
        self.curves().losses.push(nll);
        self.bar.set_position(position(share));
        let prefix = format!("{}epoch {epoch}/{epochs}", self.label);
        let (_, columns) = Term::stderr().size();
        let taken = prefix.chars().count() + BESIDE_MESSAGE;
        self.bar.set_message(fitting(&message, usize::from(columns).saturating_sub(taken)));
        self.bar.set_prefix(prefix);
    }

    fn stop(&mut self) -> bool {
        if let Some(sign) = self.pulse.asked() {
            self.bar.set_message(sign.clone());
            if !self.terminal && self.epochs {
                self.line(&sign);
            }
        }
        self.interrupt.as_ref().is_some_and(Interrupt::is_noted)
    }

    fn on_validation(&mut self, metrics: &ValidationMetrics, share: f64) {
        self.share = share;
        self.pulse = Pulse::new(Phase::Steps);
        self.curves().perplexities.push(metrics.valid_ppl);
        if !self.epochs {
            return;
        }
        let ValidationMetrics { epoch, step, steps, train_ppl, valid_ppl, averaging, best, .. } = metrics;
        self.line(&format!(
            "epoch {epoch}, step {step} of {steps}: {}{}{}",
            self.scores(*train_ppl, *valid_ppl),
            if *averaging == Some(true) { ", averaged" } else { "" },
            if *best { ", best" } else { "" },
        ));
        if self.json {
            let bits = [("train_bpc", *train_ppl), ("valid_bpc", *valid_ppl)];
            print_json(&with_bits(metrics, self.characters, &bits));
        }
    }

    fn on_test(&mut self) {
        self.pulse = Pulse::new(Phase::Scoring);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.share = share;
        self.pulse = Pulse::new(Phase::Steps);
        self.curves().perplexities.push(metrics.valid_ppl);
        if self.epochs {
            self.line(&self.epoch_line(metrics));
        }
        if self.epochs && self.json {
            let bits = [("train_bpc", metrics.train_ppl), ("valid_bpc", metrics.valid_ppl)];
            print_json(&with_bits(metrics, self.characters, &bits));
        }
        if let Err(message) = (self.each_epoch)(metrics) {
            self.on_message(&message);
        }
    }

    fn on_message(&mut self, message: &str) {
        if self.epochs {
            self.line(message);
        }
    }
}

/// What an interval's line in `steps.jsonl` says, for people, and the part of it that stands beside a bar.
fn step_texts(interval: &StepMetrics, characters: bool, left: Option<Duration>) -> [String; 2] {
    let StepMetrics { epoch, epochs, step, steps, tokens_per_s, nll, ppl, .. } = *interval;
    let [lr, norm] = [interval.lr, interval.gradient_norm].map(three_digits);
    let [ar, tar] = [("ar", interval.ar), ("tar", interval.tar)]
        .map(|(name, value)| value.map_or(String::new(), |value| format!(" {name} {}", three_digits(value))));
    let line = format!(
        "epoch {epoch}/{epochs} step {step}/{steps} loss {nll:.3} ppl {}{} lr {lr} norm {norm} \
         clipped {:.0} %{ar}{tar} {tokens_per_s:.0} tokens/s{}{}",
        decimal(ppl, 2),
        if characters { format!(" bpc {:.4}", ppl.log2()) } else { String::new() },
        interval.clipped * 100.0,
        if interval.averaging == Some(true) { " averaging" } else { "" },
        left.map_or(String::new(), |left| format!(" eta {}", short(left))),
    );
    // What a narrow terminal has no room for comes last.
    let left = left_text(left);
    let message =
        format!("ppl {}, {tokens_per_s:.0} tokens/s{left}, lr {lr}, gradient norm {norm}", decimal(ppl, 1));
    [line, message]
}

/// The first items of a list with commas that fit into `columns`; one at least.
fn fitting(items: &str, columns: usize) -> String {
    let mut text = String::new();
    for item in items.split(", ") {
        let longer = if text.is_empty() { item.to_string() } else { format!("{text}, {item}") };
        if !text.is_empty() && longer.chars().count() > columns {
            break;
        }
        text = longer;
    }
    text
}

/// The time that is left as the end of a line; nothing where it is not known.
fn left_text(left: Option<Duration>) -> String {
    left.map_or(String::new(), |left| format!(", {} left", short(left)))
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

/// Time that a share `left` of a work takes, of which `done` took so long; the longest there is for a work without an end.
fn time_left(so_far: Duration, done: f64, left: f64) -> Duration {
    Duration::try_from_secs_f64(so_far.as_secs_f64() * left.max(0.0) / done).unwrap_or(Duration::MAX)
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
#[path = "progress_tests.rs"]
mod tests;
