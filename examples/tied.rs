//! Weights tied to an embedding: the head's decoder matrix is the embedding's, and exists once.
//!
//! ```text
//! cargo run --release --example tied
//! ```

use burn::module::{Initializer, Module};
use burn::nn::{Embedding, EmbeddingConfig, Lstm, LstmConfig};
use burn::tensor::{Device, Int, Tensor};
use highrank::{HeadConfig, OutputHead};

/// A language model that reads and writes through one matrix.
#[derive(Module, Debug)]
struct Model {
    embedding: Embedding,
    lstm: Lstm,
    head: OutputHead,
}

impl Model {
    fn new(words: usize, d_embedding: usize, d_hidden: usize, components: usize, device: &Device) -> Self {
        // As a decoder the matrix makes logits: Burn's standard deviation of 1 would make them far too large.
        let initializer = Initializer::Uniform { min: -0.1, max: 0.1 };
        Self {
            embedding: EmbeddingConfig::new(words, d_embedding).with_initializer(initializer).init(device),
            lstm: LstmConfig::new(d_embedding, d_hidden, true).init(device),
            // Without a matrix of its own.
            head: HeadConfig::mos(d_hidden, d_embedding, words, components).with_tied(true).init(device),
        }
    }

    /// Mean nll of the targets in nats; both `[B, T]`.
    fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let (hidden, _) = self.lstm.forward(self.embedding.forward(tokens), None);
        self.head.tied_to(&self.embedding).loss(hidden, targets)
    }
}

fn main() {
    let device = Device::default().autodiff();
    let (words, d_embedding, d_hidden, components) = (10_000, 64, 128, 4);
    let model = Model::new(words, d_embedding, d_hidden, components, &device);
    println!("{} parameters, {} of them in the shared matrix", model.num_params(), words * d_embedding);

    let text: Tensor<2, Int> = Tensor::arange(0..2 * 17, &device).reshape([2, 17]);
    let loss = model.loss(text.clone().narrow(1, 0, 16), text.narrow(1, 1, 16));
    let gradients = loss.backward();
    // One gradient, of both uses.
    let norm: f32 =
        model.embedding.weight.val().grad(&gradients).unwrap().powi_scalar(2).sum().sqrt().into_scalar();
    println!("loss {:.3} nats, about ln {words} before training", loss.into_scalar::<f32>());
    println!("norm of the shared matrix's gradient {norm:.4}");
}
