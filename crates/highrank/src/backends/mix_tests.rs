//! The mixed context's kernel and its backward pass against the composed formula.

use burn::backend::Flex;
use burn::tensor::{DType, Device};
use highrank_kernels::Floats;

use super::testing::{assert_close, on_threads, primitive, spread, values};
use crate::ops::{Kernels, mix};

/// N, K and d: single ones, rows that no vector fills, and more tokens than a block.
const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [3, 1, 7], [5, 4, 33], [2, 15, 280], [301, 3, 40], [1, 2, 20_000]];

#[test]
fn the_kernel_agrees_with_the_portable_body_on_any_number_of_threads() {
    let device = Device::flex();
    for [tokens, components, d] in SIZES {
        for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::F64, 4e-15)] {
            let input = |width, seed| primitive(spread::<2>([tokens, width], seed, &device, dtype));
            let (prior, latent, grad) = (input(components, 1), input(components * d, 2), input(d, 3));
            let all = |output: Floats<Flex>, [d_prior, d_latent]: [Option<Floats<Flex>>; 2]| {
                [Some(output), d_prior, d_latent].map(|made| values(&made.unwrap()))
            };
            let want = all(
                mix::mix(prior.clone(), latent.clone()),
                mix::mix_backward(prior.clone(), latent.clone(), grad.clone(), [true; 2]),
            );
            let mut bits = None;
            for threads in 1..=3 {
                let got = on_threads(threads, || {
                    all(
                        <Flex as Kernels>::mix(prior.clone(), latent.clone()),
                        <Flex as Kernels>::mix_backward(
                            prior.clone(),
                            latent.clone(),
                            grad.clone(),
                            [true; 2],
                        ),
                    )
                });
                for (what, (got, want)) in ["output", "prior", "latent"].iter().zip(got.iter().zip(&want)) {
                    let what =
                        format!("{what} of {tokens} x {components} x {d} in {dtype:?}, {threads} threads");
                    assert_close(&what, got, want, tolerance * (d as f64).sqrt());
                }
                assert_eq!(bits.get_or_insert_with(|| got.clone()), &got);
            }
        }
    }
}

#[test]
fn only_what_is_wanted_is_made() {
    let device = Device::flex();
    let input = |width, seed| primitive(spread::<2>([4, width], seed, &device, DType::F64));
    for wanted in [[false, false], [true, false], [false, true]] {
        let native = <Flex as Kernels>::mix_backward(input(3, 1), input(15, 2), input(5, 3), wanted);
        let portable = mix::mix_backward(input(3, 1), input(15, 2), input(5, 3), wanted);
        for made in [native, portable] {
            assert_eq!(made.map(|made| made.is_some()), wanted);
        }
    }
}

#[test]
#[should_panic(expected = "mix: 5 x 6 for 4 x 3")]
fn contexts_of_other_tokens_are_refused() {
    let device = Device::flex();
    let input = |rows, width| primitive(spread::<2>([rows, width], 1, &device, DType::F32));
    <Flex as Kernels>::mix(input(4, 3), input(5, 6));
}
