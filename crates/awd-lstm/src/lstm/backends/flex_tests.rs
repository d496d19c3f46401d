//! The kernel against the portable formulas at every precision.

use burn::backend::Flex;
use burn::tensor::{DType, TensorData};
use highrank_kernels::{Floats, Precision};

use super::*;
use crate::lstm::testing::{self, ALL, all_close, by_kernels, composed};

/// T, B, I, H: single ones, odd ones, a state that is dealt out by rows, and another one.
const SIZES: [[usize; 4]; 5] = [[1, 1, 1, 1], [3, 2, 5, 7], [5, 3, 9, 50], [3, 12, 8, 350], [2, 20, 3, 250]];

const PRECISIONS: [Precision; 3] = [Precision::Full, Precision::Tf32, Precision::Bf16];

fn wave(shape: &[usize], phase: f64, scale: f64, dtype: DType) -> Floats<Flex> {
    let values = testing::wave(shape.iter().product(), phase, scale);
    Floats::from_data(TensorData::new(values, shape).convert_dtype(dtype), &Default::default())
}

fn args(
    [t, b, i, h]: [usize; 4],
    masked: bool,
    precision: Precision,
    dtype: DType,
) -> LstmArgs<Floats<Flex>> {
    let weight = 2.0 / (h as f64).sqrt();
    let mask = (0..4 * h * h).map(|n| if n % 3 == 1 { 0.0 } else { 1.25 }).collect();
    let mask = TensorData::new::<f64, _>(mask, [4 * h, h]);
    LstmArgs {
        x: wave(&[t, b, i], 0.0, 0.9, dtype),
        h0: wave(&[b, h], 1.0, 0.9, dtype),
        c0: wave(&[b, h], 2.0, 0.9, dtype),
        w_ih: wave(&[4 * h, i], 3.0, 0.9, dtype),
        w_hh: wave(&[4 * h, h], 4.0, weight, dtype),
        b_ih: wave(&[4 * h], 5.0, 0.5, dtype),
        b_hh: wave(&[4 * h], 6.0, 0.5, dtype),
        hh_mask: masked.then(|| Floats::from_data(mask.convert_dtype(dtype), &Default::default())),
        precision,
    }
}

fn in_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// In f64 what is rounded shows in every digit.
#[test]
fn agrees_with_the_portable_formulas_at_every_precision() {
    for (sizes, precision) in SIZES.into_iter().flat_map(|sizes| PRECISIONS.map(|p| (sizes, p))) {
        let [t, b, _, h] = sizes;
        // The large ones once each: they are slow without optimisation.
        for masked in [false, true].into_iter().filter(|masked| h < 100 || *masked) {
            let args = args(sizes, masked, precision, DType::F64);
            let grad = wave(&[t + 1, b, h], 9.0, 1.0, DType::F64);
            let want = composed(&args, &grad, ALL);
            for threads in 1..=3 {
                let got = in_threads(threads, || by_kernels(&args, &grad, ALL));
                all_close(&format!("{sizes:?}, {precision}, {threads} threads"), &got, &want, 1e-11);
            }
        }
    }
}

/// A number next to the middle between two shorter ones may be rounded to either, so f32 tells less.
#[test]
fn agrees_in_f32_at_every_precision() {
    for (precision, tolerance) in PRECISIONS.into_iter().zip([2e-5, 1e-3, 8e-3]) {
        for sizes in SIZES {
            let args = args(sizes, true, precision, DType::F32);
            let [t, b, _, h] = sizes;
            let grad = wave(&[t + 1, b, h], 9.0, 1.0, DType::F32);
            let (got, want) = (by_kernels(&args, &grad, ALL), composed(&args, &grad, ALL));
            all_close(&format!("{sizes:?}, {precision}"), &got, &want, tolerance);
        }
    }
}

#[test]
fn the_same_call_gives_the_same_bits() {
    let args = args([4, 12, 20, 350], true, Precision::Bf16, DType::F32);
    let grad = wave(&[5, 12, 350], 9.0, 1.0, DType::F32);
    let first = by_kernels(&args, &grad, ALL);
    for _ in 0..3 {
        assert!(by_kernels(&args, &grad, ALL) == first);
    }
}

#[test]
fn only_what_is_wanted_is_made() {
    let (args, grad) =
        (args([3, 2, 5, 7], true, Precision::Bf16, DType::F64), wave(&[4, 2, 7], 9.0, 1.0, DType::F64));
    let wanted = LstmWanted { x: false, h0: false, w_hh: false, ..ALL };
    all_close("some", &by_kernels(&args, &grad, wanted), &composed(&args, &grad, wanted), 1e-12);
}

#[test]
fn rows_are_cut_into_pieces_that_make_the_whole() {
    let (units, before) = (11, [0.5; 11]);
    let bias: Vec<f64> = (0..4 * units).map(|n| (n as f64).cos()).collect();
    let whole: Vec<f64> = (0..4 * units).map(|n| (n as f64).sin()).collect();
    let run = |width: usize| {
        let (mut z, mut cell, mut hidden) = (whole.clone(), [0.0; 11], [0.0; 11]);
        let job = Forward {
            z: quarters_mut(&mut z),
            bias: quarters(&bias),
            before: &before,
            cell: &mut cell,
            hidden: &mut hidden,
        };
        let pieces: Vec<_> = pieces_of(job, width).collect();
        assert_eq!(pieces.iter().map(Row::units).sum::<usize>(), units);
        assert_eq!(pieces.len(), units.div_ceil(width));
        pieces.into_iter().for_each(|piece| Arch::new().dispatch(piece));
        (z, cell, hidden)
    };
    for width in [1, 4, 10, 11] {
        let ((z, cell, hidden), want) = (run(width), run(units));
        let pairs = z.iter().zip(&want.0).chain(cell.iter().zip(&want.1)).chain(hidden.iter().zip(&want.2));
        pairs.for_each(|(got, want)| assert!((got - want).abs() < 1e-15, "{width}: {got} against {want}"));
    }
}
