//! Gradients of a call, summed or joined over its chunks and blocks.

use highrank_kernels::Floats;

use super::chunk::{Block, Chunk, logit_gradients};
use super::score::Scored;
use crate::likelihood::gated;
use crate::likelihood::parts::{add_part, joined};
use crate::ops::{ContextSource, Gradients, Kernels, LikelihoodInput, PerInput, Wanted};

/// Gradients summed or joined over the chunks and blocks so far.
#[derive(Default)]
pub(crate) struct GradientParts<B: Kernels> {
    /// Of the contexts of the block's chunks.
    block: Vec<Floats<B>>,
    /// Of the inputs, but of the logit map's parameters those of their table.
    inputs: PerInput<Vec<Floats<B>>>,
    gated: gated::GatedParts<B>,
}

impl<B: Kernels> GradientParts<B> {
    pub(super) fn add_chunk(&mut self, chunk: Chunk<'_, B>, scored: Scored<B>, wanted: Wanted) {
        let Chunk { input, table, contexts, logits, gated, .. } = chunk;
        let (d_logits, d_table) = logit_gradients(input, table.as_ref(), logits, scored.d_mapped);
        if let Some(gated) = gated {
            self.add_gated(gated, &d_logits, wanted);
        }
        self.add_bias(input, &d_logits, wanted);
        self.add(input, contexts, d_logits, scored.d_log_prior, wanted);
        if let (true, Some(d_table)) = (wanted.map_params, d_table) {
            self.add_table(d_table);
        }
    }

    /// What the gates of a chunk add to the gradients of the inputs, for that of its logits.
    pub(crate) fn add_gated(&mut self, gated: gated::Chunk<B>, d_logits: &Floats<B>, wanted: Wanted) {
        self.gated.add(gated, d_logits, wanted.gated, wanted.weight);
    }

    /// What a chunk, or several, adds to the gradient of the logit map's table.
    pub(crate) fn add_table(&mut self, d_table: Floats<B>) {
        add_part(&mut self.inputs.map_params, d_table);
    }

    /// What the gradient of a chunk's logits adds to that of the bias.
    pub(crate) fn add_bias(
        &mut self,
        input: &LikelihoodInput<Floats<B>>,
        d_logits: &Floats<B>,
        wanted: Wanted,
    ) {
        if wanted.bias && input.bias.is_some() {
            add_part(&mut self.inputs.bias, d_logits.clone().sum_dim(0).reshape([input.vocab()]));
        }
    }

    /// What the gradients of a chunk's logits and log-priors add to those of the inputs, but for the bias's, the logit map's and
    /// the gates'. Of the logits' only products are made, so they may be rounded for these.
    pub(crate) fn add(
        &mut self,
        input: &LikelihoodInput<Floats<B>>,
        contexts: Floats<B>,
        d_logits: Floats<B>,
        d_log_prior: Floats<B>,
        wanted: Wanted,
    ) {
        if wanted.context_gradient(&input.contexts) {
            self.block.push(B::product(d_logits.clone(), input.weight.clone(), input.precision));
        }
        if wanted.log_prior && input.log_prior.is_some() {
            self.inputs.log_prior.push(d_log_prior);
        }
        if wanted.weight {
            add_part(&mut self.inputs.weight, B::product(d_logits.transpose(), contexts, input.precision));
        }
    }

    /// Ends a block: its contexts' gradient is joined, or taken back through the layer or the mix that made them.
    pub(crate) fn add_block(&mut self, block: Block<'_, B>, wanted: Wanted) {
        if self.block.is_empty() {
            return;
        }
        let gradient = Floats::cat(std::mem::take(&mut self.block), 0);
        let args = match block.source {
            ContextSource::Given(_) => return self.inputs.contexts.push(gradient),
            ContextSource::Gated(args) => return self.gated.add_block(args, gradient, wanted.gated),
            ContextSource::Latent(args) => args,
        };
        let shape = [block.end - block.start, args.weight.shape()[1]];
        let (output, gradient) = (block.contexts.reshape(shape), gradient.reshape(shape));
        let made = B::latent_backward(args, output, gradient, wanted.latent());
        self.inputs.contexts.extend(made.hidden);
        made.weight.into_iter().for_each(|part| add_part(&mut self.inputs.latent_weight, part));
        made.bias.into_iter().for_each(|part| add_part(&mut self.inputs.latent_bias, part));
    }

    pub(crate) fn finish(self, input: &LikelihoodInput<Floats<B>>) -> Gradients<Floats<B>> {
        let made = self.inputs.map(joined);
        let (gated, weight) = self.gated.finish(made.weight);
        let of_table = made.map_params.zip(input.map_params.as_ref());
        let map_params = of_table.map(|(d_table, params)| input.map.table_vjp(params, d_table));
        Gradients { weight, gated, map_params, ..made }
    }
}
