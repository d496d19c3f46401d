//! DropConnect masks: as many random numbers as recurrent weights, in every training step.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Distribution, Tensor};

use super::primitive;

/// A mask by the backend's own random numbers: 0 with probability `p`, otherwise `1/(1 − p)`.
pub(super) fn portable<B: Backend>(
    shape: [usize; 2],
    p: f64,
    device: &B::Device,
    dtype: DType,
) -> FloatTensor<B> {
    let kept = Tensor::<B, 2>::random(shape, Distribution::Bernoulli(1.0 - p), (device, dtype));
    primitive(kept * (1.0 / (1.0 - p)))
}

/// The same on the CPU, several times as fast: one generator a block, the blocks on all threads, two weights a number.
#[cfg(feature = "flex")]
pub(super) mod flex {
    use burn::backend::Flex;
    use burn::backend::flex::FlexTensor;
    use burn::tensor::{Distribution, Int, Tensor};
    use highrank::cpu::{Buffer, Real};
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use rayon::prelude::*;

    /// Weights of a block. The mask depends on it, so it is fixed.
    const BLOCK: usize = 1 << 16;

    pub(in crate::lstm) fn mask<T: Real>(shape: [usize; 2], p: f64) -> FlexTensor {
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
        values.into_tensor(shape)
    }

    /// 64 bits of the backend's random numbers, so that its seed governs the mask.
    fn seed() -> u64 {
        let words =
            Tensor::<Flex, 1, Int>::random([4], Distribution::Uniform(0.0, 65536.0), &Default::default());
        words.into_data().iter::<i64>().fold(0, |seed, word| (seed << 16) | word as u64)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use burn::tensor::backend::Backend;

        #[test]
        fn masks_follow_the_seed_and_keep_their_share() {
            let draw = |seed: u64| {
                Flex::seed(&Default::default(), seed);
                mask::<f32>([300, 401], 0.3).into_data().to_vec::<f32>().unwrap()
            };
            let values = draw(1);
            assert_eq!(values, draw(1));
            assert_ne!(values, draw(2));
            assert!(values.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.7).abs() < 1e-6));
            let kept = values.iter().filter(|&&x| x != 0.0).count() as f64 / values.len() as f64;
            // Four standard deviations of the mean of 120,300 draws.
            assert!((kept - 0.7).abs() < 0.0053, "{kept}");
            // Blocks do not repeat one another.
            assert_ne!(values[..1000], values[BLOCK..BLOCK + 1000]);
        }
    }
}
