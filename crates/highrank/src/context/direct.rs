//! The hidden state itself as the only context: `h = g`.

use burn::module::{Content, Module};
use burn::tensor::Device;
use highrank_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::context_path::ContextPath;
use super::kind::{ContextKind, ContextModule, ContextSettings, Contexts, Sizes};
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::{HeadError, in_range};
use crate::ops::ContextSource;

/// Configuration of [`Direct`]: there is nothing to configure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectConfig;

/// The hidden state itself: `h = g`.
#[derive(Module, Debug, Default)]
pub struct Direct;

impl ContextSettings for DirectConfig {
    type Module = Direct;

    fn validate(&self, Sizes { d_hidden, d_embedding, .. }: Sizes) -> Result<(), HeadError> {
        let expected = format!(
            "d_embedding, {d_embedding}: a head without mixture multiplies the hidden state by the decoder directly, so make them \
             equal or use a mixture"
        );
        let width = d_embedding as f64;
        in_range("d_hidden", d_hidden as f64, expected, width..=width)
    }

    fn init(&self, _: Sizes, _: &Device) -> Direct {
        Direct
    }

    fn components(&self) -> usize {
        1
    }
}

impl ContextModule for Direct {
    fn d_hidden(&self) -> Option<usize> {
        None
    }

    fn check(&self, _: usize, _: &TensorChecks) -> Result<(), HeadError> {
        Ok(())
    }

    fn display(&self, content: Content) -> Content {
        content
    }
}

impl ContextKind<Self> for Direct {
    const HAS_PRIORS: bool = false;

    fn contexts(_: &Self, tokens: Tokens, _: Precision, _: ContextPath) -> Contexts {
        let contexts = ContextSource::Given(tokens.hidden());
        Contexts { contexts, log_prior: None, component_log_prior: None }
    }
}
