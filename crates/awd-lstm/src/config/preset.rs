//! The settings of the papers by name.

use std::fmt;
use std::str::FromStr;

use highrank::Precision;
use serde::{Deserialize, Serialize};

use super::dropouts::Dropouts;
use super::head::HeadKind;
use super::model::ModelConfig;
use super::train::TrainConfig;
use crate::error::{Error, Result};
use crate::optim::{DynamicConfig, DynamicForm};

/// The settings of a paper: a [`ModelConfig`] and a [`TrainConfig`] under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// About two million parameters on a vocabulary of 10,000: an epoch of Penn Treebank in minutes on a CPU.
    Small,
    /// AWD-LSTM-MoS on Penn Treebank (arXiv 1711.03953, with the settings of the published command): 22 million parameters.
    Paper,
    /// AWD-LSTM with a softmax on Penn Treebank, the baseline (arXiv 1708.02182): 24 million parameters. LMS-PLIF was
    /// trained with these settings and 1e5 knots (arXiv 1902.08077).
    AwdLstm,
    /// AWD-LSTM-MoS on WikiText-2 (arXiv 1711.03953): 35 million parameters on its vocabulary of 33,278.
    Wikitext2,
    /// One Billion Word with the 100,000 most frequent words, lower-cased (arXiv 1711.03953): a mixture with 7 components
    /// has 113 million parameters, a softmax 119 million.
    BillionWord,
    /// Characters of text8, where no output layer is a bottleneck (arXiv 1711.03953): one LSTM, 7 components in a
    /// mixture. The sizes are the paper's; batch, length and learning rate are those of the small preset.
    Text8,
}

/// The part of a preset's model that depends on the output layer.
struct Sizes {
    d_embedding: usize,
    lstm_sizes: Vec<usize>,
    components: usize,
}

impl Preset {
    /// Every preset.
    pub const ALL: &[Self] =
        &[Self::Small, Self::Paper, Self::AwdLstm, Self::Wikitext2, Self::BillionWord, Self::Text8];

    /// The name on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Paper => "paper",
            Self::AwdLstm => "awd-lstm",
            Self::Wikitext2 => "wikitext2",
            Self::BillionWord => "billion-word",
            Self::Text8 => "text8",
        }
    }

    /// The model with the given head on a vocabulary of `vocab` words.
    ///
    /// For a head without mixture, the last LSTM has size d instead of the preset's.
    pub fn model(self, head: HeadKind, vocab: usize) -> ModelConfig {
        let Sizes { d_embedding, mut lstm_sizes, components } = self.sizes(head);
        if !head.is_mixture()
            && let Some(last) = lstm_sizes.last_mut()
        {
            *last = d_embedding;
        }
        // 1e6 knots belong to MoS + PLIF of the paper (arXiv 1902.08077, table 2), 1e5 to the rest.
        let knots = if self == Self::Paper && head == HeadKind::MosPlif { 1_000_000 } else { 100_000 };
        ModelConfig {
            vocab,
            d_embedding,
            lstm_sizes,
            head,
            components,
            knots,
            plif_bound: 20.0,
            dropouts: self.dropouts(),
            tied: true,
            precision: Precision::Full,
        }
    }

    fn sizes(self, head: HeadKind) -> Sizes {
        let (d_embedding, lstm_sizes, components) = match self {
            Self::Small => (128, vec![256, 128], 5),
            Self::Paper => (280, vec![960, 960, 620], 15),
            Self::AwdLstm => (400, vec![1150, 1150, 400], 15),
            Self::Wikitext2 => (300, vec![1150, 1150, 650], 15),
            Self::BillionWord if head.is_mixture() => (900, vec![1024, 1024], 7),
            Self::BillionWord => (1024, vec![1024, 1024], 7),
            Self::Text8 => (510, vec![910], 7),
        };
        Sizes { d_embedding, lstm_sizes, components }
    }

    fn dropouts(self) -> Dropouts {
        let [output, hidden, input, latent, embedding, weight] = match self {
            Self::Small => [0.2, 0.1, 0.2, 0.1, 0.0, 0.2],
            Self::Paper => [0.4, 0.225, 0.4, 0.29, 0.1, 0.5],
            // The paper's model has no latent contexts; a mixture takes the value of the other Penn Treebank preset.
            Self::AwdLstm => [0.4, 0.25, 0.4, 0.29, 0.1, 0.5],
            Self::Wikitext2 => [0.4, 0.2, 0.55, 0.29, 0.1, 0.5],
            Self::BillionWord | Self::Text8 => return Dropouts::NONE,
        };
        Dropouts { output, hidden, input, latent, embedding, weight }
    }

    /// How the preset is trained.
    pub fn train(self) -> TrainConfig {
        let (batch, bptt, epochs, lr, seed) = match self {
            Self::Small => (20, 35, 20, 20.0, 28),
            Self::Paper => (12, 70, 1000, 20.0, 28),
            Self::AwdLstm => (20, 70, 1000, 30.0, 28),
            Self::Wikitext2 => (15, 70, 1000, 15.0, 1882),
            Self::BillionWord => (60, 35, 20, 20.0, 28),
            Self::Text8 => (20, 35, 20, 20.0, 28),
        };
        TrainConfig {
            batch,
            small_batch: None,
            bptt,
            lr,
            clip: 0.25,
            weight_decay: 1.2e-6,
            alpha: 2.0,
            beta: 1.0,
            nonmono: 5,
            max_seq_len_delta: 40,
            eval_batch: 10,
            test_batch: 1,
            epochs,
            seed,
            average_from_start: false,
        }
    }
}

impl Preset {
    /// The learning rate of finetuning.
    pub fn finetune_lr(self) -> f64 {
        match self {
            Self::Paper => 25.0,
            Self::Wikitext2 => 20.0,
            Self::Small | Self::AwdLstm | Self::BillionWord | Self::Text8 => self.train().lr,
        }
    }

    /// Settings of dynamic evaluation, in the form of the program behind the published perplexities. WikiText-2 has its own;
    /// every other preset takes those of Penn Treebank.
    pub fn dynamic(self) -> DynamicConfig {
        let (eps, lambda) = match self {
            Self::Wikitext2 => (0.002, 0.02),
            _ => (0.001, 0.075),
        };
        DynamicConfig { form: DynamicForm::Program, lr: 0.002, eps, lambda }
    }
}

impl ModelConfig {
    /// The model of a preset: the same as [`Preset::model`].
    pub fn from_preset(preset: Preset, head: HeadKind, vocab: usize) -> Self {
        preset.model(head, vocab)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.iter().copied().find(|preset| preset.name() == text);
        known.ok_or_else(|| Error::unknown_name("preset", text, Self::ALL))
    }
}
