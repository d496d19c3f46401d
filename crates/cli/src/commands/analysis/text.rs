//! Held-out text as a model sees it, window by window.

use burn::tensor::Tensor;
use runs::Error;

use crate::commands::analysis::args::{HeldOutArgs, Split};
use crate::commands::analysis::runs::SavedRun;
use crate::failure::Failure;
use crate::print::print_note;
use crate::training::{TEST, VALID, load_held_out, other_texts, require_test};

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
    /// Reads the text that the arguments name, in the words of the first run; `needed` contexts at least.
    ///
    /// # Errors
    /// Text that cannot be read, words that the vocabulary lacks, too few contexts.
    pub fn load(args: &HeldOutArgs, runs: &[SavedRun], needed: usize) -> Result<Self, Failure> {
        let first = runs.first().ok_or("no run given: name at least one")?;
        let data = args.data.as_ref().unwrap_or(&first.data);
        if data.as_os_str().is_empty() {
            return Err(
                first.failure("it has learnt a generated text, which is in no folder: give --data DIR")
            );
        }
        let corpus = load_held_out(data, &first.text, first.vocabulary.clone())?;
        if args.split == Split::Test {
            require_test(&corpus, data)?;
        }
        let (what, ids) = match args.split {
            Split::Valid => (VALID, corpus.valid()),
            Split::Test => (TEST, corpus.test()),
        };
        other_texts(&first.corpus, &corpus, &[what]).iter().for_each(print_note);
        if let Some(tokens) = args.tokens.filter(|tokens| *tokens < needed) {
            return Err(format!("tokens is {tokens}, but must be at least {needed}").into());
        }
        Self::of(what, ids, args.tokens, needed)
    }

    /// The first so many contexts of a text, or all there are; `needed` at least.
    ///
    /// # Errors
    /// Too few contexts.
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
