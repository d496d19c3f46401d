//! A model's configuration from the shapes of its tensors.

use highrank::Precision;

use super::StateDict;
use super::names;
use crate::config::{Dropouts, HeadKind, ModelConfig};
use crate::error::{Error, Result};

/// The settings of a [`ModelConfig`] that no tensor determines.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// The output layer. `None` takes the one that the tensors suggest: `mos` for a mixture, `softmax` without one, and `plif`,
    /// `mos-plif` or `gss` if there are tensors of that name. `moc` and `sigsoftmax` cannot be told from `mos` and `softmax`.
    pub head: Option<HeadKind>,
    /// T of a PLIF. Heads without one ignore it.
    pub plif_bound: f64,
    /// The dropouts for further training.
    pub dropouts: Dropouts,
}

impl Default for Missing {
    /// The suggested head, knots on [-20, 20], no dropout.
    fn default() -> Self {
        Self { head: None, plif_bound: 20.0, dropouts: Dropouts::NONE }
    }
}

impl StateDict {
    /// The configuration of the model that the tensors belong to: sizes from their shapes, the rest from `missing`.
    ///
    /// A model is tied if `decoder.weight` is absent or equal to `encoder.weight`.
    ///
    /// # Errors
    /// [`Error::WeightsMismatch`] if no tensor determines a size, or the errors of [`ModelConfig::validate`].
    pub fn model_config(&self, missing: &Missing) -> Result<ModelConfig> {
        let mut problems = Vec::new();
        // The first of several tensors that tells a size, as (name, rank, dimension, parts).
        let mut size = |sources: &[(String, usize, usize, usize)]| {
            let found = sources.iter().find_map(|(name, rank, dimension, parts)| {
                let shape = self.tensors.get(name)?.shape();
                (shape.num_dims() == *rank).then(|| shape[*dimension] / parts)
            });
            found.unwrap_or_else(|| {
                let names: Vec<&str> = sources.iter().map(|(name, ..)| name.as_str()).collect();
                problems.push(format!("{} is missing", names.join(" or ")));
                1
            })
        };
        let (encoder, decoder) = ("encoder.weight".to_string(), "decoder.weight".to_string());
        let vocab =
            size(&[(encoder.clone(), 2, 0, 1), (decoder.clone(), 2, 0, 1), ("decoder.bias".into(), 1, 0, 1)]);
        let d_embedding = size(&[(encoder, 2, 1, 1), (decoder, 2, 1, 1)]);
        let last =
            self.tensors.keys().filter_map(|name| names::split_lstm(name)).map(|(layer, _)| layer).max();
        // More layers than tensors cannot all be there; without the bound a single odd name would ask for any number.
        let layers = last.map_or(1, |last| last.saturating_add(1)).min(self.tensors.len());
        let lstm_sizes = (0..layers)
            .map(|layer| {
                size(&[
                    (names::lstm(layer, "weight_hh_l0"), 2, 1, 1),
                    (names::lstm(layer, "weight_ih_l0"), 2, 0, 4),
                    (names::lstm(layer, "bias_ih_l0"), 1, 0, 4),
                    (names::lstm(layer, "bias_hh_l0"), 1, 0, 4),
                ])
            })
            .collect();
        let has = |prefix: &str| self.tensors.keys().any(|name| name.starts_with(prefix));
        let mixture = has("prior.") || has("latent.");
        let head = missing.head.unwrap_or(match (mixture, has("plif."), has("gss.")) {
            (true, true, _) => HeadKind::MosPlif,
            (true, false, _) => HeadKind::Mos,
            (false, true, _) => HeadKind::Plif,
            (false, false, true) => HeadKind::Gss,
            (false, false, false) => HeadKind::Softmax,
        });
        let components = match head.is_mixture() {
            true => size(&[
                ("prior.weight".into(), 2, 0, 1),
                ("latent.0.weight".into(), 2, 0, d_embedding.max(1)),
                ("latent.0.bias".into(), 1, 0, d_embedding.max(1)),
            ]),
            false => 1,
        };
        let knots = if head.has_plif() { size(&[("plif.raw_slopes".into(), 1, 0, 1)]) } else { 1 };
        if !problems.is_empty() {
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems });
        }
        let config = ModelConfig {
            vocab,
            d_embedding,
            lstm_sizes,
            head,
            components,
            knots,
            plif_bound: missing.plif_bound,
            dropouts: missing.dropouts,
            tied: self.is_tied(),
            precision: Precision::Full,
        };
        config.validate()?;
        Ok(config)
    }

    fn is_tied(&self) -> bool {
        let (encoder, decoder) = (self.tensors.get("encoder.weight"), self.tensors.get("decoder.weight"));
        decoder.is_none() || decoder == encoder
    }
}
