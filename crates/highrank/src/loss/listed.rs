//! Words that are asked for of each token.

use burn::tensor::{Bool, Int, Tensor};

use super::counted::{read, validate_words};
use super::rows::{ScoredRows, equal_to_any, in_wide_integers, is_cpu, safe_words};
use crate::context::Tokens;
use crate::error::HeadError;
use crate::ops::MASKING_BIAS;

/// Words that are asked for of each token, and the way from all tokens to those that any word is asked of and back.
pub(crate) struct ListedWords {
    rows: ScoredRows,
    /// `[N', m]`; in an ignored or masked place, or one outside of the vocabulary, the most probable by its bias.
    ids: Tensor<2, Int>,
    /// True in ignored places, of all tokens, `[N, m]`.
    ignored: Option<Tensor<2, Bool>>,
    /// True in places of masked words, `[N', m]`.
    masked: Option<Tensor<2, Bool>>,
    /// True in places that hold no word and are not ignored, `[N', m]`.
    outside: Option<Tensor<2, Bool>>,
}

/// Checks that there are words for each token of hidden states of a shape.
pub(crate) fn check_words<const D: usize>(hidden: &[usize; D], words: &[usize; D]) -> Result<(), HeadError> {
    let leading = &hidden[..D - 1];
    match words[..D - 1] == *leading && words[D - 1] > 0 {
        true => Ok(()),
        false => {
            let expected = format!("{leading:?} of the hidden state and then m, at least 1");
            Err(HeadError::Shape { what: "words", got: words.to_vec(), expected })
        }
    }
}

impl ListedWords {
    /// Of words `[N, m]`, of which those that are `ignored` ask for nothing.
    ///
    /// - bias: of the decoder, −∞ for masked words
    /// - read_back: whether the host finds out which tokens words are asked of, on a GPU too
    ///
    /// # Errors
    /// On CPUs, and of words that are read back, [`HeadError::Target`] of the first that is no word.
    pub(crate) fn new(
        words: Tensor<2, Int>,
        ignored: &[i64],
        vocab: usize,
        bias: Option<Tensor<1>>,
        read_back: bool,
    ) -> Result<Self, HeadError> {
        let words = in_wide_integers(words);
        let ([tokens, width], device) = (words.dims(), words.device());
        let on_host = read_back || is_cpu(&device);
        let is_ignored = equal_to_any(&words, ignored);
        let rows = match on_host {
            true => {
                let words = read(&words);
                let asks = |word: &i64| !ignored.contains(word);
                validate_words(&words, width, vocab, |place| asks(&words[place]))?;
                let counts: Vec<_> = words.chunks(width).map(|words| words.iter().any(asks)).collect();
                ScoredRows::keeping(&counts, &device)
            }
            false => {
                let blank = is_ignored.clone().map(|ignored| ignored.all_dim(1).squeeze_dim(1));
                ScoredRows { tokens, kept: None, blank }
            }
        };
        let words = rows.selected(words);
        let bias = bias.map(Tensor::detach);
        let safe = safe_words(bias.clone(), &words);
        let last = vocab as i64 - 1;
        let no_word = words.clone().lower_elem(0).bool_or(words.clone().greater_elem(last));
        let ids = words.mask_where(no_word.clone(), safe.clone());
        let masked = bias.map(|bias| {
            let shape = ids.dims();
            bias.select(0, ids.clone().reshape([shape[0] * shape[1]]))
                .lower_equal_elem(MASKING_BIAS)
                .reshape(shape)
        });
        let ids = match &masked {
            Some(masked) => ids.mask_where(masked.clone(), safe),
            None => ids,
        };
        let outside = (!on_host).then_some(no_word);
        Ok(Self { rows, ids, ignored: is_ignored, masked, outside })
    }

    /// The words as a likelihood is asked for them, `[N', m]`.
    pub(crate) fn ids(&self) -> Tensor<2, Int> {
        self.ids.clone()
    }

    /// The hidden states of the tokens that words are asked of.
    pub(crate) fn of_hidden<const D: usize>(&self, hidden: Tensor<D>) -> Tokens {
        self.rows.of_tokens(Tokens::all(hidden))
    }

    /// The log-probabilities of all tokens, `[N, m]`, for those of [these](Self::ids) words: −∞ of masked words, 0 in ignored
    /// places, NaN where there was no word.
    pub(crate) fn among_all(&self, log_probs: Tensor<2>) -> Tensor<2> {
        let mut log_probs = log_probs;
        if let Some(masked) = &self.masked {
            log_probs = log_probs.mask_fill(masked.clone(), f64::NEG_INFINITY);
        }
        if let Some(outside) = &self.outside {
            log_probs = log_probs.mask_fill(outside.clone(), f64::NAN);
        }
        let log_probs = self.rows.spread(log_probs);
        match &self.ignored {
            Some(ignored) => log_probs.mask_fill(ignored.clone(), 0.0),
            None => log_probs,
        }
    }

    /// Logits `[N', K, m]` with a number far below all others for masked words; a row with something that is no word is NaN.
    pub(crate) fn left_out(&self, logits: Tensor<3>) -> Tensor<3> {
        let [_, components, _] = logits.dims();
        let fill = |logits: Tensor<3>, places: &Option<Tensor<2, Bool>>, value: f64| match places {
            Some(places) => {
                logits.mask_fill(places.clone().unsqueeze_dim::<3>(1).repeat_dim(1, components), value)
            }
            None => logits,
        };
        fill(fill(logits, &self.masked, -1e30), &self.outside, f64::NAN)
    }

    /// Values of all tokens, `[N, 1]`, for those of the scored ones; 0 for the others.
    pub(crate) fn of_tokens(&self, values: Tensor<2>) -> Tensor<2> {
        self.rows.spread(values)
    }
}
