//! Where the contexts of a mixture start.

use burn::module::Content;
use serde::{Deserialize, Serialize};

use crate::error::{HeadError, not_negative};
use crate::ops::Activation;

/// Where the contexts and priors of a mixture start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Start {
    /// Weights and biases are drawn from the configuration's initialiser.
    #[default]
    Random,
    /// Every context starts as the first `d` features of the hidden state, with zeros after them where it has fewer, and all
    /// components are as probable: the mixture starts as the softmax over these features.
    ///
    /// [Linear](Activation::Linear) contexts start with the identity as their weight, [residual](Activation::Residual) ones with
    /// 0; biases start at 0.
    Softmax {
        /// Spread of the normal noise on the contexts' weights. Without any, components that start alike stay alike.
        spread: f64,
    },
}

impl Start {
    /// The spread that was measured to do well under transformers.
    pub const SPREAD: f64 = 0.02;
}

/// Checks a start and an activation for contexts of width d of a hidden state.
pub(super) fn validate(
    start: Start,
    activation: Activation,
    d_hidden: usize,
    d_embedding: usize,
) -> Result<(), HeadError> {
    if let Start::Softmax { spread } = start {
        not_negative("spread", spread)?;
        if activation == Activation::Tanh {
            let reason = "tanh contexts cannot start as the hidden state: make them linear or residual";
            return Err(HeadError::Unused { option: "start", reason });
        }
    }
    match activation == Activation::Residual && d_hidden < d_embedding {
        true => {
            let expected = format!(
                "at least d_embedding, {d_embedding}: residual contexts have as many features of the hidden state added, so make it \
                 as wide or the contexts linear"
            );
            Err(HeadError::Range { name: "d_hidden", value: d_hidden as f64, expected })
        }
        false => Ok(()),
    }
}

/// Adds an activation other than the papers' to a module's display.
pub(super) fn display(content: Content, activation: Activation) -> Content {
    match activation {
        Activation::Tanh => content,
        _ => content.add_debug_attribute("activation", &activation),
    }
}
