//! The one sweep over the tokens of a call, for scores and predictions alike.
//!
//! The contexts of a block of tokens are written ([`BlockContexts`]), and chunk by chunk their products with the decoder; what
//! becomes of a chunk's rows is for a [`Visitor`] to say. A visitor that [takes blocks](Visitor::takes_blocks) is shown each
//! block once, without products. In the end the gradient of a block's contexts is taken back to what they are made of. No
//! more than a block's contexts and a chunk's logits exist at a time.

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Real, multiply};

use super::call::Call;
use super::contexts::{BlockContexts, TokenContexts};
use crate::ops::{Gradients, runs};

/// What becomes of the rows of a chunk of tokens.
pub(super) trait Visitor<T> {
    /// Where the products of a chunk's contexts with the decoder are to be written, `[rows, V]`. Not asked of a visitor that
    /// [takes blocks](Self::takes_blocks).
    fn logits(&mut self, tokens: Range<usize>) -> &mut [T];

    /// Whether it is to be shown whole blocks, and makes their products itself.
    fn takes_blocks(&self) -> bool {
        false
    }

    /// Does its work on the products of a chunk, which have been written, or on a block, whose products it makes itself. Leaves
    /// the gradient of the contexts where that is asked for.
    fn visit(&mut self, tokens: Range<usize>, contexts: TokenContexts<'_, T>);

    /// The gradients that are made, if any.
    fn gradients(&mut self) -> Option<&mut Gradients<Buffer<T>>>;
}

/// Shows all tokens of a call to a visitor.
pub(super) fn run<T: Real>(call: &Call<'_, T>, visitor: &mut impl Visitor<T>) {
    let Call { decoder, tokens, chunk, block, precision, .. } = *call;
    if tokens == 0 {
        return;
    }
    let mut contexts = BlockContexts::new(call, visitor.gradients());
    for (start, end) in runs(tokens, block) {
        let mut block = contexts.write(start..end);
        if visitor.takes_blocks() {
            visitor.visit(start..end, block);
        } else {
            for (first, last) in runs(end - start, chunk) {
                let (chunk, tokens) = (block.take(last - first), start + first..start + last);
                let logits = visitor.logits(tokens.clone());
                multiply(logits, chunk.contexts, decoder.t(), false, precision);
                visitor.visit(tokens, chunk);
            }
        }
        if let Some(gradients) = visitor.gradients() {
            contexts.pull_back(start..end, gradients);
        }
    }
    if let Some(gradients) = visitor.gradients() {
        contexts.finish(gradients);
    }
}
