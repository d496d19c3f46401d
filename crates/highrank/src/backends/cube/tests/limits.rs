//! What kernels do at the limits of a device and of numbers.

use cubecl::prelude::*;
use highrank_kernels::gpu::{Limits, contiguous, one_unit_each};
use highrank_kernels::launch;

use super::*;
use crate::logit_map::plif::gpu::index_of;
use crate::logit_map::{MapNumbers, MapNumbersLaunch};

/// A softmax and a mixture.
const CASES: [Case; 2] =
    [Case::plain(PLIF, 1, Masked::Some).all_options(), Case::plain(PLIF, 3, Masked::Some).all_options()];

#[test]
fn cubes_of_few_units_agree_with_the_portable_path() {
    for case in CASES {
        let want = case.by_the_portable_path();
        for units in [128, 48, 8] {
            let limits = Limits { processors: None, units, shared_bytes: 16 << 10 };
            let made = limits.pretended(|| case.by_kernels::<Plain>());
            made.assert_close(&want, &format!("{units} units, {case:?}"));
        }
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn kernels_run_on_a_device_of_few_buffers() {
    use highrank_kernels::gpu::testing::on_least_device;
    for case in CASES {
        let want = case.by_the_portable_path();
        let made = on_least_device(|| case.by_kernels::<Plain>());
        made.assert_close(&want, &format!("{case:?}"));
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_word_of_the_padding_is_outside_of_the_vocabulary() {
    use burn::tensor::{Device, Int, Tensor};
    let device = Device::wgpu(Default::default());
    let head = crate::HeadConfig::softmax(4, 10).with_vocab_multiple(8).init(&device);
    let hidden = Tensor::<2>::ones([2, 4], &device);
    let numbers = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
    for outside in [10, 12, 15, 16] {
        let words = Tensor::<1, Int>::from_ints([3, outside], &device);
        let nll = numbers(head.nll(hidden.clone(), words.clone()));
        assert!(nll[0].is_finite() && nll[1].is_nan(), "{outside}: {nll:?}");
        assert!(numbers(head.loss(hidden.clone(), words))[0].is_nan());
        let ids = Tensor::<2, Int>::from_ints([[1, 2], [1, outside]], &device);
        let probs = Tensor::<2>::from_floats([[0.5, 0.5], [1.0, 0.0]], &device);
        let options = crate::LossOptions::new().with_teacher(ids, probs).with_per_token(true);
        let targets = Tensor::<1, Int>::from_ints([3, 3], &device);
        let of_teacher = head.loss_with(hidden.clone(), targets, &options);
        let losses = numbers(of_teacher.per_token.unwrap());
        assert!(losses[0].is_finite() && losses[1].is_nan(), "{outside}: {losses:?}");
    }
}

/// The index alone, as where the comparisons of floats before it are left out.
#[cube(launch_unchecked)]
fn indices(pieces: &[f32], indices: &mut [f32], count: u32, numbers: MapNumbers) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        indices[at as usize] = f32::cast_from(index_of(pieces[at as usize], &numbers));
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[test]
fn an_index_lies_in_the_table_whatever_the_number_is() {
    let from = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, -3.0, 0.0, 2.0, 4.0, 5.0, 6.0];
    let pieces =
        contiguous(Floats::<Plain>::from_data(TensorData::new(from.to_vec(), [from.len()]), &device()));
    let made = contiguous(Floats::<Plain>::zeros([from.len()], &device(), DType::F32));
    // SAFETY: either memory has as many numbers as are counted.
    unsafe {
        launch!(
            made, one_unit_each(&made, from.len()), indices;
            pieces, made;
            from.len() as u32, MapNumbersLaunch::new(1.0, 0.5, 5)
        );
    }
    let made = values(Floats::<Plain>::new(made));
    assert!(made.iter().all(|index| (0.0..5.0).contains(index)), "{made:?}");
    assert_eq!(made[6..], [0.0, 2.0, 4.0, 4.0, 4.0]);
}
