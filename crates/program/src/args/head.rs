//! Every output layer by name.

use std::fmt;
use std::str::FromStr;

use awd_lstm::HeadKind;
use highrank::{AdaptiveConfig, HeadConfig};
use runs::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An output layer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// One that the language models have.
    Common(HeadKind),
    /// Soft-capped softmax.
    SoftCap,
    /// Softmax after a monotonic network.
    MonotonicNet,
}

/// Sizes of an output layer; a head ignores those of parts that it does not have.
#[derive(Debug, Clone, Copy)]
pub struct HeadSizes {
    /// H, width of the hidden state of a mixture; d is that of the other heads.
    pub d_hidden: usize,
    /// d, width of a decoder row.
    pub d_embedding: usize,
    /// V, size of the vocabulary.
    pub vocab: usize,
    /// K, components of a mixture, of a direct output connection those from the last layer.
    pub components: usize,
    /// Width and components of the layer below, for a direct output connection.
    pub lower: (usize, usize),
    /// Pieces of a PLIF.
    pub knots: usize,
    /// Largest logit of a soft cap.
    pub cap: f64,
    /// Sigmoids of a monotonic network.
    pub units: usize,
}

impl HeadSizes {
    /// `cap` where a command line says nothing.
    pub const CAP: f64 = 30.0;
    /// `units` where a command line says nothing.
    pub const UNITS: usize = 16;
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

    /// Whether it has latent contexts.
    pub fn has_contexts(self) -> bool {
        matches!(self, Self::Common(kind) if kind.has_contexts())
    }

    /// Whether it reads the outputs of several layers.
    pub fn reads_layers(self) -> bool {
        matches!(self, Self::Common(kind) if kind.reads_layers())
    }

    /// Whether it has a PLIF, hence knots and a bound.
    pub fn has_plif(self) -> bool {
        matches!(self, Self::Common(kind) if kind.has_plif())
    }

    /// The configuration of a head of these sizes.
    pub fn config(self, sizes: &HeadSizes) -> HeadConfig {
        let &HeadSizes { d_hidden: h, d_embedding: d, vocab: v, components: k, lower, knots, cap, units } =
            sizes;
        match self {
            Self::Common(HeadKind::Softmax) => HeadConfig::softmax(d, v),
            Self::Common(HeadKind::Adaptive) => {
                HeadConfig::softmax(d, v).with_adaptive(AdaptiveConfig::for_vocab(v))
            }
            Self::Common(HeadKind::Moc) => HeadConfig::moc(h, d, v, k),
            Self::Common(HeadKind::Mos) => HeadConfig::mos(h, d, v, k),
            Self::Common(HeadKind::Doc) => HeadConfig::direct_output_connection(&[lower, (h, k)], d, v),
            Self::Common(HeadKind::Mixtape) => HeadConfig::mixtape(h, d, v),
            Self::Common(HeadKind::Sigsoftmax) => HeadConfig::sigsoftmax(d, v),
            Self::Common(HeadKind::Gss) => HeadConfig::generalised_sigsoftmax(d, v),
            Self::Common(HeadKind::Plif) => HeadConfig::plif(d, v, knots),
            Self::Common(HeadKind::MosPlif) => HeadConfig::mos_plif(h, d, v, k, knots),
            Self::SoftCap => HeadConfig::soft_cap(d, v, cap),
            Self::MonotonicNet => HeadConfig::monotonic_net(d, v, units),
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Head {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for head in Head::all() {
            assert_eq!(head.name().parse::<Head>().unwrap(), head);
            assert_eq!(serde_json::from_str::<Head>(&serde_json::to_string(&head).unwrap()).unwrap(), head);
        }
        let message = "softmix".parse::<Head>().unwrap_err().to_string();
        assert!(message.contains("`softmix`") && message.ends_with("soft-cap, monotonic-net"), "{message}");
    }

    #[test]
    fn every_head_has_a_sound_configuration() {
        let sizes = HeadSizes {
            d_hidden: 6,
            d_embedding: 4,
            vocab: 20,
            components: 2,
            lower: (5, 1),
            knots: 8,
            cap: HeadSizes::CAP,
            units: 3,
        };
        for head in Head::all() {
            let config = head.config(&sizes);
            config.validate().unwrap();
            let width = match head {
                Head::Common(HeadKind::Doc) => 11,
                head if head.has_contexts() => 6,
                _ => 4,
            };
            assert_eq!((config.d_hidden, config.vocab), (width, 20), "{head}");
        }
    }
}
