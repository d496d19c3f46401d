//! Losses that are still on the device.

use burn::tensor::Tensor;

use crate::state::Sum;
use crate::task::Stepped;

/// The steps that were not read yet. They are read together, so that no step waits for the device, but added one by one: sums do not
/// depend on when that is.
#[derive(Default)]
pub(super) struct Meter {
    unread: Vec<Stepped>,
    /// Learning rate of the last step.
    pub(super) lr: f64,
}

impl Meter {
    /// The most steps that are kept before they are read.
    const CAPACITY: usize = 256;

    pub(super) fn add(&mut self, stepped: Stepped) {
        self.lr = stepped.lr;
        self.unread.push(stepped);
    }

    /// Whether it is time to read.
    pub(super) fn is_full(&self) -> bool {
        self.unread.len() >= Self::CAPACITY
    }

    /// The steps since the last read, whose gradients were clipped to the norm `clip`; `None` if a loss was not finite.
    pub(super) fn read(&mut self, clip: f64) -> Option<Vec<Sum>> {
        if self.unread.is_empty() {
            return Some(vec![]);
        }
        let tensors = self.unread.iter().flat_map(|step| {
            let dtype = step.nll.dtype();
            values(step).into_iter().flatten().map(move |value| value.clone().cast(dtype))
        });
        let read: Vec<f64> = Tensor::cat(tensors.collect(), 0).into_data().iter::<f64>().collect();
        let mut read = read.into_iter();
        let sums = self.unread.drain(..).map(|step| {
            let [nll, total, norm, latent, prior_cv, ar, tar, correct] =
                values(&step).map(|value| value.and_then(|_| read.next()));
            let nll = nll.unwrap_or(f64::NAN);
            if !nll.is_finite() || total.is_some_and(|total| !total.is_finite()) {
                return None;
            }
            let norm = norm.unwrap_or(0.0);
            Some(Sum {
                nll,
                tokens: step.tokens,
                steps: 1,
                clipped: usize::from(norm > clip),
                gradient_norm: norm,
                // A gradient of zeros has no share.
                latent_share: latent.map(|latent| latent / norm.max(f64::from(f32::MIN_POSITIVE))),
                prior_cv,
                ar,
                tar,
                correct: correct.map(|correct| correct as usize),
            })
        });
        sums.collect()
    }
}

/// What is read of a step, in a fixed order.
fn values(step: &Stepped) -> [Option<&Tensor<1>>; 8] {
    let Stepped { nll, total, gradient_norm, latent_norm, prior_cv, ar, tar, correct, .. } = step;
    [
        Some(nll),
        total.as_ref(),
        gradient_norm.as_ref(),
        latent_norm.as_ref(),
        prior_cv.as_ref(),
        ar.as_ref(),
        tar.as_ref(),
        correct.as_ref(),
    ]
}
