//! Configuration of an output head, with the papers' heads by name.

use std::fmt::{self, Display, Formatter};

use burn::config::{Config, config_to_json};
use burn::module::Initializer;
use burn::nn::Linear;
use burn::tensor::{Device, TensorCreationOptions};
use highrank_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::clusters::{AdaptiveConfig, Clusters};
use super::output::OutputHead;
use crate::context::{
    Activation, ConnectedLayer, ContextConfig, DirectConfig, DirectOutputConnectionConfig, LatentDropout,
    MixtapeConfig, MixtureConfig, Sizes, Start, TimeAxis,
};
use crate::decoder::{Decoder, DecoderShape, merged_masks};
use crate::error::{HeadError, OrPanic, at_least_one, fits_memory};
use crate::logit_map::LogitMapConfig;
use crate::parameters::{cast_parameters, value};

/// Configuration to create an [`OutputHead`].
///
/// The named constructors give the papers' heads; every combination of context and logit map works.
///
/// ```
/// use highrank::{HeadConfig, LogitMapConfig, TimeAxis};
///
/// let published = HeadConfig::mos(620, 280, 10_000, 15).with_latent_dropout(0.29, TimeAxis::First);
/// let mixed = HeadConfig::moc(620, 280, 10_000, 15).with_logit_map(LogitMapConfig::Sigsoftmax);
/// assert!(published.validate().is_ok() && mixed.validate().is_ok());
/// ```
// Not by the derive macro, whose configurations cannot read a file that was written before a field was added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadConfig {
    /// `H`, width of the hidden state; that of all layers together where contexts come from several.
    pub d_hidden: usize,
    /// `d`, width of a decoder row.
    pub d_embedding: usize,
    /// `V`, number of words: those of targets and samples are `0..V`.
    pub vocab: usize,
    /// How the hidden state becomes contexts, with their dropout and initialiser. Direct by default.
    pub context: ContextConfig,
    /// `f`, applied to every logit. The identity by default.
    pub logit_map: LogitMapConfig,
    /// Whether the decoder has a bias. True by default.
    pub bias: bool,
    /// Whether the caller holds the decoder matrix, see [`OutputHead::tied_to`]. False by default.
    pub tied: bool,
    /// Of the decoder matrix; its bias starts at 0. Uniform in ±0.1 by default, and anything else is an error of
    /// [`validate`](Self::validate) for a tied head.
    #[serde(default = "decoder_initializer")]
    pub initializer: Initializer,
    /// The decoder has `V` rows and as many masked ones as make their number a multiple of this. 1 by default: no padding.
    ///
    /// Matrix products are faster where all sizes are multiples of 64. The words of targets and samples remain `0..V`, but the
    /// last dimension of log-probabilities, logits and target distributions is [`decoder_rows`](Self::decoder_rows), with clusters
    /// `V`. A tied embedding has `decoder_rows` rows. The padding has probability 0, and its parameters get gradients of exactly 0.
    #[serde(default = "no_padding")]
    pub vocab_multiple: usize,
    /// Clusters of rare words, see [`with_adaptive`](Self::with_adaptive). None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveConfig>,
    /// Words of probability 0, such as the padding of a vocabulary that is already padded. None by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked_words: Vec<usize>,
    /// Size in bytes of the largest logit matrix that may exist at a time. `None`, the default, leaves it
    /// to the device: 256 rows of logits but 16 to 128 MiB, or a quarter of the decoder if that is more. On CUDA it is 1/256 of the device's memory if that is more
    /// still, but no more than an eighth of what is free.
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to. Nothing by default.
    pub precision: Precision,
}

impl Config for HeadConfig {}

impl Display for HeadConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&config_to_json(self))
    }
}

fn decoder_initializer() -> Initializer {
    Initializer::Uniform { min: -0.1, max: 0.1 }
}

fn no_padding() -> usize {
    1
}

/// Width of a Mixtape's gates by default.
const MIXTAPE_GATE: usize = 32;

/// Default of PLIF's bound `T`.
const PLIF_BOUND: f64 = 20.0;

impl HeadConfig {
    /// A head without mixture or logit map, which needs `H = d`; all else by default.
    pub fn new(d_hidden: usize, d_embedding: usize, vocab: usize) -> Self {
        Self {
            d_hidden,
            d_embedding,
            vocab,
            context: ContextConfig::Direct(DirectConfig),
            logit_map: LogitMapConfig::Identity,
            bias: true,
            tied: false,
            initializer: decoder_initializer(),
            vocab_multiple: no_padding(),
            adaptive: None,
            masked_words: vec![],
            memory_budget: None,
            precision: Precision::Full,
        }
    }

    /// Softmax over `h·Wᵀ + b`, the rank-limited baseline.
    pub fn softmax(d_embedding: usize, vocab: usize) -> Self {
        Self::new(d_embedding, d_embedding, vocab)
    }

    /// Sigsoftmax (Kanai et al., NeurIPS 2018).
    pub fn sigsoftmax(d_embedding: usize, vocab: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Sigsoftmax)
    }

    /// Generalised sigsoftmax (Parthiban et al., AAAI 2021).
    pub fn generalised_sigsoftmax(d_embedding: usize, vocab: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Gss)
    }

    /// Soft-capped softmax, `f(z) = cap · tanh(z / cap)`.
    pub fn soft_cap(d_embedding: usize, vocab: usize, cap: f64) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::SoftCap { cap })
    }

    /// PLIF with `knots` pieces on `[-20, 20]` (Ganea et al., ICML 2019).
    pub fn plif(d_embedding: usize, vocab: usize, knots: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Plif { knots, bound: PLIF_BOUND })
    }

    /// Monotonic network of `units` sigmoids (Ganea et al., ICML 2019, eq. 14).
    pub fn monotonic_net(d_embedding: usize, vocab: usize, units: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::MonotonicNet { units })
    }

    /// Mixture of Contexts: one softmax over the mixed context (Yang et al., ICLR 2018, the control of MoS).
    pub fn moc(d_hidden: usize, d_embedding: usize, vocab: usize, components: usize) -> Self {
        let context = ContextConfig::MixtureOfContexts(MixtureConfig::new(components));
        Self::new(d_hidden, d_embedding, vocab).with_context(context)
    }

    /// Mixture of Softmaxes (Yang et al., ICLR 2018).
    pub fn mos(d_hidden: usize, d_embedding: usize, vocab: usize, components: usize) -> Self {
        let context = ContextConfig::MixtureOfSoftmaxes(MixtureConfig::new(components));
        Self::new(d_hidden, d_embedding, vocab).with_context(context)
    }

    /// Direct output connection (Takase, Suzuki, Nagata, EMNLP 2018): a Mixture of Softmaxes whose contexts come from several layers,
    /// its priors from the last.
    ///
    /// `layers` are width and number of contexts `(H_l, K_l)` of each, lowest layer first. The head's hidden states are the layers'
    /// outputs side by side in that order, `[.., Σ_l H_l]`:
    ///
    /// ```
    /// use burn::tensor::{Device, Int, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default();
    /// let head = HeadConfig::direct_output_connection(&[(24, 1), (16, 3)], 8, 100).init(&device); // 1 context from below, 3 from the last layer
    /// let (below, last) = (Tensor::<3>::ones([5, 2, 24], &device), Tensor::<3>::ones([5, 2, 16], &device));
    /// let targets = Tensor::<2, Int>::ones([5, 2], &device);
    /// let loss = head.loss(Tensor::cat(vec![below, last], 2), targets);
    /// # let _ = loss;
    /// ```
    pub fn direct_output_connection(layers: &[(usize, usize)], d_embedding: usize, vocab: usize) -> Self {
        let layers: Vec<ConnectedLayer> =
            layers.iter().map(|&(d_hidden, components)| ConnectedLayer { d_hidden, components }).collect();
        let context = DirectOutputConnectionConfig::new(layers);
        let d_hidden = context.d_hidden();
        let context = ContextConfig::DirectOutputConnection(context);
        Self::new(d_hidden, d_embedding, vocab).with_context(context)
    }

    /// Mixtape (Yang, Luong, Salakhutdinov, Le, NeurIPS 2019): one softmax over logits that every word mixes of four contexts by
    /// gates of its own. A twentieth of the vocabulary, the words `0..V/20`, have a gate of their own, and gates are 32 wide:
    /// choices made here, see [`ContextConfig::Mixtape`] for others.
    ///
    /// Words are to be numbered by frequency, the most frequent first. Under [`with_adaptive`](Self::with_adaptive) the words with a
    /// gate have to be fewer than the head cluster's: the first cutoff, and one for each cluster.
    pub fn mixtape(d_hidden: usize, d_embedding: usize, vocab: usize) -> Self {
        let context = ContextConfig::Mixtape(MixtapeConfig::new(vocab / 20, MIXTAPE_GATE));
        Self::new(d_hidden, d_embedding, vocab).with_context(context)
    }

    /// Mixture of Softmaxes whose logits pass one PLIF (Ganea et al., ICML 2019, section 5.2).
    pub fn mos_plif(
        d_hidden: usize,
        d_embedding: usize,
        vocab: usize,
        components: usize,
        knots: usize,
    ) -> Self {
        Self::mos(d_hidden, d_embedding, vocab, components)
            .with_logit_map(LogitMapConfig::Plif { knots, bound: PLIF_BOUND })
    }

    setters! {
        with_context(context: ContextConfig),
        with_logit_map(logit_map: LogitMapConfig),
        with_bias(bias: bool),
        with_tied(tied: bool),
        with_initializer(initializer: Initializer),
        with_vocab_multiple(vocab_multiple: usize),
        with_masked_words(masked_words: Vec<usize>),
        with_memory_budget(memory_budget: Option<usize>),
        with_precision(precision: Precision),
    }

    /// Sets the dropout of the latent features of a mixture while training: a probability in `[0, 1)`, and which leading dimension
    /// of the hidden states is time, for its masks are those of sequences.
    ///
    /// # Panics
    /// If the head has no mixture and the probability is not 0: there are no latent features to drop.
    #[track_caller]
    pub fn with_latent_dropout(mut self, probability: f64, time_axis: TimeAxis) -> Self {
        match self.context.options().dropout {
            Some(dropout) => *dropout = Some(LatentDropout { probability, time_axis }),
            None => assert!(
                probability == 0.0,
                "with_latent_dropout: a head without mixture has no latent features to drop: use a mixture, or drop hidden \
                 features"
            ),
        }
        self
    }

    /// Sets what makes the latent contexts of a mixture: tanh by default, as in the papers.
    ///
    /// # Panics
    /// If the head is no Mixture of Softmaxes or Contexts and no direct output connection: it has no activation to choose.
    #[track_caller]
    pub fn with_activation(mut self, activation: Activation) -> Self {
        let place = self.context.options().activation;
        *place.expect("with_activation: only MoS, MoC and direct output connections choose an activation") =
            activation;
        self
    }

    /// Starts a Mixture of Softmaxes or Contexts as the softmax over the first `d` features of the hidden state, with contexts that
    /// are linear unless they are residual: what a mixture needs under a transformer, or any model whose hidden states come
    /// near the decoder's rows by themselves. [`Start::Softmax`] says how; a spread of [`Start::SPREAD`] does well.
    ///
    /// Under an LSTM it ends within 2 % of the papers' contexts, which are the default: a tanh that starts at random.
    ///
    /// ```
    /// use highrank::{HeadConfig, Start};
    ///
    /// let head = HeadConfig::mos(64, 64, 1000, 4).starting_at_softmax(Start::SPREAD).with_tied(true);
    /// assert!(head.validate().is_ok());
    /// ```
    ///
    /// # Panics
    /// If the head is no Mixture of Softmaxes or Contexts.
    #[track_caller]
    pub fn starting_at_softmax(mut self, spread: f64) -> Self {
        let options = self.context.options();
        *options.start.expect("starting_at_softmax: only MoS and MoC start at the softmax") =
            Start::Softmax { spread };
        if let Some(activation @ Activation::Tanh) = options.activation {
            *activation = Activation::Linear;
        }
        self
    }

    /// Makes the softmax adaptive (Grave et al., ICML 2017): the head's own decoder has the frequent words, and clusters of rare
    /// ones have a narrower softmax each. Words must be numbered by frequency, the most frequent first.
    ///
    /// ```text
    /// log P(x | g) = log P_head(x | g)                                         x below the first cutoff
    /// log P(x | g) = log P_head(cluster i | g) + log softmax(W_i · P_i g)_x    x in cluster i
    /// ```
    ///
    /// - `P_head` is the head that the rest of the configuration describes, a mixture too, over the words below the first cutoff and
    ///   one for each cluster. [`decoder_rows`](Self::decoder_rows) says how many; a [tied](Self::with_tied) head is given a
    ///   matrix of so many rows.
    /// - Tails are plain softmaxes without a bias, whatever the head cluster is; `P_i` is `[d_i, H]`, with `d_i` falling from
    ///   cluster to cluster ([`AdaptiveConfig`]).
    /// - A training step costs `N·d·(c_1 + C)` products and those of each tail for its own tokens, in place of `N·d·V`.
    /// - All log-probabilities, the most probable words and draws are exact, and so are the [options of a loss](crate::LossOptions)
    ///   that such a head takes; it takes no distillation. Label smoothing, distributions as targets and a teacher whose words leave
    ///   a rest need every tail for every token: a step then costs `N·Σ_i d_i (H + words of i)` products in tails. Statistics need
    ///   a sweep of that size without gradients.
    /// - The z-loss is of the softmaxes that a token is scored by: `z_head + Σ_i Q_i LSE(W_i · P_i g)²`, with the share `Q_i` that the
    ///   targets have in cluster i, for a word alone 1 in its own.
    /// - [`logit_blocks`](OutputHead::logit_blocks) panics: each part has logits and a normaliser of its own.
    /// - [Class weights](crate::LossOptions::with_class_weights) are taken where each token is scored against its word alone.
    ///
    /// ```
    /// use burn::tensor::{Device, Int, Tensor};
    /// use highrank::{AdaptiveConfig, HeadConfig};
    ///
    /// let device = Device::default().autodiff();
    /// let adaptive = AdaptiveConfig::new(vec![100, 400]); // 100 words and 2 clusters of 300 and 600
    /// let head = HeadConfig::mos(32, 16, 1000, 3).with_adaptive(adaptive).init(&device);
    /// let hidden = Tensor::<3>::ones([5, 2, 32], &device);
    /// head.loss(hidden.clone(), Tensor::<2, Int>::full([5, 2], 700, &device)).backward();
    /// assert_eq!(head.forward(hidden).dims(), [5, 2, 1000]);
    /// ```
    ///
    /// A head of [`softmax`](Self::softmax) with the parameters of PyTorch's `AdaptiveLogSoftmaxWithLoss` has its values. They are
    /// public fields here, and the projections are transposed, as the weights of all of PyTorch's linear layers:
    ///
    /// | PyTorch | here | shape here |
    /// |---|---|---|
    /// | `head.weight` | `decoder.weight` | `[c_1 + C, d]`, as there |
    /// | `head.bias`, with `head_bias=True` | `decoder.bias` | `[c_1 + C]` |
    /// | `tail.i.0.weight` | `clusters.tails[i].projection` | `[H, d_i]`, there `[d_i, H]` |
    /// | `tail.i.1.weight` | `clusters.tails[i].decoder.weight` | `[words, d_i]`, as there |
    pub fn with_adaptive(self, adaptive: AdaptiveConfig) -> Self {
        Self { adaptive: Some(adaptive), ..self }
    }

    /// Rows of the head's own decoder matrix, which a tied head is given: the words, or with [clusters](Self::with_adaptive)
    /// those of the head cluster, rounded up to a multiple of [`vocab_multiple`](Self::vocab_multiple). A number that is too large
    /// for its type is that type's largest, an error of [`validate`](Self::validate).
    ///
    /// Log-probabilities have as many columns, with clusters `V` instead, since their padding is not listed.
    ///
    /// ```
    /// use highrank::HeadConfig;
    ///
    /// assert_eq!(HeadConfig::softmax(768, 50_257).with_vocab_multiple(64).decoder_rows(), 50_304);
    /// ```
    pub fn decoder_rows(&self) -> usize {
        self.decoder_words().checked_next_multiple_of(self.vocab_multiple.max(1)).unwrap_or(usize::MAX)
    }

    /// Words of the head's own decoder.
    fn decoder_words(&self) -> usize {
        match &self.adaptive {
            // The shortlist, and one for each cluster.
            Some(AdaptiveConfig { cutoffs, .. }) => cutoffs.first().map_or(0, |first| first + cutoffs.len()),
            None => self.vocab,
        }
    }

    /// Checks every size and range, and that no option is set in vain.
    ///
    /// # Errors
    /// The first [`HeadError`] found.
    pub fn validate(&self) -> Result<(), HeadError> {
        let sizes = [
            ("d_hidden", self.d_hidden),
            ("d_embedding", self.d_embedding),
            ("vocab", self.vocab),
            ("components", self.context.components()),
            ("vocab_multiple", self.vocab_multiple),
            ("memory_budget", self.memory_budget.unwrap_or(1)),
        ];
        sizes.into_iter().try_for_each(|(name, size)| at_least_one(name, size))?;
        if let Some(adaptive) = &self.adaptive {
            adaptive.validate(self.vocab)?;
            for (words, width) in adaptive.tails(self.d_hidden, self.vocab) {
                let rows = words.len().checked_next_multiple_of(self.vocab_multiple).unwrap_or(usize::MAX);
                fits_memory("a tail's weight", [rows, width])?;
                fits_memory("a tail's projection", [self.d_hidden, width])?;
            }
        }
        self.context.validate(self.sizes())?;
        let contexts = self.context.components().saturating_mul(self.d_embedding);
        fits_memory("the decoder's weight", [self.decoder_rows(), self.d_embedding])?;
        fits_memory("the contexts' weight", [self.d_hidden, contexts])?;
        if self.tied && self.initializer != decoder_initializer() {
            let reason = "a tied head has no decoder matrix: initialise the embedding that it is tied to";
            return Err(HeadError::Unused { option: "initializer", reason });
        }
        merged_masks(&self.masked_words, &[], self.vocab)?;
        self.logit_map.validate()
    }

    /// The sizes that contexts are for.
    fn sizes(&self) -> Sizes {
        Sizes { d_hidden: self.d_hidden, d_embedding: self.d_embedding, vocab: self.decoder_words() }
    }

    /// Creates the head: decoder and mixture by their initialisers, the decoder's bias 0.
    ///
    /// # Panics
    /// With the message of [`validate`](Self::validate) if the configuration is invalid.
    #[track_caller]
    pub fn init(&self, device: &Device) -> OutputHead {
        self.checked_init(device).or_panic("HeadConfig::init")
    }

    fn checked_init(&self, device: &Device) -> Result<OutputHead, HeadError> {
        self.validate()?;
        let initializer = (!self.tied).then_some(&self.initializer);
        let head = self.assemble(self.decoder_shape().init(initializer, device)?, device.into());
        match &self.adaptive {
            None => Ok(head),
            Some(adaptive) => {
                let (vocab, shapes) = (self.vocab, self.tail_shapes(adaptive));
                let clusters =
                    Clusters::init(adaptive, vocab, self.d_hidden, shapes, &self.initializer, device)?;
                OutputHead { clusters: Some(clusters), ..head }.masking(&self.masked_words)
            }
        }
    }

    /// Creates the head on the device of a linear layer `d → V`, whose parameters become the decoder's: the output layer of a trained
    /// model under another head.
    ///
    /// ```
    /// use burn::nn::LinearConfig;
    /// use burn::tensor::{Device, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default();
    /// let linear = LinearConfig::new(16, 100).init(&device);
    /// let head = HeadConfig::plif(16, 100, 1000).with_vocab_multiple(64).init_from_linear(linear.clone());
    /// let hidden = Tensor::<2>::ones([1, 16], &device);
    /// assert_eq!(head.forward(hidden).dims(), [1, 128]); // a PLIF starts as the identity, the padding is masked
    /// ```
    ///
    /// - `W` is the layer's weight `[d, V]`, transposed. A new parameter with an id of its own: what an optimiser keeps for the old
    ///   one has the old shape.
    /// - `b` is the layer's bias, the same parameter with the same id, unless it has to be padded.
    /// - Both stay frozen if they were. All other parameters are made in the float type of the layer's weight.
    /// - A layer that is padded already, with as many columns as the head has [rows](Self::decoder_rows), fits as well.
    ///
    /// # Panics
    /// With the message of [`validate`](Self::validate) if the configuration is invalid, if the layer does not fit (both shapes
    /// are in the message), and if the head is tied.
    #[track_caller]
    pub fn init_from_linear(&self, linear: Linear) -> OutputHead {
        self.checked_init_from_linear(linear).or_panic("HeadConfig::init_from_linear")
    }

    fn checked_init_from_linear(&self, linear: Linear) -> Result<OutputHead, HeadError> {
        self.validate()?;
        if self.adaptive.is_some() {
            let reason = "one linear layer cannot give the tails their parameters: use `init`, then set the parameters of the head and its tails";
            return Err(HeadError::Unused { option: "adaptive", reason });
        }
        if self.tied {
            let reason = "the decoder is made from a linear layer: use `init`, or a head that is not tied";
            return Err(HeadError::Unused { option: "tied", reason });
        }
        let (device, dtype) = (linear.weight.lazy_device(), value(&linear.weight).dtype());
        let decoder = self.decoder_shape().of_linear(linear)?;
        let head = self.assemble(decoder, (&device, dtype).into());
        Ok(cast_parameters(head, dtype))
    }

    fn decoder_shape(&self) -> DecoderShape<'_> {
        DecoderShape {
            vocab: self.decoder_words(),
            padding: self.decoder_rows() - self.decoder_words(),
            d_embedding: self.d_embedding,
            bias: self.bias,
            // With clusters each is masked where it is, after all of them have been made.
            masked_words: if self.adaptive.is_some() { &[] } else { &self.masked_words },
        }
    }

    /// Of each tail's decoder.
    fn tail_shapes(&self, adaptive: &AdaptiveConfig) -> Vec<DecoderShape<'static>> {
        let tails = adaptive.tails(self.d_hidden, self.vocab).map(|(words, d_embedding)| DecoderShape {
            vocab: words.len(),
            padding: words.len().next_multiple_of(self.vocab_multiple.max(1)) - words.len(),
            d_embedding,
            bias: false,
            masked_words: &[],
        });
        tails.collect()
    }

    fn assemble(&self, decoder: Decoder, on: TensorCreationOptions) -> OutputHead {
        OutputHead {
            context: self.context.init(self.sizes(), &on.device),
            logit_map: self.logit_map.init(on),
            decoder,
            clusters: None,
            memory_budget: self.memory_budget,
            precision: self.precision,
            temperature: 1.0,
            latent_mask: None,
        }
    }
}

/// The softmax head that computes what a linear layer and a softmax do, with the layer's parameters.
///
/// A layer with LoRA gives its merged weight, which is as frozen as the layer's: apply LoRA to the head.
///
/// For any other head, and for a padded vocabulary, see [`HeadConfig::init_from_linear`](crate::HeadConfig::init_from_linear),
/// which also says what becomes of the parameters.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// use highrank::OutputHead;
///
/// let linear = LinearConfig::new(16, 100).init(&Device::default());
/// assert_eq!(OutputHead::from(linear).vocab(), 100);
/// ```
impl From<Linear> for OutputHead {
    fn from(linear: Linear) -> Self {
        let [d_embedding, vocab] = linear.weight.shape().dims();
        let config = HeadConfig::softmax(d_embedding, vocab).with_bias(linear.bias.is_some());
        config.checked_init_from_linear(linear).expect("the sizes are those of the layer")
    }
}

/// Every logit map on a softmax, every other context, and a mixture with a map.
#[cfg(all(test, feature = "flex"))]
pub(crate) fn examples(d_hidden: usize, d_embedding: usize, vocab: usize) -> Vec<HeadConfig> {
    let (h, d) = (d_hidden, d_embedding);
    let others = [
        HeadConfig::moc(h, d, vocab, 3),
        HeadConfig::mos(h, d, vocab, 3),
        HeadConfig::moc(h, d, vocab, 3).with_activation(Activation::Residual),
        HeadConfig::mos(h, d, vocab, 3).with_activation(Activation::Linear),
        HeadConfig::direct_output_connection(&[(2, 1), (h - 2, 2)], d, vocab),
        HeadConfig::mixtape(h, d, vocab),
        HeadConfig::mos_plif(h, d, vocab, 3, 20),
    ];
    let mapped = |map| HeadConfig::softmax(h, vocab).with_logit_map(map);
    LogitMapConfig::examples().into_iter().map(mapped).chain(others).collect()
}
