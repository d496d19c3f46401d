//! Settings under one name.

use awd_lstm::HeadKind;
use serde::{Deserialize, Serialize};

use super::model::ModelConfig;
use super::stopping::StopConfig;
use super::train::TrainConfig;

/// A [`ModelConfig`] and a [`TrainConfig`] under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// 3.5 million parameters on 10,002 words, for a CPU.
    Small,
    /// The sizes of Zhao et al. (arXiv 1703.10960), 11.3 million parameters on 10,002 words; the head's are this project's choice, since
    /// Yang et al. (arXiv 1711.03953) do not print them.
    Paper,
}

impl Preset {
    /// The model with the given head on a vocabulary of `vocab` words.
    pub fn model(self, head: HeadKind, vocab: usize) -> ModelConfig {
        let [d_embedding, d_utterance, d_context, d_decoder, window, components] = match self {
            Self::Small => [100, 64, 128, 200, 4, 5],
            Self::Paper => [200, 300, 600, 400, 9, 10],
        };
        ModelConfig {
            vocab,
            d_embedding,
            d_utterance,
            d_context,
            d_decoder,
            window,
            head,
            components,
            knots: 100_000,
            plif_bound: 20.0,
            dropout: 0.3,
            init: 0.08,
        }
    }

    /// How the preset is trained.
    pub fn train(self) -> TrainConfig {
        let (updates, epochs) = match self {
            Self::Small => (1000, 5),
            Self::Paper => (3000, 60),
        };
        let stop = StopConfig::default();
        TrainConfig { batch: 30, run: 6, updates, epochs, lr: 1e-3, clip: 5.0, stop, seed: 1 }
    }
}

runs::by_name!(Preset, "preset": Small => "small", Paper => "paper");
