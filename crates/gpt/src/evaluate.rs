//! How well a model predicts a text.

use burn::module::Module;
use runs::data::Tokens;
use runs::error::{Error, Result, check};
use runs::ranks::Ranks;
use runs::{Score, sum_scores};

use crate::data::{Windows, batch};
use crate::model::Gpt;

/// Scores a text, read in sequences of the model's context side by side, `batch` at a time. `progress` is told the share that is
/// done.
///
/// The model should be one for evaluation ([`Module::valid`]): dropout acts in one under training.
///
/// # Errors
/// [`Error::CorpusTooShort`] if the text has fewer than two tokens, [`Error::InvalidSetting`] if `batch` is 0.
pub fn evaluate(model: &Gpt, text: &[u32], batch: usize, mut progress: impl FnMut(f64)) -> Result<Score> {
    let score = score_unless(&Ranks::alone(), model, text, batch, |share| {
        progress(share);
        false
    })?;
    Ok(score.expect("it is not asked to stop"))
}

/// The score of [`evaluate`] by several ranks, each of which scores its part of the sequences; given up as soon as `stop` says so at any
/// of them. It is told the share that is done before every batch and at the end.
///
/// # Errors
/// As [`evaluate`]; [`Error::Communication`].
pub(crate) fn score_unless(
    ranks: &Ranks,
    model: &Gpt,
    text: &[u32],
    size: usize,
    mut stop: impl FnMut(f64) -> bool,
) -> Result<Option<Score>> {
    check(size > 0, "batch", size, "at least 1")?;
    if text.len() < 2 {
        return Err(Error::CorpusTooShort { what: "the text", tokens: text.len(), batch: 1, needed: 2 });
    }
    let [context, _] = model.positions.weight.dims();
    let windows = Windows::side_by_side(Tokens::Memory(text.to_vec()), context);
    let device = model.devices().into_iter().next().expect("a model has parameters");
    let (mut score, mut correct) = (Score::default(), 0);
    let own: Vec<usize> = ranks.part(windows.len()).collect();
    for (number, places) in own.chunks(size).enumerate() {
        if stop((number * size) as f64 / own.len() as f64) {
            return sum_scores(ranks, None);
        }
        let sequences: Vec<Vec<u32>> = places.iter().map(|place| windows.get(*place)).collect();
        let output = model.output(batch(&sequences, &device));
        score.nll += output.nll.into_scalar::<f64>();
        correct += output.correct.into_scalar::<f64>() as usize;
        score.tokens += sequences.iter().map(|ids| ids.len() - 1).sum::<usize>();
    }
    // Nobody stops what is done.
    stop(1.0);
    sum_scores(ranks, Some(Score { correct: Some(correct), ..score }))
}
