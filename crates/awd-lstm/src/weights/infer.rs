//! A model's configuration from the shapes of its tensors.

use highrank::{AdaptiveConfig, Precision};

use super::names;
use super::{Noted, StateDict};
use crate::config::{Dropouts, HeadKind, ModelConfig};
use runs::error::{Error, Result};

impl StateDict {
    /// The configuration of the model that the tensors belong to: sizes from their shapes, the rest from `noted`. It has no
    /// dropout.
    ///
    /// A model is tied if `decoder.weight` is absent or equal to `encoder.weight`, or has a row for each cluster of rare words and no
    /// more.
    ///
    /// # Errors
    /// [`Error::WeightsMismatch`] if no tensor determines a size, or the errors of [`ModelConfig::validate`].
    pub fn model_config(&self, noted: &Noted) -> Result<ModelConfig> {
        let mut problems = Vec::new();
        // The first of several tensors that tells a size, as (name, rank, dimension, parts).
        let mut size = |sources: &[(String, usize, usize, usize)]| {
            let found = sources.iter().find_map(|(name, rank, dimension, parts)| {
                let shape = self.tensors.get(name)?.shape();
                (shape.num_dims() == *rank).then(|| shape[*dimension] / parts)
            });
            found.unwrap_or_else(|| {
                let names: Vec<&str> = sources.iter().map(|(name, ..)| name.as_str()).collect();
                let problem = format!("{} is missing", names.join(" or "));
                // A tensor tells more than one size.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
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
        let suggested = match (mixture, has("plif."), has("gss.")) {
            _ if has("weight4") => HeadKind::Doc,
            _ if has("gates.") => HeadKind::Mixtape,
            (false, false, false) if has("tail.") => HeadKind::Adaptive,
            (true, true, _) => HeadKind::MosPlif,
            (true, false, _) => HeadKind::Mos,
            (false, true, _) => HeadKind::Plif,
            (false, false, true) => HeadKind::Gss,
            (false, false, false) => HeadKind::Softmax,
        };
        let head = noted.head.unwrap_or(suggested);
        let of_connection = |lower: Option<usize>| {
            let (name, d) = (names::connection(lower), d_embedding.max(1));
            [(format!("{name}.weight"), 2, 0, d), (format!("{name}.bias"), 1, 0, d)]
        };
        let mut lower_components: Vec<usize> = vec![];
        if head.reads_layers() {
            let given = |layer: usize| has(&format!("{}.", names::connection(Some(layer))));
            // From the layer below the last LSTM down to the lowest that gives contexts.
            let lowest = (0..layers).find(|layer| given(*layer)).unwrap_or(layers);
            let below = (lowest..layers).rev();
            lower_components =
                below.map(|layer| if given(layer) { size(&of_connection(Some(layer))) } else { 0 }).collect();
        }
        let components = match head.is_mixture() {
            true if head.reads_layers() => size(&of_connection(None)),
            true => size(&[
                ("prior.weight".into(), 2, 0, 1),
                ("latent.0.weight".into(), 2, 0, d_embedding.max(1)),
                ("latent.0.bias".into(), 1, 0, d_embedding.max(1)),
            ]),
            false => 1,
        };
        let (frequent, d_gate) = match head {
            HeadKind::Mixtape => {
                let mut vectors = |dimension| size(&[("gates.vectors".into(), 2, dimension, 1)]);
                (vectors(0).saturating_sub(1), vectors(1))
            }
            _ => (vocab / 20, ModelConfig::D_GATE),
        };
        // The words of the clusters, which are the last of the vocabulary.
        let tails: Vec<usize> = (0..self.tensors.len())
            .map_while(|cluster| self.tensors.get(&format!("tail.{cluster}.1.weight")))
            .map(|tail| tail.shape().first().copied().unwrap_or(0))
            .collect();
        let mut last = vocab;
        let mut cutoffs: Vec<usize> = tails
            .iter()
            .rev()
            .map(|words| {
                last = last.saturating_sub(*words);
                last
            })
            .collect();
        cutoffs.reverse();
        if head == HeadKind::Adaptive && cutoffs == AdaptiveConfig::for_vocab(vocab).cutoffs {
            // What an adaptive head has if nothing is said.
            cutoffs.clear();
        }
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
            lower_components,
            cutoffs,
            frequent: (frequent != vocab / 20).then_some(frequent),
            d_gate,
            start_spread: noted.start_spread,
            knots,
            plif_bound: noted.plif_bound.unwrap_or(20.0),
            dropouts: Dropouts::NONE,
            tied: self.is_tied(tails.len()),
            precision: Precision::Full,
        };
        config.validate()?;
        Ok(config)
    }

    fn is_tied(&self, clusters: usize) -> bool {
        let (encoder, decoder) = (self.tensors.get("encoder.weight"), self.tensors.get("decoder.weight"));
        let of_clusters =
            clusters > 0 && decoder.is_some_and(|decoder| decoder.shape().first() == Some(&clusters));
        decoder.is_none() || decoder == encoder || of_clusters
    }
}
