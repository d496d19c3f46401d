//! A saved model, of LSTMs or a transformer, as analyses see it.

use awd_lstm::{LanguageModel, LmState};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use gpt::Gpt;
use highrank::{OutputHead, cast_parameters};
use program::progress::ShareBar;

use crate::commands::analysis::text::{Text, Window};

/// Contexts that LSTMs read at once.
const WINDOW: usize = 128;

/// A saved model.
pub enum Model {
    Lstm(Box<LanguageModel>),
    Transformer(Box<Gpt>),
}

impl Model {
    pub fn head(&self) -> OutputHead {
        match self {
            Self::Lstm(model) => model.head(),
            Self::Transformer(model) => model.head(),
        }
    }

    /// Its output layer in a float type.
    pub fn head_in(&self, dtype: DType) -> OutputHead {
        match self {
            Self::Lstm(model) => cast_parameters(LanguageModel::clone(model), dtype).head(),
            Self::Transformer(model) => cast_parameters(Gpt::clone(model), dtype).head(),
        }
    }

    /// Walks the model through a text, with a bar on standard error under the name `label`.
    pub fn windows<'a>(
        &'a self,
        text: &'a Text,
        device: &'a Device,
        label: &str,
    ) -> impl Iterator<Item = Window> + use<'a> {
        let (bar, contexts, mut done) = (ShareBar::new(label), text.contexts() as f64, 0);
        self.windows_unseen(text, device).inspect(move |window| {
            done += window.targets.len();
            bar.set(done as f64 / contexts);
        })
    }

    /// As [`windows`](Self::windows) without the bar. LSTMs carry their state through the text; a transformer begins anew after
    /// as many tokens as its context holds, as it is scored.
    pub fn windows_unseen<'a>(
        &'a self,
        text: &'a Text,
        device: &'a Device,
    ) -> Box<dyn Iterator<Item = Window> + 'a> {
        match self {
            Self::Lstm(model) => {
                let mut state: Option<LmState> = None;
                Box::new(text.windows(WINDOW).map(move |ids| {
                    let before = state.take().unwrap_or_else(|| model.zero_state(1));
                    let (hidden, next) = model.hidden(inputs(ids, [ids.len() - 1, 1], device), before);
                    state = Some(next);
                    Window::new(hidden, ids)
                }))
            }
            Self::Transformer(model) => {
                let [context, _] = model.positions.weight.dims();
                let read =
                    |ids: &'a [u32]| Window::new(model.hidden(inputs(ids, [1, ids.len() - 1], device)), ids);
                Box::new(text.windows(context).map(read))
            }
        }
    }
}

/// The words' columns of rows over the whole decoder: those after them pad it and have no probability.
pub fn of_words(rows: Tensor<2>, vocab: usize) -> Tensor<2> {
    rows.narrow(1, 0, vocab)
}

/// All words but the last.
fn inputs(ids: &[u32], shape: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i32> = ids[..ids.len() - 1].iter().map(|&id| id as i32).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}
