//! The parts that a model's parameters belong to.

use awd_lstm::{HeadKind, ModelConfig};
use serde::Serialize;

/// Numbers of parameters by part; a part that the model lacks is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// V·d, with a tied output layer its matrix too.
    pub embedding: usize,
    /// 4H(I + H + 2) of every layer, first to last.
    pub lstm: Vec<usize>,
    /// K·H of the mixture's weights, K of all layers together; of a Mixtape 3·(G + 1)·H + (S + 1)·(G + 3), its gates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior: Option<usize>,
    /// K·d·(H + 1) of the mixture's contexts, with the K and H of every layer that they come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<usize>,
    /// V·[`d_decoder`](ModelConfig::d_decoder) of an untied output layer, with clusters of rare words
    /// [their rows](ModelConfig::decoder_shape).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<usize>,
    /// V, or [less](ModelConfig::decoder_rows) with clusters of rare words.
    pub decoder_bias: usize,
    /// Those of clusters of rare words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tails: Option<usize>,
    /// A slope a piece and one number more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plif: Option<usize>,
    /// Slope and centre of a generalised sigsoftmax.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gss: Option<usize>,
}

impl Parts {
    /// The parts of a valid model; their sum is its [number of parameters](ModelConfig::num_params).
    pub fn of(model: &ModelConfig) -> Self {
        let ModelConfig { vocab: v, d_embedding: d, head, .. } = *model;
        let (prior, latent) = model.mixture_params();
        let inputs = std::iter::once(d).chain(model.lstm_sizes.iter().copied());
        let mixture = |count| head.has_contexts().then_some(count);
        Self {
            embedding: v * d,
            lstm: inputs.zip(&model.lstm_sizes).map(|(i, h)| 4 * h * (i + h + 2)).collect(),
            prior: mixture(prior),
            latent: mixture(latent),
            decoder: model.decoder_shape().map(|[rows, width]| rows * width),
            decoder_bias: model.decoder_rows(),
            tails: model.clusters().map(|_| model.tail_params()),
            plif: head.has_plif().then_some(model.knots + 1),
            gss: (head == HeadKind::Gss).then_some(2),
        }
    }

    /// Every part with its name.
    pub fn named(&self) -> Vec<(String, usize)> {
        let layers = self.lstm.iter().enumerate();
        let mut named = vec![("embedding".to_string(), self.embedding)];
        named.extend(layers.map(|(index, count)| (format!("LSTM {}", index + 1), *count)));
        let rest = [
            ("prior", self.prior),
            ("latent", self.latent),
            ("decoder", self.decoder),
            ("decoder bias", Some(self.decoder_bias)),
            ("tails", self.tails),
            ("PLIF", self.plif),
            ("slope and centre", self.gss),
        ];
        named.extend(rest.into_iter().filter_map(|(name, count)| Some((name.to_string(), count?))));
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::Preset;

    #[test]
    fn the_parts_are_the_whole() {
        for &head in HeadKind::ALL {
            for tied in [true, false] {
                let mut model = ModelConfig { tied, ..Preset::Paper.model(head, 10_000) };
                if !tied {
                    model.lstm_sizes = vec![7, 5];
                }
                model.validate().unwrap();
                let parts = Parts::of(&model).named();
                let sum: usize = parts.iter().map(|(_, count)| count).sum();
                assert_eq!(sum, model.num_params(), "{head}, tied {tied}: {parts:?}");
            }
        }
        let parts = Parts::of(&ModelConfig::tiny(HeadKind::Mos, 50));
        assert_eq!((parts.embedding, parts.lstm), (400, vec![4 * 12 * 22, 4 * 8 * 22]));
        assert_eq!((parts.prior, parts.latent, parts.decoder, parts.plif), (Some(16), Some(144), None, None));
    }
}
