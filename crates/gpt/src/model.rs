//! The model and its loss.

use burn::module::{Module, Param, ParamId};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::TransformerEncoder;
use burn::nn::{Dropout, Embedding, LayerNorm, Linear};
use burn::tensor::{DType, FloatDType, Int, Tensor};
use highrank::context::{Context, Facets};
use highrank::shard::Share;
use highrank::{Activation, ContextConfig, HeadConfig, Loss, LossOptions, OutputHead, Start};
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

    /// The same model with the head and the facets of another, which start where they are there; `config` is that of the other's
    /// head. All other parameters, the decoder's among them, stay what they are.
    ///
    /// A softmax thus goes on as a PLIF, or as a mixture that
    /// [starts at the softmax](highrank::HeadConfig::starting_at_softmax), from the function that it has learned. Its linear contexts
    /// start around the softmax's `output`, if it has one, and need none then.
    ///
    /// # Panics
    /// Unless [`takes_head_of`](Self::takes_head_of).
    pub fn with_head_of(self, other: Self, config: &HeadConfig) -> Self {
        assert!(self.takes_head_of(&other), "with_head_of: models of other sizes");
        let mut head = other.head;
        head.decoder = self.head.decoder;
        let output = match (self.output, other.output) {
            // The other's contexts read the transformer itself.
            (Some(output), None) => {
                start_around(&mut head.context, &config.context, output.weight.val());
                None
            }
            (output, _) => output,
        };
        Self { head, facets: other.facets, output, ..self }
    }

    /// Whether the models differ in nothing but the head's context, logit map and precision, in facets, and in that the other may
    /// do without the layer from the transformer to a softmax.
    pub fn takes_head_of(&self, other: &Self) -> bool {
        let width = |model: &Self| model.output.as_ref().map(|output| output.weight.dims()[1]);
        let is_read = match (width(self), width(other)) {
            // What contexts of the embedding's width can start around.
            (Some(width), None) => {
                width == self.head.decoder.d_embedding && !matches!(other.head.context, Context::Direct(_))
            }
            (own, others) => own == others,
        };
        let masks_alike = self.head.masked_words() == other.head.masked_words();
        is_read && masks_alike && self.sizes() == other.sizes()
    }

    /// Of what two models share where one takes the other's head: positions, the transformer's width, layers, feed-forward parts
    /// and attention heads; words, padding and the embedding's width; whether the decoder has a matrix and a bias of its own.
    fn sizes(&self) -> ([usize; 5], [usize; 3], [bool; 2]) {
        let [context, d_model] = self.positions.weight.dims();
        let (decoder, encoder) = (&self.head.decoder, &self.encoder);
        (
            [context, d_model, encoder.n_layers, encoder.d_ff, encoder.n_heads],
            [decoder.vocab, decoder.padding, decoder.d_embedding],
            [decoder.weight.is_some(), decoder.bias.is_some()],
        )
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
        let correct = argmax.equal(targets).bool_and(counted).int().sum().cast(FloatDType::F32);
        GptOutput { loss: value, nll, correct }
    }
}

/// Lets linear contexts that start at the softmax start as `g·P` in place of the first `d` features of what they read, `g`. `P` is
/// the softmax's projection of the transformer's state, `[d_model, d]`, with which `g` begins. All others start as they are.
fn start_around(context: &mut Context, config: &ContextConfig, projection: Tensor<2>) {
    let is_linear = match config {
        ContextConfig::MixtureOfContexts(mixture) | ContextConfig::MixtureOfSoftmaxes(mixture) => {
            mixture.start != Start::Random && mixture.activation == Activation::Linear
        }
        _ => false,
    };
    let (Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture)) = context else {
        return;
    };
    if !is_linear {
        return;
    }
    let dtype = mixture.latent.weight.val().dtype();
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    // A detached parameter still asks for its gradient, and no sum of it can be a parameter then.
    let constant = |tensor: Tensor<2>| tensor.detach().set_require_grad(false).cast(wide);
    let (weight, projection) = (constant(mixture.latent.weight.val()), constant(projection));
    let (device, [d_hidden, _], [d_model, d]) = (weight.device(), weight.dims(), projection.dims());
    let eye = Tensor::<2>::eye(d_hidden.max(d), &device).narrow(0, 0, d_hidden).narrow(1, 0, d).cast(wide);
    let of_state = Tensor::<2>::zeros([d_hidden, d], (&device, wide));
    let of_state = of_state.slice_assign([0..d_model, 0..d], projection);
    // What lacks where the identity reads the first features; the noise that parts the components stays.
    let change = Tensor::cat(vec![of_state - eye; mixture.components], 1);
    mixture.latent.weight = Param::from_tensor((weight + change).cast(dtype));
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
    use burn::module::ModuleVisitor;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
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

    /// What a model makes of two short sequences.
    fn output(model: &Gpt, device: &Device) -> GptOutput {
        model.output(Batch { tokens: tokens(device, 8), targets: tokens(device, 9) })
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
        let nll = |model: &Gpt| output(model, &device).nll.into_scalar::<f64>();
        let mixture = HeadConfig::mos(8, 8, VOCAB, 3).starting_at_softmax(0.0);
        let facets = HeadConfig::mos(16, 8, VOCAB, 3).starting_at_softmax(0.0);
        let facets = GptConfig { head: facets.with_tied(true), ..multi_facet() };
        let configs = [config(mixture), config(HeadConfig::plif(8, VOCAB, 9)), facets];
        for config in configs {
            let after = softmax.clone().with_head_of(config.try_init(&device).unwrap(), &config.head);
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
    fn heads_go_on_from_a_softmax_behind_a_layer_of_its_own() {
        let device = Device::flex();
        device.seed(5);
        let nll = |model: &Gpt| output(model, &device).nll.into_scalar::<f64>();
        let latent = |model: &Gpt| match &model.head.context {
            Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) => {
                Some(mixture.latent.weight.val().into_data())
            }
            _ => None,
        };
        let with_facets = |head: HeadConfig| GptConfig { head: head.with_tied(true), ..multi_facet() };
        let residual = |head: HeadConfig| head.with_activation(Activation::Residual);
        // Narrower and wider than the transformer.
        for d in [6, 12] {
            let softmax = model(HeadConfig::softmax(d, VOCAB), &device);
            assert!(softmax.output.is_some());
            let before = nll(&softmax);
            let same = [
                config(HeadConfig::mos(8, d, VOCAB, 3).starting_at_softmax(0.0)),
                with_facets(HeadConfig::mos(16, d, VOCAB, 3).starting_at_softmax(0.0)),
                with_facets(HeadConfig::moc(16, d, VOCAB, 3).starting_at_softmax(0.0)),
                config(HeadConfig::plif(d, VOCAB, 9)),
            ];
            let random = [
                with_facets(residual(HeadConfig::moc(16, d, VOCAB, 3)).starting_at_softmax(0.0)),
                config(HeadConfig::mos(8, d, VOCAB, 3)),
                config(HeadConfig::mos(8, d, VOCAB, 3).with_activation(Activation::Linear)),
                config(HeadConfig::mixtape(8, d, VOCAB)),
            ];
            let all = same.iter().map(|next| (next, true)).chain(random.iter().map(|next| (next, false)));
            for (next, is_same) in all {
                let start = next.try_init(&device).unwrap();
                assert!(softmax.takes_head_of(&start), "{}", next.head);
                let after = softmax.clone().with_head_of(start.clone(), &next.head);
                // What is saved is a model of the configuration.
                assert_eq!(after.num_params(), next.num_params(&device).unwrap(), "{}", next.head);
                if !is_same {
                    // It starts as it is by itself.
                    assert_eq!(latent(&after), latent(&start), "{}", next.head);
                }
                let moved = (nll(&after) - before).abs();
                assert!(if is_same { moved < 1e-4 } else { moved.is_finite() }, "{}: {moved}", next.head);
            }
        }
    }

    #[test]
    fn contexts_that_start_around_a_layer_have_noise_and_are_trained() {
        let device = Device::flex().autodiff();
        device.seed(6);
        let softmax = model(HeadConfig::softmax(6, VOCAB), &device);
        let next = config(HeadConfig::mos(8, 6, VOCAB, 2).starting_at_softmax(0.02));
        let after = softmax.with_head_of(next.try_init(&device).unwrap(), &next.head);
        let Context::MixtureOfSoftmaxes(mixture) = &after.head.context else { panic!("{}", next.head) };
        let weight = mixture.latent.weight.val().without_autodiff();
        let apart = weight.clone().narrow(1, 0, 6) - weight.narrow(1, 6, 6);
        assert!(apart.abs().max().into_scalar::<f64>() > 1e-3);
        let grads = GradientsParams::from_grads(output(&after, &device).loss.backward(), &after);
        let gradient = grads.get::<2>(mixture.latent.weight.id).expect("it is trained");
        assert!(gradient.abs().sum().into_scalar::<f64>() > 0.0);
    }

    #[test]
    fn models_of_other_sizes_take_no_head() {
        let device = Device::flex();
        let of = |config: GptConfig| config.try_init(&device).unwrap();
        let softmax = |d| config(HeadConfig::softmax(d, VOCAB));
        let before = of(softmax(6));
        assert!(before.takes_head_of(&of(config(HeadConfig::plif(6, VOCAB, 9)))));
        let untied = GptConfig { head: HeadConfig::softmax(6, VOCAB), ..softmax(6) };
        for other in [
            softmax(8),
            softmax(6).with_attention_heads(4),
            softmax(6).with_layers(2),
            config(HeadConfig::softmax(6, VOCAB).with_vocab_multiple(8)),
            config(HeadConfig::plif(6, VOCAB, 9).with_masked_words(vec![0])),
            // It reads another width.
            config(HeadConfig::mos(7, 6, VOCAB, 2)),
            untied,
        ] {
            assert!(!before.takes_head_of(&of(other.clone())), "{}", other.head);
        }
        // It has no layer that the other's head could read.
        let mixture = of(config(HeadConfig::mos(8, 6, VOCAB, 2)));
        assert!(!mixture.takes_head_of(&before));
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
            let grads = GradientsParams::from_grads(output(&model, &device).loss.backward(), &model);
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
                let loss = output(&model(head.clone(), &device), &device).loss.into_scalar::<f64>();
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
