//! Held-out text as a model sees it, window by window.

use burn::tensor::Tensor;
use program::failure::Failure;
use runs::Error;

/// The text that runs are looked at with.
pub struct Text {
    ids: Vec<u32>,
}

/// A stretch of text as a model sees it.
pub struct Window {
    /// Hidden states at the output layer, `[rows, H]`.
    pub hidden: Tensor<2>,
    /// The word that comes after each context.
    pub targets: Vec<usize>,
}

impl Text {
    /// The first so many contexts of a text, or all there are; `needed` at least.
    pub fn of(
        what: &'static str,
        ids: &[u32],
        contexts: Option<usize>,
        needed: usize,
    ) -> Result<Self, Failure> {
        let end = contexts.map_or(ids.len(), |contexts| ids.len().min(contexts.saturating_add(1)));
        match end > needed {
            true => Ok(Self { ids: ids[..end].to_vec() }),
            false => Err(Error::CorpusTooShort { what, tokens: end, batch: 1, needed: needed + 1 }.into()),
        }
    }

    /// Number of contexts, each with a word that comes next.
    pub fn contexts(&self) -> usize {
        self.ids.len() - 1
    }

    /// The word ids, from the first context on; one more than there are contexts.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Stretches of at most so many contexts, each with the word that comes after the last.
    pub fn windows(&self, contexts: usize) -> impl Iterator<Item = &[u32]> {
        let starts = (0..self.contexts()).step_by(contexts);
        starts.map(move |start| &self.ids[start..self.ids.len().min(start + contexts + 1)])
    }
}

impl Window {
    /// The states of a stretch of text, of any leading dimensions, and the words that it comes from.
    pub fn new(hidden: Tensor<3>, ids: &[u32]) -> Self {
        let [a, b, width] = hidden.dims();
        let targets = ids[1..].iter().map(|&id| id as usize).collect();
        Self { hidden: hidden.reshape([a * b, width]), targets }
    }
}
