//! `step-throughput`: what a whole training step costs, or its LSTM layers alone.

use awd_lstm::{HeadKind, Preset};
use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use highrank::Precision;
use serde::Serialize;

use awd_lstm::sizes::{LastLstm, matching};
use program::device::{self, DeviceChoice, DeviceName, memory_bytes};
use program::failure::Failure;
use program::println;

use crate::threads;
use crate::timing::median_seconds;
use crate::workload::{LstmStack, Training};

/// Times a training step (forward, backward, clipping, update) on random tokens, or the LSTM layers alone.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct StepThroughputArgs {
    /// What is timed.
    #[arg(long, value_enum, default_value = "step")]
    pub part: Part,
    /// The preset: small, paper, doc, awd-lstm, lms-plif, wikitext2, doc-wikitext2, awd-lstm-wikitext2, billion-word, text8,
    /// text8-mos7-square, text8-mos10 or text8-mos10-square.
    #[arg(long, default_value = "paper")]
    pub preset: Preset,
    /// Output layer: softmax, moc, mos, doc, mixtape, sigsoftmax, gss, plif, mos-plif or adaptive.
    #[arg(long, default_value = "mos")]
    pub head: HeadKind,
    /// V, size of the vocabulary.
    #[arg(long, default_value_t = 10_000)]
    pub vocab: usize,
    /// Widen or narrow the embedding until the model has as many parameters as with a Mixture of Softmaxes.
    #[arg(long)]
    pub equal_size: bool,
    /// Timed steps; the median counts.
    #[arg(long, default_value_t = 7)]
    pub repeats: usize,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster where the hardware multiplies
    /// such numbers.
    #[arg(long, default_value_t)]
    pub precision: Precision,
    /// Threads that compute, on the device flex [default: as many as the machine runs at a time].
    #[arg(long)]
    pub threads: Option<usize>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The whole training step.
    Step,
    /// Forward and backward of the preset's LSTM layers, without dropout.
    Lstm,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    preset: String,
    head: String,
    parameters: usize,
    device: String,
    precision: Precision,
    /// `null` where it is not known.
    threads: Option<usize>,
    tokens: usize,
    median_ms: f64,
    tokens_per_s: f64,
    /// The process's largest resident memory, or what the runtime has taken on a GPU; `null` where it is not known.
    peak_bytes: Option<u64>,
}

/// Runs the program.
///
/// # Errors
/// Sizes that make no model, or a device that is not there.
pub fn run(args: &StepThroughputArgs) -> Result<(), Failure> {
    if args.repeats == 0 {
        return Err("--repeats is 0, but a measurement needs at least 1".into());
    }
    let name = device::resolve(args.device);
    threads::use_threads(name, args.threads)?;
    let measured = measure(args, name, &device::open(name)?)?;
    if args.json {
        println!("{}", serde_json::to_string(&measured)?);
    } else {
        let Measurement { preset, head, device, median_ms, tokens_per_s, .. } = measured;
        println!("{preset}, {head} on {device}: {median_ms:.1} ms a step, {tokens_per_s:.0} tokens/s");
    }
    Ok(())
}

fn measure(args: &StepThroughputArgs, name: DeviceName, device: &Device) -> Result<Measurement, Failure> {
    let StepThroughputArgs { part, preset, head, vocab, repeats, equal_size, precision, .. } = *args;
    let (mut model, train) = (preset.model(head, vocab), preset.train());
    model.precision = precision;
    if equal_size {
        model = matching(&model, preset.model(HeadKind::Mos, vocab).num_params(), LastLstm::Free)?;
    }
    let (tokens, seconds) = match part {
        Part::Step => {
            device::check_room(name, model.num_params())?;
            let mut training = Training::new(&model, train, device)?;
            training.step();
            (training.tokens(), median_seconds(repeats, || Ok(training.step()))?)
        }
        Part::Lstm => {
            let sizes = [&[model.d_embedding], model.lstm_sizes.as_slice()].concat();
            let stack = LstmStack::new(&sizes, train.bptt, train.batch, precision, device);
            stack.step(0.0);
            (stack.tokens(), median_seconds(repeats, || Ok(stack.step(0.0)))?)
        }
    };
    Ok(Measurement {
        preset: preset.to_string(),
        head: head.to_string(),
        parameters: model.num_params(),
        device: name.to_string(),
        precision,
        threads: threads::threads(name),
        tokens,
        median_ms: seconds * 1e3,
        tokens_per_s: tokens as f64 / seconds,
        peak_bytes: memory_bytes(name, device).map(|(_, taken)| taken),
    })
}
