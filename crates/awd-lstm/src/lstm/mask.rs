//! DropConnect masks: as many random numbers as recurrent weights, in every training step.

use burn::tensor::{DType, Device, Distribution, Tensor};

use crate::dropout::check_probability;

/// DropConnect mask for recurrent weights, of their shape, device and float type: 0 with probability `p`, and
/// otherwise `1/(1-p)`. `None` outside of training or if `p` is 0.
///
/// A constant: it has no part in the autodiff graph.
///
/// # Panics
///
/// If `p` is not in [0, 1).
pub fn weight_mask(weights: &Tensor<2>, p: f64) -> Option<Tensor<2>> {
    check_probability(p);
    let device = weights.device();
    (p != 0.0 && device.is_autodiff()).then(|| drop_connect_mask(weights.dims(), p, &device, weights.dtype()))
}

/// A mask by the device's seed: 0 with probability `p`, otherwise `1/(1 − p)`. A constant without a graph.
pub fn drop_connect_mask(shape: [usize; 2], p: f64, device: &Device, dtype: DType) -> Tensor<2> {
    let device = device.clone().without_autodiff();
    #[cfg(feature = "flex")]
    if matches!(device.as_dispatch(), burn::backend::DispatchDevice::Flex(_)) {
        match dtype {
            DType::F32 => return flex::mask::<f32>(shape, p),
            DType::F64 => return flex::mask::<f64>(shape, p),
            _ => {}
        }
    }
    let kept = Tensor::random(shape, Distribution::Bernoulli(1.0 - p), (&device, dtype));
    kept * (1.0 / (1.0 - p))
}

/// The same on the CPU, several times as fast: one generator a block, the blocks on all threads, two weights a number.
#[cfg(feature = "flex")]
mod flex {
    use burn::backend::Flex;
    use burn::tensor::{Device, Distribution, Int, Tensor};
    use highrank_kernels::cpu::{Buffer, Real};
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use rayon::prelude::*;

    /// Weights of a block. The mask depends on it, so it is fixed.
    pub(super) const BLOCK: usize = 1 << 16;

    pub(super) fn mask<T: Real>(shape: [usize; 2], p: f64) -> Tensor<2> {
        let seed = seed();
        // Kept where a number of 32 bits is below this: the probability is right to 2⁻³².
        let threshold = ((1.0 - p) * (1u64 << 32) as f64).round() as u64;
        let kept = T::of(1.0 / (1.0 - p));
        let mut values = Buffer::<T>::new(shape[0] * shape[1]);
        values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
            let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_add(block as u64));
            for pair in values.chunks_mut(2) {
                let bits = rng.next_u64();
                for (value, number) in pair.iter_mut().zip([bits & u64::from(u32::MAX), bits >> 32]) {
                    *value = if number < threshold { kept } else { T::ZERO };
                }
            }
        });
        Tensor::from_primitive::<Flex>(values.into_tensor(shape))
    }

    /// 64 bits of the backend's random numbers, so that its seed governs the mask.
    fn seed() -> u64 {
        let words = Tensor::<1, Int>::random([4], Distribution::Uniform(0.0, 65536.0), &Device::flex());
        words.into_data().iter::<i64>().fold(0, |seed, word| (seed << 16) | word as u64)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::testing::alone;

    fn values(mask: Tensor<2>) -> Vec<f64> {
        mask.into_data().iter::<f64>().collect()
    }

    #[test]
    fn masks_follow_the_seed_and_keep_their_share() {
        alone(module_path!(), "masks_follow_the_seed_and_keep_their_share", || {
            let device = Device::flex();
            let draw = |seed: u64| {
                device.seed(seed);
                values(drop_connect_mask([300, 401], 0.3, &device, DType::F32))
            };
            let values = draw(1);
            assert_eq!(values, draw(1));
            assert_ne!(values, draw(2));
            assert!(values.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.7).abs() < 1e-6));
            let kept = values.iter().filter(|&&x| x != 0.0).count() as f64 / values.len() as f64;
            // Four standard deviations of the mean of 120,300 draws.
            assert!((kept - 0.7).abs() < 0.0053, "{kept}");
            // Blocks do not repeat one another.
            assert_ne!(values[..1000], values[flex::BLOCK..flex::BLOCK + 1000]);
        });
    }

    #[test]
    fn a_weight_mask_has_the_shape_and_type_of_the_weights() {
        let device = Device::flex().autodiff();
        let weights = Tensor::<2>::zeros([30, 30], (&device, DType::F64));
        let mask = weight_mask(&weights, 0.75).unwrap();
        assert_eq!((mask.dims(), mask.dtype()), ([30, 30], DType::F64));
        assert!(values(mask).iter().all(|value| *value == 0.0 || *value == 4.0));
        assert!(weight_mask(&weights, 0.0).is_none());
    }

    #[test]
    fn no_weights_are_dropped_outside_of_training() {
        let weights = Tensor::<2>::ones([4, 4], &Device::flex());
        assert!(weight_mask(&weights, 0.9).is_none());
    }
}
