//! `head-throughput`: what a training step or a prediction of an output head costs, beside the device's own matrix-product
//! rate, Burn's own layers, or the plain loss.

use awd_lstm::HeadKind;
use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use highrank::{HeadConfig, Precision};
use serde::Serialize;

use crate::args::{Head, HeadSizes};
use crate::device::{self, DeviceChoice, DeviceName, forget_peak, memory_bytes};
use crate::failure::Failure;
use crate::statistics::median;
use crate::timing::seconds_of;
use crate::workload::{
    FloatType, LossOption, Mode, OutputLayer, OutputPrediction, OutputStep, SquareProduct,
};

/// Times one training step (forward and backward of the mean loss) of an output head, or one of its predictions.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct HeadThroughputArgs {
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif, mos-plif, soft-cap or monotonic-net.
    #[arg(long, default_value = "mos")]
    pub head: Head,
    /// What is timed: step, or one of the predictions nll, log-probs, top-k, sample and decode.
    #[arg(long, value_enum, default_value = "step")]
    pub mode: Mode,
    /// What computes a softmax's step: fused (the head) or burn (Burn's Linear and CrossEntropyLoss).
    #[arg(long, value_enum, default_value = "fused")]
    pub layers: Layers,
    /// An option of the step's loss, timed in turn with the plain loss.
    #[arg(long, value_enum, default_value = "plain")]
    pub options: LossOption,
    /// N, tokens of a step that count.
    #[arg(long, default_value_t = 840)]
    pub tokens: usize,
    /// H, width of the hidden state; heads without mixture take it from --d-embedding.
    #[arg(long, default_value_t = 620)]
    pub d_hidden: usize,
    /// d, width of a decoder row.
    #[arg(long, default_value_t = 280)]
    pub d_embedding: usize,
    /// V, size of the vocabulary.
    #[arg(long, default_value_t = 10_000)]
    pub vocab: usize,
    /// K, components of a mixture.
    #[arg(long, default_value_t = 15)]
    pub components: usize,
    /// Pieces of a PLIF.
    #[arg(long, default_value_t = 100_000)]
    pub knots: usize,
    /// Largest logit of a soft cap.
    #[arg(long, default_value_t = HeadSizes::CAP)]
    pub cap: f64,
    /// Sigmoids of a monotonic network.
    #[arg(long, default_value_t = HeadSizes::UNITS)]
    pub units: usize,
    /// Words that --mode top-k lists for every token [default: 10].
    #[arg(long, value_name = "WORDS")]
    pub k: Option<usize>,
    /// Timed steps, for --mode decode times 20; the median counts.
    #[arg(long, default_value_t = 7)]
    pub repeats: usize,
    /// Bytes of the largest logit matrix that may exist at a time [default: the crate's].
    #[arg(long, value_name = "BYTES")]
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster where the hardware multiplies
    /// such numbers.
    #[arg(long, default_value_t)]
    pub precision: Precision,
    /// Float type of parameters and hidden states.
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: FloatType,
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

/// What computes a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layers {
    /// The head.
    Fused,
    /// Burn's `Linear` and `CrossEntropyLoss`.
    Burn,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    head: String,
    device: String,
    precision: Precision,
    dtype: FloatType,
    /// `null` where it is not known.
    threads: Option<usize>,
    mode: Mode,
    options: LossOption,
    /// Tokens that count.
    tokens: usize,
    params: usize,
    median_ms: f64,
    tokens_per_s: f64,
    /// Of the matrix products alone. In a step: logits, gradient of the contexts, gradient of the decoder, and the latent
    /// layer's three.
    gflops: f64,
    of_ceiling: f64,
    /// Rate of a square product of the same precision and float type, measured in turn with the steps: the kernels' own where
    /// there are native ones, else the backend's.
    ceiling_gflops: f64,
    /// Growth of the process's peak memory over two steps, gradients included; on a GPU what the runtime has taken after
    /// them less what was in use before. `null` where it is not known.
    added_peak_bytes: Option<u64>,
    /// In nats.
    loss: f64,
    /// Of the plain loss, measured in turn with the option's.
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_ms: Option<f64>,
    /// Time with the option over that of the plain loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_plain: Option<f64>,
}

/// Runs the program.
///
/// # Errors
/// Sizes that make no head, or a device that is not there.
pub fn run(args: &HeadThroughputArgs) -> Result<(), Failure> {
    for (name, size) in [("--tokens", args.tokens), ("--repeats", args.repeats)] {
        if size == 0 {
            return Err(format!("{name} is 0, but a measurement needs at least 1").into());
        }
    }
    let config = args.head_config();
    config.validate()?;
    args.validate()?;
    let name = device::resolve(args.device);
    device::use_threads(name, args.threads)?;
    let device = device::open(name)?;
    if !device.supports_dtype(args.dtype.dtype()) {
        return Err(format!(
            "--dtype is {}, but the device {name} has no such numbers",
            args.dtype.dtype().name()
        )
        .into());
    }
    let measured = measure(args, &config, name, &device)?;
    if args.json {
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    println!(
        "{} on {}: {:.*} ms a {}, {:.0} tokens/s, {:.0} GFLOP/s ({:.0} % of {:.0}), loss {:.4}",
        measured.head,
        measured.device,
        if measured.median_ms < 10.0 { 3 } else { 1 },
        measured.median_ms,
        if args.mode == Mode::Step { "step" } else { "prediction" },
        measured.tokens_per_s,
        measured.gflops,
        100.0 * measured.of_ceiling,
        measured.ceiling_gflops,
        measured.loss,
    );
    println!(
        "ceiling: {:.0} GFLOP/s, a square product of {} at precision {}",
        measured.ceiling_gflops,
        args.dtype.dtype().name(),
        measured.precision,
    );
    if let (Some(ms), Some(ratio)) = (measured.plain_ms, measured.over_plain) {
        println!("plain loss: {ms:.1} ms; with the option {ratio:.3} times as long");
    }
    if let Some(bytes) = measured.added_peak_bytes {
        println!("added peak memory: {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

impl HeadThroughputArgs {
    /// Refuses what cannot be combined.
    fn validate(&self) -> Result<(), Failure> {
        let (step, plain) = (self.mode == Mode::Step, self.options == LossOption::Plain);
        if !step && !plain {
            return Err("--options are those of a loss, which only --mode step has".into());
        }
        if let Some(k) = self.k {
            if self.mode != Mode::TopK {
                return Err("--k is given, but only --mode top-k lists words".into());
            }
            if k == 0 || k > self.vocab {
                return Err(
                    format!("--k is {k}, but must be from 1 to the vocabulary's {}", self.vocab).into()
                );
            }
        }
        match self.layers {
            Layers::Burn if self.head != Head::Common(HeadKind::Softmax) => {
                let head = self.head;
                Err(format!("--layers burn has no {head}, only --head softmax").into())
            }
            Layers::Burn if !step || !plain => {
                Err("--layers burn has only --mode step with --options plain".into())
            }
            _ => Ok(()),
        }
    }

    fn head_config(&self) -> HeadConfig {
        let config = self.head.config(&HeadSizes {
            d_hidden: self.d_hidden,
            d_embedding: self.d_embedding,
            vocab: self.vocab,
            components: self.components,
            knots: self.knots,
            cap: self.cap,
            units: self.units,
        });
        let config = config.with_precision(self.precision);
        match self.memory_budget {
            Some(bytes) => config.with_memory_budget(Some(bytes)),
            None => config,
        }
    }

    /// Tokens that are worked on at a time.
    fn rows(&self) -> usize {
        if self.mode == Mode::Decode { 1 } else { self.tokens }
    }

    /// Timed runs between two of the square product: more of what takes a millisecond or less.
    fn runs(&self) -> usize {
        if self.mode == Mode::Decode { 20 } else { 1 }
    }

    /// Floating-point operations of the matrix products.
    fn flops(&self, config: &HeadConfig) -> f64 {
        let (h, d, v, k) = (config.d_hidden, config.d_embedding, config.vocab, config.context.components());
        let tokens = self.rows();
        let rows = match self.head {
            // Drawing a word draws its component first.
            _ if self.mode == Mode::Sample => tokens,
            Head::Common(HeadKind::Mos | HeadKind::MosPlif) => tokens * k,
            _ => tokens,
        };
        let latent = if self.head.is_mixture() { (tokens * h * k) as f64 * d as f64 } else { 0.0 };
        let products = if self.mode == Mode::Step { 3.0 } else { 1.0 };
        2.0 * products * ((rows * d) as f64 * v as f64 + latent)
    }
}

/// What is timed.
// There is one: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
enum Timed {
    Step(OutputStep),
    Prediction(OutputPrediction),
}

impl Timed {
    fn new(
        layer: OutputLayer,
        args: &HeadThroughputArgs,
        config: &HeadConfig,
        option: LossOption,
        device: &Device,
    ) -> Self {
        let (tokens, d_hidden) = (args.rows(), config.d_hidden);
        match layer {
            OutputLayer::Head(head) if args.mode != Mode::Step => {
                let prediction = OutputPrediction::new(head, [tokens, d_hidden], args.mode, device);
                Self::Prediction(match args.k {
                    Some(k) => prediction.with_top(k),
                    None => prediction,
                })
            }
            layer => Self::Step(OutputStep::new(layer, [tokens, d_hidden, config.vocab], option, device)),
        }
    }

    /// Runs once and waits for the device. Returns the loss of a step.
    fn run(&mut self, device: &Device) -> Result<Option<f64>, Failure> {
        let loss = match self {
            Self::Step(step) => Some(step.run()),
            Self::Prediction(prediction) => {
                prediction.run();
                None
            }
        };
        device.sync()?;
        Ok(loss)
    }
}

fn measure(
    args: &HeadThroughputArgs,
    config: &HeadConfig,
    name: DeviceName,
    device: &Device,
) -> Result<Measurement, Failure> {
    let place = match args.mode {
        Mode::Step => device.clone().autodiff(),
        _ => device.clone(),
    };
    place.seed(0);
    let layer = match args.layers {
        Layers::Fused => OutputLayer::Head(config.init(&place)),
        Layers::Burn => OutputLayer::burn(config.d_embedding, config.vocab, &place),
    };
    let layer = if args.dtype == FloatType::F32 { layer } else { layer.cast(args.dtype) };
    // Parameters and inputs are no part of what a step adds.
    layer.create();
    let params = layer.num_params();
    let mut timed = Timed::new(layer.clone(), args, config, args.options, &place);
    device.sync()?;
    forget_peak();
    let before = memory_bytes(name, device);
    let first = timed.run(device)?;
    timed.run(device)?;
    let after = memory_bytes(name, device);
    let added_peak_bytes =
        before.zip(after).map(|((in_use, _), (_, reserved))| reserved.saturating_sub(in_use));
    let loss = match &timed {
        Timed::Prediction(prediction) => prediction.loss(),
        Timed::Step(_) => first.unwrap_or(f64::NAN),
    };
    let mut plain = (args.options != LossOption::Plain)
        .then(|| Timed::new(layer, args, config, LossOption::Plain, &place));
    if let Some(plain) = &mut plain {
        plain.run(device)?;
    }
    let mut product = SquareProduct::new(name, args.dtype, args.precision, device)?;
    product.run()?;
    // In turn: where other work shares the machine, all meet the same of it.
    let (mut steps, mut plains, mut products) = (vec![], vec![], vec![]);
    for _ in 0..args.repeats {
        for _ in 0..args.runs() {
            steps.push(seconds_of(|| timed.run(device))?);
        }
        if let Some(plain) = &mut plain {
            plains.push(seconds_of(|| plain.run(device))?);
        }
        products.push(seconds_of(|| product.run())?);
    }
    let middle = |times: Vec<f64>| median(times).expect("a measurement has at least one step");
    let (seconds, ceiling) = (middle(steps), product.flops() / middle(products) / 1e9);
    let plain = median(plains);
    let gflops = args.flops(config) / seconds / 1e9;
    Ok(Measurement {
        head: match args.layers {
            Layers::Fused => args.head.to_string(),
            Layers::Burn => "burn linear + cross entropy".into(),
        },
        device: name.to_string(),
        precision: args.precision,
        dtype: args.dtype,
        threads: device::threads(name),
        mode: args.mode,
        options: args.options,
        tokens: args.rows(),
        params,
        median_ms: seconds * 1e3,
        tokens_per_s: args.rows() as f64 / seconds,
        gflops,
        of_ceiling: gflops / ceiling,
        ceiling_gflops: ceiling,
        added_peak_bytes,
        loss,
        plain_ms: plain.map(|plain| plain * 1e3),
        over_plain: plain.map(|plain| seconds / plain),
    })
}
