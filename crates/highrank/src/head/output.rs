//! The output head.

use burn::module::{Content, Module, ModuleDisplay, Param};
use burn::nn::Embedding;
use burn::tensor::Tensor;
use highrank_kernels::Precision;

use super::clusters::Clusters;
use crate::context::Context;
use crate::decoder::Decoder;
use crate::error::{HeadError, OrPanic};
use crate::logit_map::LogitMap;
use crate::loss::is_cpu;

/// An output layer: from a hidden state to a distribution over `V` words.
///
/// ```text
/// log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) / τ )_x ]
/// ```
///
/// Should be created with [`HeadConfig`](crate::HeadConfig). It runs on whatever device its tensors are on. Hidden states may
/// have any number of leading dimensions. Which of them is time matters to latent dropout only, whose configuration says it.
///
/// Targets and samples are words `0..V`. A [padded vocabulary](crate::HeadConfig::vocab_multiple) makes the last dimension of
/// log-probabilities larger than `V`; the rest of it are words of probability 0.
///
/// A clone shares the parameters and costs little. So [`tied_to`](Self::tied_to), [`at_temperature`](Self::at_temperature) and
/// [`with_latent_mask`](Self::with_latent_mask) return a head of their own, which has all methods of this one.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::HeadConfig;
///
/// let device = Device::default().autodiff();
/// let head = HeadConfig::mos(64, 32, 1000, 5).init(&device);
///
/// let hidden = Tensor::<3>::random([7, 2, 64], Distribution::Default, &device); // [T, B, H]
/// let targets = Tensor::<2, Int>::full([7, 2], 3, &device); // [T, B]
/// let loss = head.loss(hidden.clone(), targets); // mean nll in nats, no logits kept
/// let gradients = loss.backward();
/// assert_eq!(head.forward(hidden).dims(), [7, 2, 1000]); // log-probabilities
/// # let _ = gradients;
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct OutputHead {
    /// `g → (h_k, log π_k)`.
    pub context: Context,
    /// `f`.
    pub logit_map: LogitMap,
    /// `W` and `b`; with clusters those of the head cluster.
    pub decoder: Decoder,
    /// Those of an [adaptive softmax](crate::HeadConfig::with_adaptive).
    pub clusters: Option<Clusters>,
    /// Size in bytes of the largest logit matrix that may exist at a time; `None` leaves it to the device.
    pub memory_budget: Option<usize>,
    /// What the inputs of all matrix products are rounded to, those of the contexts too.
    #[module(skip)]
    pub precision: Precision,
    #[module(skip)]
    pub(crate) temperature: f64,
    #[module(skip)]
    pub(crate) latent_mask: Option<Tensor<2>>,
}

/// A matrix for [`OutputHead::tied_to`]: a Burn [`Embedding`], a parameter, or a tensor that is computed from parameters.
#[derive(Debug, Clone)]
pub struct TiedMatrix(Param<Tensor<2>>);

impl From<&Embedding> for TiedMatrix {
    fn from(embedding: &Embedding) -> Self {
        Self::from(&embedding.weight)
    }
}

impl From<&Param<Tensor<2>>> for TiedMatrix {
    fn from(matrix: &Param<Tensor<2>>) -> Self {
        match matrix.adapter() {
            // Still trained or frozen as it was, on a device without autodiff too.
            None => Self(matrix.clone()),
            // Summed once.
            Some(_) => Self(Param::initialized(matrix.id, matrix.val())),
        }
    }
}

impl From<Tensor<2>> for TiedMatrix {
    fn from(matrix: Tensor<2>) -> Self {
        Self(Param::initialized(burn::module::ParamId::new(), matrix))
    }
}

impl OutputHead {
    /// `V`, the number of words: those of targets and samples are `0..V`.
    pub fn vocab(&self) -> usize {
        self.clusters.as_ref().map_or(self.decoder.vocab, |clusters| clusters.vocab)
    }

    /// The last dimension of log-probabilities: `V` and the decoder's padding, without that of clusters.
    pub(crate) fn rows(&self) -> usize {
        self.clusters.as_ref().map_or(self.decoder.rows(), |clusters| clusters.vocab)
    }

    /// The words that [`mask_words`](Self::mask_words) or the configuration masked, in ascending order.
    pub fn masked_words(&self) -> &[usize] {
        self.clusters.as_ref().map_or(&self.decoder.masked_words, |clusters| &clusters.masked_words)
    }

    /// `K`, the rows of logits of each token: 1 for all but a mixture of softmaxes, whose contexts come from one layer or
    /// several. [`ContextConfig::components`](crate::ContextConfig::components) counts the latent contexts instead, of which a
    /// Mixture of Contexts and a Mixtape have several for one row.
    pub fn components(&self) -> usize {
        self.context.distributions()
    }

    /// A [tied](crate::HeadConfig::with_tied) head with the caller's embedding matrix `[V, d]` as its decoder; with a
    /// [padded vocabulary](crate::HeadConfig::vocab_multiple) the matrix has the padding's rows as well.
    ///
    /// Call it in every forward pass: the result shares the embedding's parameter, so the gradient reaches that parameter once
    /// and whole (Press and Wolf 2017, Inan et al. 2017).
    ///
    /// ```
    /// use burn::nn::EmbeddingConfig;
    /// use burn::tensor::{Device, Int, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default().autodiff();
    /// let embedding = EmbeddingConfig::new(100, 16).init(&device);
    /// let head = HeadConfig::mos(24, 16, 100, 3).with_tied(true).init(&device);
    /// let (hidden, targets) = (Tensor::<2>::ones([5, 24], &device), Tensor::<1, Int>::ones([5], &device));
    /// head.tied_to(&embedding).loss(hidden, targets).backward();
    /// ```
    ///
    /// # Panics
    /// If the head owns its decoder, or the matrix has another shape (the message has both) or is on another device.
    #[track_caller]
    pub fn tied_to(&self, matrix: impl Into<TiedMatrix>) -> Self {
        let decoder = self.decoder.tied_to(matrix.into().0).or_panic("OutputHead::tied_to");
        Self { decoder, ..self.clone() }
    }

    /// The same head at temperature τ: every component's mapped logits are divided by it before their softmax, priors stay as
    /// they are. It acts on everything that the result computes, losses and predictions. A head begins at 1.
    ///
    /// A [`Sampling`](crate::Sampling) has a temperature of its own, which divides the mixed log-probabilities.
    ///
    /// # Panics
    /// If τ is not a finite number above 0. A method of the result panics if the type that it computes in cannot hold τ or
    /// `1/τ`.
    #[track_caller]
    pub fn at_temperature(&self, temperature: f64) -> Self {
        assert!(
            temperature > 0.0 && temperature.is_finite(),
            "at_temperature: temperature is {temperature}, expected a finite number above 0"
        );
        Self { temperature, ..self.clone() }
    }

    /// The same head with a given mask for its latent dropout in place of drawn ones, in training or not. A constant: no
    /// gradient flows to it. [`Context::draw_latent_mask`] draws one as a loss would.
    ///
    /// # Shapes
    /// - mask: `[sequences, K·d]`, 0 where a feature of a sequence's contexts is dropped and `1/(1 − p)` where it is kept, p the
    ///   head's own probability; [`LatentDropout`](crate::LatentDropout) says which dimension of a hidden state is time. A
    ///   direct output connection draws masks that are alike for all components, but takes any
    ///
    /// # Panics
    /// If the head has no latent dropout or its contexts have another width; on CPU backends, if the mask has another value. A method of the result panics if hidden states
    /// have another number of sequences.
    #[track_caller]
    pub fn with_latent_mask(&self, mask: Tensor<2>) -> Self {
        let dropout = self.context.latent_dropout();
        let dropout = dropout.expect("with_latent_mask: the head has no latent dropout");
        let (width, features) = (mask.dims()[1], self.context.latent_features());
        assert!(
            width == features,
            "with_latent_mask: the mask has {width} features, but the latent contexts {features}"
        );
        if is_cpu(&mask.device()) {
            let kept = 1.0 / (1.0 - dropout.probability);
            // Half precision rounds by half a per cent.
            let is_mask = |value: f64| value == 0.0 || (value / kept - 1.0).abs() < 1e-2;
            let wrong = mask.to_data().iter::<f64>().find(|value| !is_mask(*value));
            assert!(wrong.is_none(), "with_latent_mask: the mask has {wrong:?}, expected 0 or {kept}");
        }
        Self { latent_mask: Some(mask), ..self.clone() }
    }

    /// The same head with the mask that its next loss would draw for its latent dropout, if any, for several calls of one loss.
    pub(super) fn with_drawn_mask(&self, leading: &[usize]) -> Self {
        let drawn = || self.context.draw_latent_mask(self.context.sequences(leading));
        Self { latent_mask: self.latent_mask.clone().or_else(drawn), ..self.clone() }
    }

    /// Masks words: their probability is 0 and their gradients are exactly 0. See [`Decoder`].
    ///
    /// To mask words for a while only, such as those that a text must not hold, mask those of a clone, which shares the
    /// parameters. Words masked here are in no record; those of [`HeadConfig::masked_words`](crate::HeadConfig::masked_words)
    /// come back with the configuration.
    ///
    /// # Panics
    /// If a word is not below `V`, or no word would be left.
    #[track_caller]
    pub fn mask_words(self, words: &[usize]) -> Self {
        self.masking(words).or_panic("OutputHead::mask_words")
    }

    pub(super) fn masking(self, words: &[usize]) -> Result<Self, HeadError> {
        let Some(clusters) = self.clusters else {
            return Ok(Self { decoder: self.decoder.masking(words)?, ..self });
        };
        let (clusters, decoder) = clusters.masking(self.decoder, words)?;
        Ok(Self { decoder, clusters: Some(clusters), ..self })
    }
}

impl ModuleDisplay for OutputHead {
    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content
            .add("context", &self.context)
            .add("logit_map", &self.logit_map)
            .add("decoder", &self.decoder);
        let content = match &self.clusters {
            Some(clusters) => content.add("clusters", clusters),
            None => content,
        };
        let content = content.add_debug_attribute("precision", &self.precision);
        let content = match self.temperature {
            1.0 => content,
            temperature => content.add("temperature", &temperature),
        };
        match &self.memory_budget {
            Some(bytes) => content.add("memory_budget", bytes).optional(),
            None => content.optional(),
        }
    }
}
