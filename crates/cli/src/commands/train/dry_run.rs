//! What a run would be and need, from its settings and some real steps.

use std::time::{Duration, Instant};

use awd_lstm::data::Batches;
use awd_lstm::train::{EVALUATION_TOKENS, LmTask, RunConfig, Trainer};
use awd_lstm::{LanguageModel, TrainConfig};
use burn::module::Module;
use program::device::{self, DeviceName, memory_bytes};
use program::failure::Failure;
use program::print::print_json;
use program::progress::{Working, short};
use program::statistics::grouped;
use runs::data::Corpus;
use runs::{StepMetrics, TrainObserver};
use serde::Serialize;

use crate::training::{require_test, words};

/// Steps before the timed ones: the first compile kernels and fill pools of memory.
const WARM_UP: usize = 2;
/// Timed steps at most, and at least where the time is up.
const STEPS: (usize, usize) = (20, 2);
/// Time for the timed steps; a quarter of it for each held-out text.
const TIME: Duration = Duration::from_secs(8);

/// What a run would be and need.
#[derive(Debug, Serialize)]
struct Plan {
    preset: String,
    head: String,
    device: String,
    parameters: usize,
    vocab: usize,
    /// How the vocabulary is counted.
    words: String,
    train_tokens: usize,
    valid_tokens: usize,
    test_tokens: usize,
    epochs: usize,
    /// Of the first epoch; other epochs draw other lengths.
    steps_per_epoch: usize,
    timed_steps: usize,
    /// Mean time of a training step.
    step_seconds: f64,
    tokens_per_s: f64,
    /// With its validations.
    epoch_seconds: f64,
    /// Of all epochs and the test, or the time limit.
    run_seconds: f64,
    /// Of the weights alone, in f32.
    weights_bytes: u64,
    /// Measured up to the end of the timed steps; `null` where the system does not say.
    peak_bytes: Option<u64>,
    /// With the averaged and the best weights, which come later.
    expected_bytes: Option<u64>,
}

/// Prints what the run would be and need. The model is discarded, and nothing is written.
pub fn run(config: &RunConfig, corpus: &Corpus, json: bool) -> Result<(), Failure> {
    let name: DeviceName = config.device.parse()?;
    let device = device::open(name)?;
    let (model, train) = (&config.model, &config.train);
    if train.test {
        require_test(corpus, &config.data)?;
    }
    // What could end the steps early is left out.
    let steps = TrainConfig { max_minutes: None, validate_every: None, ..train.clone() };
    device::check_room(name, model.num_params())?;
    let mut trainer = Trainer::new(LmTask::new(model, &steps, corpus, &device)?).with_log_every(1);
    let mut watch = Watch::default();
    let timing = Working::new("timing some steps of training");
    trainer.fit(None, &mut watch)?;
    drop(timing);
    let peak_bytes = memory_bytes(name, &device).map(|(_, taken)| taken);
    let (timed_steps, tokens_per_s) = watch.speed();
    let evaluated = trainer.model().valid();
    let valid = evaluation_seconds(&evaluated, "the validation text", corpus.valid(), train.eval_batch)?;
    let test = match train.test {
        true => evaluation_seconds(&evaluated, "the test text", corpus.test(), train.test_batch)?,
        false => 0.0,
    };
    let tokens = corpus.train().len() / train.batch * train.batch - train.batch;
    let trained = tokens as f64 / tokens_per_s;
    // The last one of an epoch is that of its end.
    let within = train.validate_every.map_or(0, |every| (watch.steps - 1) / every);
    let epoch_seconds = trained + (1 + within) as f64 * valid;
    let whole = epoch_seconds * train.epochs as f64;
    let limited = train.max_minutes.map_or(whole, |minutes| whole.min(minutes * 60.0));
    let weights_bytes = 4 * model.num_params() as u64;
    let plan = Plan {
        preset: config.preset.clone(),
        head: model.head.to_string(),
        device: config.device.clone(),
        parameters: model.num_params(),
        vocab: model.vocab,
        words: words(&config.text, corpus),
        train_tokens: corpus.train().len(),
        valid_tokens: corpus.valid().len(),
        test_tokens: corpus.test().len(),
        epochs: train.epochs,
        steps_per_epoch: watch.steps,
        timed_steps,
        step_seconds: trained / watch.steps as f64,
        tokens_per_s,
        epoch_seconds,
        run_seconds: limited + test,
        weights_bytes,
        peak_bytes,
        expected_bytes: peak_bytes.map(|peak| peak + 2 * weights_bytes),
    };
    match json {
        true => print_json(&plan),
        false => print!("{}", plan.text()),
    }
    Ok(())
}

/// Time to evaluate the text `ids` in `columns` columns, from its first windows.
fn evaluation_seconds(
    model: &LanguageModel,
    what: &'static str,
    ids: &[u32],
    columns: usize,
) -> Result<f64, Failure> {
    let _timing = Working::new(format!("timing some windows of {what}"));
    let batches = Batches::new(what, ids, columns, 2)?;
    let length = (EVALUATION_TOKENS / columns).max(1);
    let (device, mut state) = (model.device(), model.zero_state(columns));
    let (mut tokens, mut spent) = (0, Duration::ZERO);
    for (number, window) in batches.windows(length, &device).enumerate() {
        let begin = Instant::now();
        // The first window warms up, and counts only if it is alone.
        if number == 1 {
            (tokens, spent) = (0, Duration::ZERO);
        }
        tokens += window.tokens.dims().into_iter().product::<usize>();
        let (nll, next) = model.nll(window.tokens, window.targets, state);
        nll.into_data();
        state = next;
        spent += begin.elapsed();
        if number > 0 && spent > TIME / 4 {
            break;
        }
    }
    Ok(spent.as_secs_f64() * batches.predictions() as f64 / tokens as f64)
}

/// Stops training after the timed steps.
#[derive(Default)]
struct Watch {
    /// When training began and when every step was done, with the tokens until then.
    marks: Vec<(Instant, usize)>,
    /// Steps of the epoch.
    steps: usize,
}

impl Watch {
    /// The first mark that counts.
    fn first(&self) -> usize {
        WARM_UP.min(self.marks.len().saturating_sub(2))
    }

    /// Timed steps, and their tokens a second.
    fn speed(&self) -> (usize, f64) {
        let (first, last) = (self.marks[self.first()], self.marks[self.marks.len() - 1]);
        let seconds = (last.0 - first.0).as_secs_f64().max(1e-9);
        (self.marks.len() - 1 - self.first(), (last.1 - first.1) as f64 / seconds)
    }
}

impl TrainObserver for Watch {
    fn on_start(&mut self, _share: f64) {
        self.marks.push((Instant::now(), 0));
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        self.steps = interval.steps;
        self.marks.push((Instant::now(), interval.tokens));
    }

    fn stop(&mut self) -> bool {
        let done = self.marks.len() - 1;
        let timed = done.saturating_sub(WARM_UP);
        let late = timed >= STEPS.1 && self.marks[self.first()].0.elapsed() >= TIME;
        let all = done > 0 && done == self.steps;
        timed >= STEPS.0 || late || all
    }
}

impl Plan {
    /// For people.
    fn text(&self) -> String {
        let time = |seconds| short(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let size = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
        let memory = match (self.peak_bytes, self.expected_bytes) {
            (Some(peak), Some(expected)) => format!(
                "about {}: {} measured, averaged and best weights {}",
                size(expected),
                size(peak),
                size(2 * self.weights_bytes)
            ),
            // Weights, gradients, averaged and best weights.
            _ => format!("more than {}; this system does not say more", size(4 * self.weights_bytes)),
        };
        let Self { head, words, epochs, step_seconds, tokens_per_s, device, timed_steps, .. } = self;
        let [train, valid, test] = [self.train_tokens, self.valid_tokens, self.test_tokens].map(grouped);
        let [parameters, steps] = [self.parameters, self.steps_per_epoch].map(grouped);
        let [epoch, run] = [self.epoch_seconds, self.run_seconds].map(time);
        format!(
            "model: {head} with {parameters} parameters\n\
             text: {train} training, {valid} validation and {test} test tokens\n\
             vocabulary: {words}\n\
             steps: {steps} an epoch, {epochs} epochs; {step_seconds:.3} s a step, {tokens_per_s:.0} tokens/s on {device} \
             ({timed_steps} steps timed)\n\
             time: {epoch} an epoch with validation, {run} all epochs and the test\n\
             memory: {memory}\n"
        )
    }
}
