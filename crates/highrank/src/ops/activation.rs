//! What makes a latent context of its pre-activations.

use std::fmt;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What makes a latent context `h_k` of the pre-activations `u_k = W_k g + b_k`.
///
/// ```
/// use highrank::Activation;
///
/// assert_eq!(Activation::Linear.to_string(), "linear");
/// assert_eq!("tanh".parse(), Ok(Activation::default()));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Activation {
    /// `h_k = tanh(u_k)`, the papers' contexts.
    #[default]
    Tanh,
    /// `h_k = u_k`.
    Linear,
    /// `h_k = g_{1..d} + tanh(u_k)`, with the first `d` features of the hidden state, of which there must be as many. A step
    /// computes the latent layer's product once more than with the others.
    Residual,
}

#[cfg(test)]
impl Activation {
    pub(crate) const ALL: [Self; 3] = [Self::Tanh, Self::Linear, Self::Residual];
}

/// An [`Activation`] that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown activation `{given}`: expected tanh, linear or residual")]
pub struct UnknownActivation {
    /// The name given.
    pub given: String,
}

impl fmt::Display for Activation {
    /// Writes the name on command lines and in files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Activation {
    type Err = UnknownActivation;

    /// Parses an activation's name.
    fn from_str(text: &str) -> Result<Self, UnknownActivation> {
        let known = Self::deserialize(StrDeserializer::<serde::de::value::Error>::new(text));
        known.map_err(|_| UnknownActivation { given: text.to_string() })
    }
}
