//! The methods of a head: binding a tied one, and for one with a decoder matrix of its own those of [`BoundHead`].

use burn::nn::Embedding;
use burn::tensor::{Int, Tensor};
use rand::Rng;

use super::beam::{BeamSearch, BeamState, Hypothesis, LiveHypotheses};
use super::bound::BoundHead;
use super::output::OutputHead;
use super::predict::TopK;
use super::sampling::Sampling;
use crate::error::{HeadError, OrPanic};
use crate::loss::{Loss, LossOptions};
use crate::parameters::value;

impl OutputHead {
    /// Binds a tied head to the caller's embedding matrix `[V, d]`, as the decoder; with a
    /// [padded vocabulary](crate::HeadConfig::vocab_multiple) it has the padding's rows as well.
    ///
    /// Pass the parameter's value, or the layer to [`tied_to_embedding`](Self::tied_to_embedding): the gradient reaches that parameter
    /// once and whole.
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

    /// [`tied_to`](Self::tied_to) the matrix of an embedding layer.
    ///
    /// # Panics
    /// As [`tied_to`](Self::tied_to).
    #[track_caller]
    pub fn tied_to_embedding(&self, embedding: &Embedding) -> BoundHead<'_> {
        self.try_tied_to_embedding(embedding).or_panic("OutputHead::tied_to_embedding")
    }

    /// [`tied_to_embedding`](Self::tied_to_embedding) with an error in place of a panic.
    ///
    /// # Errors
    /// As [`try_tied_to`](Self::try_tied_to).
    pub fn try_tied_to_embedding(&self, embedding: &Embedding) -> Result<BoundHead<'_>, HeadError> {
        self.try_tied_to(value(&embedding.weight))
    }

    #[track_caller]
    fn bound(&self) -> BoundHead<'_> {
        self.try_bound().or_panic("OutputHead")
    }

    pub(super) fn try_bound(&self) -> Result<BoundHead<'_>, HeadError> {
        Ok(BoundHead::new(self, self.decoder.own_weight()?))
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

    /// See [`BoundHead::beam_search`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn beam_search<S: BeamState>(
        &self,
        search: &BeamSearch,
        contexts: usize,
        state: S,
        step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    ) -> Vec<Vec<Hypothesis>> {
        self.bound().beam_search(search, contexts, state, step)
    }

    /// See [`BoundHead::try_log_probs`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_log_probs<const D: usize>(&self, hidden: Tensor<D>) -> Result<Tensor<D>, HeadError> {
        self.try_bound()?.try_log_probs(hidden)
    }

    /// See [`BoundHead::try_log_prob_blocks`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        self.try_bound()?.try_log_prob_blocks(hidden)
    }

    /// See [`BoundHead::try_logit_blocks`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        self.try_bound()?.try_logit_blocks(hidden)
    }

    /// See [`BoundHead::try_top_k`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> Result<TopK<D>, HeadError> {
        self.try_bound()?.try_top_k(hidden, k)
    }

    /// See [`BoundHead::try_sample`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Tensor<T, Int>, HeadError> {
        self.try_bound()?.try_sample(hidden, sampling, rng)
    }

    /// See [`BoundHead::try_beam_search`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_beam_search<S: BeamState>(
        &self,
        search: &BeamSearch,
        contexts: usize,
        state: S,
        step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    ) -> Result<Vec<Vec<Hypothesis>>, HeadError> {
        self.try_bound()?.try_beam_search(search, contexts, state, step)
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

    /// See [`BoundHead::loss_with`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Loss<T> {
        self.try_loss_with(hidden, targets, options).or_panic("loss_with")
    }

    /// See [`BoundHead::try_loss_with`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        self.try_bound()?.try_loss_with(hidden, targets, options)
    }

    /// See [`BoundHead::try_soft_loss_with`].
    ///
    /// # Errors
    /// As there, and [`HeadError::MissingDecoder`].
    pub fn try_soft_loss_with<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        options: &LossOptions,
    ) -> Result<Loss<1>, HeadError> {
        self.try_bound()?.try_soft_loss_with(hidden, distributions, options)
    }

    /// See [`BoundHead::at_temperature`].
    ///
    /// # Panics
    /// As there, and if the head is tied.
    #[track_caller]
    pub fn at_temperature(&self, temperature: f64) -> BoundHead<'_> {
        self.bound().at_temperature(temperature)
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
