//! The model and its loss.

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderInput};
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use highrank::{Loss, LossOptions, OutputHead};

use crate::data::{Batch, IGNORED};

/// A small GPT that ends in one of the library's heads.
///
/// Should be created with [`GptConfig`](crate::GptConfig).
#[derive(Module, Debug)]
pub struct Gpt {
    /// One row a word, also the head's decoder matrix.
    pub embedding: Embedding,
    /// From the embedding's width to the transformer's, if they differ.
    pub input: Option<Linear>,
    /// One row a place in the sequence.
    pub positions: Embedding,
    /// After words and places are added.
    pub dropout: Dropout,
    /// The transformer.
    pub encoder: TransformerEncoder,
    /// After its last layer.
    pub norm: LayerNorm,
    /// From the transformer's width to that of the head's hidden state, if they differ.
    pub output: Option<Linear>,
    /// The output layer.
    pub head: OutputHead,
}

impl Gpt {
    /// Hidden states, each of the tokens up to its own.
    ///
    /// # Shapes
    /// - tokens: `[B, T]`, T at most the model's context
    /// - output: `[B, T, H]`
    ///
    /// # Panics
    /// If a sequence is longer than the model's context.
    pub fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let ([batch, length], device) = (tokens.dims(), tokens.device());
        let [context, _] = self.positions.weight.dims();
        assert!(length <= context, "a sequence of {length} tokens, but the model's context is {context}");
        let words = self.embedding.forward(tokens);
        let words = match &self.input {
            Some(input) => input.forward(words),
            None => words,
        };
        let places = self.positions.weight.val().narrow(0, 0, length).unsqueeze::<3>();
        let x = self.dropout.forward(words + places);
        let mask = generate_autoregressive_mask(batch, length, &device);
        let x = self.norm.forward(self.encoder.forward(TransformerEncoderInput::new(x).mask_attn(mask)));
        match &self.output {
            Some(output) => output.forward(x),
            None => x,
        }
    }

    /// The head with the embedding as its matrix.
    pub fn head(&self) -> OutputHead {
        self.head.tied_to(&self.embedding)
    }

    /// Loss and metrics of a batch.
    ///
    /// # Panics
    /// As [`hidden`](Self::hidden).
    pub fn output(&self, batch: Batch) -> GptOutput {
        let options = LossOptions::new().with_ignore_index(IGNORED).with_statistics(true);
        let Loss { value, statistics, .. } =
            self.head().loss_with(self.hidden(batch.tokens), batch.targets.clone(), &options);
        let statistics = statistics.expect("they were asked for");
        // Constants: outside of the graph. 0 for tokens that do not count.
        let nll = statistics.nll.without_autodiff().sum();
        let argmax = statistics.argmax.without_autodiff();
        let targets = batch.targets.without_autodiff().cast(argmax.dtype());
        let counted = statistics.counted.without_autodiff();
        let correct = argmax.equal(targets).bool_and(counted).int().sum().float();
        GptOutput { loss: value, nll, correct }
    }
}

/// The loss of a batch, and sums over its tokens that are not [`IGNORED`], outside of the graph.
#[derive(Debug, Clone)]
pub struct GptOutput {
    /// Their mean nll in nats, `[1]`.
    pub loss: Tensor<1>,
    /// Sum of their nll in nats, `[1]`.
    pub nll: Tensor<1>,
    /// Number of those whose target is the most probable word, `[1]`.
    pub correct: Tensor<1>,
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::config::GptConfig;
    use burn::module::{ModuleVisitor, Param};
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
    use highrank::HeadConfig;

    const VOCAB: usize = 11;

    fn heads() -> [HeadConfig; 9] {
        let (m, d) = (8, 6);
        [
            HeadConfig::softmax(d, VOCAB),
            HeadConfig::moc(m, d, VOCAB, 2),
            HeadConfig::mos(m, d, VOCAB, 2),
            HeadConfig::sigsoftmax(d, VOCAB),
            HeadConfig::gss(d, VOCAB),
            HeadConfig::plif(d, VOCAB, 10),
            HeadConfig::mos_plif(m, d, VOCAB, 2, 10),
            HeadConfig::soft_cap(d, VOCAB, 30.0),
            HeadConfig::monotonic_net(d, VOCAB, 3),
        ]
    }

    fn model(head: HeadConfig, device: &Device) -> Gpt {
        let config =
            GptConfig::new(8, head.with_tied(true)).with_layers(1).with_attention_heads(2).with_context(5);
        config.try_init(device).unwrap()
    }

    fn tokens(device: &Device, last: i64) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(vec![1, 2, 3, 4, 5, 6, 7, last], [2, 4]), device)
    }

    #[test]
    fn a_token_sees_what_is_before_it_alone() {
        let device = Device::flex();
        device.seed(1);
        let model = model(HeadConfig::mos(8, 6, VOCAB, 2), &device);
        let hidden = |last| -> Vec<f64> { model.hidden(tokens(&device, last)).into_data().iter().collect() };
        let (one, other) = (hidden(8), hidden(9));
        let last = one.len() - 8;
        assert!(one[..last].iter().zip(&other[..last]).all(|(a, b)| (a - b).abs() < 1e-6));
        assert!(one[last..].iter().zip(&other[last..]).any(|(a, b)| (a - b).abs() > 1e-4));
    }

    #[test]
    fn every_parameter_of_every_head_is_trained() {
        struct Untouched<'a>(&'a GradientsParams, Vec<String>);
        impl ModuleVisitor for Untouched<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = self.0.get::<D>(param.id);
                // A constant added to all logits, the only kind of parameter with one value, changes no probability.
                let moves = |gradient: Tensor<D>| {
                    gradient.abs().sum().into_scalar::<f64>() > 0.0 || param.shape().num_elements() == 1
                };
                if !gradient.is_some_and(moves) {
                    self.1.push(format!("{:?}", param.shape()));
                }
            }
        }
        let device = Device::flex().autodiff();
        for head in heads() {
            device.seed(2);
            let model = model(head.clone(), &device);
            let batch = Batch { tokens: tokens(&device, 8), targets: tokens(&device, 9) };
            let grads = GradientsParams::from_grads(model.output(batch).loss.backward(), &model);
            let mut untouched = Untouched(&grads, vec![]);
            model.visit(&mut untouched);
            assert!(untouched.1.is_empty(), "{head}: {:?}", untouched.1);
        }
    }

    #[test]
    fn a_model_that_knows_nothing_guesses() {
        let device = Device::flex();
        for head in heads() {
            device.seed(3);
            let batch = Batch { tokens: tokens(&device, 8), targets: tokens(&device, 9) };
            let loss = model(head.clone(), &device).output(batch).loss.into_scalar::<f64>();
            assert!((loss - (VOCAB as f64).ln()).abs() < 0.3, "{head}: {loss}");
        }
    }

    #[test]
    #[should_panic(expected = "a sequence of 6 tokens, but the model's context is 5")]
    fn a_sequence_that_is_too_long_is_refused() {
        let device = Device::flex();
        model(HeadConfig::softmax(8, VOCAB), &device).hidden(Tensor::zeros([1, 6], &device));
    }
}
