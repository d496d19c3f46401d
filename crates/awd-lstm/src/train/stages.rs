//! Gradients of a training step in two stages: those of the output layer, and after them those of the layers below it.
//!
//! Burn's backward pass hands over all gradients of a graph at once. With two graphs, ranks sum the gradients of the output layer, with the
//! decoder matrix the largest of most models, while they compute the others. The graph below is told the gradient of its end by way of a
//! product with it, whose own factor is 1.

use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::model::{LanguageModel, StagedLoss};

/// What the first stage leaves to the second.
#[derive(Debug)]
pub(super) struct Above {
    /// The decoder's gradient, if the decoder is the embedding.
    pub(super) embedding: Option<Tensor<2>>,
    /// The gradient of what the output layer reads.
    hidden: Option<Tensor<3>>,
}

impl Above {
    /// The first stage of `share` times the loss: gradients of the output layer, but for a matrix that it has in common with the
    /// embedding.
    pub(super) fn of(model: &LanguageModel, loss: &StagedLoss, share: f64) -> (Self, GradientsParams) {
        let total = match &loss.prior_cv {
            Some(term) => loss.nll.clone() + term.clone(),
            None => loss.nll.clone(),
        };
        let mut grads = (total * share).backward();
        let hidden = loss.above.grad_remove(&mut grads);
        let matrix = &model.embedding;
        let embedding = matrix.is_require_grad().then(|| matrix.val().grad_remove(&mut grads)).flatten();
        (Self { embedding, hidden }, GradientsParams::from_grads(grads, model))
    }

    /// The second stage: all other gradients, with the whole one of the embedding.
    pub(super) fn below(self, model: &LanguageModel, loss: StagedLoss, share: f64) -> GradientsParams {
        let terms = [loss.ar, loss.tar].into_iter().flatten().map(|term| term * share);
        let upstream = self.hidden.map(|upstream| (loss.below * upstream).sum());
        let Some(total) = upstream.into_iter().chain(terms).reduce(|sum, term| sum + term) else {
            return GradientsParams::new();
        };
        let mut grads = total.backward();
        if let Some(embedding) = self.embedding {
            model.embedding.val().grad_replace(&mut grads, embedding);
        }
        loss.lookup.finish(&mut grads);
        GradientsParams::from_grads(grads, model)
    }
}
