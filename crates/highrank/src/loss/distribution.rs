//! The distributions of another head, to learn from.

use std::fmt;
use std::sync::Arc;

use highrank_kernels::Floats;

use crate::checks::TensorChecks;
use crate::context::Tokens;
use crate::error::{HeadError, expect_shape};
use crate::ops::LikelihoodInput;

/// What makes a likelihood of tokens.
type OfTokens = dyn Fn(Tokens) -> Result<LikelihoodInput, HeadError> + Send + Sync;

/// A head's distributions over the vocabulary for a run of tokens, as constants: made by
/// [`OutputHead::distribution`](crate::OutputHead::distribution), for
/// [`LossOptions::with_distillation`](crate::LossOptions::with_distillation). It holds the hidden states and no probability: those
/// are made where they are needed, for a chunk of tokens at a time.
#[derive(Clone)]
pub struct Distribution {
    tokens: Tokens,
    likelihood: Arc<OfTokens>,
    vocab: usize,
    /// The vocabulary with its padding.
    rows: usize,
    checks: TensorChecks,
}

impl Distribution {
    /// For hidden states, and what makes a likelihood of them.
    ///
    /// - rows: of the decoder, the padding's too
    pub(crate) fn new(
        tokens: Tokens,
        [vocab, rows]: [usize; 2],
        checks: TensorChecks,
        likelihood: impl Fn(Tokens) -> Result<LikelihoodInput, HeadError> + Send + Sync + 'static,
    ) -> Self {
        Self { tokens, likelihood: Arc::new(likelihood), vocab, rows, checks }
    }

    /// Checks that it is one for targets of a shape, over the words of the head that learns.
    pub(super) fn check(
        &self,
        targets: &[usize],
        rows: usize,
        vocab: usize,
        checks: &TensorChecks,
    ) -> Result<(), HeadError> {
        expect_shape("the teacher's tokens", self.tokens.leading(), targets, "the shape of the targets")?;
        let because = "the words, and the rows with padding, of the head that learns";
        expect_shape("the teacher's vocabulary", &[self.vocab, self.rows], &[vocab, rows], because)?;
        checks.agree("the teacher", &self.checks)
    }

    /// All of its tokens.
    pub(super) fn tokens(&self) -> Tokens {
        self.tokens.clone()
    }

    /// What its distributions for some of its tokens depend on, as constants.
    pub(super) fn of(&self, tokens: Tokens) -> Result<LikelihoodInput, HeadError> {
        Ok((self.likelihood)(tokens)?.map(Floats::without_autodiff))
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tokens, vocab, .. } = self;
        f.debug_struct("Distribution").field("tokens", &tokens.leading()).field("vocab", vocab).finish()
    }
}
