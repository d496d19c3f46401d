//! An adaptive head at work: its head cluster and its tails.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;

use crate::context::{Bodies, Context, Direct, Tokens};
use crate::error::HeadError;
use crate::head::clusters::{Clusters, Tail};
use crate::head::output::OutputHead;
use crate::logit_map::LogitMapConfig;
use crate::ops::wide;
use crate::parameters::value;

/// A head with clusters.
pub(in crate::head) struct Clustered<'a> {
    /// The head cluster.
    pub(super) short: OutputHead,
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
    pub(in crate::head) fn clustered(&self) -> Option<Clustered<'_>> {
        let clusters = self.clusters.as_ref()?;
        // Not a clone of all: that of a tail's matrix would be dropped at once.
        let short = Self {
            context: self.context.clone(),
            logit_map: self.logit_map.clone(),
            decoder: self.decoder.clone(),
            clusters: None,
            memory_budget: self.memory_budget,
            precision: self.precision,
            temperature: self.temperature,
            latent_mask: self.latent_mask.clone(),
        };
        Some(Clustered { short, clusters })
    }
}

impl Clustered<'_> {
    /// The tails, as heads of their own.
    pub(super) fn tails(&self) -> Vec<TailHead> {
        let tail =
            |tail: &Tail| TailHead { head: alone(tail, &self.short), projection: value(&tail.projection) };
        self.clusters.tails.iter().map(tail).collect()
    }
}

impl TailHead {
    /// The contexts of hidden states, `[n, d_i]`.
    pub(super) fn contexts(&self, hidden: Tensor<2>) -> Tensor<2> {
        let dtype = wide(self.projection.dtype());
        let [hidden, projection] =
            [hidden, self.projection.clone()].map(|matrix| Floats::from(matrix).cast(dtype));
        Bodies::Native.product(hidden, projection, self.head.precision).tensor()
    }

    /// Log-probabilities of the cluster's words, given the cluster, `[n, words]`.
    pub(super) fn log_probs(&self, hidden: Tensor<2>) -> Result<Tensor<2>, HeadError> {
        let log_probs = self.head.try_forward(self.contexts(hidden))?;
        Ok(log_probs.narrow(1, 0, self.head.decoder.vocab))
    }

    /// Rows of the decoder, the padding's too.
    pub(super) fn rows(&self) -> usize {
        self.head.decoder.rows()
    }

    /// Number of words.
    pub(super) fn words(&self) -> usize {
        self.head.decoder.vocab
    }
}

/// A tail as a head for projected hidden states, beside a head cluster.
fn alone(tail: &Tail, head_cluster: &OutputHead) -> OutputHead {
    OutputHead {
        context: Context::Direct(Direct),
        logit_map: LogitMapConfig::Identity.init(&tail.projection.lazy_device()),
        decoder: tail.decoder.clone(),
        clusters: None,
        memory_budget: head_cluster.memory_budget,
        precision: head_cluster.precision,
        temperature: head_cluster.temperature,
        latent_mask: None,
    }
}

/// The hidden states in a row, `[N, H]`.
pub(super) fn in_a_row<const D: usize>(hidden: Tensor<D>) -> Tensor<2> {
    let dims = hidden.dims();
    hidden.reshape([dims[..D - 1].iter().product::<usize>(), dims[D - 1]])
}

/// Some tokens of a tensor with one row a token, by their numbers.
pub(super) fn of_tokens<const D: usize>(rows: Tensor<D>, tokens: &[u32]) -> Tensor<D> {
    let numbers = numbers(tokens, &rows.device());
    rows.select(0, numbers)
}

/// Numbers of tokens as a tensor.
pub(super) fn numbers(tokens: &[u32], device: &Device) -> Tensor<1, Int> {
    Tokens::numbers(tokens, device)
}

/// An error about one of some tokens, about that token among all.
pub(super) fn among_all(tokens: &[u32]) -> impl Fn(HeadError) -> HeadError {
    move |error| match error {
        HeadError::NotANumber { token } => HeadError::NotANumber { token: tokens[token] as usize },
        HeadError::AllMasked { token } => HeadError::AllMasked { token: tokens[token] as usize },
        error => error,
    }
}
