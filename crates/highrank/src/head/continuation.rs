//! A trained softmax under another head, which starts as the same function.

use burn::tensor::TensorCreationOptions;

use super::output::OutputHead;
use crate::context::{Activation, Context, ContextConfig, MixtureConfig, Sizes, Start};
use crate::error::OrPanic;
use crate::logit_map::{LogitMap, LogitMapConfig};
use crate::parameters::cast_parameters;

impl OutputHead {
    /// A softmax continued as a Mixture of Softmaxes: `K` linear contexts that start as the hidden state, but for normal noise of a
    /// spread on their weights, and priors that start alike. A logit map stays. Without noise the mixture is the same
    /// function, but components that start alike stay alike: [`Start::SPREAD`] does well.
    ///
    /// The decoder's parameters stay what they are, ids included, so what an optimiser keeps for them stays in use; those of the
    /// contexts are new. The result is a head of `HeadConfig::mos(d, d, V, K).starting_at_softmax(spread)` with the other
    /// settings of this one, and that configuration loads its records. A Burn `Linear` becomes such a head by
    /// [`HeadConfig::init_from_linear`](crate::HeadConfig::init_from_linear).
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use highrank::{HeadConfig, Start};
    ///
    /// let softmax = HeadConfig::softmax(16, 100).init(&Device::default());
    /// let mixture = softmax.clone().into_mixture(4, Start::SPREAD);
    /// assert_eq!(mixture.components(), 4);
    /// assert_eq!(mixture.decoder.weight.unwrap().id, softmax.decoder.weight.unwrap().id);
    /// ```
    ///
    /// # Panics
    /// If the head has contexts already, `K` is 0, or the spread is negative or not finite.
    #[track_caller]
    pub fn into_mixture(self, components: usize, spread: f64) -> Self {
        assert!(
            matches!(self.context, Context::Direct(_)),
            "into_mixture: the head has contexts of its own, expected a softmax"
        );
        let mixture = MixtureConfig {
            activation: Activation::Linear,
            start: Start::Softmax { spread },
            ..MixtureConfig::new(components)
        };
        let (config, decoder) = (ContextConfig::MixtureOfSoftmaxes(mixture), &self.decoder);
        let (d, vocab) = (decoder.d_embedding, decoder.vocab);
        let sizes = Sizes { d_hidden: d, d_embedding: d, vocab };
        config.validate(sizes).or_panic("OutputHead::into_mixture");
        let TensorCreationOptions { device, dtype } = decoder.creation_options();
        let context = config.init(sizes, &device);
        let context = match dtype {
            Some(dtype) => cast_parameters(context, dtype),
            None => context,
        };
        Self { context, ..self }
    }

    /// A head without logit map continued with a PLIF of `knots` pieces on `[−bound, bound]`, which starts as the identity: the same
    /// function, to the rounding of its slopes' type, that of the decoder: bf16 slopes are 1.001. All other parameters stay what
    /// they are, ids included.
    ///
    /// # Panics
    /// If the head has a logit map already, or a number is out of range, see [`Plif`](crate::logit_map::Plif).
    #[track_caller]
    pub fn into_plif(self, knots: usize, bound: f64) -> Self {
        assert!(
            matches!(self.logit_map, LogitMap::Identity(_)),
            "into_plif: the head has a logit map, expected none"
        );
        let logit_map = LogitMapConfig::Plif { knots, bound }.init(self.decoder.creation_options());
        Self { logit_map, ..self }
    }
}
