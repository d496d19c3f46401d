//! What a training step does to every weight.
//!
//! In Burn's operations an update visits the weights a dozen times. On a plain CPU device, in f32 and f64, each function here
//! does its work in one visit, on all threads, and in place where the memory has one owner.

use burn::tensor::Tensor;

/// Returns `$made`, a primitive, from the function around it if `$x` is on the plain CPU device and holds f32 or f64. Burn's
/// operations follow it, for every other tensor.
macro_rules! native {
    ($x:expr => $made:expr) => {
        #[cfg(feature = "flex")]
        if flex::serves(&$x) {
            return Tensor::from_primitive::<burn::backend::Flex>($made);
        }
    };
}

/// `Σ x²`, shape `[1]`.
pub(super) fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    native!(x => flex::square_sum(flex::contiguous(x)));
    (x.clone() * x).sum()
}

/// `x · factor` with a factor on the device, shape `[1]`.
pub(super) fn scale<const D: usize>(x: Tensor<D>, factor: Tensor<1>) -> Tensor<D> {
    native!(x => flex::scale(flex::contiguous(x), factor.into_scalar()));
    x * factor.reshape([1; D])
}

/// `weight − lr · (factor · gradient + decay · weight)`, with a factor on the device, shape `[1]`; without one it is 1.
pub(super) fn descend<const D: usize>(
    weight: Tensor<D>,
    gradient: Tensor<D>,
    factor: Option<&Tensor<1>>,
    lr: f64,
    decay: f64,
) -> Tensor<D> {
    native!(weight => {
        let factor = factor.map_or(1.0, |factor| factor.clone().into_scalar());
        flex::descend(flex::contiguous(weight), flex::contiguous(gradient), factor, lr, decay)
    });
    let gradient = match factor {
        Some(factor) => gradient * factor.clone().reshape([1; D]),
        None => gradient,
    };
    let gradient = if decay == 0.0 { gradient } else { gradient + weight.clone().mul_scalar(decay) };
    weight - gradient.mul_scalar(lr)
}

/// `average + (x − average) · share`
pub(super) fn average<const D: usize>(average: Tensor<D>, x: Tensor<D>, share: f64) -> Tensor<D> {
    native!(average => flex::average(flex::contiguous(average), flex::contiguous(x), share));
    // The change is the temporary here, so that the average itself is updated in place.
    let change = (x - average.clone()).mul_scalar(share);
    average + change
}

/// `weight + decay · (origin − weight) − rate · gradient`, all element by element
pub(super) fn adapt(
    weight: Tensor<1>,
    gradient: Tensor<1>,
    rate: Tensor<1>,
    decay: Tensor<1>,
    origin: Tensor<1>,
) -> Tensor<1> {
    native!(weight => flex::adapt(flex::contiguous(weight), [gradient, rate, decay, origin].map(flex::contiguous)));
    let change = (origin - weight.clone()) * decay - gradient * rate;
    weight + change
}

/// The loops are in functions without type parameters, or that `typed!` instantiates in this crate: they are not compiled again, less
/// optimised, with each model that is trained.
#[cfg(feature = "flex")]
mod flex {
    use burn::backend::{DispatchDevice, Flex};
    use burn::tensor::{DType, Tensor};
    use burn_flex::FlexTensor;
    use highrank_kernels::cpu::{self, Real, slice};

    /// Values of a block. Sums are made block by block, so it is fixed.
    const BLOCK: usize = 1 << 14;

    /// Whether the tensor is on the plain CPU device, and holds f32 or f64.
    pub(super) fn serves<const D: usize>(x: &Tensor<D>) -> bool {
        matches!(x.device().as_dispatch(), DispatchDevice::Flex(_))
            && matches!(x.dtype(), DType::F32 | DType::F64)
    }

    /// The primitive in row-major order. It is the only owner of its memory if the tensor was.
    ///
    /// # Panics
    /// If the tensor is not on the plain CPU device: the inputs of an update share one device.
    pub(super) fn contiguous<const D: usize>(x: Tensor<D>) -> FlexTensor {
        let primitive = x.try_into_primitive::<Flex>();
        primitive.expect("all inputs of an update are on one device").to_contiguous()
    }

    /// `$made`, where `$T` is the type of the values of `$x`.
    macro_rules! typed {
        ($x:expr, $T:ident => $made:expr) => {
            match $x.dtype() {
                DType::F64 => {
                    type $T = f64;
                    $made
                }
                _ => {
                    type $T = f32;
                    $made
                }
            }
        };
    }

    pub(super) fn square_sum(x: FlexTensor) -> FlexTensor {
        fn of<T: Real>(values: &[T]) -> FlexTensor {
            let mut sums = vec![0.0; values.len().div_ceil(BLOCK)];
            cpu::share(values.chunks(BLOCK).zip(&mut sums), |(values, sum)| *sum = block(values));
            cpu::tensor(vec![T::of(sums.iter().sum())], [1])
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
            lanes.iter().map(|x| x.wide()).sum::<f64>() + rest.iter().map(|x| (*x * *x).wide()).sum::<f64>()
        }
        typed!(x, T => of::<T>(slice(&x)))
    }

    pub(super) fn scale(x: FlexTensor, factor: f64) -> FlexTensor {
        if factor == 1.0 {
            return x;
        }
        typed!(x, T => {
            let factor = T::of(factor);
            in_place(x, |x: T| x * factor)
        })
    }

    pub(super) fn descend(
        weight: FlexTensor,
        gradient: FlexTensor,
        factor: f64,
        lr: f64,
        decay: f64,
    ) -> FlexTensor {
        typed!(weight, T => {
            let [factor, lr, decay] = [factor, lr, decay].map(T::of);
            with(weight, gradient, |w: T, g| w - lr * (g * factor + decay * w))
        })
    }

    pub(super) fn average(average: FlexTensor, x: FlexTensor, share: f64) -> FlexTensor {
        typed!(average, T => {
            let share = T::of(share);
            with(average, x, |a: T, x| a + (x - a) * share)
        })
    }

    /// `others`: gradient, rate, decay and origin.
    pub(super) fn adapt(mut weight: FlexTensor, others: [FlexTensor; 4]) -> FlexTensor {
        fn of<T: Real>(values: &mut [T], others: [&[T]; 4]) {
            assert!(others.iter().all(|other| other.len() == values.len()), "adapt: shapes differ");
            cpu::share(values.chunks_mut(BLOCK).enumerate(), |(block, values)| {
                let start = block * BLOCK;
                let [g, r, d, o] = others.map(|other| &other[start..start + values.len()]);
                for ((((w, g), r), d), o) in values.iter_mut().zip(g).zip(r).zip(d).zip(o) {
                    *w = *w + *d * (*o - *w) - *r * *g;
                }
            });
        }
        typed!(weight, T => of::<T>(weight.storage_mut(), others.each_ref().map(slice)));
        weight
    }

    fn in_place<T: Real>(mut x: FlexTensor, f: impl Fn(T) -> T + Sync) -> FlexTensor {
        let values: &mut [T] = x.storage_mut();
        cpu::share(values.chunks_mut(BLOCK), |block| block.iter_mut().for_each(|x| *x = f(*x)));
        x
    }

    fn with<T: Real>(mut x: FlexTensor, y: FlexTensor, f: impl Fn(T, T) -> T + Sync) -> FlexTensor {
        let values: &mut [T] = x.storage_mut();
        let blocks = values.chunks_mut(BLOCK).zip(slice::<T>(&y).chunks(BLOCK));
        cpu::share(blocks, |(xs, ys)| xs.iter_mut().zip(ys).for_each(|(x, y)| *x = f(*x, *y)));
        x
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::{DType, Device, Distribution};

    use super::*;

    fn near(a: Tensor<2>, b: Tensor<2>) {
        let worst: f32 = (a - b).abs().max().into_scalar();
        assert!(worst < 1e-6, "{worst}");
    }

    #[test]
    fn the_native_operations_agree_with_the_portable_ones() {
        for dtype in [DType::F32, DType::F64] {
            // More than two blocks, the last one ragged.
            let options = (&Device::flex(), dtype);
            let draw = || Tensor::<2>::random([123, 401], Distribution::Default, options);
            let (x, y) = (draw(), draw());
            let want = x.clone() * 0.97 - y.clone() * 0.3;
            near(descend(x.clone(), y.clone(), None, 0.3, 0.1), want);
            let two = Tensor::from_data([2.0f32], options);
            let twice = descend(x.clone(), y.clone(), Some(&two), 0.15, 0.2);
            near(twice, x.clone() * 0.97 - y.clone() * 0.3);
            near(average(x.clone(), y.clone(), 0.25), x.clone() * 0.75 + y.clone() * 0.25);
            let half = Tensor::from_data([0.5f32], options);
            near(scale(x.clone(), half), x.clone() * 0.5);
            let (got, want): (f64, f64) =
                (square_sum(x.clone()).into_scalar(), (x.clone() * x.clone()).sum().into_scalar());
            assert!((got / want - 1.0).abs() < 1e-5, "{got} {want}");
            // A view that is not row-major.
            let (xt, yt) = (x.transpose(), y.transpose());
            near(descend(xt.clone(), yt.clone(), None, 0.3, 0.0), xt - yt * 0.3);
        }
    }

    /// Tensors with an association with autodiff take Burn's operations.
    #[test]
    fn both_forms_give_the_same() {
        for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-12)] {
            let draw = || Tensor::<1>::random([40_000], Distribution::Default, (&Device::flex(), dtype));
            let inputs: [Tensor<1>; 5] = std::array::from_fn(|_| draw());
            let results = |[a, b, c, d, e]: [Tensor<1>; 5]| {
                let factor = a.clone().narrow(0, 0, 1);
                [
                    // Of 40,000 squares from 0 to 1: their mean.
                    square_sum(a.clone()) / 40_000.0,
                    scale(a.clone(), factor.clone()),
                    descend(a.clone(), b.clone(), None, 0.3, 0.1),
                    descend(a.clone(), b.clone(), Some(&factor), 0.3, 0.1),
                    average(a.clone(), b.clone(), 0.25),
                    adapt(a, b, c, d, e),
                ]
            };
            let native = results(inputs.clone());
            let composed = results(inputs.map(Tensor::from_inner)).map(Tensor::inner);
            for (native, composed) in native.into_iter().zip(composed) {
                let worst: f64 = (native - composed).abs().max().into_scalar();
                assert!(worst < tolerance, "{worst}");
            }
        }
    }

    #[test]
    fn a_shared_tensor_keeps_its_values() {
        let x = Tensor::<2>::ones([4, 4], &Device::flex());
        let kept = x.clone();
        near(descend(x, kept.clone(), None, 1.0, 0.0), kept.zeros_like());
        near(kept.clone(), kept.ones_like());
    }
}
