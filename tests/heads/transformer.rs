//! A Mixture of Softmaxes on top of Burn's own transformer, written as in a user's program.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use highrank::{HeadConfig, OutputHead, Start};

use crate::support::cpus;

const VOCAB: usize = 24;
const WIDTH: usize = 16;

#[derive(Module, Debug)]
struct Model {
    embedding: Embedding,
    encoder: TransformerEncoder,
    head: OutputHead,
}

impl Model {
    fn new(device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(VOCAB, WIDTH).init(device),
            encoder: TransformerEncoderConfig::new(WIDTH, 2 * WIDTH, 2, 1).with_dropout(0.0).init(device),
            head: HeadConfig::mos(WIDTH, WIDTH, VOCAB, 3).starting_at_softmax(Start::SPREAD).init(device),
        }
    }

    /// Hidden states `[B, T, WIDTH]`, each of the tokens up to its own.
    fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let [batch, length] = tokens.dims();
        let mask = generate_autoregressive_mask(batch, length, &tokens.device());
        let input = TransformerEncoderInput::new(self.embedding.forward(tokens)).mask_attn(mask);
        self.encoder.forward(input)
    }

    /// Mean negative log-likelihood in nats.
    fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.head.loss(self.hidden(tokens), targets)
    }
}

/// Trains on a sequence in which each word determines the next; first and last loss, and the model.
fn train(device: &Device) -> (f64, f64, Model) {
    let (tokens, targets) = sequence(device);
    let mut model = Model::new(device);
    let mut optimiser = AdamConfig::new().init();
    let mut losses = vec![];
    for _ in 0..200 {
        let loss = model.loss(tokens.clone(), targets.clone());
        losses.push(loss.clone().into_scalar::<f64>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimiser.step(0.01, model, gradients);
    }
    (losses[0], losses[losses.len() - 1], model)
}

/// Four sequences of eight words `[B, T]`, and their next words.
fn sequence(device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
    let mut rows = vec![];
    for start in [0, 5, 11, 17] {
        let words = std::iter::successors(Some(start), |word| Some((word * 7 + 5) % VOCAB as i64));
        rows.extend(words.take(9));
    }
    let all = Tensor::<2, Int>::from_data(TensorData::new(rows, [4, 9]), device);
    (all.clone().narrow(1, 0, 8), all.narrow(1, 1, 8))
}

#[test]
fn a_head_learns_under_a_transformer() {
    for device in cpus() {
        let (first, last, model) = train(&device.clone().autodiff());
        assert!(first > 2.0, "the first loss is {first}, but that of a uniform guess 3.2");
        assert!(last < first / 4.0, "the loss fell from {first} to {last} only");

        // The trained model, without autodiff, knows the next words.
        let (model, (tokens, targets)) = (model.valid(), sequence(&device));
        let best = model.head.top_k(model.hidden(tokens), 1).words.squeeze_dim::<2>(2);
        let wrong = best.not_equal(targets).int().sum().into_scalar::<i64>();
        assert_eq!(wrong, 0, "of 32 words, {device:?}");
    }
}
