//! The output head: context, logit map and decoder behind one interface.

mod bound;
mod config;
mod sampling;

pub use bound::{BoundHead, TopK, validate_targets};
pub use config::HeadConfig;
pub use sampling::Sampling;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use rand::Rng;

use crate::context::Context;
use crate::decoder::Decoder;
use crate::error::OrPanic;
use crate::likelihood::LikelihoodBackend;
use crate::logit_map::LogitMap;
use crate::precision::Precision;

/// An output layer: from a hidden state to a distribution over `V` words.
///
/// ```text
/// log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) )_x ]
/// ```
///
/// Should be created with [`HeadConfig`]. Hidden states may have any number of leading dimensions, of which the first is
/// time if there are two or more (it matters to latent dropout only). All methods that need the decoder matrix are also
/// on [`BoundHead`], which [`tied_to`](Self::tied_to) returns for a head without a matrix of its own.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::{Distribution, Int, Tensor};
/// use highrank::HeadConfig;
///
/// type B = Autodiff<Flex>;
/// let device = Default::default();
/// let head = HeadConfig::mos(64, 32, 1000, 5).init::<B>(&device);
///
/// let hidden = Tensor::<B, 3>::random([7, 2, 64], Distribution::Default, &device); // [T, B, H]
/// let targets = Tensor::<B, 2, Int>::full([7, 2], 3, &device); // [T, B]
/// let loss = head.loss(hidden.clone(), targets, None); // mean nll in nats, no logits kept
/// let gradients = loss.backward();
/// assert_eq!(head.log_probs(hidden).dims(), [7, 2, 1000]);
/// # let _ = gradients;
/// ```
#[derive(Module, Debug)]
pub struct OutputHead<B: Backend> {
    /// `g → (h_k, log π_k)`.
    pub context: Context<B>,
    /// `f`.
    pub logit_map: LogitMap<B>,
    /// `W` and `b`.
    pub decoder: Decoder<B>,
    /// Size in bytes of the largest logit matrix that may exist at a time; `None` leaves it to the backend.
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to.
    #[module(skip)]
    pub precision: Precision,
}

impl<B: Backend> OutputHead<B> {
    /// Binds a tied head to the caller's embedding matrix `[V, d]`, as the decoder.
    ///
    /// Pass the parameter's value (`embedding.weight.val()`): the gradient reaches that parameter once and whole.
    ///
    /// # Panics
    /// If the head owns its decoder, or the matrix has another shape (the message has both).
    #[track_caller]
    pub fn tied_to(&self, embedding: Tensor<B, 2>) -> BoundHead<'_, B> {
        self.try_tied_to(embedding).or_panic("OutputHead::tied_to")
    }

    /// [`tied_to`](Self::tied_to) with an error in place of a panic.
    ///
    /// # Errors
    /// [`NotOwned`](crate::HeadError::NotOwned) or [`Shape`](crate::HeadError::Shape).
    pub fn try_tied_to(&self, embedding: Tensor<B, 2>) -> Result<BoundHead<'_, B>, crate::HeadError> {
        Ok(BoundHead::new(self, self.decoder.tied_weight(embedding)?))
    }

    #[track_caller]
    fn bound(&self) -> BoundHead<'_, B> {
        BoundHead::new(self, self.decoder.own_weight().or_panic("OutputHead"))
    }

    /// See [`BoundHead::log_probs`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn log_probs<const D: usize>(&self, hidden: Tensor<B, D>) -> Tensor<B, D> {
        self.bound().log_probs(hidden)
    }

    /// See [`BoundHead::log_prob_blocks`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<B, D>,
    ) -> impl Iterator<Item = Tensor<B, 2>> + use<B, D> {
        self.bound().log_prob_blocks(hidden)
    }

    /// See [`BoundHead::logit_blocks`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<B, D>,
    ) -> impl Iterator<Item = Tensor<B, 2>> + use<B, D> {
        self.bound().logit_blocks(hidden)
    }

    /// See [`BoundHead::top_k`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn top_k<const D: usize>(&self, hidden: Tensor<B, D>, k: usize) -> TopK<B, D> {
        self.bound().top_k(hidden, k)
    }

    /// See [`BoundHead::sample`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<B, D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Tensor<B, T, Int> {
        self.bound().sample(hidden, sampling, rng)
    }
}

impl<B: LikelihoodBackend> OutputHead<B> {
    /// See [`BoundHead::nll`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn nll<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<B, D>,
        targets: Tensor<B, T, Int>,
    ) -> Tensor<B, T> {
        self.bound().nll(hidden, targets)
    }

    /// See [`BoundHead::loss`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<B, D>,
        targets: Tensor<B, T, Int>,
        weights: Option<Tensor<B, T>>,
    ) -> Tensor<B, 1> {
        self.bound().loss(hidden, targets, weights)
    }

    /// See [`BoundHead::soft_loss`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn soft_loss<const D: usize>(
        &self,
        hidden: Tensor<B, D>,
        distributions: Tensor<B, D>,
        weights: Option<Tensor<B, 1>>,
    ) -> Tensor<B, 1> {
        self.bound().soft_loss(hidden, distributions, weights)
    }
}
