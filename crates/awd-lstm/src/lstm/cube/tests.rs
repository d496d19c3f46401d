//! The kernels against the portable path on the same backend, on any adapter there is.

use burn::backend::wgpu::{CubeBackend, WgpuRuntime};
use burn::tensor::TensorData;

use super::*;
use highrank::Precision;

type Plain = CubeBackend<WgpuRuntime, f32, i32, u32>;
type Fused = burn::backend::Wgpu;

/// Values in about ±0.9 from the index alone.
fn tensor<B: Backend, const D: usize>(shape: [usize; D], seed: usize) -> FloatTensor<B> {
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|i: usize| ((i + 31 * seed) * 7919 % 1009) as f32 / 560.0 - 0.9)
        .collect();
    primitive(Tensor::<B, D>::from_data(TensorData::new(values, shape), &Default::default()))
}

const BATCH: usize = 3;
const INPUTS: usize = 4;

fn args<B: Backend>(steps: usize, units: usize, masked: bool, precision: Precision) -> LstmArgs<B> {
    LstmArgs {
        x: tensor::<B, 3>([steps, BATCH, INPUTS], 1),
        h0: tensor::<B, 2>([BATCH, units], 2),
        c0: tensor::<B, 2>([BATCH, units], 3),
        w_ih: tensor::<B, 2>([4 * units, INPUTS], 4),
        w_hh: tensor::<B, 2>([4 * units, units], 5),
        b_ih: tensor::<B, 1>([4 * units], 6),
        b_hh: tensor::<B, 1>([4 * units], 7),
        hh_mask: masked.then(|| tensor::<B, 2>([4 * units, units], 8)),
        precision,
    }
}

const WANTED: LstmWanted = LstmWanted { x: true, h0: true, c0: true, w_ih: true, w_hh: true, bias: true };

fn values<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Vec<f32> {
    from_primitive::<B, D>(primitive).into_data().to_vec().unwrap()
}

/// The packed result and all gradients, each with its name.
fn listed<B: Backend>(packed: FloatTensor<B>, grads: LstmGrads<B>) -> [(&'static str, Vec<f32>); 7] {
    let LstmGrads { x, h0, c0, w_ih, w_hh, bias } = grads;
    [
        ("packed", values::<B, 3>(packed)),
        ("x", values::<B, 3>(x.unwrap())),
        ("h0", values::<B, 2>(h0.unwrap())),
        ("c0", values::<B, 2>(c0.unwrap())),
        ("w_ih", values::<B, 2>(w_ih.unwrap())),
        ("w_hh", values::<B, 2>(w_hh.unwrap())),
        ("bias", values::<B, 1>(bias.unwrap())),
    ]
}

fn by_kernels<B: LstmBackend>(
    steps: usize,
    units: usize,
    masked: bool,
    precision: Precision,
) -> [(&'static str, Vec<f32>); 7] {
    let args = || args::<B>(steps, units, masked, precision);
    let grad = tensor::<B, 3>([steps + 1, BATCH, units], 9);
    let (packed, saved) = B::lstm_with_saved(args());
    let alone = values::<B, 3>(B::lstm(args()));
    let grads = B::lstm_backward(args(), packed.clone(), saved, grad, WANTED);
    let made = listed(packed, grads);
    assert_eq!(made[0].1, alone, "with and without what the backward pass needs");
    made
}

#[test]
fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
    // Fewer units than a cube has, and more.
    for (steps, units, masked, precision) in [
        (1, 5, false, Precision::Full),
        (4, 5, true, Precision::Full),
        (4, 5, true, Precision::Tf32),
        (3, 130, true, Precision::Full),
    ] {
        // A number that rounding cuts may lie on either side of a half.
        let tolerance = if precision == Precision::Full { 1e-5 } else { 2e-3 };
        let args = || args::<Plain>(steps, units, masked, precision);
        let grad = tensor::<Plain, 3>([steps + 1, BATCH, units], 9);
        let (packed, saved) = portable::forward_with_saved::<Plain>(args());
        let grads = portable::backward(args(), packed.clone(), saved, grad, WANTED);
        let want = listed::<Plain>(packed, grads);
        for (backend, got) in [
            ("plain", by_kernels::<Plain>(steps, units, masked, precision)),
            ("fused", by_kernels::<Fused>(steps, units, masked, precision)),
        ] {
            for ((name, got), (_, want)) in got.iter().zip(&want) {
                assert_eq!(got.len(), want.len(), "{backend}, {units} units: {name}");
                let scale = want.iter().fold(1.0, |max: f32, x| max.max(x.abs()));
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    assert!(
                        (got - want).abs() <= tolerance * scale,
                        "{backend}, {steps} steps, {units} units: {name}[{i}] is {got}, expected {want}"
                    );
                }
            }
        }
    }
}
