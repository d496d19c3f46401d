//! The shape of a model and how it is trained.

use std::num::Saturating;

use burn::config::Config;
use burn::module::{Initializer, Module};
use burn::nn::transformer::TransformerEncoderConfig;
use burn::nn::{DropoutConfig, Embedding, EmbeddingConfig, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::Device;
use highrank::context::FacetsConfig;
use highrank::shard::{GroupHandle, ShardedHead, Share};
use highrank::{ContextConfig, HeadConfig, LogitMapConfig, TimeAxis};
use runs::data::Corpus;
use runs::error::check;
use runs::{Error, WordRows, draw_all, drawn_rows};

use crate::model::Gpt;

/// Configuration to create a [`Gpt`].
///
/// ```
/// use burn::tensor::Device;
/// use gpt::GptConfig;
/// use highrank::{HeadConfig, Start};
///
/// let head = HeadConfig::mos(32, 32, 100, 3).starting_at_softmax(Start::SPREAD).with_tied(true);
/// let config = GptConfig::new(32, head).with_layers(1);
/// let model = config.try_init(&Device::default().autodiff()).unwrap();
/// assert_eq!(model.embedding.weight.dims(), [100, 32]);
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct GptConfig {
    /// Width of the transformer.
    pub d_model: usize,
    /// The output layer. The decoder matrix of a tied one is the embedding, which has the width and the rows that the head asks for.
    /// Its hidden state may be of another width than the transformer.
    pub head: HeadConfig,
    /// T, the longest sequence that the model reads.
    #[config(default = 64)]
    pub context: usize,
    /// Layers of the transformer.
    #[config(default = 2)]
    pub layers: usize,
    /// Width of the feed-forward part of a layer; `None`: four times that of the transformer.
    #[config(default = "None")]
    pub d_ff: Option<usize>,
    /// Attention heads of a layer, which share its width.
    #[config(default = 4)]
    pub attention_heads: usize,
    /// Probability of dropping a feature while training, after the embedding and in each layer, in `[0, 1)`.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// What the head's contexts read beside the last hidden state, of the last layers, the embedding counting as one; its hidden
    /// state is then twice as wide as the transformer. `None`: nothing.
    #[config(default = "None")]
    pub facets: Option<FacetsConfig>,
}

/// Spread of all weights of the transformer at the start (Radford et al. 2019).
const SPREAD: f64 = 0.02;

/// Spread of the logits of a hidden state whose features are of order 1, at the start. It makes the embedding's spread: with
/// one of 0.02 a mixture, whose contexts tanh keeps below 1, needs hundreds of steps to find logits of any size.
const LOGIT_SPREAD: f64 = 0.5;

impl GptConfig {
    /// The largest number of learned scalars that a model is made with.
    pub const MAX_PARAMETERS: usize = 1 << 40;
    /// The largest number of layers.
    pub const MAX_LAYERS: usize = 10_000;

    /// Checks every size and probability.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] or [`Error::Head`], of the first that is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        let Self { d_model, head, context, layers, d_ff, attention_heads, dropout, facets } = self;
        check(*d_model > 0, "d_model", d_model, "at least 1")?;
        check(*context > 0, "context", context, "at least 1")?;
        let expected = "at least 1 and at most 10000";
        check((1..=Self::MAX_LAYERS).contains(layers), "layers", layers, expected)?;
        let divides = *attention_heads > 0 && d_model.is_multiple_of(*attention_heads);
        check(divides, "attention_heads", attention_heads, "a divisor of d_model")?;
        check(self.d_ff() > 0, "d_ff", d_ff.unwrap_or_default(), "at least 1")?;
        check((0.0..1.0).contains(dropout), "dropout", dropout, "in [0, 1)")?;
        let parameters = self.least_params();
        check(parameters <= Self::MAX_PARAMETERS, "parameters", parameters, "at most 2^40")?;
        if let Some(facets) = facets {
            let read = (1..=layers + 1).contains(&facets.layers);
            let expected = "from 1 to the number of layers and 1 for the embedding";
            check(read, "facets.layers", facets.layers, expected)?;
            let read = (1..=*context).contains(&facets.window);
            check(read, "facets.window", facets.window, "from 1 to the context")?;
            let reads = "twice d_model, for its contexts read facets";
            check(head.d_hidden == 2 * d_model, "head.d_hidden", head.d_hidden, reads)?;
        }
        let clusters = head.adaptive.is_some();
        check(!clusters, "head.adaptive", clusters, "absent: the embedding has no rows for clusters")?;
        Ok(head.validate()?)
    }

    /// Creates the model: weights normal with a spread of 0.02, those of the embedding with `0.5/√d`. Layers between two widths start as
    /// Burn's linear layers do, facets and the head's own layers as their configurations say.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<Gpt, Error> {
        self.validate()?;
        Ok(self.make(None, device))
    }

    /// The same model with the rows of this rank alone, of embedding, decoder and its bias; all is drawn here. All of its operations
    /// are steps that all ranks of the group take together. (A decoder that is not tied is whole on every rank until it is cut.)
    ///
    /// # Errors
    /// As [`try_init`](Self::try_init), and as [`OutputHead::shard`](highrank::OutputHead::shard).
    pub fn try_init_shared(&self, group: GroupHandle, device: &Device) -> Result<Gpt, Error> {
        self.validate()?;
        let model = self.make(Some(&Share::new(self.head.decoder_rows(), group.clone())?), device);
        // As one process draws it.
        draw_all(&model);
        let ShardedHead { head, shared } = model.head.shard(group)?;
        Ok(Gpt { head, words: WordRows::Shared(Box::new(shared)), ..model })
    }

    /// The model with all rows of the embedding, or with those of a share of it.
    fn make(&self, share: Option<&Share>, device: &Device) -> Gpt {
        // Sequences lie along the second axis, whatever the head was configured for.
        let head = match self.head.context.latent_dropout() {
            Some(dropout) => self.head.clone().with_latent_dropout(dropout.probability, TimeAxis::Second),
            None => self.head.clone(),
        };
        let (d_model, normal) = (self.d_model, Initializer::Normal { mean: 0.0, std: SPREAD });
        let encoder = TransformerEncoderConfig::new(d_model, self.d_ff(), self.attention_heads, self.layers)
            .with_dropout(self.dropout)
            .with_norm_first(true)
            .with_initializer(normal.clone());
        let words = [head.decoder_rows(), head.d_embedding];
        let of_words =
            Initializer::Normal { mean: 0.0, std: LOGIT_SPREAD / (head.d_embedding as f64).sqrt() };
        // Its noise is drawn here, and all else when it is first read.
        let output_layer = head.init(device);
        Gpt {
            embedding: match share {
                None => EmbeddingConfig::new(words[0], words[1]).with_initializer(of_words).init(device),
                Some(_) => Embedding { weight: drawn_rows(&of_words, words, share, device) },
            },
            input: between(head.d_embedding, d_model, device),
            positions: EmbeddingConfig::new(self.context, d_model).with_initializer(normal).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            encoder: encoder.init(device),
            norm: LayerNormConfig::new(d_model).init(device),
            output: match self.facets {
                Some(_) => None,
                None => between(d_model, head.d_hidden, device),
            },
            facets: self.facets.map(|facets| facets.init(d_model, device)),
            head: output_layer,
            words: WordRows::Whole,
        }
    }

    fn d_ff(&self) -> usize {
        self.d_ff.unwrap_or(self.d_model.saturating_mul(4))
    }

    /// The learned scalars of all matrices, before any is made. A number that is too large for its type is that type's largest.
    fn least_params(&self) -> usize {
        let head = &self.head;
        let [d, ff, layers, context] = [self.d_model, self.d_ff(), self.layers, self.context].map(Saturating);
        let [rows, width, hidden, components] =
            [head.decoder_rows(), head.d_embedding, head.d_hidden, head.context.components()].map(Saturating);
        let [none, two, four] = [0, 2, 4].map(Saturating);
        let encoder = layers * (four * d * d + two * d * ff);
        let facets = self
            .facets
            .map_or(none, |FacetsConfig { layers, window }| Saturating(layers) * Saturating(window) * d * d);
        let contexts = match head.context {
            ContextConfig::Direct(_) => none,
            _ => hidden * components * width,
        };
        let map = match head.logit_map {
            LogitMapConfig::Plif { knots, .. } => knots,
            LogitMapConfig::MonotonicNet { units } => units,
            _ => 0,
        };
        (rows * width + context * d + encoder + facets + contexts + Saturating(map)).0
    }

    /// Number of learned scalars. The tied matrix counts once.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn num_params(&self, device: &Device) -> Result<usize, Error> {
        // Parameters are created when they are first used: this allocates hardly any.
        Ok(self.try_init(device)?.num_params())
    }

    /// The same with feed-forward parts as wide as bring the number of parameters nearest to `parameters`.
    ///
    /// # Errors
    /// What [`num_params`](Self::num_params) says, or if even parts of width 1 are too much.
    pub fn with_parameters(&self, parameters: usize, device: &Device) -> Result<Self, Error> {
        check(parameters <= Self::MAX_PARAMETERS, "parameters", parameters, "at most 2^40")?;
        let of_width = |width| self.clone().with_d_ff(Some(width));
        let count = |width| of_width(width).num_params(device);
        let least = count(1)?;
        let Some(rest) = parameters.checked_sub(least) else {
            let reason = format!(
                "with a feed-forward part of width 1 the model has {least} already; narrow it, or take fewer layers or components"
            );
            return Err(Error::Size { parameters, reason });
        };
        // The number grows by as much with every width.
        let slope = count(2)? - least;
        Ok(of_width(1 + (rest + slope / 2) / slope))
    }
}

/// What leads from one width to another, if they differ.
fn between(from: usize, to: usize, device: &Device) -> Option<Linear> {
    (from != to).then(|| LinearConfig::new(from, to).with_bias(false).init(device))
}

/// How a model is trained: AdamW with a learning rate that rises linearly and falls as a cosine that would reach 0 one step after the last.
#[derive(Config, Debug, PartialEq)]
pub struct TrainConfig {
    /// Optimiser steps in all.
    pub steps: usize,
    /// Times that the model meets the validation text, at equal distances: a divisor of `steps`.
    #[config(default = 1)]
    pub rounds: usize,
    /// B, sequences of a step.
    #[config(default = 16)]
    pub batch: usize,
    /// The highest learning rate, in `(0, 1]`.
    #[config(default = 1e-3)]
    pub lr: f64,
    /// Steps of the rise, fewer than `steps`.
    #[config(default = 0)]
    pub warmup: usize,
    /// Weight decay, of all parameters alike: gains of norms, biases, positions and the tied embedding decay too, of which the usual
    /// recipes for GPTs leave out some or all.
    #[config(default = 0.01)]
    pub weight_decay: f64,
    /// Largest global gradient norm, over all parameters together.
    #[config(default = 1.0)]
    pub clip: f64,
    /// Tokens at the start of the validation text that the model meets in each round; `None`: all.
    #[config(default = "None")]
    pub valid_tokens: Option<usize>,
    /// Tokens at the start of the test text that the best model is scored on at the end; `None`: all.
    #[config(default = "None")]
    pub eval_tokens: Option<usize>,
    /// Whether the best model is scored on the test text at the end; `None`: it is.
    #[config(default = "None")]
    pub test: Option<bool>,
    /// Seed of everything random.
    #[config(default = 28)]
    pub seed: u64,
}

impl TrainConfig {
    /// The largest number of tokens of a step.
    pub const MAX_STEP: usize = 1 << 31;

    /// Whether the best model is scored on the test text at the end.
    pub fn tests(&self) -> bool {
        self.test.unwrap_or(true)
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`], of the first that is out of range.
    pub fn validate(&self) -> Result<(), Error> {
        let Self { steps, rounds, batch, lr, warmup, weight_decay, clip, valid_tokens, eval_tokens, .. } =
            self;
        check(*steps > 0, "steps", steps, "at least 1")?;
        let divides = *rounds > 0 && steps.is_multiple_of(*rounds);
        check(divides, "rounds", rounds, "a divisor of the number of steps")?;
        check(*batch > 0, "batch", batch, "at least 1")?;
        check(*lr > 0.0 && *lr <= 1.0, "lr", lr, "above 0 and at most 1")?;
        check(warmup < steps, "warmup", warmup, "less than the number of steps")?;
        let decays = *weight_decay >= 0.0 && weight_decay.is_finite();
        check(decays, "weight_decay", weight_decay, "finite and not negative")?;
        check(*clip > 0.0 && clip.is_finite(), "clip", clip, "finite and above 0")?;
        for (name, tokens) in [("valid_tokens", valid_tokens), ("eval_tokens", eval_tokens)] {
            check(tokens.is_none_or(|tokens| tokens > 1), name, tokens.unwrap_or_default(), "at least 2")?;
        }
        Ok(())
    }

    /// Checks every setting for sequences of `context` tokens.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and for steps of more than [`MAX_STEP`](Self::MAX_STEP) tokens.
    pub fn validate_with(&self, context: usize) -> Result<(), Error> {
        self.validate()?;
        let fits = self.batch.saturating_mul(context) <= Self::MAX_STEP;
        check(fits, "batch", self.batch, "so small that a step has at most 2^31 tokens, batch times context")
    }

    /// Checks that the texts are long enough for sequences of `context` tokens.
    ///
    /// # Errors
    /// As [`validate_with`](Self::validate_with), and [`Error::CorpusTooShort`] for a held-out text in which there is nothing to
    /// predict.
    pub fn validate_for(&self, corpus: &Corpus, context: usize) -> Result<(), Error> {
        self.validate_with(context)?;
        let fits = context < corpus.train().len();
        check(fits, "context", context, "less than the number of tokens of the training text")?;
        let test = self.tests().then_some(("the test text", corpus.test()));
        for (what, text) in [("the validation text", corpus.valid())].into_iter().chain(test) {
            if text.len() < 2 {
                return Err(Error::CorpusTooShort { what, tokens: text.len(), batch: 1, needed: 2 });
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use highrank::context::Context;
    use highrank::{AdaptiveConfig, LatentDropout};

    #[test]
    fn the_first_wrong_setting_is_named() {
        let head = || HeadConfig::softmax(12, 50).with_tied(true);
        let good = GptConfig::new(12, head());
        good.validate().unwrap();
        let facets = |layers, window| good.clone().with_facets(Some(FacetsConfig { layers, window }));
        let wrong = [
            (good.clone().with_layers(0), "layers is 0"),
            (
                good.clone().with_layers(usize::MAX),
                "layers is 18446744073709551615, but must be at least 1 and at most 10000",
            ),
            (
                good.clone().with_d_ff(Some(usize::MAX)),
                "parameters is 18446744073709551615, but must be at most 2^40",
            ),
            (good.clone().with_context(1 << 40), "but must be at most 2^40"),
            (GptConfig::new(12, HeadConfig::softmax(12, 1 << 40).with_tied(true)), "at most 2^40"),
            (GptConfig::new(12, HeadConfig::monotonic_net(12, 50, 1 << 41).with_tied(true)), "at most 2^40"),
            (GptConfig::new(12, HeadConfig::mos(12, 12, 50, 1 << 40).with_tied(true)), "at most 2^40"),
            (GptConfig::new(12, HeadConfig::soft_cap(12, 50, 1e300).with_tied(true)), "cap is 1e300"),
            (good.clone().with_context(0), "context is 0"),
            (good.clone().with_attention_heads(5), "attention_heads is 5, but must be a divisor of d_model"),
            (good.clone().with_dropout(1.0), "dropout is 1"),
            (good.clone().with_d_ff(Some(0)), "d_ff is 0"),
            (facets(4, 3), "facets.layers is 4, but must be from 1 to the number of layers and 1"),
            (facets(3, 0), "facets.window is 0"),
            (facets(3, 3), "head.d_hidden is 12, but must be twice d_model"),
            (GptConfig::new(0, head()), "d_model is 0"),
            (
                GptConfig::new(12, head().with_adaptive(AdaptiveConfig::new(vec![10]))),
                "head.adaptive is true",
            ),
            (GptConfig::new(12, HeadConfig::plif(12, 50, 0).with_tied(true)), "knots"),
        ];
        for (config, expected) in wrong {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let good = TrainConfig::new(10);
        good.validate().unwrap();
        let message = good.clone().with_batch(1 << 60).validate_with(64).unwrap_err().to_string();
        assert!(message.contains("a step has at most 2^31 tokens"), "{message}");
        let wrong = [
            (TrainConfig::new(0), "steps is 0"),
            (good.clone().with_rounds(3), "rounds is 3, but must be a divisor"),
            (good.clone().with_batch(0), "batch is 0"),
            (good.clone().with_lr(0.0), "lr is 0"),
            (good.clone().with_lr(2.0), "lr is 2"),
            (good.clone().with_warmup(10), "warmup is 10"),
            (good.clone().with_weight_decay(f64::NAN), "weight_decay is NaN"),
            (good.clone().with_clip(0.0), "clip is 0"),
            (good.clone().with_valid_tokens(Some(1)), "valid_tokens is 1"),
        ];
        for (config, expected) in wrong {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn rates_come_back_from_json_bit_for_bit() {
        // Of seventeen digits for some widths.
        for width in 1..1000 {
            let config = TrainConfig::new(10).with_lr(0.5 / f64::from(width));
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<TrainConfig>(&json).unwrap().lr, config.lr, "{json}");
        }
    }

    #[test]
    fn latent_dropout_draws_a_mask_a_sequence() {
        let dropout = |head: HeadConfig| {
            let model = GptConfig::new(12, head.with_tied(true)).try_init(&Device::flex()).unwrap();
            let Context::MixtureOfSoftmaxes(mixture) = model.head.context else { unreachable!() };
            mixture.dropout
        };
        let mos = HeadConfig::mos(12, 12, 50, 2);
        assert_eq!(dropout(mos.clone()), None);
        for time_axis in [TimeAxis::First, TimeAxis::Second] {
            let expected = LatentDropout { probability: 0.25, time_axis: TimeAxis::Second };
            assert_eq!(dropout(mos.clone().with_latent_dropout(0.25, time_axis)), Some(expected));
        }
    }

    #[test]
    fn layers_between_widths_are_there_where_widths_differ() {
        let params = |config: &GptConfig| config.num_params(&Device::flex()).unwrap();
        let (v, m) = (50, 12);
        let softmax = |d| GptConfig::new(m, HeadConfig::softmax(d, v).with_tied(true));
        let body = params(&softmax(m)) - v * m - v;
        // Embedding and bias, and a layer before and one after the transformer.
        assert_eq!(params(&softmax(7)), body + v * 7 + v + 2 * 7 * m);
        let mos = GptConfig::new(m, HeadConfig::mos(m, 7, v, 3).with_tied(true));
        assert_eq!(params(&mos), body + v * 7 + v + 7 * m + 3 * m + 3 * 7 * (m + 1));
        let facets = HeadConfig::mos(2 * m, m, v, 3).with_tied(true);
        let facets = GptConfig::new(m, facets).with_facets(Some(FacetsConfig { layers: 2, window: 3 }));
        let (summary, mixture) = (6 * m * m + m, 2 * m * 3 + 3 * m * (2 * m + 1));
        assert_eq!(params(&facets), body + v * m + v + summary + mixture);
        let untied = softmax(m);
        let untied = GptConfig { head: untied.head.clone().with_tied(false), ..untied };
        assert_eq!(params(&untied), params(&softmax(m)) + v * m);
        // A unit more of the feed-forward part, in each of two layers.
        let wider = softmax(m).with_d_ff(Some(4 * m + 1));
        assert_eq!(params(&wider), params(&softmax(m)) + 2 * (2 * m + 1));
        // Padding has rows of its own.
        let padded = GptConfig::new(m, HeadConfig::softmax(m, v).with_vocab_multiple(64).with_tied(true));
        assert_eq!(params(&padded), body + 64 * m + 64);
    }

    #[test]
    fn the_nearest_width_is_taken() {
        let (m, v, device) = (12, 200, Device::flex());
        let params = |model: &GptConfig| model.num_params(&device).unwrap();
        let heads = [HeadConfig::softmax(m, v), HeadConfig::plif(m, v, 100), HeadConfig::mos(m, m, v, 5)];
        for model in heads.map(|head| GptConfig::new(m, head.with_tied(true)).with_layers(2)) {
            let given = params(&model);
            assert_eq!(model.with_parameters(given, &device).unwrap().d_ff, Some(4 * m));
            for (off, width) in [(-100, 4 * m - 2), (-20, 4 * m), (20, 4 * m), (30, 4 * m + 1)] {
                let found = model.with_parameters(given.strict_add_signed(off), &device).unwrap();
                assert_eq!(found.d_ff, Some(width), "a unit has 50 parameters, asked for {off} more");
            }
        }
        let small = GptConfig::new(m, HeadConfig::softmax(m, v).with_tied(true));
        let message = small.with_parameters(2000, &device).unwrap_err().to_string();
        assert!(message.contains("parameters is 2000, but with a feed-forward part of width 1"), "{message}");
    }
}
