//! The dropout probabilities.

use serde::{Deserialize, Serialize};

use runs::error::{Result, check};

/// The six dropout probabilities of an AWD-LSTM with a mixture, each in [0, 1).
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

    pub(super) fn validate(&self) -> Result<()> {
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
