//! The model and its loss.

use burn::module::{Module, ParamId};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::TransformerEncoder;
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use highrank::context::Facets;
use highrank::shard::Share;
use highrank::{Loss, LossOptions, OutputHead};
use runs::WordRows;

use crate::data::{Batch, IGNORED};

/// A small GPT that ends in one of the library's heads.
///
/// Should be created with [`GptConfig`](crate::GptConfig).
#[derive(Module, Debug)]
pub struct Gpt {
    /// One row a word, also the decoder matrix of a tied head.
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
    /// What the head reads beside the last hidden state, if it reads more.
    pub facets: Option<Facets>,
    /// The output layer.
    pub head: OutputHead,
    /// The words that embedding, decoder and its bias have rows of.
    #[module(skip)]
    pub(crate) words: WordRows,
}

impl Gpt {
    /// Hidden states, each of the tokens up to its own.
    ///
    /// # Shapes
    /// - tokens: `[B, T]`, T at most the model's context
    /// - output: `[B, T, H]`, what the head reads
    ///
    /// # Panics
    /// If a sequence is longer than the model's context.
    pub fn hidden(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let ([batch, length], device) = (tokens.dims(), tokens.device());
        let [context, _] = self.positions.weight.dims();
        assert!(length <= context, "a sequence of {length} tokens, but the model's context is {context}");
        let words = self.words.lookup(self.embedding.weight.val(), tokens);
        let words = match &self.input {
            Some(input) => input.forward(words),
            None => words,
        };
        let places = self.positions.weight.val().narrow(0, 0, length).unsqueeze::<3>();
        let mut x = self.dropout.forward(words + places);
        let mask = generate_autoregressive_mask(batch, length, &device);
        let mut states = vec![];
        for layer in &self.encoder.layers {
            if self.facets.is_some() {
                states.push(x.clone());
            }
            x = layer.forward(x, None, Some(mask.clone()));
        }
        let x = self.norm.forward(x);
        match (&self.facets, &self.output) {
            (Some(facets), _) => {
                states.push(x);
                facets.forward(&states[states.len() - facets.layers()..])
            }
            (None, Some(output)) => output.forward(x),
            (None, None) => x,
        }
    }

    /// The same model with the head and the facets of another, which start where they are there. All other parameters, the
    /// decoder's among them, stay what they are.
    ///
    /// A softmax thus goes on as a PLIF, or as a mixture that
    /// [starts at the softmax](highrank::HeadConfig::starting_at_softmax), from the function that it has learned.
    ///
    /// # Panics
    /// Unless [`takes_head_of`](Self::takes_head_of).
    pub fn with_head_of(self, other: Self) -> Self {
        assert_eq!(self.sizes(), other.sizes(), "with_head_of: models of other sizes");
        let mut head = other.head;
        head.decoder = self.head.decoder;
        Self { head, facets: other.facets, ..self }
    }

    /// Whether the models differ in nothing but the head's context, logit map and precision, and in facets.
    pub fn takes_head_of(&self, other: &Self) -> bool {
        self.sizes() == other.sizes()
    }

    /// Of what two models share where one takes the other's head: positions, both widths, words, layers, feed-forward parts.
    fn sizes(&self) -> [usize; 6] {
        let [context, d_model] = self.positions.weight.dims();
        let decoder = &self.head.decoder;
        [context, d_model, decoder.vocab, decoder.d_embedding, self.encoder.n_layers, self.encoder.d_ff]
    }

    /// Which rows of embedding, decoder and its bias this rank holds, and these parameters; `None` if it holds all.
    pub fn shared_rows(&self) -> Option<(&Share, Vec<ParamId>)> {
        let decoder = &self.head.decoder;
        let matrix = decoder.weight.as_ref().map(|matrix| matrix.id);
        let bias = decoder.bias.as_ref().map(|bias| bias.id);
        self.words.shared([Some(self.embedding.weight.id), matrix, bias])
    }

    /// The head with its matrix: the embedding, unless it has one of its own. If ranks share the vocabulary, it is over this rank's words
    /// alone.
    pub fn head(&self) -> OutputHead {
        match self.head.decoder.weight {
            Some(_) => self.head.clone(),
            None => self.head.tied_to(&self.embedding),
        }
    }

    /// Loss and metrics of a batch.
    ///
    /// # Panics
    /// As [`hidden`](Self::hidden).
    pub fn output(&self, batch: Batch) -> GptOutput {
        let options = LossOptions::new().with_ignore_index(IGNORED).with_statistics(true);
        let hidden = self.hidden(batch.tokens);
        let Loss { value, statistics, .. } =
            self.words.loss(self.head(), hidden, batch.targets.clone(), &options);
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
    use highrank::context::FacetsConfig;
    use runs::testing::alone;

    const VOCAB: usize = 11;

    fn heads() -> [HeadConfig; 9] {
        let (m, d) = (8, 6);
        [
            HeadConfig::softmax(d, VOCAB),
            HeadConfig::moc(m, d, VOCAB, 2),
            HeadConfig::mos(m, d, VOCAB, 2),
            HeadConfig::sigsoftmax(d, VOCAB),
            HeadConfig::generalised_sigsoftmax(d, VOCAB),
            HeadConfig::plif(d, VOCAB, 10),
            HeadConfig::mos_plif(m, d, VOCAB, 2, 10),
            HeadConfig::soft_cap(d, VOCAB, 30.0),
            HeadConfig::monotonic_net(d, VOCAB, 3),
        ]
    }

    fn config(head: HeadConfig) -> GptConfig {
        GptConfig::new(8, head.with_tied(true)).with_layers(1).with_attention_heads(2).with_context(5)
    }

    fn multi_facet() -> GptConfig {
        let head = HeadConfig::mos(16, 8, VOCAB, 2).starting_at_softmax(0.02);
        config(head).with_facets(Some(FacetsConfig { layers: 2, window: 3 }))
    }

    fn untied() -> GptConfig {
        let config = config(HeadConfig::mos(8, 8, VOCAB, 2));
        GptConfig { head: config.head.clone().with_tied(false), ..config }
    }

    fn model(head: HeadConfig, device: &Device) -> Gpt {
        config(head).try_init(device).unwrap()
    }

    fn tokens(device: &Device, last: i64) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(vec![1, 2, 3, 4, 5, 6, 7, last], [2, 4]), device)
    }

    #[test]
    fn a_token_sees_what_is_before_it_alone() {
        let device = Device::flex();
        for config in [config(HeadConfig::mos(8, 6, VOCAB, 2)), multi_facet()] {
            device.seed(1);
            let model = config.try_init(&device).unwrap();
            let hidden =
                |last| -> Vec<f64> { model.hidden(tokens(&device, last)).into_data().iter().collect() };
            let (one, other) = (hidden(8), hidden(9));
            let last = one.len() - config.head.d_hidden;
            assert!(one[..last].iter().zip(&other[..last]).all(|(a, b)| (a - b).abs() < 1e-6));
            assert!(one[last..].iter().zip(&other[last..]).any(|(a, b)| (a - b).abs() > 1e-4));
        }
    }

    #[test]
    fn a_softmax_goes_on_as_other_heads_from_the_same_function() {
        let device = Device::flex();
        device.seed(4);
        let mut softmax = model(HeadConfig::softmax(8, VOCAB), &device);
        let bias = softmax.head.decoder.bias.take().map(|bias| bias.map(|bias| bias + 0.3).no_grad());
        softmax.head.decoder.bias = bias;
        let nll = |model: &Gpt| {
            let batch = Batch { tokens: tokens(&device, 8), targets: tokens(&device, 9) };
            model.output(batch).nll.into_scalar::<f64>()
        };
        let mixture = HeadConfig::mos(8, 8, VOCAB, 3).starting_at_softmax(0.0);
        let facets = HeadConfig::mos(16, 8, VOCAB, 3).starting_at_softmax(0.0);
        let facets = GptConfig { head: facets.with_tied(true), ..multi_facet() };
        let configs = [config(mixture), config(HeadConfig::plif(8, VOCAB, 9)), facets];
        for config in configs {
            let after = softmax.clone().with_head_of(config.try_init(&device).unwrap());
            assert_eq!(after.head.components(), config.head.context.components());
            assert!(
                (nll(&after) - nll(&softmax)).abs() < 1e-5,
                "{}: {} and {}",
                config.head,
                nll(&after),
                nll(&softmax)
            );
        }
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
        for config in heads().map(config).into_iter().chain([multi_facet(), untied()]) {
            device.seed(2);
            let (head, model) = (&config.head, config.try_init(&device).unwrap());
            let batch = Batch { tokens: tokens(&device, 8), targets: tokens(&device, 9) };
            let grads = GradientsParams::from_grads(model.output(batch).loss.backward(), &model);
            let mut untouched = Untouched(&grads, vec![]);
            model.visit(&mut untouched);
            assert!(untouched.1.is_empty(), "{head}: {:?}", untouched.1);
        }
    }

    #[test]
    fn a_model_that_knows_nothing_guesses() {
        alone(module_path!(), "a_model_that_knows_nothing_guesses", || {
            let device = Device::flex();
            for head in heads() {
                device.seed(3);
                let batch = Batch { tokens: tokens(&device, 8), targets: tokens(&device, 9) };
                let loss = model(head.clone(), &device).output(batch).loss.into_scalar::<f64>();
                assert!((loss - (VOCAB as f64).ln()).abs() < 0.3, "{head}: {loss}");
            }
        });
    }

    #[test]
    #[should_panic(expected = "a sequence of 6 tokens, but the model's context is 5")]
    fn a_sequence_that_is_too_long_is_refused() {
        let device = Device::flex();
        model(HeadConfig::softmax(8, VOCAB), &device).hidden(Tensor::zeros([1, 6], &device));
    }
}
