//! `transformer_step`: what a training step of a small GPT costs with the fused head, or with Burn's own `Linear` and
//! `CrossEntropyLoss` at the same sizes. `head_throughput` times the output layer alone.

use awd_lstm::HeadKind;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::module::linear;
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::Parser;
use gpt::{Gpt, GptConfig};
use highrank::HeadConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use runs::error::check;
use serde::Serialize;

use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::print::print_json;
use program::println;

use crate::MOST_NUMBERS;
use crate::head_throughput::Layers;
use crate::timing::{added_peak, median_seconds};

/// Times forward and backward of a whole transformer whose decoder matrix is the embedding.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct TransformerStepArgs {
    /// Output layer: softmax, moc or mos.
    #[arg(long, default_value = "softmax")]
    pub head: HeadKind,
    /// What computes a softmax and its loss: fused (the head) or burn (Burn's Linear and CrossEntropyLoss).
    #[arg(long, value_enum, default_value = "fused")]
    pub layers: Layers,
    /// Components of a mixture.
    #[arg(long, value_name = "K", default_value_t = 4)]
    pub components: usize,
    /// V, size of the vocabulary.
    #[arg(long, default_value_t = 33_278)]
    pub vocab: usize,
    /// Width of the transformer and of the embedding.
    #[arg(long, default_value_t = 128)]
    pub d_model: usize,
    /// Layers of the transformer.
    #[arg(long, default_value_t = 3)]
    pub depth: usize,
    /// Length of a sequence.
    #[arg(long, default_value_t = 64)]
    pub context: usize,
    /// Sequences of a step.
    #[arg(long, default_value_t = 16)]
    pub batch: usize,
    /// Timed steps; the median counts.
    #[arg(long, default_value_t = 5)]
    pub repeats: usize,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Measurement {
    head: String,
    device: String,
    tokens: usize,
    vocab: usize,
    d_model: usize,
    median_ms: f64,
    tokens_per_s: f64,
    /// Growth of the process's peak memory over two steps, gradients included; on a GPU what the runtime has taken after them less
    /// what was in use before. `null` where it is not known.
    added_peak_bytes: Option<u64>,
    /// In nats.
    loss: f64,
}

/// Runs the program.
///
/// # Errors
/// Sizes that make no model, or a device that is not there.
pub fn run(args: &TransformerStepArgs) -> Result<(), Failure> {
    check(args.repeats > 0, "repeats", args.repeats, "at least 1")?;
    let burn = args.layers == Layers::Burn;
    let (d, vocab) = (args.d_model, args.vocab);
    let head = match args.head {
        HeadKind::Softmax => HeadConfig::softmax(d, vocab),
        HeadKind::Moc => HeadConfig::moc(d, d, vocab, args.components),
        HeadKind::Mos => HeadConfig::mos(d, d, vocab, args.components),
        head => return Err(format!("--head is {head}, but must be softmax, moc or mos").into()),
    };
    if burn && args.head != HeadKind::Softmax {
        return Err(format!("--layers burn has no {}, only --head softmax", args.head).into());
    }
    let model = GptConfig::new(d, head.with_tied(true)).with_layers(args.depth).with_context(args.context);
    model.validate()?;
    check(args.batch > 0, "batch", args.batch, "at least 1")?;
    // Of the hidden states, the attention, and with Burn's layers the logits.
    let widest = d.max(args.context).max(if burn { vocab } else { 0 });
    let size = args.batch.saturating_mul(args.context).saturating_mul(widest);
    check(size <= MOST_NUMBERS, "the size of a step", size, "at most 2^40")?;
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    device::check_room(name, model.num_params(&device)?)?;
    let step = step(&model, args.batch, burn, &device)?;
    device.sync()?;
    let wait = || -> Result<f64, Failure> {
        let loss = step();
        device.sync()?;
        Ok(loss)
    };
    let (loss, added_peak_bytes) = added_peak(name, &device, wait)?;
    let seconds = median_seconds(args.repeats, wait)?;
    let tokens = args.batch * args.context;
    let measured = Measurement {
        head: if burn { "burn linear + cross entropy".into() } else { args.head.to_string() },
        device: name.to_string(),
        tokens,
        vocab,
        d_model: d,
        median_ms: seconds * 1e3,
        tokens_per_s: tokens as f64 / seconds,
        added_peak_bytes,
        loss,
    };
    if args.json {
        print_json(&measured);
    } else {
        let Measurement { head, device, median_ms, tokens_per_s, .. } = &measured;
        let peak = measured
            .added_peak_bytes
            .map_or(String::new(), |bytes| format!(", added peak memory {:.1} MB", bytes as f64 / 1e6));
        println!("{head} on {device}: {median_ms:.1} ms a step, {tokens_per_s:.0} tokens/s{peak}");
    }
    Ok(())
}

/// A training step on random words, which returns its loss; with `burn`, the output layer is Burn's own.
fn step(config: &GptConfig, batch: usize, burn: bool, device: &Device) -> Result<impl Fn() -> f64, Failure> {
    let device = device.clone().autodiff();
    device.seed(0);
    let model = config.try_init(&device)?;
    runs::draw_all(&model);
    let mut rng = Pcg64::seed_from_u64(0);
    let shape = [batch, config.context];
    let mut draw = || -> Tensor<2, Int> {
        let words = (0..shape[0] * shape[1]).map(|_| rng.random_range(0..config.head.vocab as i64));
        Tensor::from_data(TensorData::new(words.collect::<Vec<_>>(), shape), &device)
    };
    let (tokens, targets) = (draw(), draw());
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    Ok(move || {
        let hidden = model.hidden(tokens.clone());
        let loss = match burn {
            true => {
                let [batch, length, d] = hidden.dims();
                let logits = burn_logits(&model, hidden.reshape([batch * length, d]));
                cross_entropy.forward(logits, targets.clone().reshape([batch * length]))
            }
            false => model.head().loss(hidden, targets.clone()),
        };
        let gradients = loss.backward();
        let value = loss.inner().into_scalar::<f64>();
        drop(gradients);
        value
    })
}

/// What Burn's `Linear` computes, with the embedding as its matrix and the head's bias. Shapes `[N, d]` and `[N, V]`.
fn burn_logits(model: &Gpt, hidden: Tensor<2>) -> Tensor<2> {
    let bias = model.head.decoder.bias.as_ref().map(|bias| bias.val());
    linear(hidden, model.embedding.weight.val().transpose(), bias)
}
