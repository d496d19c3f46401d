//! A language model as Burn's own example of text generation has it, and the same model with a head in place of its last layer.
//!
//! ```text
//! cargo run --release --example migrate -- before           Linear and CrossEntropyLoss
//! cargo run --release --example migrate -- softmax          the same softmax as a head
//! cargo run --release --example migrate -- mixture          a Mixture of Softmaxes
//! cargo run --release --example migrate -- mixture DIR      on the text of DIR/train.txt and DIR/valid.txt
//! ```
//!
//! Each prints its size, the time of a step, the most memory that the process had, and its perplexity. All that differs is in
//! [`Before`] and [`After`].

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use awd_lstm::language::{Language, LanguageConfig};
use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use highrank::{HeadConfig, OutputHead, Start};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const WIDTH: usize = 128;
const LENGTH: usize = 64;
const BATCH: usize = 16;
const STEPS: usize = 600;

/// What both models have below the output layer.
#[derive(Module, Debug)]
struct Body {
    words: Embedding,
    positions: Embedding,
    transformer: TransformerEncoder,
    norm: LayerNorm,
}

/// The model that ends in a linear layer and a cross-entropy.
#[derive(Module, Debug)]
struct Before {
    body: Body,
    output: Linear,
}

impl Before {
    fn new(vocab: usize, device: &Device) -> Self {
        Self { body: Body::new(vocab, device), output: LinearConfig::new(WIDTH, vocab).init(device) }
    }

    fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let logits = self.output.forward(self.body.hidden(tokens)).flatten(0, 1); // [N, V], kept for the backward pass
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets.flatten(0, 1))
    }
}

/// The model that ends in a head.
#[derive(Module, Debug)]
struct After {
    body: Body,
    head: OutputHead,
}

impl After {
    fn new(head: &HeadConfig, device: &Device) -> Self {
        Self { body: Body::new(head.vocab, device), head: head.init(device) }
    }

    fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.head.loss(self.body.hidden(tokens), targets) // no logits are kept
    }
}

impl Body {
    fn new(vocab: usize, device: &Device) -> Self {
        let transformer = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, 2).with_norm_first(true);
        Self {
            words: EmbeddingConfig::new(vocab, WIDTH).init(device),
            positions: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            transformer: transformer.init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
        }
    }

    fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let ([batch, time], device) = (tokens.dims(), tokens.device());
        let places = Tensor::arange(0..time as i64, &device).unsqueeze();
        let x = self.words.forward(tokens) + self.positions.forward(places);
        let mask = generate_autoregressive_mask(batch, time, &device);
        self.norm.forward(self.transformer.forward(TransformerEncoderInput::new(x).mask_attn(mask)))
    }
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (model, data) = match args[..] {
        [model @ ("before" | "softmax" | "mixture")] => (model, Ok(Data::generated())),
        [model @ ("before" | "softmax" | "mixture"), folder] => (model, Data::read(Path::new(folder))),
        _ => {
            return fail(
                "expected before, softmax or mixture, and perhaps a folder with train.txt and valid.txt",
            );
        }
    };
    let data = match data {
        Ok(data) => data,
        Err(line) => return fail(&line),
    };
    let (vocab, device) = (data.vocab, Device::default().autodiff());
    device.seed(1);
    match model {
        "before" => train(model, Before::new(vocab, &device), Before::loss, &data, &device),
        "softmax" => {
            let head = HeadConfig::softmax(WIDTH, vocab);
            train(model, After::new(&head, &device), After::loss, &data, &device);
        }
        _ => {
            let head = HeadConfig::mos(WIDTH, WIDTH, vocab, 4).starting_at_softmax(Start::SPREAD);
            train(model, After::new(&head, &device), After::loss, &data, &device);
        }
    }
    ExitCode::SUCCESS
}

fn fail(line: &str) -> ExitCode {
    eprintln!("error: {line}");
    ExitCode::from(2)
}

/// AdamW with a learning rate that falls as a cosine; then the perplexity of the validation text.
fn train<M: Module>(
    name: &str,
    mut model: M,
    loss: impl Fn(&M, Tensor<2, Int>, Tensor<2, Int>) -> Tensor<1>,
    data: &Data,
    device: &Device,
) {
    let (mut optimiser, mut rng) = (AdamWConfig::new().init(), Pcg64Mcg::seed_from_u64(1));
    let mut times = vec![];
    for done in 0..STEPS {
        let began = Instant::now();
        let places: Vec<_> = (0..BATCH).map(|_| rng.random_range(0..data.train.len() - LENGTH)).collect();
        let (tokens, targets) = batch(&data.train, &places, device);
        let gradients = GradientsParams::from_grads(loss(&model, tokens, targets).backward(), &model);
        let rate = 1e-3 * (1.0 + (std::f64::consts::PI * done as f64 / STEPS as f64).cos());
        model = optimiser.step(rate, model, gradients);
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (model, device) = (model.valid(), Device::default());
    let places: Vec<_> = (0..data.valid.len() - LENGTH).step_by(LENGTH).collect();
    let (places, rest) = places.as_chunks::<BATCH>();
    let places: Vec<&[usize]> = places
        .iter()
        .map(|places| &places[..])
        .chain([rest].into_iter().filter(|rest| !rest.is_empty()))
        .collect();
    let nll: f64 = places
        .iter()
        .map(|places| {
            let (tokens, targets) = batch(&data.valid, places, &device);
            loss(&model, tokens, targets).into_scalar::<f64>() * places.len() as f64
        })
        .sum();
    let sequences: usize = places.iter().map(|places| places.len()).sum();
    println!(
        "{name}: {} parameters, {:.0} ms a step, {} MiB at most, perplexity {:.1} after {STEPS} steps",
        model.num_params(),
        1e3 * times[STEPS / 2],
        peak_mib().map_or("unknown".into(), |mib| mib.to_string()),
        (nll / sequences as f64).exp()
    );
}

/// Sequences that begin at some places, and the words that follow each of their words.
fn batch(text: &[i32], places: &[usize], device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
    let from = |offset: usize| {
        let ids = places.iter().flat_map(|place| &text[place + offset..place + offset + LENGTH]).copied();
        Tensor::from_data(TensorData::new(ids.collect(), [places.len(), LENGTH]), device)
    };
    (from(0), from(1))
}

/// The most memory that the process had, where the system tells.
fn peak_mib() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? / 1024)
}

struct Data {
    vocab: usize,
    train: Vec<i32>,
    valid: Vec<i32>,
}

impl Data {
    /// Text of a random language in which the next word depends on the last ones.
    fn generated() -> Self {
        let config = LanguageConfig::default();
        let vocab = config.vocab;
        let language = Language::new(config).expect("the default language is sound");
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut draw = |tokens| language.generate(tokens, &mut rng).into_iter().map(|id| id as i32).collect();
        Self { vocab, train: draw(100_000), valid: draw(20_000) }
    }

    /// Words between blanks; a line ends with a word of its own. Validation words that training does not have are all one word.
    fn read(folder: &Path) -> Result<Self, String> {
        let mut ids = HashMap::from([("<unk>".to_string(), 0)]);
        let mut read = |name: &str, grows: bool| -> Result<Vec<i32>, String> {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let words = text.lines().flat_map(|line| line.split_whitespace().chain(["<eos>"]));
            let text: Vec<i32> = words
                .map(|word| match ids.get(word) {
                    Some(&id) => id,
                    None if grows => {
                        let id = ids.len() as i32;
                        ids.insert(word.to_string(), id);
                        id
                    }
                    None => 0,
                })
                .collect();
            match text.len() > LENGTH {
                true => Ok(text),
                false => Err(format!(
                    "`{}` has {} words, but more than {LENGTH} are needed",
                    path.display(),
                    text.len()
                )),
            }
        };
        let (train, valid) = (read("train.txt", true)?, read("valid.txt", false)?);
        Ok(Self { vocab: ids.len(), train, valid })
    }
}
