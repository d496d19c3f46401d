//! What a file says of its model besides the tensors, which do not tell all of it.

use std::fmt::Display;
use std::str::FromStr;

use super::StateDict;
use crate::config::{HeadKind, ModelConfig};
use runs::error::{Error, Result};

const HEAD: &str = "highrank.head";
const PLIF_BOUND: &str = "highrank.plif_bound";
const START_SPREAD: &str = "highrank.start_spread";

/// What no tensor tells of a model, in the metadata of a safetensors file. Files of other programs have none of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Noted {
    /// The output layer. `None` takes the one that the tensors suggest: `mos` for a mixture, `doc` for one with contexts from
    /// several layers, `mixtape` where there are gates, `softmax` without one, and `plif`, `mos-plif` or `gss` if there are tensors
    /// of that name. `moc` and `sigsoftmax` cannot be told from `mos` and `softmax`.
    pub head: Option<HeadKind>,
    /// T of a PLIF; `None` is 20. Heads without one ignore it.
    pub plif_bound: Option<f64>,
    /// Of a mixture whose contexts are linear, the spread with which they started: [`ModelConfig::start_spread`]. `None` are tanh
    /// contexts.
    pub start_spread: Option<f64>,
}

impl Noted {
    /// What is to be noted of a model.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            head: Some(config.head),
            plif_bound: config.head.has_plif().then_some(config.plif_bound),
            start_spread: config.start_spread,
        }
    }
}

impl StateDict {
    /// The same tensors with this in the metadata.
    #[must_use]
    pub fn with_notes(mut self, noted: &Noted) -> Self {
        let mut note = |name: &str, value: Option<String>| {
            self.metadata.extend(value.map(|value| (name.to_string(), value)));
        };
        note(HEAD, noted.head.map(|head| head.to_string()));
        note(PLIF_BOUND, noted.plif_bound.map(|bound| bound.to_string()));
        note(START_SPREAD, noted.start_spread.map(|spread| spread.to_string()));
        self
    }

    /// What the metadata say.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they say something that cannot be.
    pub fn noted(&self) -> Result<Noted> {
        Ok(Noted {
            head: self.note(HEAD)?,
            plif_bound: self.note(PLIF_BOUND)?,
            start_spread: self.note(START_SPREAD)?,
        })
    }

    fn note<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        let text = self.metadata.get(name);
        text.map(|text| text.parse()).transpose().map_err(|error: T::Err| Error::Damaged {
            path: self.source.clone(),
            reason: format!("{name} in its metadata: {error}"),
        })
    }
}
