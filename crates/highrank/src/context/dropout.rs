//! Locked dropout on the latent contexts.

use burn::tensor::{Distribution, Tensor};

use crate::ops::LatentMask;

/// A mask that drops latent features and rescales those kept by `1/(1 − p)`; none outside training.
///
/// `leading` are the dimensions of the hidden state before its features. With two or more, the first is time and one
/// mask serves all steps (*locked* or variational dropout, Gal and Ghahramani 2016); with one, tokens are independent.
///
/// - weight: `[H, features]`, of the latent layer
pub(super) fn locked(weight: &Tensor<2>, leading: &[usize], prob: f64) -> Option<LatentMask> {
    let device = weight.device();
    if prob == 0.0 || !device.is_autodiff() {
        return None;
    }
    let rows = if leading.len() > 1 { leading[1..].iter().product() } else { leading[0] };
    let keep = 1.0 - prob;
    let shape = [rows, weight.dims()[1]];
    let kept = Tensor::<2>::random(shape, Distribution::Bernoulli(keep), (&device, weight.dtype()));
    Some(LatentMask { values: kept.div_scalar(keep).into(), first: 0, keep })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// The mask's values and its number of rows.
    fn mask(leading: &[usize]) -> (Vec<f32>, usize) {
        let weight = Tensor::<2>::ones([3, 200], &Device::flex().autodiff());
        let mask = locked(&weight, leading, 0.25).expect("a mask in training");
        let rows = mask.values.shape()[0];
        (mask.values.into_data().try_to_vec().unwrap(), rows)
    }

    #[test]
    fn one_mask_serves_all_steps_and_differs_between_sequences() {
        let (values, rows) = mask(&[3, 2]);
        assert_eq!(rows, 2);
        assert_ne!(values[..200], values[200..]);
        assert!(values.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.75).abs() < 1e-6));
    }

    #[test]
    fn tokens_without_a_time_dimension_are_independent() {
        let (values, rows) = mask(&[2]);
        assert_eq!(rows, 2);
        assert_ne!(values[..200], values[200..]);
    }

    #[test]
    fn the_mean_is_kept_and_inference_drops_nothing() {
        let (values, _) = mask(&[1, 100]);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let weight = Tensor::<2>::ones([4, 8], &Device::flex());
        assert!(locked(&weight, &[2, 2], 0.25).is_none());
    }
}
