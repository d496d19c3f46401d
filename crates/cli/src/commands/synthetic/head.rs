//! The heads that are compared.

use std::fmt;
use std::str::FromStr;

use awd_lstm::Error;
use serde::{Serialize, Serializer};

/// A head of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Plain softmax.
    Softmax,
    /// Sigsoftmax.
    Sigsoftmax,
    /// Piecewise linear increasing function.
    Plif,
    /// Monotonic network, equation 14 of the paper.
    MonotonicNet,
    /// Mixture of Softmaxes.
    Mos,
}

impl Head {
    /// Every head, in the order of tables and pictures.
    pub const ALL: [Self; 5] = [Self::Softmax, Self::Sigsoftmax, Self::Plif, Self::MonotonicNet, Self::Mos];

    /// The name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Sigsoftmax => "sigsoftmax",
            Self::Plif => "plif",
            Self::MonotonicNet => "monotonic-net",
            Self::Mos => "mos",
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

impl FromStr for Head {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|head| head.name() == text)
            .ok_or_else(|| Error::unknown_name("head", text, Self::ALL))
    }
}
