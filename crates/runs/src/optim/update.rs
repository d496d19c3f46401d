//! What a training step does to every weight.
//!
//! In Burn's operations an update visits the weights a dozen times. On a plain CPU device, in f32 and f64, each function here
//! does its work in one visit, on all threads, and in place where the memory has one owner.

use burn::tensor::Tensor;

/// `Σ x²`, shape `[1]`.
pub(super) fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    #[cfg(feature = "flex")]
    if let Some(float) = flex::Float::of(&x) {
        return flex::square_sum(float, x);
    }
    (x.clone() * x).sum()
}

/// What gradients are multiplied by.
// There is one a step: the size of the larger costs nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum Factor {
    /// Known to the host, where reading it costs nothing.
    #[cfg(feature = "flex")]
    Number(f64),
    /// On the device, `[1]`.
    Tensor(Tensor<1>),
}

impl Factor {
    pub(super) fn new(factor: Tensor<1>) -> Self {
        #[cfg(feature = "flex")]
        if flex::Float::of(&factor).is_some() {
            return Self::Number(factor.into_scalar());
        }
        Self::Tensor(factor)
    }

    /// The factor, if the host knows it.
    #[cfg(feature = "flex")]
    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(factor) => Some(*factor),
            Self::Tensor(_) => None,
        }
    }

    /// `x · factor`
    fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            #[cfg(feature = "flex")]
            Self::Number(factor) => x.mul_scalar(*factor),
            Self::Tensor(factor) => x * factor.clone().reshape([1; D]),
        }
    }
}

/// `x · factor` with a factor on the device, shape `[1]`.
pub(super) fn scale<const D: usize>(x: Tensor<D>, factor: Tensor<1>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if let Some(float) = flex::Float::of(&x) {
        return flex::scale(float, x, factor);
    }
    x * factor.reshape([1; D])
}

/// `weight − lr · (factor · gradient + decay · weight)`; without a factor it is 1.
pub(super) fn descend<const D: usize>(
    weight: Tensor<D>,
    gradient: Tensor<D>,
    factor: Option<&Factor>,
    lr: f64,
    decay: f64,
) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if let (Some(float), Some(factor)) = (flex::Float::of(&weight), factor.map_or(Some(1.0), Factor::number))
    {
        return flex::descend(float, weight, gradient, [factor, lr, decay]);
    }
    let gradient = match factor {
        Some(factor) => factor.apply(gradient),
        None => gradient,
    };
    let gradient = if decay == 0.0 { gradient } else { gradient + weight.clone().mul_scalar(decay) };
    weight - gradient.mul_scalar(lr)
}

/// `average + (x − average) · share`
pub(super) fn average<const D: usize>(average: Tensor<D>, x: Tensor<D>, share: f64) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if let Some(float) = flex::Float::of(&average) {
        return flex::average(float, average, x, share);
    }
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
    #[cfg(feature = "flex")]
    if let Some(float) = flex::Float::of(&weight) {
        return flex::adapt(float, weight, [gradient, rate, decay, origin]);
    }
    let change = (origin - weight.clone()) * decay - gradient * rate;
    weight + change
}

#[cfg(feature = "flex")]
mod flex {
    use burn::backend::{DispatchDevice, Flex};
    use burn::tensor::{DType, Tensor};
    use burn_flex::FlexTensor;
    use highrank_kernels::cpu::{self, Real, slice};
    use rayon::prelude::*;

    /// Values of a block. Sums are made block by block, so it is fixed.
    const BLOCK: usize = 1 << 14;

    /// A float type of the native functions.
    #[derive(Clone, Copy)]
    pub(super) enum Float {
        F32,
        F64,
    }

    impl Float {
        /// That of a tensor on the plain CPU device; none if Burn's operations are to be used.
        pub(super) fn of<const D: usize>(x: &Tensor<D>) -> Option<Self> {
            match (x.device().as_dispatch(), x.dtype()) {
                (DispatchDevice::Flex(_), DType::F32) => Some(Self::F32),
                (DispatchDevice::Flex(_), DType::F64) => Some(Self::F64),
                _ => None,
            }
        }
    }

    pub(super) fn square_sum<const D: usize>(float: Float, x: Tensor<D>) -> Tensor<1> {
        fn sum<T: Real>(x: &FlexTensor) -> Tensor<1> {
            let blocks: Vec<f64> = slice::<T>(x).par_chunks(BLOCK).map(block).collect();
            wrap(cpu::tensor(vec![T::of(blocks.iter().sum())], [1]))
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
        let x = contiguous(x);
        match float {
            Float::F32 => sum::<f32>(&x),
            Float::F64 => sum::<f64>(&x),
        }
    }

    pub(super) fn scale<const D: usize>(float: Float, x: Tensor<D>, factor: Tensor<1>) -> Tensor<D> {
        let factor = factor.into_scalar::<f64>();
        match float {
            _ if factor == 1.0 => x,
            Float::F32 => in_place(x, |x: f32| x * factor as f32),
            Float::F64 => in_place(x, |x: f64| x * factor),
        }
    }

    pub(super) fn descend<const D: usize>(
        float: Float,
        weight: Tensor<D>,
        gradient: Tensor<D>,
        scalars: [f64; 3],
    ) -> Tensor<D> {
        fn step<T: Real, const D: usize>(
            weight: Tensor<D>,
            gradient: Tensor<D>,
            scalars: [f64; 3],
        ) -> Tensor<D> {
            let [factor, lr, decay] = scalars.map(T::of);
            with(weight, gradient, |w: T, g| w - lr * (g * factor + decay * w))
        }
        match float {
            Float::F32 => step::<f32, D>(weight, gradient, scalars),
            Float::F64 => step::<f64, D>(weight, gradient, scalars),
        }
    }

    pub(super) fn average<const D: usize>(
        float: Float,
        average: Tensor<D>,
        x: Tensor<D>,
        share: f64,
    ) -> Tensor<D> {
        match float {
            Float::F32 => with(average, x, |a: f32, x| a + (x - a) * share as f32),
            Float::F64 => with(average, x, |a: f64, x| a + (x - a) * share),
        }
    }

    /// `others`: gradient, rate, decay and origin.
    pub(super) fn adapt(float: Float, weight: Tensor<1>, others: [Tensor<1>; 4]) -> Tensor<1> {
        match float {
            Float::F32 => adapt_in_place::<f32>(weight, others),
            Float::F64 => adapt_in_place::<f64>(weight, others),
        }
    }

    fn adapt_in_place<T: Real>(weight: Tensor<1>, others: [Tensor<1>; 4]) -> Tensor<1> {
        let (mut weight, others) = (contiguous(weight), others.map(contiguous));
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

    fn in_place<T: Real, const D: usize>(x: Tensor<D>, f: impl Fn(T) -> T + Sync) -> Tensor<D> {
        let mut x = contiguous(x);
        let values: &mut [T] = x.storage_mut();
        values.par_chunks_mut(BLOCK).for_each(|block| block.iter_mut().for_each(|x| *x = f(*x)));
        wrap(x)
    }

    fn with<T: Real, const D: usize>(x: Tensor<D>, y: Tensor<D>, f: impl Fn(T, T) -> T + Sync) -> Tensor<D> {
        let (mut x, y) = (contiguous(x), contiguous(y));
        let values: &mut [T] = x.storage_mut();
        let blocks = values.par_chunks_mut(BLOCK).zip(slice::<T>(&y).par_chunks(BLOCK));
        blocks.for_each(|(xs, ys)| xs.iter_mut().zip(ys).for_each(|(x, y)| *x = f(*x, *y)));
        wrap(x)
    }

    /// The primitive in row-major order. It is the only owner of its memory if the tensor was.
    ///
    /// # Panics
    /// If the tensor is not on the plain CPU device: the inputs of an update share one device.
    fn contiguous<const D: usize>(x: Tensor<D>) -> FlexTensor {
        let primitive = x.try_into_primitive::<Flex>();
        primitive.expect("all inputs of an update are on one device").to_contiguous()
    }

    fn wrap<const D: usize>(x: FlexTensor) -> Tensor<D> {
        Tensor::from_primitive::<Flex>(x)
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
            let twice = descend(x.clone(), y.clone(), Some(&Factor::Number(2.0)), 0.15, 0.2);
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
        let draw = || Tensor::<1>::random([40_000], Distribution::Default, (&Device::flex(), DType::F64));
        let inputs: [Tensor<1>; 5] = std::array::from_fn(|_| draw());
        let results = |[a, b, c, d, e]: [Tensor<1>; 5]| {
            let half = a.clone().narrow(0, 0, 1);
            [
                square_sum(a.clone()),
                scale(a.clone(), half.clone()),
                descend(a.clone(), b.clone(), None, 0.3, 0.1),
                descend(a.clone(), b.clone(), Some(&Factor::new(half)), 0.3, 0.1),
                average(a.clone(), b.clone(), 0.25),
                adapt(a, b, c, d, e),
            ]
        };
        let native = results(inputs.clone());
        let composed = results(inputs.map(Tensor::from_inner)).map(Tensor::inner);
        for (native, composed) in native.into_iter().zip(composed) {
            let worst: f64 = (native - composed).abs().max().into_scalar();
            assert!(worst < 1e-9, "{worst}");
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
