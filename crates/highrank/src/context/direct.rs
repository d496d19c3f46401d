//! The hidden state itself as the only context: `h = g`.

use burn::module::{Content, Module};
use burn::tensor::Device;
use highrank_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::kind::{ContextKind, Sizes};
use super::tokens::Tokens;
use crate::error::HeadError;
use crate::fit::Fit;
use crate::ops::ContextSource;

/// Configuration of [`Direct`]: there is nothing to configure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectConfig;

/// The hidden state itself: `h = g`.
#[derive(Module, Debug, Default)]
pub struct Direct;

impl ContextKind for Direct {
    type Config = DirectConfig;
    type Module = Self;

    const HAS_PRIORS: bool = false;

    fn validate(_: &DirectConfig, Sizes { d_hidden, d_embedding, .. }: Sizes) -> Result<(), HeadError> {
        match d_hidden == d_embedding {
            true => Ok(()),
            false => Err(HeadError::DirectSizes { d_hidden, d_embedding }),
        }
    }

    fn init(_: &DirectConfig, _: Sizes, _: &Device) -> Self {
        Self
    }

    fn components(_: &DirectConfig) -> usize {
        1
    }

    fn d_hidden(_: &Self) -> Option<usize> {
        None
    }

    fn check(_: &Self, _: usize, _: &Fit) -> Result<(), HeadError> {
        Ok(())
    }

    fn contexts(_: &Self, tokens: Tokens, _: Precision, _: Bodies) -> Contexts {
        Contexts {
            contexts: ContextSource::Given(tokens.hidden()),
            log_prior: None,
            component_log_prior: None,
        }
    }

    fn display(_: &Self, content: Content) -> Content {
        content
    }
}
