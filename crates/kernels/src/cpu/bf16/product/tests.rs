//! The loops on packed factors with either twin of the instructions, beside sums in f64 of factors rounded by themselves.

use burn::tensor::bf16;
use faer::MatMut;

use super::super::PANEL;
use super::super::portable::{Portable, TILES, VECTORS};
use super::*;
use crate::Precision;
use crate::cpu::matrix::Matrix;
use crate::cpu::matrix::testing::{KINDS, Values, assert_sums, sums};

/// That of vectors and of the twins.
const DEPTH: usize = 320;

/// Sizes around those of tiles, vectors and blocks.
fn sizes() -> Vec<[usize; 3]> {
    if cfg!(miri) {
        return vec![[1, 1, 1], [9, 5, 49], [2, DEPTH + 1, 3]];
    }
    let mut sizes = vec![];
    for rows in [1, 3, 8, 9, 18, 32, 49] {
        for depth in [1, 2, 31, 33] {
            for columns in [1, 16, 17, 47, 49, 97] {
                sizes.push([rows, depth, columns]);
            }
        }
    }
    sizes.extend([[3, DEPTH, 5], [9, DEPTH + 1, 50], [5, 2 * DEPTH + 3, 400], [300, 7, 20], [64, 64, 96]]);
    sizes
}

fn check<I: Instructions>(unit: I) {
    for (case, [rows, depth, columns]) in sizes().into_iter().enumerate() {
        let (a, b) = (Values::new(rows, depth, 1), Values::new(depth, columns, 2));
        for (index, a_kind) in KINDS.into_iter().enumerate() {
            // Every pair of kinds in turn.
            let b_kind = KINDS[(case + index) % 4];
            let accumulate = (case + index).is_multiple_of(3);
            let (a, b) = (a.factor(a_kind), b.factor(b_kind));
            let before = |i: usize| if accumulate { (i % 5) as f64 } else { 0.0 };
            let want = sums([a, b], Precision::Bf16, before);
            // Each way to go about it, whichever would be taken for the size.
            for way in 0..6 {
                let mut out: Vec<f32> = (0..rows * columns).map(|i| (i % 5) as f32).collect();
                let target = MatMut::from_row_major_slice_mut(&mut out, rows, columns);
                match way {
                    0 => multiply(unit, target, a, b, accumulate),
                    1 => left_stays(unit, target, a, b, accumulate, depth_of_tiles::<I>(depth)),
                    2 => neither_stays(unit, target, a, b, accumulate),
                    5 if turns::<I>(a, b) => multiply(unit, target.transpose_mut(), b.t(), a.t(), accumulate),
                    3 if !a.is_transposed() && b.is_transposed() => {
                        multiply_few(unit, target, a, b, accumulate)
                    }
                    _ => {
                        let mut words = Buffer::new(right_len::<I>(depth, columns));
                        multiply_packed(unit, target, a, Right::pack(unit, b, &mut words), accumulate);
                    }
                }
                let size = format!("{rows} × {depth} × {columns}");
                let what = format_args!("{size}, {a_kind:?} {b_kind:?}, way {way}");
                assert_sums(&out, &want, 1e-6, what);
            }
        }
    }
}

#[test]
fn the_portable_twins_give_the_product() {
    check(VECTORS);
    check(TILES);
}

#[test]
fn a_long_product_is_cut_into_blocks_of_rows() {
    fn check<I: Instructions>(_: I) {
        // More rows than one block of either factor has.
        let (rows, depth) = (NEAR / (2 * DEPTH) + 40, DEPTH);
        let cut = || blocks::<I>(rows, depth);
        assert!(cut().count() > 1 && cut().all(|block| block.len() % I::HEIGHT == 0 || block.end == rows));
        assert_eq!(cut().flatten().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
        for depth in [1, 2, DEPTH - 1, DEPTH, DEPTH + 1, 5 * DEPTH + 3] {
            let parts: Vec<_> = depths::<I>(depth).collect();
            let whole = |part: &Range<usize>| part.start.is_multiple_of(2 * I::STEP) && part.len() <= DEPTH;
            assert!(parts.iter().all(|part| whole(part) && !part.is_empty()));
            assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), (0..depth).collect::<Vec<_>>());
        }
    }
    check(VECTORS);
    check(TILES);
}

#[test]
fn a_deep_product_is_cut_into_parts_of_its_inner_product() {
    // Too deep for either factor to be packed at once, and not too tall for two parts.
    let (rows, depth, columns) = if cfg!(miri) { return } else { (17, 16_000, 20) };
    let (a, b) = (Values::new(rows, depth, 1), Values::new(depth, columns, 2));
    let (a, b) = (a.factor((false, false)), b.factor((false, false)));
    fn check<I: Instructions>(unit: I, a: Factor<'_, f32>, b: Factor<'_, f32>) {
        let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
        assert!(2 * rows * depth > NEAR && 4 * rows * depth_of_tiles::<I>(depth) <= NEAR);
        let (mut got, mut want) = (vec![1.0; rows * columns], vec![1.0; rows * columns]);
        multiply(unit, MatMut::from_row_major_slice_mut(&mut got, rows, columns), a, b, true);
        neither_stays(unit, MatMut::from_row_major_slice_mut(&mut want, rows, columns), a, b, true);
        assert_eq!(got, want, "the same order of sums");
    }
    check(VECTORS, a, b);
    check(TILES, a, b);
}

#[test]
fn a_packed_factor_gives_the_product() {
    fn check<I: Instructions>(unit: I, a: Factor<'_, f32>, b: Factor<'_, f32>) {
        let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
        let (mut got, mut want) = (vec![1.0; rows * columns], vec![1.0; rows * columns]);
        let packed = Packed::new(unit, b);
        let mut words = Buffer::new(LeftLayout::of::<I>(a).len);
        let left = Left::pack(unit, a, &mut words);
        let out = MatMut::from_row_major_slice_mut(&mut got, rows, columns);
        by_columns(out, 0, WIDTH, 3, &|out, first| packed.part(out, left, first));
        multiply(unit, MatMut::from_row_major_slice_mut(&mut want, rows, columns), a, b, true);
        assert_eq!(got, want, "{rows} × {depth} × {columns}");
    }
    let tall = if cfg!(miri) { [2, 3, 50] } else { [12, DEPTH + 3, 100] };
    for [rows, depth, columns] in [[1, 1, 1], tall, [3, 7, 48]] {
        let (a, b) = (Values::new(rows, depth, 1), Values::new(depth, columns, 2));
        for kind in KINDS {
            let (a, b) = (a.factor(kind), b.factor(kind));
            check(VECTORS, a, b);
            check(TILES, a, b);
        }
    }
}

#[test]
fn nothing_times_nothing_is_zero() {
    let none: [f32; 0] = [];
    let mut out = [7.0; 6];
    let (a, b) = (Matrix::new(&none, 2, 0), Matrix::new(&none, 0, 3));
    multiply(VECTORS, MatMut::from_row_major_slice_mut(&mut out, 2, 3), a.into(), b.into(), true);
    assert_eq!(out, [7.0; 6]);
    multiply(VECTORS, MatMut::from_row_major_slice_mut(&mut out, 2, 3), a.into(), b.into(), false);
    assert_eq!(out, [0.0; 6]);
    multiply(
        VECTORS,
        MatMut::from_row_major_slice_mut(&mut [], 0, 0),
        a.block(0..0, 0..0).into(),
        b.block(0..0, 0..0).into(),
        false,
    );
}

#[test]
#[should_panic(expected = "the result runs backwards")]
fn a_result_that_runs_backwards_is_refused() {
    let (a, b) = (Values::new(3, 4, 1), Values::new(4, 5, 2));
    let mut out = [0.0; 15];
    let out = MatMut::from_row_major_slice_mut(&mut out, 3, 5).reverse_rows_mut();
    multiply(VECTORS, out, a.factor((false, false)), b.factor((false, false)), false);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod processor {
    use super::*;

    #[test]
    fn the_instructions_give_the_product() {
        Avx512::new().into_iter().for_each(check);
        Amx::new().into_iter().for_each(check);
    }

    fn check_words<I: Instructions, const HEIGHT: usize, const STEP: usize>(
        unit: I,
        twin: Portable<HEIGHT, STEP>,
    ) {
        assert_eq!((I::HEIGHT, I::STEP), (HEIGHT, STEP), "the twin's");
        for [rows, depth, columns] in sizes() {
            let (a, b) = (Values::new(rows, depth, 3), Values::new(depth, columns, 4));
            for kind in KINDS {
                let (a, b) = (a.factor(kind), b.factor(kind));
                let layout = LeftLayout::of::<I>(a);
                let (mut got, mut want) = (vec![0; layout.len], vec![0; layout.len]);
                unit.pack_left(&mut got, a);
                twin.pack_left(&mut want, a);
                for row in 0..rows {
                    for pair in 0..pairs::<I>(depth) {
                        let place =
                            row / PANEL * layout.panel + row % PANEL * layout.row + pair * layout.pair;
                        assert_eq!(got[place], want[place], "{rows} × {depth}: row {row}, pair {pair}");
                    }
                }
                let len = right_len::<I>(depth, columns);
                let (mut got, mut want) = (vec![1; len], vec![2; len]);
                unit.pack_right(&mut got, b);
                twin.pack_right(&mut want, b);
                assert!(got == want, "{depth} × {columns}, {kind:?}");
            }
        }
    }

    #[test]
    fn twins_pack_the_same_words() {
        if let Some(unit) = Avx512::new() {
            check_words(unit, VECTORS);
        }
        if let Some(unit) = Amx::new() {
            check_words(unit, TILES);
        }
    }

    /// Every sign, exponent and upper half of the digits, with lower halves at and around a tie.
    #[test]
    fn numbers_are_rounded_as_on_their_bits() {
        let Some(unit) = Avx512::new() else { return };
        for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let values: Vec<f32> = (0..1 << 16).map(|high| f32::from_bits(high << 16 | low)).collect();
            let rounded = |words: &[u32]| -> Vec<u16> {
                words.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16]).collect()
            };
            // Either way to load numbers: one line, and two lines side by side.
            let line: Factor<'_, f32> = Matrix::new(&values, 1, 1 << 16).into();
            let mut words = vec![0; LeftLayout::of::<Avx512>(line).len];
            unit.pack_left(&mut words, line);
            let got = rounded(&words);
            let wide: Factor<'_, f32> = Matrix::new(&values, 2, 1 << 15).into();
            let mut words = vec![0; right_len::<Avx512>(2, 1 << 15)];
            unit.pack_right(&mut words, wide);
            for (i, value) in values.iter().enumerate() {
                let (column, odd) = (i % (1 << 15), i >> 15);
                let beside = (words[column] >> (16 * odd)) as u16;
                let want = if value.is_subnormal() {
                    bf16::from_f32(0f32.copysign(*value))
                } else {
                    bf16::from_f32(*value)
                };
                for got in [got[i], beside].map(bf16::from_bits) {
                    if want.is_nan() {
                        assert!(got.is_nan(), "{value} became {got}");
                    } else {
                        assert_eq!(got.to_bits(), want.to_bits(), "{value} became {got}, not {want}");
                    }
                }
            }
        }
    }

    /// Whole vectors are read of a line.
    #[test]
    fn lines_that_end_within_a_vector_are_refused() {
        let Some(unit) = Avx512::new() else { return };
        let b = Values::new(33, 3, 1);
        let words = [0; 17];
        let left =
            Left { words: &words, layout: LeftLayout { row: 17, pair: 1, panel: 17 * PANEL, len: 17 } };
        let refused = std::panic::catch_unwind(|| {
            let mut out = [0.0; 3];
            let out = MatMut::from_row_major_slice_mut(&mut out, 1, 3);
            unit.few_rows(out, left, b.factor((false, true)), false);
        });
        let message = *refused.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("the last vector of a line of 17 pairs"), "{message}");
    }

    fn check_infinities(unit: impl Instructions) {
        let (rows, depth, columns) = (9, 5, 20);
        let (mut a, mut b) = (Values::new(rows, depth, 5), Values::new(depth, columns, 6));
        a.wide[3 * depth + 4] = f32::NAN;
        a.wide[7 * depth + 1] = f32::MAX;
        b.wide[2 * columns + 11] = f32::NEG_INFINITY;
        let (a, b) = (a.factor((false, false)), b.factor((false, false)));
        let mut out = vec![0.0; rows * columns];
        multiply(unit, MatMut::from_row_major_slice_mut(&mut out, rows, columns), a, b, false);
        for (i, value) in out.into_iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            match (row, column) {
                (3, _) => assert!(value.is_nan()),
                (7, _) | (_, 11) => assert!(!value.is_finite(), "row {row}, column {column}: {value}"),
                _ => assert!(value.is_finite()),
            }
        }
    }

    #[test]
    fn infinities_and_nan_reach_the_sums_of_their_row_and_column() {
        Avx512::new().into_iter().for_each(check_infinities);
        Amx::new().into_iter().for_each(check_infinities);
    }

    /// A row's sums must not depend on where threads cut the result.
    #[test]
    fn tiles_at_an_edge_sum_in_the_order_of_whole_ones() {
        let Some(unit) = Amx::new() else { return };
        let (rows, depth, columns) = (64, DEPTH + 50, 96);
        let (a, b) = (Values::new(rows, depth, 7), Values::new(depth, columns, 8));
        let (a, b) = (a.factor((false, false)), b.factor((true, true)));
        let product = |rows: Range<usize>, columns: Range<usize>| {
            let mut out = vec![0.3; rows.len() * columns.len()];
            let target = MatMut::from_row_major_slice_mut(&mut out, rows.len(), columns.len());
            multiply(unit, target, a.block(rows, 0..depth), b.block(0..depth, columns), true);
            out
        };
        let whole = product(0..rows, 0..columns);
        for (height, width) in [(33, 96), (64, 50), (17, 17), (31, 49)] {
            let part = product(0..height, 0..width);
            for (i, sum) in part.into_iter().enumerate() {
                let (row, column) = (i / width, i % width);
                assert_eq!(
                    sum,
                    whole[row * columns + column],
                    "row {row}, column {column} of {height} × {width}"
                );
            }
        }
    }
}
