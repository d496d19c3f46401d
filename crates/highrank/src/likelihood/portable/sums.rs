//! Gradients of a call, summed or joined over its chunks and blocks.

use highrank_kernels::Floats;

use super::chunk::{Block, Chunk, logit_gradients};
use super::score::Scored;
use crate::likelihood::gated;
use crate::ops::{ContextSource, Gradients, Kernels, Likelihood, Wanted};

/// Gradients summed or joined over the chunks and blocks so far.
pub(crate) struct Sums<B: Kernels> {
    /// Gradients of the contexts of the block's chunks.
    block: Vec<Floats<B>>,
    contexts: Vec<Floats<B>>,
    latent_weight: Option<Floats<B>>,
    latent_bias: Option<Floats<B>>,
    log_prior: Vec<Floats<B>>,
    weight: Option<Floats<B>>,
    bias: Option<Floats<B>>,
    /// Of the logit map's table.
    map_table: Option<Floats<B>>,
    gated: gated::Sums<B>,
}

impl<B: Kernels> Default for Sums<B> {
    fn default() -> Self {
        Self {
            block: vec![],
            contexts: vec![],
            latent_weight: None,
            latent_bias: None,
            log_prior: vec![],
            weight: None,
            bias: None,
            map_table: None,
            gated: gated::Sums::default(),
        }
    }
}

impl<B: Kernels> Sums<B> {
    pub(super) fn add_chunk(&mut self, chunk: Chunk<'_, B>, scored: Scored<B>, wanted: Wanted) {
        let Chunk { input, table, contexts, logits, gated, .. } = chunk;
        let (d_logits, d_table) = logit_gradients(input, table.as_ref(), logits, scored.d_mapped);
        if let Some(gated) = gated {
            let slopes = gated.slopes(&d_logits);
            self.add_gated(gated.factors, slopes, wanted);
        }
        self.add(input, contexts, d_logits, scored.d_log_prior, wanted);
        if let (true, Some(d_table)) = (wanted.map_params, d_table) {
            self.add_table(d_table);
        }
    }

    /// What the gates' products of a chunk add to the gradients of the inputs.
    pub(crate) fn add_gated(&mut self, factors: gated::Factors<B>, slopes: gated::Slopes<B>, wanted: Wanted) {
        self.gated.add(factors, slopes, wanted.gated, wanted.weight);
    }

    /// What a chunk, or several, adds to the gradient of the logit map's table.
    pub(crate) fn add_table(&mut self, d_table: Floats<B>) {
        accumulate(&mut self.map_table, d_table);
    }

    /// What the gradients of a chunk's logits and log-priors add to those of the inputs, but for the logit map's and the gates'.
    pub(crate) fn add(
        &mut self,
        input: &Likelihood<Floats<B>>,
        contexts: Floats<B>,
        d_logits: Floats<B>,
        d_log_prior: Floats<B>,
        wanted: Wanted,
    ) {
        if wanted.context_gradient(&input.contexts) {
            self.block.push(B::product(d_logits.clone(), input.weight.clone(), input.precision));
        }
        if wanted.log_prior && input.log_prior.is_some() {
            self.log_prior.push(d_log_prior);
        }
        if wanted.bias && input.bias.is_some() {
            accumulate(&mut self.bias, d_logits.clone().sum_dim(0).reshape([input.vocab()]));
        }
        if wanted.weight {
            accumulate(&mut self.weight, B::product(d_logits.transpose(), contexts, input.precision));
        }
    }

    /// Ends a block: its contexts' gradient is joined, or taken back through the layer or the mix that made them.
    pub(crate) fn add_block(&mut self, block: Block<'_, B>, wanted: Wanted) {
        if self.block.is_empty() {
            return;
        }
        let gradient = Floats::cat(std::mem::take(&mut self.block), 0);
        let args = match block.source {
            ContextSource::Given(_) => return self.contexts.push(gradient),
            ContextSource::Gated(args) => return self.gated.add_block(args, gradient, wanted.gated),
            ContextSource::Latent(args) => args,
        };
        let shape = [block.end - block.start, args.weight.shape()[1]];
        let (output, gradient) = (block.contexts.reshape(shape), gradient.reshape(shape));
        let made = B::latent_backward(args, output, gradient, wanted.latent());
        self.contexts.extend(made.hidden);
        if let Some(weight) = made.weight {
            accumulate(&mut self.latent_weight, weight);
        }
        if let Some(bias) = made.bias {
            accumulate(&mut self.latent_bias, bias);
        }
    }

    pub(crate) fn finish(self, input: &Likelihood<Floats<B>>) -> Gradients<Floats<B>> {
        let joined = |parts: Vec<Floats<B>>| (!parts.is_empty()).then(|| Floats::cat(parts, 0));
        let (gated, weight) = self.gated.finish(self.weight);
        Gradients {
            contexts: joined(self.contexts),
            latent_weight: self.latent_weight,
            latent_bias: self.latent_bias,
            log_prior: joined(self.log_prior),
            weight,
            bias: self.bias,
            gated,
            map_params: self
                .map_table
                .zip(input.map_params.as_ref())
                .map(|(d_table, params)| input.map.table_vjp(params, d_table)),
        }
    }
}

fn accumulate<B: Kernels>(sum: &mut Option<Floats<B>>, part: Floats<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
