//! The parts of an adaptive head as heads of their own, [`AdaptiveHead`] and [`TailHead`], and the tokens that each works on.

use burn::tensor::Tensor;
use highrank_kernels::Floats;

use crate::context::{Context, ContextPath, Direct, Tokens};
use crate::error::HeadError;
use crate::head::clusters::{Clusters, Tail};
use crate::head::output::OutputHead;
use crate::logit_map::LogitMapConfig;
use crate::ops::wide;
use crate::parameters::value;

/// A head with clusters.
pub(in crate::head) struct AdaptiveHead<'a> {
    pub(super) head_cluster: OutputHead,
    pub(super) clusters: &'a Clusters,
}

/// A tail as a head, with the projection to its contexts.
#[derive(Clone)]
pub(super) struct TailHead {
    /// Of projected hidden states.
    pub(super) head: OutputHead,
    projection: Tensor<2>,
}

impl OutputHead {
    /// The clusters with the head cluster, if the head has them.
    pub(in crate::head) fn adaptive(&self) -> Option<AdaptiveHead<'_>> {
        let clusters = self.clusters.as_ref()?;
        // Not a clone of all: that of a tail's matrix would be dropped at once.
        let head_cluster = Self {
            context: self.context.clone(),
            logit_map: self.logit_map.clone(),
            decoder: self.decoder.clone(),
            clusters: None,
            memory_budget: self.memory_budget,
            precision: self.precision,
            temperature: self.temperature,
            latent_mask: self.latent_mask.clone(),
        };
        Some(AdaptiveHead { head_cluster, clusters })
    }
}

impl AdaptiveHead<'_> {
    /// The tails, as heads of their own.
    pub(super) fn tails(&self) -> Vec<TailHead> {
        let tail = |tail: &Tail| TailHead {
            head: OutputHead {
                context: Context::Direct(Direct),
                logit_map: LogitMapConfig::Identity.init(&tail.projection.lazy_device()),
                decoder: tail.decoder.clone(),
                clusters: None,
                memory_budget: self.head_cluster.memory_budget,
                precision: self.head_cluster.precision,
                temperature: self.head_cluster.temperature,
                latent_mask: None,
            },
            projection: value(&tail.projection),
        };
        self.clusters.tails.iter().map(tail).collect()
    }
}

impl TailHead {
    /// The contexts of hidden states, `[n, d_i]`.
    pub(super) fn contexts(&self, hidden: Floats) -> Tensor<2> {
        let dtype = wide(self.projection.dtype());
        let projection = Floats::from(self.projection.clone()).cast(dtype);
        ContextPath::Native.product(hidden.cast(dtype), projection, self.head.precision).tensor()
    }

    /// What `of` makes of the contexts of some tokens, after the token's number; nothing is made of none.
    ///
    /// - rows: hidden states of all tokens, `[N, H]`
    pub(super) fn of_some<R>(
        &self,
        rows: &Tensor<2>,
        tokens: impl Iterator<Item = usize>,
        of: impl FnOnce(&OutputHead, Tensor<2>) -> Result<Vec<R>, HeadError>,
    ) -> Result<Vec<(usize, R)>, HeadError> {
        let tokens: Vec<u32> = tokens.map(|token| token as u32).collect();
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let rows = rows.clone().select(0, Tokens::numbers(&tokens, &rows.device()));
        // An error is about the token among all.
        let made = of(&self.head, self.contexts(rows.into())).map_err(|error| match error {
            HeadError::NotANumber { token } => HeadError::NotANumber { token: tokens[token] as usize },
            HeadError::AllMasked { token } => HeadError::AllMasked { token: tokens[token] as usize },
            error => error,
        })?;
        Ok(tokens.iter().map(|token| *token as usize).zip(made).collect())
    }

    /// Log-probabilities of the cluster's words, given the cluster, `[n, words]`.
    pub(super) fn log_probs(&self, hidden: Tensor<2>) -> Result<Tensor<2>, HeadError> {
        let log_probs = self.head.try_forward(self.contexts(hidden.into()))?;
        Ok(log_probs.narrow(1, 0, self.head.decoder.vocab))
    }
}

/// The hidden states in a row, `[N, H]`.
pub(super) fn in_a_row<const D: usize>(hidden: Tensor<D>) -> Tensor<2> {
    let dims = hidden.dims();
    hidden.reshape([dims[..D - 1].iter().product::<usize>(), dims[D - 1]])
}
