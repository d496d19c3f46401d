//! What the tests of backends share: numbers as tensors, most of them on Flex, comparisons, and pools of threads.

use burn::backend::Flex;
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank_kernels::{Floats, Ints};
use rayon::ThreadPoolBuilder;

/// Multiples of 1/512 in about ±1 times `scale`, a power of 2: numbers that every float type but the shortest has.
pub(super) fn tensor<const D: usize>(
    shape: [usize; D],
    seed: usize,
    scale: f64,
    dtype: DType,
) -> Floats<Flex> {
    let number = |i: usize| (((i + 31 * seed) * 7919 + 13 * seed) % 1009) as f64 / 512.0 - 1.0;
    floats((0..shape.iter().product()).map(|i| number(i) * scale).collect(), shape, dtype)
}

/// A tensor of these numbers.
pub(super) fn floats<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType) -> Floats<Flex> {
    Floats::from_data(TensorData::new(values, shape).convert_dtype(dtype), &Default::default())
}

/// A tensor of these integers.
pub(super) fn integers<const D: usize>(values: Vec<i64>, shape: [usize; D]) -> Ints<Flex> {
    Ints::from_data(TensorData::new(values, shape), &Default::default())
}

/// The numbers of a tensor.
pub(super) fn values(x: &Floats<Flex>) -> Vec<f64> {
    x.clone().into_data().iter::<f64>().collect()
}

/// A tensor that users see, of numbers in ±1 from `first` on in a sequence.
pub(super) fn spread<const D: usize>(
    shape: [usize; D],
    first: usize,
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i + first) * 7919 % 1009) as f64 / 504.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, dtype))
}

/// A tensor that users see on Flex.
pub(super) fn primitive<const D: usize>(tensor: Tensor<D>) -> Floats<Flex> {
    Floats::new(tensor.try_into_primitive::<Flex>().unwrap())
}

/// Checks each number against the one that is expected, relative to the largest of these or 1.
#[track_caller]
pub(super) fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * scale, "{what}, element {i}: {got} against {want}");
    }
}

/// Does work on so many threads.
pub(super) fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}
