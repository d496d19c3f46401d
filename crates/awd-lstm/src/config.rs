//! Configurations of the model and of its training, and the presets of the papers.

use std::fmt;
use std::str::FromStr;

use highrank::HeadConfig;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::optim::{DynamicConfig, DynamicForm};

/// The output layer of a language model.
///
/// Written and parsed as `softmax`, `moc`, `mos`, `sigsoftmax`, `gss`, `plif` and `mos-plif`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// Plain softmax over the logits: rank at most d + 1.
    Softmax,
    /// Mixture of Contexts: mixes before the softmax, rank at most d + 1 (arXiv 1711.03953, section 2.4).
    Moc,
    /// Mixture of Softmaxes: mixes probabilities, any rank (arXiv 1711.03953, section 2.3).
    Mos,
    /// Softmax of `z + log sigmoid(z)` (Kanai et al., 2018).
    Sigsoftmax,
    /// Generalised sigsoftmax: sigsoftmax with a learnt slope and a learnt centre (Parthiban et al., 2021).
    Gss,
    /// Softmax after a learnt piecewise linear increasing function (arXiv 1902.08077, section 4).
    Plif,
    /// Mixture of Softmaxes whose logits pass through one shared PLIF (arXiv 1902.08077, section 5).
    MosPlif,
}

impl HeadKind {
    /// Every head, in the order in which they are listed to users.
    pub const ALL: &[Self] =
        &[Self::Softmax, Self::Moc, Self::Mos, Self::Sigsoftmax, Self::Gss, Self::Plif, Self::MosPlif];

    /// The name on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Moc => "moc",
            Self::Mos => "mos",
            Self::Sigsoftmax => "sigsoftmax",
            Self::Gss => "gss",
            Self::Plif => "plif",
            Self::MosPlif => "mos-plif",
        }
    }

    /// Whether the head has K components with a prior and latent contexts.
    pub fn is_mixture(self) -> bool {
        matches!(self, Self::Moc | Self::Mos | Self::MosPlif)
    }

    /// Whether the head has a PLIF, hence knots and a bound.
    pub fn has_plif(self) -> bool {
        matches!(self, Self::Plif | Self::MosPlif)
    }
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for HeadKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::unknown_name("head", text, &known)
        })
    }
}

/// The six dropout probabilities of an AWD-LSTM-MoS, each in [0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropouts {
    /// Locked dropout on the output of the last LSTM.
    pub output: f64,
    /// Locked dropout between LSTM layers.
    pub hidden: f64,
    /// Locked dropout on the embedded tokens.
    pub input: f64,
    /// Locked dropout on the K latent contexts of a mixture.
    pub latent: f64,
    /// Dropout of whole words: rows of the embedding, for the lookup only.
    pub embedding: f64,
    /// DropConnect on the hidden-to-hidden matrix of every LSTM.
    pub weight: f64,
}

impl Dropouts {
    /// No dropout at all.
    pub const NONE: Self =
        Self { output: 0.0, hidden: 0.0, input: 0.0, latent: 0.0, embedding: 0.0, weight: 0.0 };

    fn validate(&self) -> Result<(), Error> {
        for (name, p) in [
            ("dropout.output", self.output),
            ("dropout.hidden", self.hidden),
            ("dropout.input", self.input),
            ("dropout.latent", self.latent),
            ("dropout.embedding", self.embedding),
            ("dropout.weight", self.weight),
        ] {
            check((0.0..1.0).contains(&p), name, p, "at least 0 and below 1")?;
        }
        Ok(())
    }
}

/// The shape of a language model: embedding, LSTM layers, output layer, dropouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// V, the number of words.
    pub vocab: usize,
    /// d, the width of the embedding and of the decoder matrix.
    pub d_embedding: usize,
    /// Hidden size of every LSTM, first to last. The last must be `d_embedding` for a head without mixture.
    pub lstm_sizes: Vec<usize>,
    /// The output layer.
    pub head: HeadKind,
    /// K, the number of mixture components. Heads without mixture ignore it.
    pub components: usize,
    /// Number of pieces of the PLIF. Heads without one ignore it.
    pub knots: usize,
    /// T: the PLIF is piecewise linear on [-T, T]. Heads without one ignore it.
    pub plif_bound: f64,
    /// The dropouts, active in training only.
    pub dropouts: Dropouts,
    /// Whether the decoder matrix of the output layer is the embedding matrix.
    pub tied: bool,
}

impl ModelConfig {
    /// The model of a preset: the same as [`Preset::model`].
    pub fn from_preset(preset: Preset, head: HeadKind, vocab: usize) -> Self {
        preset.model(head, vocab)
    }

    /// Checks every size and probability, so that [`ModelConfig::try_init`] cannot fail on them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] names the first setting that is out of range and the range,
    /// [`Error::LastLstmSize`] the sizes that a head without mixture cannot join.
    pub fn validate(&self) -> Result<(), Error> {
        check(self.vocab > 0, "vocab", self.vocab, "at least 1")?;
        check(self.d_embedding > 0, "d_embedding", self.d_embedding, "at least 1")?;
        check(!self.lstm_sizes.is_empty(), "lstm_sizes", "[]", "at least one layer")?;
        check(
            !self.lstm_sizes.contains(&0),
            "lstm_sizes",
            format!("{:?}", self.lstm_sizes),
            "without zeros",
        )?;
        if self.head.is_mixture() {
            check(self.components > 0, "components", self.components, "at least 1")?;
        } else if self.last_lstm() != self.d_embedding {
            return Err(Error::LastLstmSize {
                head: self.head,
                last: self.last_lstm(),
                d_embedding: self.d_embedding,
            });
        }
        if self.head.has_plif() {
            check((1..=1_000_000).contains(&self.knots), "knots", self.knots, "from 1 to 1000000")?;
            let ok = self.plif_bound.is_finite() && self.plif_bound > 0.0;
            check(ok, "plif_bound", self.plif_bound, "finite and above 0")?;
        }
        self.dropouts.validate()
    }

    /// The configuration of the output layer. Its decoder matrix always comes from the model, which holds the
    /// embedding and, if `tied` is false, a matrix of its own for the decoder.
    pub fn head_config(&self) -> HeadConfig {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_embedding, self.vocab, self.components);
        let head = match self.head {
            HeadKind::Softmax => HeadConfig::softmax(d, v),
            HeadKind::Moc => HeadConfig::moc(hidden, d, v, k),
            HeadKind::Mos => HeadConfig::mos(hidden, d, v, k),
            HeadKind::Sigsoftmax => HeadConfig::sigsoftmax(d, v),
            HeadKind::Gss => HeadConfig::gss(d, v),
            HeadKind::Plif => HeadConfig::plif(d, v, self.knots),
            HeadKind::MosPlif => HeadConfig::mos_plif(hidden, d, v, k, self.knots),
        };
        let head = if self.head.has_plif() { head.with_plif_bound(self.plif_bound) } else { head };
        let head = if self.head.is_mixture() { head.with_latent_dropout(self.dropouts.latent) } else { head };
        head.with_tied(true)
    }

    /// Number of learnt scalars, in closed form. A tied matrix counts once.
    ///
    /// ```text
    /// V·d + Σ_layers 4H(I + H + 2) + V [+ V·d if not tied]
    ///     + K·H_last + K·d·(H_last + 1)   (mixtures)    + knots + 1   (PLIF)    + 2   (GSS)
    /// ```
    pub fn num_params(&self) -> usize {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_embedding, self.vocab, self.components);
        let inputs = std::iter::once(&d).chain(&self.lstm_sizes);
        let lstm: usize = inputs.zip(&self.lstm_sizes).map(|(i, h)| 4 * h * (i + h + 2)).sum();
        let decoder = if self.tied { v } else { v * d + v };
        let mixture = if self.head.is_mixture() { k * hidden + k * d * (hidden + 1) } else { 0 };
        let plif = if self.head.has_plif() { self.knots + 1 } else { 0 };
        let gss = if self.head == HeadKind::Gss { 2 } else { 0 };
        v * d + lstm + decoder + mixture + plif + gss
    }

    /// Hidden size of the last LSTM, the width of the output layer's input. 0 without any layer.
    pub fn last_lstm(&self) -> usize {
        self.lstm_sizes.last().copied().unwrap_or(0)
    }
}

/// How a model is trained. The procedure is that of AWD-LSTM (arXiv 1708.02182, sections 3 and 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// B, the number of parallel text streams in training.
    pub batch: usize,
    /// Columns of a slice of the batch, if gradients are to be accumulated over slices; the result is that of the whole
    /// batch, with dropout masks drawn for each slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_batch: Option<usize>,
    /// Mean number of time steps of a training step.
    pub bptt: usize,
    /// Learning rate of a step of `bptt` time steps; a step of n gets `lr · n / bptt`.
    pub lr: f64,
    /// Largest global gradient norm, over all parameters together.
    pub clip: f64,
    /// Weight decay, added to the clipped gradient of every weight.
    pub weight_decay: f64,
    /// Weight of activation regularisation, on the dropped output.
    pub alpha: f64,
    /// Weight of temporal activation regularisation, on the raw output.
    pub beta: f64,
    /// Averaging begins when the validation loss is worse than the best of all but the last `nonmono`.
    pub nonmono: usize,
    /// A step has at most `bptt + max_seq_len_delta` time steps.
    pub max_seq_len_delta: usize,
    /// Number of parallel streams of the validation text.
    pub eval_batch: usize,
    /// Number of parallel streams of the test text.
    pub test_batch: usize,
    /// Number of passes over the training text.
    pub epochs: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether this is a finetuning: weights are averaged from the first step on, and the criterion that would begin
    /// averaging ends training instead.
    pub average_from_start: bool,
}

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] names the first setting that is out of range and the range.
    pub fn validate(&self) -> Result<(), Error> {
        for (name, size) in [
            ("batch", self.batch),
            ("bptt", self.bptt),
            ("eval_batch", self.eval_batch),
            ("test_batch", self.test_batch),
            ("epochs", self.epochs),
        ] {
            check(size > 0, name, size, "at least 1")?;
        }
        if let Some(small_batch) = self.small_batch {
            check((1..=self.batch).contains(&small_batch), "small_batch", small_batch, "from 1 to batch")?;
        }
        for (name, value) in [("lr", self.lr), ("clip", self.clip)] {
            check(value.is_finite() && value > 0.0, name, value, "finite and above 0")?;
        }
        for (name, value) in [("weight_decay", self.weight_decay), ("alpha", self.alpha), ("beta", self.beta)]
        {
            check(value.is_finite() && value >= 0.0, name, value, "finite and at least 0")?;
        }
        Ok(())
    }
}

/// A named pair of [`ModelConfig`] and [`TrainConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// About two million parameters on a vocabulary of 10,000: an epoch of Penn Treebank in minutes on a CPU.
    Small,
    /// AWD-LSTM-MoS on Penn Treebank (arXiv 1711.03953, with the settings of the published command).
    Paper,
}

impl Preset {
    /// Every preset.
    pub const ALL: &[Self] = &[Self::Small, Self::Paper];

    /// The name on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Paper => "paper",
        }
    }

    /// The model with the given head on a vocabulary of `vocab` words.
    ///
    /// The last LSTM of a head without mixture gets size d instead of the preset's.
    pub fn model(self, head: HeadKind, vocab: usize) -> ModelConfig {
        let (d_embedding, mut lstm_sizes, components) = match self {
            Self::Small => (128, vec![256, 128], 5),
            Self::Paper => (280, vec![960, 960, 620], 15),
        };
        if !head.is_mixture()
            && let Some(last) = lstm_sizes.last_mut()
        {
            *last = d_embedding;
        }
        // 1e6 knots belong to MoS + PLIF of the paper (arXiv 1902.08077, table 2), 1e5 to the rest.
        let knots = if self == Self::Paper && head == HeadKind::MosPlif { 1_000_000 } else { 100_000 };
        let dropouts = match self {
            Self::Small => {
                Dropouts { output: 0.2, hidden: 0.1, input: 0.2, latent: 0.1, embedding: 0.0, weight: 0.2 }
            }
            Self::Paper => {
                Dropouts { output: 0.4, hidden: 0.225, input: 0.4, latent: 0.29, embedding: 0.1, weight: 0.5 }
            }
        };
        ModelConfig {
            vocab,
            d_embedding,
            lstm_sizes,
            head,
            components,
            knots,
            plif_bound: 20.0,
            dropouts,
            tied: true,
        }
    }

    /// How the preset is trained.
    pub fn train(self) -> TrainConfig {
        let (batch, bptt, epochs) = match self {
            Self::Small => (20, 35, 20),
            Self::Paper => (12, 70, 1000),
        };
        TrainConfig {
            batch,
            small_batch: None,
            bptt,
            lr: 20.0,
            clip: 0.25,
            weight_decay: 1.2e-6,
            alpha: 2.0,
            beta: 1.0,
            nonmono: 5,
            max_seq_len_delta: 40,
            eval_batch: 10,
            test_batch: 1,
            epochs,
            seed: 28,
            average_from_start: false,
        }
    }
}

impl Preset {
    /// The learning rate of finetuning.
    pub fn finetune_lr(self) -> f64 {
        match self {
            Self::Small => self.train().lr,
            Self::Paper => 25.0,
        }
    }

    /// Settings of dynamic evaluation, in the form of the program behind the published perplexities.
    pub fn dynamic(self) -> DynamicConfig {
        let (eps, lambda) = match self {
            Self::Small | Self::Paper => (0.001, 0.075),
        };
        DynamicConfig { form: DynamicForm::Program, lr: 0.002, eps, lambda }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|preset| preset.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            Error::unknown_name("preset", text, &known)
        })
    }
}

/// `Ok` if the setting is good, and otherwise the error that says what would be.
fn check(
    good: bool,
    name: &'static str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error::invalid(name, value, expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_of_the_presets() {
        assert_eq!(Preset::Paper.model(HeadKind::Mos, 10_000).num_params(), 21_500_620);
        assert_eq!(Preset::Small.model(HeadKind::Mos, 10_000).num_params(), 1_966_096);
        assert_eq!(Preset::Small.model(HeadKind::Softmax, 10_000).num_params(), 1_882_896);
    }

    #[test]
    fn every_preset_is_valid_with_every_head() {
        for preset in Preset::ALL {
            preset.train().validate().unwrap();
            for head in HeadKind::ALL {
                let config = preset.model(*head, 10_000);
                config.validate().unwrap();
                config.head_config().validate().unwrap();
            }
        }
    }

    #[test]
    fn names_round_trip_and_unknown_ones_list_the_known() {
        for head in HeadKind::ALL {
            assert_eq!(head.to_string().parse::<HeadKind>().unwrap(), *head);
            assert_eq!(serde_json::to_string(head).unwrap(), format!("\"{head}\""));
        }
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse::<Preset>().unwrap(), *preset);
        }
        let message = "mso".parse::<HeadKind>().unwrap_err().to_string();
        assert!(message.contains("mso") && message.contains("mos-plif"), "{message}");
        let message = "huge".parse::<Preset>().unwrap_err().to_string();
        assert!(message.contains("huge") && message.contains("small, paper"), "{message}");
    }

    fn model_error(edit: impl Fn(&mut ModelConfig)) -> String {
        let mut config = Preset::Small.model(HeadKind::MosPlif, 100);
        edit(&mut config);
        let message = config.validate().unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn bad_model_settings_are_named() {
        assert!(model_error(|c| c.vocab = 0).contains("vocab"));
        assert!(model_error(|c| c.d_embedding = 0).contains("d_embedding"));
        assert!(model_error(|c| c.lstm_sizes.clear()).contains("lstm_sizes"));
        assert!(model_error(|c| c.lstm_sizes[0] = 0).contains("lstm_sizes"));
        assert!(model_error(|c| c.components = 0).contains("components"));
        assert!(model_error(|c| c.knots = 0).contains("knots"));
        assert!(model_error(|c| c.plif_bound = 0.0).contains("plif_bound"));
        assert!(model_error(|c| c.plif_bound = f64::NAN).contains("plif_bound"));
        assert!(model_error(|c| c.dropouts.output = 1.0).contains("dropout.output"));
        assert!(model_error(|c| c.dropouts.hidden = -0.1).contains("dropout.hidden"));
        assert!(model_error(|c| c.dropouts.input = f64::NAN).contains("dropout.input"));
        assert!(model_error(|c| c.dropouts.latent = 2.0).contains("dropout.latent"));
        assert!(model_error(|c| c.dropouts.embedding = 1.0).contains("dropout.embedding"));
        assert!(model_error(|c| c.dropouts.weight = 1.0).contains("dropout.weight"));
    }

    #[test]
    fn the_last_lstm_of_a_head_without_mixture_has_the_width_of_the_embedding() {
        let mut config = Preset::Paper.model(HeadKind::Softmax, 100);
        assert_eq!(config.lstm_sizes, [960, 960, 280]);
        config.lstm_sizes[2] = 620;
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains("620") && message.contains("280"), "{message}");
    }

    #[test]
    fn bad_training_settings_are_named() {
        type Edit = fn(&mut TrainConfig);
        let edits: [(&str, Edit); 10] = [
            ("batch", |c| c.batch = 0),
            ("bptt", |c| c.bptt = 0),
            ("eval_batch", |c| c.eval_batch = 0),
            ("test_batch", |c| c.test_batch = 0),
            ("epochs", |c| c.epochs = 0),
            ("lr", |c| c.lr = f64::INFINITY),
            ("clip", |c| c.clip = 0.0),
            ("weight_decay", |c| c.weight_decay = -1.0),
            ("alpha", |c| c.alpha = f64::NAN),
            ("beta", |c| c.beta = -1.0),
        ];
        for (name, edit) in edits {
            let mut config = Preset::Small.train();
            edit(&mut config);
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let mut json = serde_json::to_value(Preset::Small.model(HeadKind::Mos, 10)).unwrap();
        let back: ModelConfig = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(back, Preset::Small.model(HeadKind::Mos, 10));
        json["dropout"] = 0.5.into();
        assert!(serde_json::from_value::<ModelConfig>(json).unwrap_err().to_string().contains("dropout"));
    }
}
