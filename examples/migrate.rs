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
use burn::tensor::{Device, Int, Tensor};
use gpt::{Batch, Windows, batch};
use highrank::{HeadConfig, OutputHead, Start};
use program::device::{DeviceChoice, memory_bytes, resolve};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::Error;
use runs::data::{Corpus, TextConfig, Tokens};

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
    let (model, corpus) = match args[..] {
        [model @ ("before" | "softmax" | "mixture")] => (model, generated()),
        [model @ ("before" | "softmax" | "mixture"), folder] => (model, read(Path::new(folder))),
        _ => {
            return fail(
                "expected before, softmax or mixture, and perhaps a folder with train.txt and valid.txt",
            );
        }
    };
    let corpus = match corpus {
        Ok(corpus) => corpus,
        Err(error) => return fail(&error.to_string()),
    };
    let (vocab, device) = (corpus.vocabulary().len(), Device::default().autodiff());
    device.seed(1);
    match model {
        "before" => train(model, Before::new(vocab, &device), Before::loss, &corpus, &device),
        "softmax" => {
            let head = HeadConfig::softmax(WIDTH, vocab);
            train(model, After::new(&head, &device), After::loss, &corpus, &device);
        }
        _ => {
            let head = HeadConfig::mos(WIDTH, WIDTH, vocab, 4).starting_at_softmax(Start::SPREAD);
            train(model, After::new(&head, &device), After::loss, &corpus, &device);
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
    corpus: &Corpus,
    device: &Device,
) {
    let loss = |model: &M, windows: &Windows, places: &[usize], device: &Device| {
        let sequences: Vec<_> = places.iter().map(|place| windows.get(*place)).collect();
        let Batch { tokens, targets } = batch(&sequences, device);
        loss(model, tokens, targets)
    };
    let windows = Windows::everywhere(corpus.train().clone(), LENGTH);
    let (mut optimiser, mut rng) = (AdamWConfig::new().init(), Pcg64Mcg::seed_from_u64(1));
    let mut times = vec![];
    for done in 0..STEPS {
        let began = Instant::now();
        let places: Vec<_> = (0..BATCH).map(|_| rng.random_range(0..windows.len())).collect();
        let gradients = loss(&model, &windows, &places, device).backward();
        let gradients = GradientsParams::from_grads(gradients, &model);
        let rate = 1e-3 * (1.0 + (std::f64::consts::PI * done as f64 / STEPS as f64).cos());
        model = optimiser.step(rate, model, gradients);
        device.sync().expect("the device computes");
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (model, plain) = (model.valid(), Device::default());
    // Whole windows, side by side.
    let windows = Windows::side_by_side(Tokens::Memory(corpus.valid().to_vec()), LENGTH);
    let places: Vec<_> = (0..(corpus.valid().len() - 1) / LENGTH).collect();
    let nll =
        |places: &[usize]| loss(&model, &windows, places, &plain).into_scalar::<f64>() * places.len() as f64;
    let nll = places.chunks(BATCH).map(nll).sum::<f64>() / places.len() as f64;
    let memory = memory_bytes(resolve(DeviceChoice::default()), device);
    println!(
        "{name}: {} parameters, {:.0} ms a step, {} MiB at most, perplexity {:.1} after {STEPS} steps",
        model.num_params(),
        1e3 * times[STEPS / 2],
        memory.map_or("unknown".into(), |(_, most)| (most >> 20).to_string()),
        nll.exp()
    );
}

/// Texts of a random language in which the next word depends on the last ones.
fn generated() -> Result<Corpus, Error> {
    let language = Language::new(LanguageConfig::default())?;
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut draw = |tokens| language.generate(tokens, &mut rng);
    Corpus::from_ids(language.vocabulary(), draw(100_000), draw(20_000), vec![])
}

/// The texts of a folder.
fn read(folder: &Path) -> Result<Corpus, Error> {
    let corpus = Corpus::load(folder, &TextConfig::default())?;
    let lengths =
        [("the training text", corpus.train().len()), ("the validation text", corpus.valid().len())];
    match lengths.into_iter().find(|(_, tokens)| *tokens <= LENGTH) {
        Some((what, tokens)) => Err(Error::CorpusTooShort { what, tokens, batch: 1, needed: LENGTH + 1 }),
        None => Ok(corpus),
    }
}
