//! The kernels against the portable path on the same backend, on any adapter there is.

use highrank_kernels::gpu::CubeDevice;
use highrank_kernels::gpu::testing::{Fused, Plain, spread, values};
use highrank_kernels::{Floats, Precision};

use super::whole;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmWanted};
use crate::lstm::portable;

/// Values in about ±0.9 from the index alone.
fn tensor<B: LstmKernels<Device = CubeDevice>, const D: usize>(shape: [usize; D], seed: usize) -> Floats<B> {
    spread(shape, seed).mul_scalar(0.9)
}

const BATCH: usize = 3;
const INPUTS: usize = 4;

fn args<B>(steps: usize, units: usize, masked: bool, precision: Precision) -> LstmArgs<Floats<B>>
where
    B: LstmKernels<Device = CubeDevice>,
{
    LstmArgs {
        x: tensor([steps, BATCH, INPUTS], 1),
        h0: tensor([BATCH, units], 2),
        c0: tensor([BATCH, units], 3),
        w_ih: tensor([4 * units, INPUTS], 4),
        w_hh: tensor([4 * units, units], 5),
        b_ih: tensor([4 * units], 6),
        b_hh: tensor([4 * units], 7),
        hh_mask: masked.then(|| tensor([4 * units, units], 8)),
        precision,
    }
}

const WANTED: LstmWanted = LstmWanted { x: true, h0: true, c0: true, w_ih: true, w_hh: true, bias: true };

/// The packed result and all gradients, each with its name.
fn listed<B: LstmKernels>(packed: Floats<B>, grads: LstmGrads<Floats<B>>) -> [(&'static str, Vec<f32>); 7] {
    let LstmGrads { x, h0, c0, w_ih, w_hh, bias } = grads;
    [
        ("packed", values(packed)),
        ("x", values(x.unwrap())),
        ("h0", values(h0.unwrap())),
        ("c0", values(c0.unwrap())),
        ("w_ih", values(w_ih.unwrap())),
        ("w_hh", values(w_hh.unwrap())),
        ("bias", values(bias.unwrap())),
    ]
}

fn by_kernels<B: LstmKernels<Device = CubeDevice> + LstmOps>(
    steps: usize,
    units: usize,
    masked: bool,
    precision: Precision,
) -> [(&'static str, Vec<f32>); 7] {
    let args = || args::<B>(steps, units, masked, precision);
    let grad = tensor([steps + 1, BATCH, units], 9);
    let (packed, saved) = B::lstm_with_saved(args());
    let alone = values(Floats::<B>::new(B::lstm(LstmCall(args()))));
    let grads = B::lstm_backward(args(), packed.clone(), saved, grad, WANTED);
    let made = listed(packed, grads);
    assert_eq!(made[0].1, alone, "with and without what the backward pass needs");
    made
}

#[test]
fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
    // Fewer units than a cube has, and more; the last too many for one launch.
    for (steps, units, masked, precision) in [
        (1, 5, false, Precision::Full),
        (4, 5, true, Precision::Full),
        (4, 5, true, Precision::Tf32),
        (3, 130, true, Precision::Full),
        (2, 300, false, Precision::Bf16),
        (2, whole::MOST_UNITS + 3, false, Precision::Full),
    ] {
        // A number that rounding cuts may lie on either side of a half.
        let tolerance = if precision == Precision::Full { 1e-5 } else { 2e-3 };
        let args = || args::<Plain>(steps, units, masked, precision);
        let grad = tensor([steps + 1, BATCH, units], 9);
        let (packed, saved) = portable::forward_with_saved(args());
        let grads = portable::backward(args(), packed.clone(), saved, grad, WANTED);
        let want = listed(packed, grads);
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
