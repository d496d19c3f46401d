//! The output layer that a command line asks for.

use std::fmt;
use std::str::FromStr;

use awd_lstm::{Error, HeadKind};
use clap::Args;
use highrank::{HeadConfig, Precision};

use crate::failure::Failure;

/// An output layer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// One that the other programs have too.
    Common(HeadKind),
    /// Soft-capped softmax.
    SoftCap,
    /// Softmax after a monotonic network.
    MonotonicNet,
}

impl Head {
    /// Every head, in the order in which they are listed to users.
    pub fn all() -> impl Iterator<Item = Self> {
        HeadKind::ALL.iter().copied().map(Self::Common).chain([Self::SoftCap, Self::MonotonicNet])
    }

    /// The name on command lines and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Common(kind) => kind.name(),
            Self::SoftCap => "soft-cap",
            Self::MonotonicNet => "monotonic-net",
        }
    }

    /// Whether it has components, a prior and latent contexts.
    pub fn is_mixture(self) -> bool {
        matches!(self, Self::Common(kind) if kind.is_mixture())
    }

    fn has_plif(self) -> bool {
        matches!(self, Self::Common(kind) if kind.has_plif())
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Head {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::all()
            .find(|head| head.name() == text)
            .ok_or_else(|| Error::unknown_name("head", text, Self::all()))
    }
}

/// The output layer and its settings.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output layer")]
pub struct HeadArgs {
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif, mos-plif, soft-cap or monotonic-net.
    #[arg(long, default_value = "mos")]
    pub head: Head,
    /// Components of a mixture [default: 4].
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Dropout on the latent contexts of a mixture [default: 0].
    #[arg(long, value_name = "P")]
    pub dropout_latent: Option<f64>,
    /// Pieces of a PLIF [default: 1000].
    #[arg(long)]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T] [default: 20].
    #[arg(long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// Largest logit of a soft cap [default: 30].
    #[arg(long, value_name = "C")]
    pub cap: Option<f64>,
    /// Sigmoids of a monotonic network [default: 16].
    #[arg(long, value_name = "N")]
    pub units: Option<usize>,
    /// What the inputs of the output layer's matrix products are rounded to: full (nothing), tf32 or bf16. Faster on NVIDIA
    /// GPUs only.
    #[arg(long, default_value_t)]
    pub precision: Precision,
}

impl HeadArgs {
    /// Refuses settings of other heads than the one asked for.
    ///
    /// # Errors
    /// The first such setting.
    pub fn validate(&self) -> Result<(), Failure> {
        let head = self.head;
        let settings = [
            ("--components", self.components.is_some(), head.is_mixture(), "mixture"),
            ("--dropout-latent", self.dropout_latent.is_some(), head.is_mixture(), "mixture"),
            ("--knots", self.knots.is_some(), head.has_plif(), "PLIF"),
            ("--plif-bound", self.plif_bound.is_some(), head.has_plif(), "PLIF"),
            ("--cap", self.cap.is_some(), head == Head::SoftCap, "soft cap"),
            ("--units", self.units.is_some(), head == Head::MonotonicNet, "monotonic network"),
        ];
        match settings.into_iter().find(|(_, given, used, _)| *given && !used) {
            Some((option, _, _, part)) => {
                Err(format!("{option} is given, but the {head} head has no {part}").into())
            }
            None => Ok(()),
        }
    }

    /// The configuration over an embedding `[rows, d_embedding]`, under a transformer of width `d_model`.
    pub fn config(&self, d_model: usize, d_embedding: usize, vocabulary: Size) -> HeadConfig {
        let (m, d, v) = (d_model, d_embedding, vocabulary.words);
        let (k, knots) = (self.components.unwrap_or(4), self.knots.unwrap_or(1000));
        let config = match self.head {
            Head::Common(HeadKind::Softmax) => HeadConfig::softmax(d, v),
            Head::Common(HeadKind::Moc) => HeadConfig::moc(m, d, v, k),
            Head::Common(HeadKind::Mos) => HeadConfig::mos(m, d, v, k),
            Head::Common(HeadKind::Sigsoftmax) => HeadConfig::sigsoftmax(d, v),
            Head::Common(HeadKind::Gss) => HeadConfig::gss(d, v),
            Head::Common(HeadKind::Plif) => HeadConfig::plif(d, v, knots),
            Head::Common(HeadKind::MosPlif) => HeadConfig::mos_plif(m, d, v, k, knots),
            Head::SoftCap => HeadConfig::soft_cap(d, v, self.cap.unwrap_or(30.0)),
            Head::MonotonicNet => HeadConfig::monotonic_net(d, v, self.units.unwrap_or(16)),
        };
        let config = match self.plif_bound {
            Some(bound) if self.head.has_plif() => config.with_plif_bound(bound),
            _ => config,
        };
        let config = match self.dropout_latent {
            Some(dropout) if self.head.is_mixture() => config.with_latent_dropout(dropout),
            _ => config,
        };
        vocabulary.pad(config).with_tied(true).with_precision(self.precision)
    }
}

/// The size of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Words of the text.
    pub words: usize,
    /// Rows of the embedding: the words, and rows that stand for none.
    pub rows: usize,
}

impl Size {
    /// That of `words` words, padded to `least` rows if that is more.
    pub fn new(words: usize, least: Option<usize>) -> Self {
        Self { words, rows: least.map_or(words, |least| least.max(words)) }
    }

    /// The head with masked rows that pad its vocabulary.
    pub fn pad(self, head: HeadConfig) -> HeadConfig {
        if self.rows > self.words { head.with_vocab_multiple(self.rows) } else { head }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for head in Head::all() {
            assert_eq!(head.name().parse::<Head>().unwrap(), head);
        }
        let message = "softmix".parse::<Head>().unwrap_err().to_string();
        assert!(message.contains("`softmix`") && message.ends_with("soft-cap, monotonic-net"), "{message}");
    }

    #[test]
    fn a_vocabulary_is_padded_to_as_many_rows_as_are_asked_for() {
        let rows = |least| {
            let size = Size::new(1000, least);
            let head = size.pad(HeadConfig::softmax(4, size.words));
            assert_eq!((head.vocab, head.rows()), (1000, size.rows));
            size.rows
        };
        assert_eq!(
            [rows(None), rows(Some(5)), rows(Some(1000)), rows(Some(262_144))],
            [1000, 1000, 1000, 262_144]
        );
    }
}
