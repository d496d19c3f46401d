//! How well a model predicts a text.

use burn::module::Module;
use runs::Error;
use runs::data::Tokens;

use crate::data::{Windows, loader};
use crate::model::Gpt;

/// How well a text was predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the tokens' negative log-likelihoods in nats.
    pub nll: f64,
    /// Number of predicted tokens: all but the first.
    pub tokens: usize,
    /// Number of those that were the most probable word.
    pub correct: usize,
}

impl Score {
    /// `exp` of the mean negative log-likelihood.
    pub fn perplexity(&self) -> f64 {
        (self.nll / self.tokens as f64).exp()
    }

    /// Percentage of tokens that were the most probable word.
    pub fn accuracy(&self) -> f64 {
        100.0 * self.correct as f64 / self.tokens as f64
    }
}

/// Scores a text, read in sequences of the model's context side by side, `batch` at a time. `progress` is told the share that is
/// done.
///
/// The model should be one for evaluation ([`Module::valid`]): dropout acts in one under training.
///
/// # Errors
/// [`Error::CorpusTooShort`] if the text has fewer than two tokens, [`Error::InvalidSetting`] if `batch` is 0.
pub fn evaluate(
    model: &Gpt,
    text: &[u32],
    batch: usize,
    mut progress: impl FnMut(f64),
) -> Result<Score, Error> {
    runs::error::check(batch > 0, "batch", batch, "at least 1")?;
    if text.len() < 2 {
        return Err(Error::CorpusTooShort { what: "the text", tokens: text.len(), batch: 1, needed: 2 });
    }
    let [context, _] = model.positions.weight.dims();
    let windows = Windows::side_by_side(Tokens::Memory(text.to_vec()), context);
    let device = model.devices().into_iter().next().expect("a model has parameters");
    let mut score = Score::default();
    for batch in loader(windows, batch, &device).iter() {
        let output = model.output(batch.expect("a text in memory can be read"));
        score.nll += output.nll.into_scalar::<f64>();
        score.tokens += output.tokens.into_scalar::<i64>() as usize;
        score.correct += output.correct.into_scalar::<i64>() as usize;
        progress(score.tokens as f64 / (text.len() - 1) as f64);
    }
    Ok(score)
}
