//! `head-throughput`: what one training step of an output head costs, beside the device's own matrix-product rate.

use awd_lstm::HeadKind;
use burn::backend::Dispatch;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Distribution, Int, Tensor};
use clap::Parser;
use highrank::ops::OutputOps;
use highrank::{HeadConfig, Precision};
use highrank_kernels::Floats;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::device::{self, DeviceChoice, DeviceName, memory_bytes};
use crate::failure::Failure;
use crate::statistics::median;
use crate::timing::seconds_of;

/// Times one training step (forward and backward of the mean loss) of an output head.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct HeadThroughputArgs {
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif.
    #[arg(long, default_value = "mos")]
    pub head: HeadKind,
    /// N, tokens of a step.
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
    /// Timed steps; the median counts.
    #[arg(long, default_value_t = 7)]
    pub repeats: usize,
    /// Bytes of the largest logit matrix that may exist at a time [default: the crate's].
    #[arg(long, value_name = "BYTES")]
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster on NVIDIA GPUs only.
    #[arg(long, default_value_t)]
    pub precision: Precision,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    head: String,
    device: String,
    precision: Precision,
    tokens: usize,
    params: usize,
    median_ms: f64,
    tokens_per_s: f64,
    /// Of the matrix products alone: logits, gradient of the contexts, gradient of the decoder, and the latent layer.
    gflops: f64,
    of_ceiling: f64,
    /// Rate of a square product of the same precision, measured in turn with the steps: the kernels' own where there are
    /// native ones, else the backend's.
    ceiling_gflops: f64,
    /// Growth of the process's peak memory over two steps, gradients included; on a GPU what the runtime has taken after
    /// them less what was in use before. `null` where it is not known.
    added_peak_bytes: Option<u64>,
    /// Mean nll in nats.
    loss: f64,
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
    let name = device::resolve(args.device);
    let measured = measure(args, &config, name, &device::open(name)?)?;
    if args.json {
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    println!(
        "{} on {}: {:.1} ms a step, {:.0} tokens/s, {:.0} GFLOP/s ({:.0} % of {:.0}), loss {:.4}",
        measured.head,
        measured.device,
        measured.median_ms,
        measured.tokens_per_s,
        measured.gflops,
        100.0 * measured.of_ceiling,
        measured.ceiling_gflops,
        measured.loss,
    );
    if let Some(bytes) = measured.added_peak_bytes {
        println!("added peak memory: {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

impl HeadThroughputArgs {
    fn head_config(&self) -> HeadConfig {
        let (h, d, v, k) = (self.d_hidden, self.d_embedding, self.vocab, self.components);
        let config = match self.head {
            HeadKind::Softmax => HeadConfig::softmax(d, v),
            HeadKind::Moc => HeadConfig::moc(h, d, v, k),
            HeadKind::Mos => HeadConfig::mos(h, d, v, k),
            HeadKind::Sigsoftmax => HeadConfig::sigsoftmax(d, v),
            HeadKind::Gss => HeadConfig::gss(d, v),
            HeadKind::Plif => HeadConfig::plif(d, v, self.knots),
            HeadKind::MosPlif => HeadConfig::mos_plif(h, d, v, k, self.knots),
        };
        let config = config.with_precision(self.precision);
        match self.memory_budget {
            Some(bytes) => config.with_memory_budget(Some(bytes)),
            None => config,
        }
    }

    /// Floating-point operations of a step's matrix products.
    fn flops(&self, config: &HeadConfig) -> f64 {
        let (h, d, v, k) = (config.d_hidden, config.d_embedding, config.vocab, config.context.components());
        let rows = if matches!(self.head, HeadKind::Mos | HeadKind::MosPlif) {
            self.tokens * k
        } else {
            self.tokens
        };
        let latent = if self.head.is_mixture() { 6.0 * (self.tokens * h * k) as f64 * d as f64 } else { 0.0 };
        6.0 * (rows * d) as f64 * v as f64 + latent
    }
}

fn measure(
    args: &HeadThroughputArgs,
    config: &HeadConfig,
    name: DeviceName,
    device: &Device,
) -> Result<Measurement, Failure> {
    let training = device.clone().autodiff();
    training.seed(0);
    let head = config.init(&training);
    let hidden =
        Tensor::<2>::random([args.tokens, config.d_hidden], Distribution::Normal(0.0, 1.0), &training);
    let hidden = hidden.detach().require_grad();
    let mut rng = Pcg64::seed_from_u64(0);
    let words: Vec<i64> = (0..args.tokens).map(|_| rng.random_range(0..args.vocab as i64)).collect();
    let targets = Tensor::<1, Int>::from_data(words.as_slice(), &training);

    let step = || -> Result<f64, Failure> {
        let loss = head.loss(hidden.clone(), targets.clone(), None);
        let gradients = loss.backward();
        let value = loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN);
        device.sync()?;
        drop(gradients);
        Ok(value)
    };
    // Burn creates parameters when they are first asked for; they are no part of what a step adds.
    head.visit(&mut Create);
    device.sync()?;
    let before = memory_bytes(name, device);
    let loss = step()?;
    step()?;
    let after = memory_bytes(name, device);
    let added_peak_bytes =
        before.zip(after).map(|((in_use, _), (_, reserved))| reserved.saturating_sub(in_use));
    let mut product = square_product(name, args.precision, device)?;
    product()?;
    // In turn: where other work shares the machine, both meet the same of it.
    let (mut steps, mut products) = (vec![], vec![]);
    for _ in 0..args.repeats {
        steps.push(seconds_of(step)?);
        products.push(seconds_of(&mut product)?);
    }
    let middle = |times: Vec<f64>| median(times).expect("a measurement has at least one step");
    let (seconds, product) = (middle(steps), middle(products));
    let ceiling = 2.0 * (square_side(name) as f64).powi(3) / product / 1e9;
    let gflops = args.flops(config) / seconds / 1e9;
    Ok(Measurement {
        head: args.head.to_string(),
        device: name.to_string(),
        precision: args.precision,
        tokens: args.tokens,
        params: head.num_params(),
        median_ms: seconds * 1e3,
        tokens_per_s: args.tokens as f64 / seconds,
        gflops,
        of_ceiling: gflops / ceiling,
        ceiling_gflops: ceiling,
        added_peak_bytes,
        loss,
    })
}

/// Asks for every parameter once.
struct Create;

impl ModuleVisitor for Create {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        drop(param.val());
    }
}

/// Side of the matrices of the square product: large enough to keep the device busy for a millisecond.
fn square_side(name: DeviceName) -> usize {
    if name == DeviceName::Cuda { 4096 } else { 2048 }
}

/// A product of two square f32 matrices: by the routine that the kernels use where there are native ones, and otherwise
/// by the backend's own.
fn square_product(
    name: DeviceName,
    precision: Precision,
    device: &Device,
) -> Result<Box<dyn FnMut() -> Result<(), Failure>>, Failure> {
    let side = square_side(name);
    let matrix = || Tensor::<2>::random([side, side], Distribution::Normal(0.0, 1.0), device);
    let (a, b) = (matrix(), matrix());
    match name {
        #[cfg(feature = "flex")]
        DeviceName::Flex if precision == Precision::Full => {
            use highrank_kernels::cpu::{Matrix, in_pool, multiply};
            let values = |matrix: Tensor<2>| matrix.into_data().try_to_vec::<f32>();
            let (Ok(a), Ok(b)) = (values(a), values(b)) else {
                return Err("the backend's default float type is not f32".into());
            };
            let mut out = vec![0f32; side * side];
            Ok(Box::new(move || {
                let (a, b) = (Matrix::new(&a, side, side), Matrix::new(&b, side, side));
                in_pool(|| multiply(&mut out, a, b, false));
                Ok(())
            }))
        }
        _ => {
            let device = device.clone();
            let primitive = |matrix: &Tensor<2>| Floats::from(matrix.clone()).into_primitive();
            Ok(Box::new(move || {
                let product = <Dispatch as OutputOps>::product(primitive(&a), primitive(&b), precision);
                device.sync()?;
                drop(product);
                Ok(())
            }))
        }
    }
}
