//! The contexts of a block of tokens: given, made by a latent layer, or mixed from those that words have gates for; and the way
//! back from their gradient.

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real};

use super::call::Call;
use super::gate_rows::GateRows;
use super::gated::Gated;
use super::latent;
use super::tensors::{factor, take};
use crate::ops::{ContextSource, Gradients, LatentInputs, Wanted};

/// What the contexts of one block after the other are made of, and in.
pub(super) struct BlockContexts<'a, T> {
    call: &'a Call<'a, T>,
    /// Where words have gates.
    gated: Option<Gated<'a, T>>,
    /// Of a block, `[block·K, d]`; empty where contexts are given.
    made: Buffer<T>,
    /// The chosen one of each token, `[block, d]`; empty where all are asked for.
    gathered: Buffer<T>,
    /// The gradient of a block's contexts, `[block·K, d]`, if needed.
    gradient: Option<Buffer<T>>,
}

/// The contexts of some tokens.
pub(super) struct TokenContexts<'b, T> {
    /// `[rows, d]`, the rows of each token one after the other.
    pub(super) contexts: Factor<'b, T>,
    /// Takes their gradient, if needed.
    pub(super) d_contexts: Option<&'b mut [T]>,
    /// What the gates of words add to the logits, if there are any.
    pub(super) gates: Option<GateRows<'b, T>>,
    /// Rows of a token.
    of_token: usize,
}

impl<T: Real> TokenContexts<'_, T> {
    /// Takes the first tokens.
    pub(super) fn take(&mut self, tokens: usize) -> Self {
        let (all, rows, d) = (self.contexts, tokens * self.of_token, self.contexts.columns());
        self.contexts = all.block(rows..all.rows(), 0..d);
        Self {
            contexts: all.block(0..rows, 0..d),
            d_contexts: self.d_contexts.as_mut().map(|rest| take(rest, rows * d)),
            gates: self.gates.as_mut().map(|gates| gates.take(tokens)),
            of_token: self.of_token,
        }
    }
}

impl<'a, T: Real> BlockContexts<'a, T> {
    /// Of a call, for the gradients that there are buffers for.
    ///
    /// # Panics
    /// If tensors do not fit each other.
    pub(super) fn new(call: &'a Call<'a, T>, gradients: Option<&mut Gradients<Buffer<T>>>) -> Self {
        let Call { contexts: source, components, d, chosen, block, .. } = *call;
        let is_graded = gradients.is_some();
        let of_block = |is_needed: bool, width: usize| Buffer::new(if is_needed { block * width } else { 0 });
        let gradient = gradients.and_then(|gradients| match source {
            // All tokens are one block.
            ContextSource::Given(_) => gradients.contexts.take(),
            _ => {
                let wanted: Wanted = gradients.each_ref().map(|gradient| gradient.is_some());
                wanted.context_gradient(source).then(|| of_block(true, components * d))
            }
        });
        let gated = match source {
            ContextSource::Gated(args) => Some(Gated::new(args, call.decoder, block, is_graded)),
            _ => None,
        };
        Self {
            call,
            gated,
            made: of_block(!matches!(source, ContextSource::Given(_)), components * d),
            gathered: of_block(!chosen.is_empty(), d),
            gradient,
        }
    }

    /// Writes the contexts of a block of tokens.
    pub(super) fn write(&mut self, tokens: Range<usize>) -> TokenContexts<'_, T> {
        let Call { components, d, chosen, .. } = *self.call;
        let rows = tokens.len() * components;
        let made = &mut self.made;
        let contexts = match self.call.contexts {
            ContextSource::Given(contexts) => {
                factor(contexts).block(tokens.start * components..tokens.end * components, 0..d)
            }
            ContextSource::Latent(layer) => {
                latent::write(layer, tokens.clone(), &mut made[..rows * d]);
                Matrix::new(&made[..rows * d], rows, d).into()
            }
            ContextSource::Gated(_) => {
                let gated = self.gated.as_ref().expect("gates of contexts that have some");
                gated.write(tokens.clone(), &mut made[..rows * d]);
                Matrix::new(&made[..rows * d], rows, d).into()
            }
        };
        if !chosen.is_empty() {
            let gathered = &mut self.gathered[..tokens.len() * d];
            for (n, (component, out)) in
                chosen[tokens.clone()].iter().zip(gathered.chunks_exact_mut(d)).enumerate()
            {
                contexts.write_row(n * components + component, out, |x| x);
            }
            let contexts = Matrix::new(&*gathered, tokens.len(), d).into();
            return TokenContexts { contexts, d_contexts: None, gates: None, of_token: 1 };
        }
        TokenContexts {
            contexts,
            d_contexts: self.gradient.as_deref_mut().map(|gradient| &mut gradient[..rows * d]),
            gates: self.gated.as_mut().map(|gated| gated.products(tokens)),
            of_token: components,
        }
    }

    /// Takes the gradient of a block's contexts back to what they are made of.
    pub(super) fn pull_back(&mut self, tokens: Range<usize>, gradients: &mut Gradients<Buffer<T>>) {
        let count = tokens.len() * self.call.components * self.call.d;
        let gradient = self.gradient.as_deref_mut().map(|gradient| &mut gradient[..count]);
        match (self.call.contexts, &mut self.gated, gradient) {
            (ContextSource::Latent(layer), _, Some(gradient)) => {
                let mut into = LatentInputs {
                    hidden: gradients.contexts.as_deref_mut(),
                    weight: gradients.latent_weight.as_deref_mut(),
                    bias: gradients.latent_bias.as_deref_mut(),
                };
                latent::pull_back(layer, tokens, &self.made[..count], gradient, &mut into);
            }
            (_, Some(gated), gradient) => {
                let d_decoder = gradients.weight.as_deref_mut();
                gated.pull_back(tokens, gradient.as_deref(), &mut gradients.gated, d_decoder);
            }
            _ => {}
        }
    }

    /// After the last block: gives back the gradient of given contexts.
    pub(super) fn finish(self, gradients: &mut Gradients<Buffer<T>>) {
        if let ContextSource::Given(_) = self.call.contexts {
            gradients.contexts = self.gradient;
        }
    }
}
