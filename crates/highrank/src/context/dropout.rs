//! Locked dropout on the latent contexts.

use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};

/// Drops latent features, rescaling those kept by `1/(1 − p)`; the identity outside training.
///
/// `leading` are the dimensions of the hidden state before its features. With two or more, the first is time and one
/// mask serves all steps (*locked* or variational dropout, Gal and Ghahramani 2016); with one, tokens are independent.
///
/// - latent: `[N, features]`, `N` the product of `leading`
pub(super) fn locked<B: Backend>(latent: Tensor<B, 2>, leading: &[usize], prob: f64) -> Tensor<B, 2> {
    let device = latent.device();
    if prob == 0.0 || !B::ad_enabled(&device) {
        return latent;
    }
    let [tokens, features] = latent.dims();
    let steps = if leading.len() > 1 { leading[0] } else { 1 };
    let keep = 1.0 - prob;
    let mask = Tensor::<B, 3>::random(
        [1, tokens / steps, features],
        Distribution::Bernoulli(keep),
        (&device, latent.dtype()),
    )
    .div_scalar(keep);
    (latent.reshape([steps, tokens / steps, features]) * mask).reshape([tokens, features])
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::{Autodiff, Flex};

    fn dropped(leading: &[usize]) -> Vec<f32> {
        let tokens = leading.iter().product();
        let ones = Tensor::<Autodiff<Flex>, 2>::ones([tokens, 200], &Default::default());
        locked(ones, leading, 0.25).into_data().to_vec().unwrap()
    }

    #[test]
    fn one_mask_serves_all_steps_and_differs_between_sequences() {
        let values = dropped(&[3, 2]);
        let (first, rest) = values.split_at(2 * 200);
        assert!(rest.chunks(2 * 200).all(|step| step == first));
        assert_ne!(first[..200], first[200..]);
        assert!(first.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.75).abs() < 1e-6));
    }

    #[test]
    fn tokens_without_a_time_dimension_are_independent() {
        let values = dropped(&[2]);
        assert_ne!(values[..200], values[200..]);
    }

    #[test]
    fn the_mean_is_kept_and_inference_is_the_identity() {
        let values = dropped(&[1, 100]);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let ones = Tensor::<Flex, 2>::ones([4, 8], &Default::default());
        let kept = locked(ones, &[2, 2], 0.25).into_data().to_vec::<f32>().unwrap();
        assert!(kept.iter().all(|&x| x == 1.0));
    }
}
