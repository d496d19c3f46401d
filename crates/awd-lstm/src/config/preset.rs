//! The settings of the papers by name.

use serde::{Deserialize, Serialize};

use super::dropouts::Dropouts;
use super::head::HeadKind;
use super::model::ModelConfig;
use super::train::TrainConfig;
use runs::data::TextConfig;
use runs::optim::{DynamicConfig, DynamicForm};

/// The settings of a paper: a [`ModelConfig`], a [`TrainConfig`] and a [`TextConfig`] under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// About two million parameters on a vocabulary of 10,000: an epoch of Penn Treebank in minutes on a CPU.
    Small,
    /// AWD-LSTM-MoS on Penn Treebank (arXiv 1711.03953, with the settings of the published command): 22 million parameters.
    Paper,
    /// AWD-LSTM-DOC on Penn Treebank (EMNLP 2018, arXiv 1808.10143, with the settings of the published command): the sizes of
    /// [`Paper`](Self::Paper), 15 contexts from the last LSTM and 5 from the one below: 23 million parameters.
    Doc,
    /// AWD-LSTM with a softmax on Penn Treebank, the baseline (arXiv 1708.02182): 24 million parameters.
    AwdLstm,
    /// The four models of LMS-PLIF on Penn Treebank (arXiv 1902.08077, table 1): every head on the layers and dropouts of the
    /// AWD-LSTM, with a learning rate of 20; 1e5 knots, or 1e6 with MoS.
    LmsPlif,
    /// AWD-LSTM-MoS on WikiText-2 (arXiv 1711.03953): 35 million parameters on its vocabulary of 33,278.
    Wikitext2,
    /// AWD-LSTM-DOC on WikiText-2 (arXiv 1808.10143): the sizes of [`Wikitext2`](Self::Wikitext2), 15 and 5 contexts: 37 million
    /// parameters.
    DocWikitext2,
    /// AWD-LSTM with a softmax on WikiText-2, the baseline (arXiv 1708.02182): 33 million parameters.
    AwdLstmWikitext2,
    /// One Billion Word with the 100,000 most frequent words, lower-cased (arXiv 1711.03953): a mixture with 7 components
    /// has 113 million parameters, a softmax 119 million. Nothing regularises: no dropout, AR or TAR.
    BillionWord,
    /// Characters of text8 (arXiv 1711.03953, table 12), where no output layer is a bottleneck; one LSTM. A softmax has
    /// d 1024 on 1024 units, a mixture 7 components of d 510 on 910 units. The paper prints no batch, length, learning rate
    /// or dropout: the first three are those of the small preset, and there is no dropout.
    Text8,
    /// Text8 with a mixture of 7 components of d 750 on 750 units; a softmax as in [`Text8`](Self::Text8).
    Text8Mos7Square,
    /// Text8 with a mixture of 10 components of d 452 on 860 units; a softmax as in [`Text8`](Self::Text8).
    Text8Mos10,
    /// Text8 with a mixture of 10 components of d 683 on 683 units; a softmax as in [`Text8`](Self::Text8).
    Text8Mos10Square,
}

impl Preset {
    /// Whether the text is text8.
    fn is_text8(self) -> bool {
        matches!(self, Self::Text8 | Self::Text8Mos7Square | Self::Text8Mos10 | Self::Text8Mos10Square)
    }

    /// The model with the given head on a vocabulary of `vocab` words.
    ///
    /// For a head without mixture, the last LSTM has size d instead of the preset's.
    pub fn model(self, head: HeadKind, vocab: usize) -> ModelConfig {
        let (d_embedding, mut lstm_sizes, components) = self.sizes(head);
        if !head.has_contexts()
            && let Some(last) = lstm_sizes.last_mut()
        {
            *last = d_embedding;
        }
        // 1e6 knots belong to MoS + PLIF of the paper (arXiv 1902.08077, table 1), 1e5 to the rest.
        let many = matches!(self, Self::Paper | Self::Doc | Self::LmsPlif) && head == HeadKind::MosPlif;
        ModelConfig {
            d_embedding,
            lstm_sizes,
            components,
            // The paper's share: 5 below 15.
            lower_components: if head.reads_layers() { vec![components.div_ceil(3)] } else { vec![] },
            knots: if many { 1_000_000 } else { 100_000 },
            plif_bound: 20.0,
            dropouts: self.dropouts(),
            ..ModelConfig::tiny(head, vocab)
        }
    }

    /// Width of the embedding, sizes of the LSTMs and number of components: the part that depends on the output layer.
    fn sizes(self, head: HeadKind) -> (usize, Vec<usize>, usize) {
        match self {
            Self::Small => (128, vec![256, 128], 5),
            Self::Paper | Self::Doc => (280, vec![960, 960, 620], 15),
            Self::AwdLstm | Self::LmsPlif | Self::AwdLstmWikitext2 => (400, vec![1150, 1150, 400], 15),
            Self::Wikitext2 | Self::DocWikitext2 => (300, vec![1150, 1150, 650], 15),
            Self::BillionWord if head.has_contexts() => (900, vec![1024, 1024], 7),
            Self::BillionWord => (1024, vec![1024, 1024], 7),
            _ if !head.has_contexts() => (1024, vec![1024], 7),
            Self::Text8 => (510, vec![910], 7),
            Self::Text8Mos7Square => (750, vec![750], 7),
            Self::Text8Mos10 => (452, vec![860], 10),
            Self::Text8Mos10Square => (683, vec![683], 10),
        }
    }

    fn dropouts(self) -> Dropouts {
        let [output, hidden, input, latent, embedding, weight] = match self {
            Self::Small => [0.2, 0.1, 0.2, 0.1, 0.0, 0.2],
            Self::Paper => [0.4, 0.225, 0.4, 0.29, 0.1, 0.5],
            Self::Doc => [0.4, 0.225, 0.4, 0.6, 0.1, 0.5],
            // The AWD-LSTM has no latent contexts; a mixture takes the value of the other preset of the same text.
            Self::AwdLstm | Self::LmsPlif => [0.4, 0.25, 0.4, 0.29, 0.1, 0.5],
            Self::Wikitext2 => [0.4, 0.2, 0.55, 0.29, 0.1, 0.5],
            Self::DocWikitext2 => [0.4, 0.2, 0.55, 0.6, 0.1, 0.5],
            Self::AwdLstmWikitext2 => [0.4, 0.2, 0.65, 0.29, 0.1, 0.5],
            Self::BillionWord
            | Self::Text8
            | Self::Text8Mos7Square
            | Self::Text8Mos10
            | Self::Text8Mos10Square => return Dropouts::NONE,
        };
        Dropouts { output, hidden, input, latent, embedding, weight }
    }

    /// How the preset is trained.
    pub fn train(self) -> TrainConfig {
        let (batch, bptt, epochs, lr, seed) = match self {
            Self::Paper => (12, 70, 1000, 20.0, 28),
            Self::Doc => (12, 70, 500, 20.0, 28),
            Self::AwdLstm => (20, 70, 500, 30.0, 141),
            Self::LmsPlif => (20, 70, 500, 20.0, 28),
            Self::Wikitext2 => (15, 70, 1000, 15.0, 1882),
            Self::DocWikitext2 => (15, 70, 500, 15.0, 1882),
            Self::AwdLstmWikitext2 => (80, 70, 750, 30.0, 1882),
            Self::BillionWord => (60, 35, 20, 20.0, 28),
            Self::Small | Self::Text8 | Self::Text8Mos7Square | Self::Text8Mos10 | Self::Text8Mos10Square => {
                (20, 35, 20, 20.0, 28)
            }
        };
        let (alpha, beta) = if self == Self::BillionWord { (0.0, 0.0) } else { (2.0, 1.0) };
        let (prior_cv, nonmono) = match self {
            Self::Doc | Self::DocWikitext2 => (0.001, 60),
            _ => (0.0, 5),
        };
        TrainConfig {
            batch,
            small_batch: None,
            bptt,
            lr,
            latent_lr: 1.0,
            clip: 0.25,
            weight_decay: 1.2e-6,
            alpha,
            beta,
            prior_cv,
            nonmono,
            max_seq_len_delta: if matches!(self, Self::Wikitext2 | Self::DocWikitext2) { 20 } else { 40 },
            eval_batch: 10,
            test_batch: 1,
            epochs,
            seed,
            average_from_start: false,
            validate_every: None,
            patience: None,
            lr_decay: None,
            max_minutes: None,
            test: true,
        }
    }

    /// How the preset's text is read: characters for text8, the 100,000 most frequent words in lower case for One Billion
    /// Word, otherwise every word as it is.
    pub fn text(self) -> TextConfig {
        match self {
            Self::BillionWord => {
                TextConfig { lower_case: true, vocab_size: Some(100_000), ..TextConfig::default() }
            }
            _ => TextConfig { characters: self.is_text8(), ..TextConfig::default() },
        }
    }

    /// The learning rate of finetuning.
    pub fn finetune_lr(self) -> f64 {
        match self {
            Self::Paper => 25.0,
            Self::Wikitext2 => 20.0,
            _ => self.train().lr,
        }
    }

    /// Settings of dynamic evaluation, in the form of the program behind the published perplexities. WikiText-2 has its own;
    /// every other preset takes those of Penn Treebank.
    pub fn dynamic(self) -> DynamicConfig {
        let (eps, lambda) = match self {
            Self::Wikitext2 | Self::DocWikitext2 | Self::AwdLstmWikitext2 => (0.002, 0.02),
            _ => (0.001, 0.075),
        };
        DynamicConfig { form: DynamicForm::Program, lr: 0.002, eps, lambda }
    }
}

runs::by_name! {
    Preset, "preset":
    Small => "small", Paper => "paper", Doc => "doc", AwdLstm => "awd-lstm", LmsPlif => "lms-plif",
    Wikitext2 => "wikitext2", DocWikitext2 => "doc-wikitext2", AwdLstmWikitext2 => "awd-lstm-wikitext2",
    BillionWord => "billion-word", Text8 => "text8", Text8Mos7Square => "text8-mos7-square",
    Text8Mos10 => "text8-mos10", Text8Mos10Square => "text8-mos10-square",
}
