//! The kernels against the portable path on the same backend, on any adapter there is.

use highrank_kernels::gpu::testing::{Fused, Plain, launches, spread, values};
use highrank_kernels::gpu::{CubeDevice, Limits};
use highrank_kernels::{Floats, Precision};

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmOps, LstmWanted};
use crate::lstm::testing::{self, ALL, Made, all_close, composed};

/// Values in about ±0.9 from the index alone.
fn tensor<B: LstmKernels<Device = CubeDevice>, const D: usize>(shape: [usize; D], seed: usize) -> Floats<B> {
    spread(shape, seed).mul_scalar(0.9)
}

/// More sequences than a cube has, in parts of seven and six.
const BATCH: usize = 13;
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

fn by_kernels<B: LstmKernels<Device = CubeDevice> + LstmOps>(
    steps: usize,
    units: usize,
    masked: bool,
    precision: Precision,
) -> Made {
    let args = args::<B>(steps, units, masked, precision);
    let made = testing::by_kernels(&args, &tensor([steps + 1, BATCH, units], 9), ALL);
    let alone = Floats::<B>::new(B::lstm(LstmCall(args))).into_data().iter::<f64>().collect();
    assert_eq!(made[0].1, Some(alone), "with and without what the backward pass needs");
    made
}

fn close(what: &str, precision: Precision, got: &Made, want: &Made) {
    // A number that rounding cuts may lie on either side of a half.
    let tolerance = if precision == Precision::Full { 1e-5 } else { 2e-3 };
    all_close(&format!("{what}, {precision}"), got, want, tolerance);
}

/// Numbers of sums in another order.
fn near(what: &str, got: &Made, want: &Made) {
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_eq!(got.as_ref().map(Vec::len), want.as_ref().map(Vec::len), "{what}: {name}");
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() <= 2e-5, "{what}: {name} is {got}, expected {want}");
        }
    }
}

#[test]
fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
    // Fewer units of the layer than a cube has, a whole number of cubes, and more; fewer terms than units share, and more.
    for (steps, units, masked, precision) in [
        (1, 5, false, Precision::Full),
        (4, 5, true, Precision::Full),
        (4, 5, true, Precision::Tf32),
        (3, 64, true, Precision::Full),
        (2, 131, false, Precision::Bf16),
        (2, 131, false, Precision::Full),
    ] {
        let grad = tensor([steps + 1, BATCH, units], 9);
        let want = composed(&args::<Plain>(steps, units, masked, precision), &grad, ALL);
        for (backend, got) in [
            ("plain", by_kernels::<Plain>(steps, units, masked, precision)),
            ("fused", by_kernels::<Fused>(steps, units, masked, precision)),
        ] {
            close(&format!("{backend}, {steps} steps, {units} units"), precision, &got, &want);
        }
    }
}

#[test]
fn cubes_of_few_units_make_the_same_but_for_the_order_of_sums() {
    let made = |units| {
        let limits = Limits { processors: None, units, shared_bytes: 16 << 10 };
        limits.pretended(|| by_kernels::<Plain>(3, 21, true, Precision::Full))
    };
    let want = made(256);
    // The last too few for the kernels.
    for units in [128, 64, 32] {
        near(&format!("{units} units"), &made(units), &want);
    }
}

/// As on a device of many processors. Of little memory that its units share, which states then enter in several parts.
#[test]
fn states_in_shared_memory_make_the_same_but_for_the_order_of_sums() {
    let limits = Limits { processors: Some(132), units: 64, shared_bytes: 16 << 10 };
    for (units, precision) in [(5, Precision::Tf32), (131, Precision::Full), (131, Precision::Bf16)] {
        let made = || by_kernels::<Plain>(3, units, true, precision);
        close(&format!("{units} units"), precision, &limits.pretended(made), &made());
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn kernels_run_on_a_device_of_few_buffers() {
    use highrank_kernels::gpu::testing::on_least_device;
    let made = || by_kernels::<Plain>(3, 22, true, Precision::Full);
    let want = made();
    near("few buffers", &on_least_device(made), &want);
}

/// One a step, and twelve others for any number of steps: so the three layers of the `paper` preset take 456 for 70 steps.
#[test]
fn a_step_takes_one_launch_in_either_direction() {
    let launched = |steps| {
        let args = args::<Plain>(steps, 24, true, Precision::Full);
        let grad = tensor([steps + 1, BATCH, 24], 9);
        let wanted = LstmWanted { h0: false, c0: false, ..ALL };
        let run = || {
            let (packed, saved) = Plain::lstm_with_saved(args.clone());
            values(
                Plain::lstm_backward(args.clone(), packed, saved, grad.clone(), wanted).bias.expect("wanted"),
            );
        };
        // The first time products are tuned.
        run();
        launches(run).1
    };
    for steps in [5, 70] {
        let launched = launched(steps);
        let of_steps = launched.iter().filter(|kernel| kernel.contains("::step::")).count();
        assert_eq!([of_steps, launched.len() - of_steps], [2 * steps, 12], "{launched:?}");
    }
}
