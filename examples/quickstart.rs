//! A model before and after: Burn's `Linear` and `CrossEntropyLoss`, and a high-rank head in their place.
//!
//! ```text
//! cargo run --release --example quickstart        seconds
//! ```
//!
//! Each of 100 contexts has a next-word distribution of its own, drawn at random: their log-probabilities are a matrix of full rank.
//! Both models see the context through 8 numbers a word, so the softmax stays far from the truth. The mixture comes nearer.

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Distribution, Int, Tensor};
use highrank::{HeadConfig, OutputHead};

const CONTEXTS: usize = 100;
const WORDS: usize = 100;
const WIDTH: usize = 8;

/// A model that ends in a linear layer and a cross-entropy.
#[derive(Module, Debug)]
struct Before {
    encoder: Embedding,
    output: Linear,
}

impl Before {
    fn loss(&self, contexts: Tensor<1, Int>, targets: Tensor<1, Int>) -> Tensor<1> {
        let logits = self.output.forward(self.encode(contexts)); // [N, V], kept for the backward pass
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
    }

    fn encode(&self, contexts: Tensor<1, Int>) -> Tensor<2> {
        self.encoder.forward(contexts.unsqueeze::<2>()).squeeze_dim(0)
    }
}

/// The same model with a head.
#[derive(Module, Debug)]
struct After {
    encoder: Embedding,
    head: OutputHead,
}

impl After {
    fn loss(&self, contexts: Tensor<1, Int>, targets: Tensor<1, Int>) -> Tensor<1> {
        self.head.loss(self.encode(contexts), targets) // no logits are kept
    }

    fn encode(&self, contexts: Tensor<1, Int>) -> Tensor<2> {
        self.encoder.forward(contexts.unsqueeze::<2>()).squeeze_dim(0)
    }
}

fn main() {
    let plain = Device::default();
    plain.seed(1);
    let truth =
        log_softmax(Tensor::<2>::random([CONTEXTS, WORDS], Distribution::Normal(0.0, 2.0), &plain), 1);
    let floor: f32 = -(truth.clone().exp() * truth.clone()).sum().into_scalar::<f32>() / CONTEXTS as f32;

    let device = plain.clone().autodiff();
    let encoder = || EmbeddingConfig::new(CONTEXTS, WIDTH).init(&device);
    let before = Before { encoder: encoder(), output: LinearConfig::new(WIDTH, WORDS).init(&device) };
    let after = After { encoder: encoder(), head: HeadConfig::mos(WIDTH, WIDTH, WORDS, 15).init(&device) };

    println!("nats a word; the truth has {floor:.3}");
    let before = train(before, &truth, Before::loss);
    println!("Linear and CrossEntropyLoss   {:.3}", {
        let model = before.valid();
        let logits = model.output.forward(model.encode(all_contexts(&plain)));
        mean_nll(&truth, log_softmax(logits, 1))
    });
    let after = train(after, &truth, After::loss);
    println!("Mixture of Softmaxes          {:.3}", {
        let model = after.valid();
        mean_nll(&truth, model.head.forward(model.encode(all_contexts(&plain))))
    });
}

/// Adam on words drawn from the truth.
fn train<M: Module>(
    mut model: M,
    truth: &Tensor<2>,
    loss: impl Fn(&M, Tensor<1, Int>, Tensor<1, Int>) -> Tensor<1>,
) -> M {
    let mut optimiser = AdamConfig::new().init();
    for _ in 0..1500 {
        // The largest of log-probability and Gumbel noise is a draw.
        let noise = Tensor::<2>::random([CONTEXTS, WORDS], Distribution::Uniform(1e-6, 1.0), &truth.device());
        let targets = (truth.clone() - (-noise.log()).log()).argmax(1).squeeze_dim::<1>(1);
        let device = truth.device().autodiff();
        let contexts = all_contexts(&device);
        let gradients = loss(&model, contexts, Tensor::from_inner(targets)).backward();
        let gradients = GradientsParams::from_grads(gradients, &model);
        model = optimiser.step(0.02, model, gradients);
    }
    model
}

fn all_contexts(device: &Device) -> Tensor<1, Int> {
    Tensor::arange(0..CONTEXTS as i64, device)
}

/// What a model's log-probabilities cost where words follow the truth.
fn mean_nll(truth: &Tensor<2>, log_probs: Tensor<2>) -> f32 {
    -(truth.clone().exp() * log_probs).sum().into_scalar::<f32>() / CONTEXTS as f32
}
