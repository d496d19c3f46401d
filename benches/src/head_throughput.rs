//! `head-throughput`: what a training step or a prediction of an output head costs, beside the device's own matrix-product
//! rate, Burn's own layers, or the plain loss.

use std::num::Saturating;

use awd_lstm::HeadKind;
use burn::module::Module;
use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use highrank::context::MixtapeConfig;
use highrank::{
    Activation, AdaptiveConfig, ContextConfig, HeadConfig, LogitMapConfig, Precision, cast_parameters,
};
use runs::error::check;
use serde::Serialize;

use program::args::{Head, HeadSizes, List};
use program::device::{self, DeviceChoice, DeviceName};
use program::failure::Failure;
use program::println;

use crate::MOST_NUMBERS;
use crate::threads;
use crate::timing::{added_peak, median, seconds_of};
use crate::workload::{
    FloatType, LossOption, Mode, OutputLayer, OutputPrediction, OutputStep, SquareProduct, TargetWords,
};

/// Times one training step (forward and backward of the mean loss) of an output head, or one of its predictions.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct HeadThroughputArgs {
    /// Output layer: softmax, moc, mos, doc, mixtape, sigsoftmax, gss, plif, mos-plif, adaptive, soft-cap or monotonic-net.
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
    /// How the target words of a step or of nll are drawn: even, or zipf, the word of rank r with a probability proportional to
    /// 1/r, which is what clusters of rare words are made for.
    #[arg(long, value_enum, default_value = "even")]
    pub targets: TargetWords,
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
    /// K, components of a mixture, for --head doc those from the last layer.
    #[arg(long, default_value_t = 15)]
    pub components: usize,
    /// Contexts of a mixture: tanh, linear or residual [default: tanh].
    #[arg(long)]
    pub activation: Option<Activation>,
    /// Components of --head doc from the layer below [default: 5].
    #[arg(long, value_name = "K")]
    pub lower_components: Option<usize>,
    /// Width of the layer below, for --head doc [default: 960].
    #[arg(long, value_name = "H")]
    pub d_lower: Option<usize>,
    /// First words of clusters of rare words, separated by commas: makes any head adaptive [default for --head adaptive: a 25th and
    /// a fifth of the vocabulary].
    #[arg(long, value_name = "WORDS")]
    pub cutoffs: Option<List<usize>>,
    /// What the widths of the clusters are divided by, from one to the next [default: 4].
    #[arg(long, value_name = "N")]
    pub division: Option<f64>,
    /// Words of --head mixtape that have a gate of their own [default: a twentieth of the vocabulary].
    #[arg(long, value_name = "WORDS")]
    pub frequent: Option<usize>,
    /// Width of the gates of --head mixtape [default: 32].
    #[arg(long, value_name = "G")]
    pub d_gate: Option<usize>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    activation: Option<Activation>,
    device: String,
    precision: Precision,
    dtype: FloatType,
    /// `null` where it is not known.
    threads: Option<usize>,
    mode: Mode,
    options: LossOption,
    targets: TargetWords,
    /// First words of clusters of rare words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cutoffs: Vec<usize>,
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
    args.check_sizes()?;
    let config = args.head_config();
    config.validate()?;
    args.validate()?;
    let parameters = args.check_work(&config)?;
    let name = device::resolve(args.device);
    if args.mode == Mode::Step && args.dtype == FloatType::F32 {
        device::check_room(name, parameters)?;
    }
    threads::use_threads(name, args.threads)?;
    let device = device::open(name)?;
    if !device.supports_dtype(args.dtype.dtype()) {
        return Err(format!(
            "--dtype is {}, but the device {name} has no such numbers",
            args.dtype.dtype().name()
        )
        .into());
    }
    // Large enough to keep the device busy for a millisecond.
    let side = if name == DeviceName::Cuda { 4096 } else { 2048 };
    let measured = measure(args, &config, name, &device, side)?;
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
    /// Refuses sizes whose sums could overflow.
    fn check_sizes(&self) -> Result<(), Failure> {
        let sizes = [
            ("--tokens", Some(self.tokens)),
            ("--d-hidden", Some(self.d_hidden)),
            ("--d-embedding", Some(self.d_embedding)),
            ("--vocab", Some(self.vocab)),
            ("--components", Some(self.components)),
            ("--lower-components", self.lower_components),
            ("--d-lower", self.d_lower),
            ("--frequent", self.frequent),
            ("--d-gate", self.d_gate),
            ("--knots", Some(self.knots)),
            ("--units", Some(self.units)),
        ];
        let mut given = sizes.into_iter().filter_map(|(name, size)| Some((name, size?)));
        match given.find(|(_, size)| *size > MOST_NUMBERS) {
            Some((name, size)) => Err(format!("{name} is {size}, but must be at most 2^40").into()),
            None => Ok(()),
        }
    }

    /// Refuses more parameters, or larger matrices of a step, than any machine holds. Returns the number of parameters, without
    /// biases and priors.
    fn check_work(&self, config: &HeadConfig) -> Result<usize, Failure> {
        let [h, d, v, k, tokens] =
            [config.d_hidden, config.d_embedding, config.vocab, config.context.components(), self.rows()]
                .map(Saturating);
        let none = Saturating(0);
        let contexts = match &config.context {
            ContextConfig::DirectOutputConnection(connection) => {
                let layers = connection.layers.iter();
                layers.fold(none, |sum, layer| {
                    sum + Saturating(layer.d_hidden) * Saturating(layer.components) * d
                })
            }
            ContextConfig::Mixtape(MixtapeConfig { frequent, d_gate, .. }) => {
                h * k * d + (Saturating(*frequent) + h * k) * Saturating(*d_gate)
            }
            _ if self.head.has_contexts() => h * k * d,
            _ => none,
        };
        let tails = config.adaptive.as_ref().map_or(none, |adaptive| {
            let tails = adaptive.tails(config.d_hidden, config.vocab);
            tails.fold(none, |sum, (words, width)| sum + Saturating(width) * (h + Saturating(words.len())))
        });
        let map = match config.logit_map {
            LogitMapConfig::Plif { knots, .. } => knots,
            LogitMapConfig::MonotonicNet { units } => units,
            _ => 0,
        };
        let parameters = Saturating(config.decoder_rows()) * d + contexts + tails + Saturating(map);
        let all_words = self.layers == Layers::Burn || self.mode == Mode::LogProbs;
        let listed = if self.mode == Mode::TopK { self.k.unwrap_or(1) } else { 1 };
        let widest = h.max(k * d).max(Saturating(listed)).max(if all_words { v } else { none });
        check(parameters.0 <= MOST_NUMBERS, "the number of parameters", parameters, "at most 2^40")?;
        let size = tokens * widest;
        check(size.0 <= MOST_NUMBERS, "the size of a step", size, "at most 2^40")?;
        Ok(parameters.0)
    }

    /// Refuses what cannot be combined.
    fn validate(&self) -> Result<(), Failure> {
        let (step, plain) = (self.mode == Mode::Step, self.options == LossOption::Plain);
        let (head, has_clusters) = (self.head, self.head_config().adaptive.is_some());
        let (mixture, layered) = (head.is_mixture(), head.reads_layers());
        let gated = head == Head::Common(HeadKind::Mixtape);
        let below =
            |option: &str| format!("{option} is given, but only --head doc has a layer below, not {head}");
        let gate = |option: &str| format!("{option} is given, but only --head mixtape has gates, not {head}");
        let of_all_words = matches!(
            self.options,
            LossOption::Smoothing
                | LossOption::Teacher
                | LossOption::Statistics
                | LossOption::Entropy
                | LossOption::Distillation
                | LossOption::Policy
        );
        let option = self.options.to_possible_value().map_or(String::new(), |value| value.get_name().into());
        let (k, vocab, burn) = (self.k.unwrap_or(1), self.vocab, self.layers == Layers::Burn);
        let faults: Vec<(bool, String)> = vec![
            (!step && !plain, "--options are those of a loss, which only --mode step has".into()),
            (self.lower_components.is_some() && !layered, below("--lower-components")),
            (self.d_lower.is_some() && !layered, below("--d-lower")),
            (
                self.activation.is_some() && !mixture,
                format!("--activation is given, but the {head} head has no mixture"),
            ),
            (self.frequent.is_some() && !gated, gate("--frequent")),
            (self.d_gate.is_some() && !gated, gate("--d-gate")),
            (
                self.options == LossOption::PriorCv && !mixture,
                format!("--options prior-cv needs priors, but the {head} head has no mixture"),
            ),
            (self.targets != TargetWords::Even && !plain, "--targets zipf has only --options plain".into()),
            (
                self.division.is_some() && !has_clusters,
                "--division is given, but the head has no clusters: give --cutoffs".into(),
            ),
            (
                self.k.is_some() && self.mode != Mode::TopK,
                "--k is given, but only --mode top-k lists words".into(),
            ),
            (k == 0 || k > vocab, format!("--k is {k}, but must be from 1 to the vocabulary's {vocab}")),
            (
                has_clusters && of_all_words,
                format!("--options {option} needs every word of every token, but the head has clusters"),
            ),
            (burn && has_clusters, "--layers burn has no clusters: leave --cutoffs out".into()),
            (
                burn && head != Head::Common(HeadKind::Softmax),
                format!("--layers burn has no {head}, only --head softmax"),
            ),
            (burn && (!step || !plain), "--layers burn has only --mode step with --options plain".into()),
            (
                burn && self.precision != Precision::Full,
                format!("--layers burn has no --precision {}: it computes in --dtype", self.precision),
            ),
            (
                burn && self.memory_budget.is_some(),
                "--layers burn keeps all logits: leave --memory-budget out".into(),
            ),
        ];
        match faults.into_iter().find(|(is_there, _)| *is_there) {
            Some((_, line)) => Err(line.into()),
            None => Ok(()),
        }
    }

    fn head_config(&self) -> HeadConfig {
        let mut config = self.head.config(&HeadSizes {
            d_hidden: self.d_hidden,
            d_embedding: self.d_embedding,
            vocab: self.vocab,
            components: self.components,
            lower: (self.d_lower.unwrap_or(960), self.lower_components.unwrap_or(5)),
            knots: self.knots,
            cap: self.cap,
            units: self.units,
        });
        if let Some(List(cutoffs)) = &self.cutoffs {
            config = config.with_adaptive(AdaptiveConfig::new(cutoffs.clone()));
        }
        if let (Some(adaptive), Some(division)) = (&mut config.adaptive, self.division) {
            adaptive.division = division;
        }
        if let Some(activation) = self.activation.filter(|_| self.head.is_mixture()) {
            config = config.with_activation(activation);
        }
        if let ContextConfig::Mixtape(mixtape) = &mut config.context {
            mixtape.frequent = self.frequent.unwrap_or(mixtape.frequent);
            mixtape.d_gate = self.d_gate.unwrap_or(mixtape.d_gate);
        }
        let memory_budget = self.memory_budget.or(config.memory_budget);
        config.with_precision(self.precision).with_memory_budget(memory_budget)
    }

    /// Multiplications of a Mixtape's gates and of the frequent words' further rows.
    fn gate_products(&self, config: &HeadConfig) -> f64 {
        let ContextConfig::Mixtape(MixtapeConfig { frequent, d_gate, .. }) = &config.context else {
            return 0.0;
        };
        let rows = 3.0 * self.rows() as f64;
        rows * ((frequent * (config.d_embedding + d_gate)) as f64 + (config.d_hidden * (d_gate + 1)) as f64)
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
        let (d, v, k) = (config.d_embedding, config.decoder_rows(), config.context.components());
        let tokens = self.rows();
        let rows = match self.head {
            // Drawing a word draws its component first.
            _ if self.mode == Mode::Sample => tokens,
            Head::Common(HeadKind::Mos | HeadKind::MosPlif | HeadKind::Doc) => tokens * k,
            _ => tokens,
        };
        // Σ_l H_l K_l over the layers that contexts come from.
        let widths = match &config.context {
            ContextConfig::DirectOutputConnection(connection) => {
                connection.layers.iter().map(|layer| layer.d_hidden * layer.components).sum()
            }
            _ if self.head.has_contexts() => config.d_hidden * k,
            _ => 0,
        };
        let latent = (tokens * widths) as f64 * d as f64 + self.gate_products(config);
        let products = if self.mode == Mode::Step { 3.0 } else { 1.0 };
        2.0 * products * ((rows * d) as f64 * v as f64 + latent + self.tail_products(config))
    }

    /// Products of the tails of an adaptive head, each a multiplication and an addition. Those of the most probable words and of a
    /// drawn word depend on the distributions and are left out.
    fn tail_products(&self, config: &HeadConfig) -> f64 {
        let Some(adaptive) = &config.adaptive else { return 0.0 };
        let words = self.targets.draw(self.rows(), config.vocab);
        let tails = adaptive.tails(config.d_hidden, config.vocab).map(|(range, width)| {
            let tokens = match self.mode {
                Mode::Step | Mode::Nll => {
                    words.iter().filter(|word| range.contains(&(**word as usize))).count()
                }
                Mode::LogProbs => self.rows(),
                Mode::TopK | Mode::Sample | Mode::Decode => 0,
            };
            (tokens * width) as f64 * (config.d_hidden + range.len()) as f64
        });
        tails.sum()
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
        let (words, d_hidden) = (args.targets.draw(args.rows(), config.vocab), config.d_hidden);
        match layer {
            OutputLayer::Head(head) if args.mode != Mode::Step => {
                let top = args.k.unwrap_or(config.vocab.min(10));
                Self::Prediction(OutputPrediction::new(head, &words, d_hidden, args.mode, top, device))
            }
            layer => Self::Step(OutputStep::new(layer, words, d_hidden, option, device)),
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

/// Times what the arguments ask for, in turn with a product of two square matrices of `side` rows.
fn measure(
    args: &HeadThroughputArgs,
    config: &HeadConfig,
    name: DeviceName,
    device: &Device,
    side: usize,
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
    let layer = if args.dtype == FloatType::F32 { layer } else { cast_parameters(layer, args.dtype.dtype()) };
    // Parameters and inputs are no part of what a step adds.
    runs::draw_all(&layer);
    let params = layer.num_params();
    let mut timed = Timed::new(layer.clone(), args, config, args.options, &place);
    device.sync()?;
    let (first, added_peak_bytes) = added_peak(name, device, || timed.run(device))?;
    let loss = match &timed {
        Timed::Prediction(prediction) => prediction.loss(),
        Timed::Step(_) => first.unwrap_or(f64::NAN),
    };
    let mut plain = (args.options != LossOption::Plain)
        .then(|| Timed::new(layer, args, config, LossOption::Plain, &place));
    if let Some(plain) = &mut plain {
        plain.run(device)?;
    }
    let mut product = SquareProduct::new(side, name, args.dtype, args.precision, device)?;
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
        activation: args.activation,
        device: name.to_string(),
        precision: args.precision,
        dtype: args.dtype,
        threads: threads::threads(name),
        mode: args.mode,
        options: args.options,
        targets: args.targets,
        cutoffs: config.adaptive.as_ref().map_or(vec![], |adaptive| adaptive.cutoffs.clone()),
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

#[cfg(all(test, feature = "flex"))]
mod tests;
