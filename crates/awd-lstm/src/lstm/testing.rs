//! What tests of the operation share, whatever the backend.

use burn::backend::Backend;
use highrank_kernels::Floats;

use super::kernels::LstmKernels;
use super::ops::{LstmArgs, LstmGrads, LstmWanted};
use super::portable;

pub(super) const ALL: LstmWanted =
    LstmWanted { x: true, h0: true, c0: true, w_ih: true, w_hh: true, bias: true };

/// The packed result and the gradients that were wanted, each with its name.
pub(super) type Made = [(&'static str, Option<Vec<f64>>); 7];

/// Spread numbers in [-scale, scale] that depend on nothing but their place.
#[cfg(feature = "flex")]
pub(super) fn wave(len: usize, phase: f64, scale: f64) -> Vec<f64> {
    (0..len).map(|n| scale * (1.7 * n as f64 + 3.1 * phase).sin()).collect()
}

pub(super) fn by_kernels<B: LstmKernels>(
    args: &LstmArgs<Floats<B>>,
    grad: &Floats<B>,
    wanted: LstmWanted,
) -> Made {
    let (packed, saved) = B::lstm_with_saved(args.clone());
    let grads = B::lstm_backward(args.clone(), packed.clone(), saved, grad.clone(), wanted);
    listed(packed, grads)
}

pub(super) fn composed<B: LstmKernels>(
    args: &LstmArgs<Floats<B>>,
    grad: &Floats<B>,
    wanted: LstmWanted,
) -> Made {
    let (packed, saved) = portable::forward_with_saved(args.clone());
    let grads = portable::backward(args.clone(), packed.clone(), saved, grad.clone(), wanted);
    listed(packed, grads)
}

fn listed<B: Backend>(packed: Floats<B>, grads: LstmGrads<Floats<B>>) -> Made {
    let LstmGrads { x, h0, c0, w_ih, w_hh, bias } = grads;
    let named = [
        ("packed", Some(packed)),
        ("x", x),
        ("h0", h0),
        ("c0", c0),
        ("w_ih", w_ih),
        ("w_hh", w_hh),
        ("bias", bias),
    ];
    named.map(|(name, made)| (name, made.map(|made| made.into_data().iter::<f64>().collect())))
}

/// Checks that all numbers agree, with errors over the largest of their tensor, but at least 1.
#[track_caller]
pub(super) fn all_close(what: &str, got: &Made, want: &Made, tolerance: f64) {
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_eq!(got.is_some(), want.is_some(), "{what}: {name}");
        if let (Some(got), Some(want)) = (got, want) {
            close(&format!("{what}: {name}"), got, want, tolerance);
        }
    }
}

#[track_caller]
pub(super) fn close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (n, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * scale, "{what}[{n}] is {got} instead of {want}");
    }
}
