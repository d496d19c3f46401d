//! DropConnect masks: as many random numbers as recurrent weights, in every training step.

use burn::tensor::{DType, Device, Tensor};

use crate::dropout::{acts, drawn};

/// DropConnect mask for recurrent weights, of their shape, device and float type: 0 with probability `p`, and
/// otherwise `1/(1-p)`. `None` outside of training or if `p` is 0.
///
/// A constant: it has no part in the autodiff graph.
///
/// # Panics
///
/// If `p` is not in [0, 1).
pub fn weight_mask(weights: &Tensor<2>, p: f64) -> Option<Tensor<2>> {
    let device = weights.device();
    acts(p, &device).then(|| drop_connect_mask(weights.dims(), p, &device, weights.dtype()))
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
    drawn(shape, p, &device, dtype)
}

/// The same on the CPU, many times as fast: one set of generators a block, the blocks on all threads, two weights a number.
#[cfg(feature = "flex")]
mod flex {
    use burn::backend::Flex;
    use burn::tensor::{Device, Distribution, Int, Tensor};
    use highrank_kernels::cpu::{Buffer, Real, share};
    use highrank_kernels::vectorised;
    use pulp::Arch;

    /// Weights of a block. The mask depends on it, so it is fixed.
    pub(super) const BLOCK: usize = 1 << 16;

    /// Generators side by side: a vector of them. The mask depends on it as well.
    const LANES: usize = 8;

    pub(super) fn mask<T: Real>(shape: [usize; 2], p: f64) -> Tensor<2> {
        let seed = seed();
        // Kept where a number of 32 bits is below this: the probability is right to 2⁻³².
        let threshold = ((1.0 - p) * (1u64 << 32) as f64).round() as u64;
        let kept = T::of(1.0 / (1.0 - p));
        let mut values = Buffer::<T>::new(shape[0] * shape[1]);
        let arch = Arch::new();
        share(values.chunks_mut(BLOCK).enumerate(), |(block, values)| {
            // Blocks are far apart in the stream that seeds the generators.
            let rng = &mut Generators::new(seed ^ (block as u64).wrapping_mul(0xd134_2543_de82_ef95));
            vectorised!(arch, |values: &'a mut [T], rng: &'a mut Generators, threshold: u64, kept: T| {
                fill(values, rng, threshold, kept)
            });
        });
        Tensor::from_primitive::<Flex>(values.into_tensor(shape))
    }

    #[inline(always)]
    fn fill<T: Real>(values: &mut [T], rng: &mut Generators, threshold: u64, kept: T) {
        let of = |number: u64| if number < threshold { kept } else { T::ZERO };
        let (groups, rest) = values.as_chunks_mut::<{ 2 * LANES }>();
        for group in groups {
            let bits = rng.next();
            let (low, high) = group.split_at_mut(LANES);
            for ((low, high), bits) in low.iter_mut().zip(high).zip(bits) {
                (*low, *high) = (of(bits & u64::from(u32::MAX)), of(bits >> 32));
            }
        }
        let halves = |bits: [u64; LANES]| {
            bits.map(|b| b & u64::from(u32::MAX)).into_iter().chain(bits.map(|b| b >> 32))
        };
        rest.iter_mut().zip(halves(rng.next())).for_each(|(value, number)| *value = of(number));
    }

    /// xoshiro256++ (Blackman and Vigna, 2019), several of them side by side, with states from SplitMix64.
    struct Generators([[u64; LANES]; 4]);

    impl Generators {
        fn new(seed: u64) -> Self {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            };
            Self(std::array::from_fn(|_| std::array::from_fn(|_| next())))
        }

        #[inline(always)]
        fn next(&mut self) -> [u64; LANES] {
            let [a, b, c, d] = &mut self.0;
            let mut out = [0; LANES];
            for lane in 0..LANES {
                out[lane] = a[lane].wrapping_add(d[lane]).rotate_left(23).wrapping_add(a[lane]);
                let shifted = b[lane] << 17;
                c[lane] ^= a[lane];
                d[lane] ^= b[lane];
                b[lane] ^= c[lane];
                a[lane] ^= d[lane];
                c[lane] ^= shifted;
                d[lane] = d[lane].rotate_left(45);
            }
            out
        }
    }

    /// 64 bits of the backend's random numbers, so that its seed governs the mask.
    fn seed() -> u64 {
        let words = Tensor::<1, Int>::random([4], Distribution::Uniform(0.0, 65536.0), &Device::flex());
        words.into_data().iter::<i64>().fold(0, |seed, word| (seed << 16) | word as u64)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The published algorithm on one state, written as published.
        #[test]
        fn every_lane_is_the_published_generator() {
            let mut rng = Generators::new(7);
            let mut states: Vec<[u64; 4]> =
                (0..LANES).map(|lane| std::array::from_fn(|word| rng.0[word][lane])).collect();
            for _ in 0..100 {
                let got = rng.next();
                for (lane, s) in states.iter_mut().enumerate() {
                    let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
                    let t = s[1] << 17;
                    s[2] ^= s[0];
                    s[3] ^= s[1];
                    s[1] ^= s[2];
                    s[0] ^= s[3];
                    s[2] ^= t;
                    s[3] = s[3].rotate_left(45);
                    assert_eq!(got[lane], result, "lane {lane}");
                }
            }
        }

        /// SplitMix64 from 0, as in its author's program.
        #[test]
        fn states_come_from_the_published_seeding() {
            let rng = Generators::new(0);
            assert_eq!(rng.0[0][..2], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        }

        #[test]
        fn every_length_is_filled() {
            for len in 0..50 {
                let mut values = vec![9f32; len];
                fill(&mut values, &mut Generators::new(1), 1 << 31, 2.0);
                assert!(values.iter().all(|x| [0.0, 2.0].contains(x)), "{values:?}");
                // A shorter run begins as a longer one does.
                let mut longer = vec![9f32; len + 16];
                fill(&mut longer, &mut Generators::new(1), 1 << 31, 2.0);
                assert_eq!(values, longer[..len]);
            }
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use runs::testing::{alone, values};

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
        // Nor outside of training.
        assert!(weight_mask(&weights.inner(), 0.9).is_none());
    }
}
