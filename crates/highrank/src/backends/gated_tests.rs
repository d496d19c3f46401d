//! The kernel of gated logits and its backward pass against the portable body, and that against finite differences.

use burn::backend::Flex;
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank_kernels::{Floats, Precision};

use crate::likelihood::gated;
use crate::ops::{GatedArgs, GatedGradients, GatedInputs, GatedWanted, Kernels};

/// N, S, d and G: single ones, rows that no vector fills, and chunks that do not divide the tokens.
const SIZES: [[usize; 4]; 5] = [[1, 1, 1, 1], [3, 7, 5, 2], [5, 33, 4, 3], [41, 70, 9, 8], [2, 1003, 33, 5]];

const NAMES: [&str; 7] = ["prior", "latent", "features", "base", "vectors", "bias", "weight"];

const ALL: GatedWanted = GatedInputs {
    prior: true,
    latent: true,
    features: true,
    base: true,
    vectors: true,
    bias: true,
    weight: true,
};

fn spread(shape: [usize; 2], seed: usize, scale: f64, dtype: DType) -> Floats<Flex> {
    let values =
        (0..shape[0] * shape[1]).map(|i| scale * (((i + 31 * seed) * 7919 % 1009) as f64 / 504.0 - 1.0));
    let data = TensorData::new(values.collect::<Vec<f64>>(), shape);
    let tensor = Tensor::<2>::from_data(data, (&Device::flex(), dtype));
    Floats::new(tensor.try_into_primitive::<Flex>().unwrap())
}

/// Chunks of at most three tokens.
fn args([tokens, words, d, gate]: [usize; 4], dtype: DType, precision: Precision) -> GatedArgs<Floats<Flex>> {
    GatedArgs {
        prior: spread([tokens, 4], 1, 0.5, dtype),
        latent: spread([tokens, 4 * d], 2, 1.0, dtype),
        features: spread([tokens, 3 * gate], 3, 1.0, dtype),
        base: spread([tokens, 3], 4, 2.0, dtype),
        vectors: spread([words, gate], 5, 3.0, dtype),
        bias: spread([words, 3], 6, 1.0, dtype),
        weight: spread([words, d], 7, 1.0, dtype),
        chunk_bytes: 4 * 3 * 6 * words * dtype.size(),
        precision,
    }
}

fn values(x: Floats<Flex>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * scale, "{what}, element {i}: {got} against {want}");
    }
}

fn in_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

fn all(output: Floats<Flex>, gradients: GatedGradients<Floats<Flex>>) -> Vec<Vec<f64>> {
    let gradients = gradients.into_array().map(|gradient| gradient.expect("a gradient that was asked for"));
    std::iter::once(output).chain(gradients).map(values).collect()
}

#[test]
fn the_kernel_agrees_with_the_portable_body_on_any_number_of_threads() {
    for sizes in SIZES {
        let [tokens, words, d, _] = sizes;
        for (dtype, tolerance) in [(DType::F32, 3e-6), (DType::F64, 1e-14)] {
            for precision in [Precision::Full, Precision::Bf16] {
                let args = args(sizes, dtype, precision);
                let grad = spread([tokens, words], 8, 1.0, dtype);
                let want =
                    all(gated::gated(args.clone()), gated::gated_backward(args.clone(), grad.clone(), ALL));
                // A rounded gradient may fall on the other side.
                let tolerance = match precision {
                    Precision::Full => tolerance * (d as f64).sqrt(),
                    _ => 4e-3,
                };
                for threads in 1..=3 {
                    let got = in_threads(threads, || {
                        all(
                            <Flex as Kernels>::gated(args.clone()),
                            <Flex as Kernels>::gated_backward(args.clone(), grad.clone(), ALL),
                        )
                    });
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        let name = if i == 0 { "output" } else { NAMES[i - 1] };
                        let what =
                            format!("{name} of {sizes:?} in {dtype:?}, {precision}, {threads} threads");
                        close(&what, got, want, tolerance);
                    }
                }
            }
        }
    }
}

#[test]
fn only_what_is_wanted_is_made() {
    for alone in 0..7 {
        let wanted = GatedWanted::from_array(std::array::from_fn(|i| i == alone));
        let args = || args([4, 6, 3, 2], DType::F64, Precision::Full);
        let grad = || spread([4, 6], 8, 1.0, DType::F64);
        let native = <Flex as Kernels>::gated_backward(args(), grad(), wanted).into_array();
        let portable = gated::gated_backward(args(), grad(), wanted).into_array();
        for (i, (native, portable)) in native.into_iter().zip(portable).enumerate() {
            assert_eq!((native.is_some(), portable.is_some()), (i == alone, i == alone), "{}", NAMES[i]);
            if let (Some(native), Some(portable)) = (native, portable) {
                close(NAMES[i], &values(native), &values(portable), 1e-14);
            }
        }
    }
}

#[test]
fn every_gradient_matches_central_differences() {
    let sizes = [5, 7, 4, 3];
    let base = args(sizes, DType::F64, Precision::Full);
    let grad = spread([5, 7], 8, 1.0, DType::F64);
    let gradients = <Flex as Kernels>::gated_backward(base.clone(), grad.clone(), ALL).into_array();
    for (i, gradient) in gradients.into_iter().enumerate() {
        let gradient = gradient.expect("a gradient that was asked for");
        let direction = spread(gradient.dims(), 20 + i, 1.0, DType::F64);
        let moved = |step: f64| {
            let mut number = 0;
            let args = base.clone().map(|tensor| {
                number += 1;
                match number == i + 1 {
                    true => tensor + direction.clone().mul_scalar(step),
                    false => tensor,
                }
            });
            values((<Flex as Kernels>::gated(args) * grad.clone()).sum())[0]
        };
        let numeric = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        let exact = values((gradient * direction.clone()).sum())[0];
        assert!((numeric - exact).abs() < 1e-7 * exact.abs().max(1.0), "{}: {exact}, {numeric}", NAMES[i]);
        assert!(exact.abs() > 1e-3, "{}: the direction shows nothing", NAMES[i]);
    }
}
