//! The methods of a head: binding a tied one, and for one with a decoder matrix of its own those of [`BoundHead`].

use burn::tensor::{Int, Tensor};
use rand::Rng;

use super::bound::{BoundHead, TopK};
use super::output::OutputHead;
use super::sampling::Sampling;
use crate::error::{HeadError, OrPanic};

impl OutputHead {
    /// Binds a tied head to the caller's embedding matrix `[V, d]`, as the decoder.
    ///
    /// Pass the parameter's value (`embedding.weight.val()`): the gradient reaches that parameter once and whole.
    ///
    /// # Panics
    /// If the head owns its decoder, or the matrix has another shape (the message has both).
    #[track_caller]
    pub fn tied_to(&self, embedding: Tensor<2>) -> BoundHead<'_> {
        self.try_tied_to(embedding).or_panic("OutputHead::tied_to")
    }

    /// [`tied_to`](Self::tied_to) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::SecondDecoder`] or [`HeadError::Shape`].
    pub fn try_tied_to(&self, embedding: Tensor<2>) -> Result<BoundHead<'_>, HeadError> {
        Ok(BoundHead::new(self, self.decoder.tied_weight(embedding)?))
    }

    #[track_caller]
    fn bound(&self) -> BoundHead<'_> {
        BoundHead::new(self, self.decoder.own_weight().or_panic("OutputHead"))
    }

    /// See [`BoundHead::log_probs`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn log_probs<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        self.bound().log_probs(hidden)
    }

    /// See [`BoundHead::log_prob_blocks`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.bound().log_prob_blocks(hidden)
    }

    /// See [`BoundHead::logit_blocks`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.bound().logit_blocks(hidden)
    }

    /// See [`BoundHead::top_k`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> TopK<D> {
        self.bound().top_k(hidden, k)
    }

    /// See [`BoundHead::sample`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Tensor<T, Int> {
        self.bound().sample(hidden, sampling, rng)
    }
    /// See [`BoundHead::nll`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn nll<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<T> {
        self.bound().nll(hidden, targets)
    }

    /// See [`BoundHead::loss`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        weights: Option<Tensor<T>>,
    ) -> Tensor<1> {
        self.bound().loss(hidden, targets, weights)
    }

    /// See [`BoundHead::soft_loss`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn soft_loss<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        weights: Option<Tensor<1>>,
    ) -> Tensor<1> {
        self.bound().soft_loss(hidden, distributions, weights)
    }
}
