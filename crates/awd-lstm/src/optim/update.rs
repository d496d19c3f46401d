//! What a training step does to every weight, as operations that a backend can do in place.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// A backend that can run the element-wise parts of a training step.
///
/// The default bodies are Burn's own operations, so a backend opts in by an empty `impl`. They visit the weights a
/// dozen times; the CPU backend does each in one visit, on all threads and in place where the memory has one owner.
pub trait UpdateBackend: Backend {
    /// `Σ x²`, shape `[1]`.
    fn square_sum<const D: usize>(x: Tensor<Self, D>) -> Tensor<Self, 1> {
        (x.clone() * x).sum()
    }

    /// `x · factor` with a factor on the device, shape `[1]`.
    fn scale<const D: usize>(x: Tensor<Self, D>, factor: Tensor<Self, 1>) -> Tensor<Self, D> {
        x * factor.reshape([1; D])
    }

    /// `weight − lr · (gradient + decay · weight)`
    fn descend<const D: usize>(
        weight: Tensor<Self, D>,
        gradient: Tensor<Self, D>,
        lr: f64,
        decay: f64,
    ) -> Tensor<Self, D> {
        let gradient = if decay == 0.0 { gradient } else { gradient + weight.clone().mul_scalar(decay) };
        weight - gradient.mul_scalar(lr)
    }

    /// `average + (x − average) · share`
    fn average<const D: usize>(average: Tensor<Self, D>, x: Tensor<Self, D>, share: f64) -> Tensor<Self, D> {
        // The change is the temporary here, so that the average itself is updated in place.
        let change = (x - average.clone()).mul_scalar(share);
        average + change
    }

    /// `weight + decay · (origin − weight) − rate · gradient`, all element by element
    fn adapt(
        weight: Tensor<Self, 1>,
        gradient: Tensor<Self, 1>,
        rate: Tensor<Self, 1>,
        decay: Tensor<Self, 1>,
        origin: Tensor<Self, 1>,
    ) -> Tensor<Self, 1> {
        let change = (origin - weight.clone()) * decay - gradient * rate;
        weight + change
    }
}

impl<B: Backend, C: CheckpointStrategy> UpdateBackend for Autodiff<B, C> {}

#[cfg(feature = "flex")]
mod flex {
    use super::*;
    use burn::backend::Flex;
    use burn::tensor::DType;
    use highrank::cpu::{Real, into_contiguous, slice, wrap};
    use rayon::prelude::*;

    /// Values of a block. Sums are made block by block, so it is fixed.
    const BLOCK: usize = 1 << 14;

    impl UpdateBackend for Flex {
        fn square_sum<const D: usize>(x: Tensor<Self, D>) -> Tensor<Self, 1> {
            fn sum<T: Real, const D: usize>(x: Tensor<Flex, D>) -> Tensor<Flex, 1> {
                let x = into_contiguous(x);
                let blocks: Vec<f64> = slice::<T>(&x).par_chunks(BLOCK).map(block).collect();
                wrap(highrank::cpu::tensor(vec![T::of(blocks.iter().sum())], [1]))
            }
            /// In lanes, so that the sum is vectorised.
            fn block<T: Real>(values: &[T]) -> f64 {
                let mut lanes = [T::ZERO; 16];
                let (blocks, rest) = values.as_chunks::<16>();
                for block in blocks {
                    for (lane, x) in lanes.iter_mut().zip(block) {
                        *lane += *x * *x;
                    }
                }
                lanes.iter().map(|x| x.wide()).sum::<f64>()
                    + rest.iter().map(|x| (*x * *x).wide()).sum::<f64>()
            }
            match x.dtype() {
                DType::F32 => sum::<f32, D>(x),
                DType::F64 => sum::<f64, D>(x),
                _ => (x.clone() * x).sum(),
            }
        }

        fn scale<const D: usize>(x: Tensor<Self, D>, factor: Tensor<Self, 1>) -> Tensor<Self, D> {
            // By way of its data: a scalar would be cast to the backend's default type, f32.
            let factor = factor.into_data().iter::<f64>().next().expect("one factor");
            match x.dtype() {
                _ if factor == 1.0 => x,
                DType::F32 => in_place(x, |x: f32| x * factor as f32),
                DType::F64 => in_place(x, |x: f64| x * factor),
                _ => x.mul_scalar(factor),
            }
        }

        fn descend<const D: usize>(
            weight: Tensor<Self, D>,
            gradient: Tensor<Self, D>,
            lr: f64,
            decay: f64,
        ) -> Tensor<Self, D> {
            fn step<T: Real, const D: usize>(
                weight: Tensor<Flex, D>,
                gradient: Tensor<Flex, D>,
                [lr, decay]: [f64; 2],
            ) -> Tensor<Flex, D> {
                let (lr, decay) = (T::of(lr), T::of(decay));
                with(weight, gradient, |w: T, g| w - lr * (g + decay * w))
            }
            match weight.dtype() {
                DType::F32 => step::<f32, D>(weight, gradient, [lr, decay]),
                DType::F64 => step::<f64, D>(weight, gradient, [lr, decay]),
                _ => weight.clone() - (gradient + weight.mul_scalar(decay)).mul_scalar(lr),
            }
        }

        fn average<const D: usize>(
            average: Tensor<Self, D>,
            x: Tensor<Self, D>,
            share: f64,
        ) -> Tensor<Self, D> {
            match average.dtype() {
                DType::F32 => with(average, x, |a: f32, x| a + (x - a) * share as f32),
                DType::F64 => with(average, x, |a: f64, x| a + (x - a) * share),
                _ => average.clone() + (x - average).mul_scalar(share),
            }
        }

        fn adapt(
            weight: Tensor<Self, 1>,
            gradient: Tensor<Self, 1>,
            rate: Tensor<Self, 1>,
            decay: Tensor<Self, 1>,
            origin: Tensor<Self, 1>,
        ) -> Tensor<Self, 1> {
            let (dtype, others) = (weight.dtype(), [gradient, rate, decay, origin]);
            match dtype {
                DType::F32 => adapt_in_place::<f32>(weight, others),
                DType::F64 => adapt_in_place::<f64>(weight, others),
                _ => {
                    let [gradient, rate, decay, origin] = others;
                    weight.clone() + (origin - weight) * decay - gradient * rate
                }
            }
        }
    }

    fn adapt_in_place<T: Real>(weight: Tensor<Flex, 1>, others: [Tensor<Flex, 1>; 4]) -> Tensor<Flex, 1> {
        let (mut weight, others) = (into_contiguous(weight), others.map(into_contiguous));
        let [gradient, rate, decay, origin] = others.each_ref().map(|other| slice::<T>(other));
        let values: &mut [T] = weight.storage_mut();
        let len = values.len();
        assert!(
            [gradient, rate, decay, origin].iter().all(|other| other.len() == len),
            "adapt: shapes differ"
        );
        values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
            let start = block * BLOCK;
            let end = start + values.len();
            let (g, r) = (&gradient[start..end], &rate[start..end]);
            let (d, o) = (&decay[start..end], &origin[start..end]);
            for ((((w, g), r), d), o) in values.iter_mut().zip(g).zip(r).zip(d).zip(o) {
                *w = *w + *d * (*o - *w) - *r * *g;
            }
        });
        wrap(weight)
    }

    fn in_place<T: Real, const D: usize>(x: Tensor<Flex, D>, f: impl Fn(T) -> T + Sync) -> Tensor<Flex, D> {
        let mut x = into_contiguous(x);
        let values: &mut [T] = x.storage_mut();
        values.par_chunks_mut(BLOCK).for_each(|block| block.iter_mut().for_each(|x| *x = f(*x)));
        wrap(x)
    }

    fn with<T: Real, const D: usize>(
        x: Tensor<Flex, D>,
        y: Tensor<Flex, D>,
        f: impl Fn(T, T) -> T + Sync,
    ) -> Tensor<Flex, D> {
        let (mut x, y) = (into_contiguous(x), into_contiguous(y));
        let values: &mut [T] = x.storage_mut();
        let blocks = values.par_chunks_mut(BLOCK).zip(slice::<T>(&y).par_chunks(BLOCK));
        blocks.for_each(|(xs, ys)| xs.iter_mut().zip(ys).for_each(|(x, y)| *x = f(*x, *y)));
        wrap(x)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use burn::tensor::Distribution;

        fn near(a: Tensor<Flex, 2>, b: Tensor<Flex, 2>) {
            let worst: f32 = (a - b).abs().max().into_scalar();
            assert!(worst < 1e-6, "{worst}");
        }

        #[test]
        fn the_native_operations_agree_with_the_portable_ones() {
            // More than two blocks, the last one ragged.
            let draw = || Tensor::<Flex, 2>::random([123, 401], Distribution::Default, &Default::default());
            let (x, y) = (draw(), draw());
            let want = x.clone() * 0.97 - y.clone() * 0.3;
            near(Flex::descend(x.clone(), y.clone(), 0.3, 0.1), want);
            near(Flex::average(x.clone(), y.clone(), 0.25), x.clone() * 0.75 + y.clone() * 0.25);
            let half = Tensor::from_data([0.5f32], &Default::default());
            near(Flex::scale(x.clone(), half), x.clone() * 0.5);
            let (got, want): (f32, f32) =
                (Flex::square_sum(x.clone()).into_scalar(), (x.clone() * x.clone()).sum().into_scalar());
            assert!((got / want - 1.0).abs() < 1e-5, "{got} {want}");
            // A view that is not row-major.
            let (xt, yt) = (x.transpose(), y.transpose());
            near(Flex::descend(xt.clone(), yt.clone(), 0.3, 0.0), xt - yt * 0.3);
        }

        #[test]
        fn a_shared_tensor_keeps_its_values() {
            let x = Tensor::<Flex, 2>::ones([4, 4], &Default::default());
            let kept = x.clone();
            near(Flex::descend(x, kept.clone(), 1.0, 0.0), kept.zeros_like());
            near(kept.clone(), kept.ones_like());
        }
    }
}
