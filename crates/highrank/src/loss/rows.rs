//! Which rows of hidden states are scored, and the way from those of all tokens there and back.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, DType, Device, IndexingUpdateOp, Int, Tensor};

use crate::context::Tokens;
use crate::ops;

/// Which rows of hidden states are scored.
#[derive(Debug)]
pub(super) struct ScoredRows {
    /// N.
    pub(super) tokens: usize,
    /// The numbers of those that are scored; `None` if they are all.
    pub(super) kept: Option<Arc<[u32]>>,
    /// Of these, `true` for tokens that do not count, if there are any: they hold 0 and have weight 0. Where the device would have
    /// to be waited for, or where nothing counts.
    pub(super) blank: Option<Tensor<1, Bool>>,
}

impl ScoredRows {
    /// Those of the tokens that count. A call without tokens has no shapes to work with: of none that count one is kept, blank.
    pub(super) fn keeping(counts: &[bool], device: &Device) -> Self {
        let tokens = counts.len();
        let kept: Arc<[u32]> = (0..tokens as u32).filter(|token| counts[*token as usize]).collect();
        let (kept, blank) = match kept.len() {
            0 => (Some(Arc::from([0])), Some(Tensor::from_data([true], device))),
            count if count == tokens => (None, None),
            _ => (Some(kept), None),
        };
        Self { tokens, kept, blank }
    }

    /// The tokens that are scored, of all.
    pub(super) fn of_tokens(&self, tokens: Tokens) -> Tokens {
        let tokens = match &self.kept {
            None => tokens,
            Some(kept) => tokens.keeping(kept.clone()),
        };
        tokens.map_hidden(|hidden| self.blanked(hidden.tensor()).into())
    }

    /// How many are scored.
    pub(super) fn scored(&self) -> usize {
        self.kept.as_ref().map_or(self.tokens, |kept| kept.len())
    }

    /// The rows of tokens that are scored, with what those of blank tokens hold.
    pub(super) fn selected<const D: usize, K: Basic>(&self, rows: Tensor<D, K>) -> Tensor<D, K> {
        match &self.kept {
            None => rows,
            Some(kept) => {
                let numbers = Tokens::numbers(kept, &rows.device());
                rows.select(0, numbers)
            }
        }
    }

    /// Rows that are scored with 0 in those of blank tokens.
    fn blanked<K: Basic>(&self, rows: Tensor<2, K>) -> Tensor<2, K> {
        match &self.blank {
            None => rows,
            Some(blank) => {
                // A teacher's rows may have another checkpointing strategy than the targets, from which these come.
                let blank = blank.clone().without_autodiff().unsqueeze_dim::<2>(1).expand(rows.dims());
                rows.mask_fill(blank, 0)
            }
        }
    }

    /// The rows that are scored.
    pub(super) fn of<K: Basic>(&self, rows: Tensor<2, K>) -> Tensor<2, K> {
        self.blanked(self.selected(rows))
    }

    /// The weights of the tokens that are scored.
    pub(super) fn weights(&self, weights: Option<Tensor<1>>) -> Option<Tensor<1>> {
        let scored = match (weights, &self.blank) {
            (Some(weights), _) => self.of(weights.unsqueeze_dim(1)),
            (None, Some(blank)) => self.blanked(Tensor::ones([self.scored(), 1], &blank.device())),
            (None, None) => return None,
        };
        Some(scored.squeeze_dim(1))
    }

    /// Rows of the scored tokens among those of all tokens: 0 for those that do not count.
    pub(super) fn spread(&self, rows: Tensor<2>) -> Tensor<2> {
        let rows = self.blanked(rows);
        match &self.kept {
            None => rows,
            Some(kept) => {
                let (device, dtype, [_, width]) = (rows.device(), rows.dtype(), rows.dims());
                let numbers = Tokens::numbers(kept, &device);
                let none = Tensor::zeros([self.tokens, width], (&device, dtype));
                none.select_assign(0, numbers, rows, IndexingUpdateOp::Add)
            }
        }
    }
}

/// Words of a shape that are not masked, if there is one: the most probable by the decoder's bias.
pub(crate) fn safe_words<const D: usize>(bias: Option<Tensor<1>>, like: &Tensor<D, Int>) -> Tensor<D, Int> {
    match bias {
        Some(bias) => bias.detach().argmax(0).cast(like.dtype()).reshape([1; D]).expand(like.dims()),
        None => like.zeros_like(),
    }
}

/// Words as integers that hold every word and, on CPUs, a sign: a number that a narrower type cannot hold would wrap in a comparison,
/// and a negative one in a type without sign. Not every GPU has 64 bits; words without a sign stay as they are there.
pub(crate) fn in_wide_integers<const D: usize>(words: Tensor<D, Int>) -> Tensor<D, Int> {
    match words.dtype() {
        DType::U8 | DType::I8 | DType::U16 | DType::I16 => words.cast(DType::I32),
        DType::U32 | DType::U64 if is_cpu(&words.device()) => words.cast(DType::I64),
        _ => words,
    }
}

/// Where [wide](in_wide_integers) words are one of some numbers. None is equal to a number that their type cannot hold, which
/// would wrap.
pub(super) fn equal_to_any<const D: usize>(
    words: &Tensor<D, Int>,
    numbers: &[i64],
) -> Option<Tensor<D, Bool>> {
    let dtype = words.dtype();
    let held = numbers.iter().filter(|number| match dtype {
        DType::I64 => true,
        DType::U64 => **number >= 0,
        DType::U32 => u32::try_from(**number).is_ok(),
        _ => i32::try_from(**number).is_ok(),
    });
    held.map(|number| words.clone().equal_elem(*number)).reduce(Tensor::bool_or)
}

/// Whether the host may read a device's tensors without waiting: [`ops::is_cpu`] of what it dispatches to.
pub(crate) fn is_cpu(device: &Device) -> bool {
    ops::is_cpu::<Dispatch>(device.as_dispatch())
}
