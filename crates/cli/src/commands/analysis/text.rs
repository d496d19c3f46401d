//! Held-out text as a model sees it, window by window.

use awd_lstm::data::Batches;
use awd_lstm::{LanguageModel, LmState};
use burn::tensor::{Device, Tensor};

use crate::commands::analysis::args::{HeldOutArgs, Split};
use crate::commands::analysis::runs::SavedRun;
use crate::failure::Failure;
use crate::print::print_note;
use crate::progress::ShareBar;
use crate::training::{TEST, VALID, load_held_out, other_texts, require_test};

/// Contexts that are read at once.
const WINDOW: usize = 128;

/// The text that runs are looked at with.
pub struct Text {
    batches: Batches,
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
        let corpus = load_held_out(args.data.as_deref(), &first.config, first.vocabulary.clone())?;
        if args.split == Split::Test {
            require_test(&corpus, args.data.as_ref().unwrap_or(&first.config.data))?;
        }
        let (what, ids) = match args.split {
            Split::Valid => (VALID, corpus.valid()),
            Split::Test => (TEST, corpus.test()),
        };
        other_texts(&first.config, &corpus, &[what]).iter().for_each(print_note);
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
        Ok(Self { batches: Batches::new(what, &ids[..end], 1, needed + 1)? })
    }

    /// Number of contexts, each with a word that comes next.
    pub fn contexts(&self) -> usize {
        self.batches.predictions()
    }

    /// The word ids, from the first context on; one more than there are contexts.
    pub fn ids(&self, device: &Device) -> Vec<usize> {
        let window = self.batches.window(0, self.contexts(), device);
        let first = window.tokens.slice(0..1);
        Tensor::cat(vec![first, window.targets], 0).into_data().iter::<i64>().map(|id| id as usize).collect()
    }

    /// Walks a model through the text, with a bar on standard error under the name `label`.
    pub fn windows<'a>(
        &'a self,
        model: &'a LanguageModel,
        device: &'a Device,
        label: &str,
    ) -> impl Iterator<Item = Window> + use<'a> {
        let (bar, contexts, mut done) = (ShareBar::new(label), self.contexts() as f64, 0);
        self.windows_unseen(model, device).inspect(move |window| {
            done += window.targets.len();
            bar.set(done as f64 / contexts);
        })
    }

    /// As [`windows`](Self::windows) without the bar.
    pub fn windows_unseen<'a>(
        &'a self,
        model: &'a LanguageModel,
        device: &'a Device,
    ) -> impl Iterator<Item = Window> + use<'a> {
        let mut state: Option<LmState> = None;
        self.batches.windows(WINDOW, device).map(move |window| {
            let before = state.take().unwrap_or_else(|| model.zero_state(1));
            let (hidden, next) = model.hidden(window.tokens, before);
            state = Some(next);
            let [steps, columns, width] = hidden.dims();
            let targets = window.targets.into_data().iter::<i64>().map(|id| id as usize).collect();
            Window { hidden: hidden.reshape([steps * columns, width]), targets }
        })
    }
}
