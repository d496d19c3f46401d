//! Split-K: products of long rows by long columns with a small result, in several parts at a time.
//!
//! A device makes a product tile by tile. The gradient of a few hundred contexts over a large vocabulary has fewer tiles than
//! the device has processors, so most of them would be idle. The rows are therefore cut into parts, with one product for each,
//! all in one launch. The results are added in the order of the parts.

// `#[cube]` makes a module beside each function, which cannot have documentation.
#![allow(missing_docs)]

use burn::tensor::DType;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::{CubeBackend, CubeTensor, contiguous, empty, one_unit_each};
use crate::tensor::Floats;

/// Rows and columns of the tiles that the fastest kernels make of a result.
const TILE: usize = 64;

/// Tiles for each processor that keep it busy.
const TILES_EACH: usize = 2;

/// Fewest terms of a part: shorter ones cost more than they save.
const TERMS: usize = 256;

/// Units of a cube that adds parts.
const UNITS: u32 = 256;

/// Most numbers that a kernel reads at a time.
const MOST_READ: usize = 16;

/// Parts in which the device should make `lhs · rhs`; 1 where it does not tell its size.
pub(super) fn count(lhs: &CubeTensor, rhs: &CubeTensor) -> usize {
    let ([m, k], [_, n]) = (dims(lhs), dims(rhs));
    let processors = lhs.client.properties().hardware.num_streaming_multiprocessors;
    processors.map_or(1, |processors| for_processors(processors as usize, [m, k, n]))
}

fn for_processors(processors: usize, [m, k, n]: [usize; 3]) -> usize {
    let tiles = m.div_ceil(TILE) * n.div_ceil(TILE);
    // Kernels for vectors cut rows by themselves.
    if m == 1 || n == 1 || tiles >= processors {
        return 1;
    }
    let most = (k / TERMS).max(1);
    let wanted = (TILES_EACH * processors / tiles).clamp(1, most);
    // Of equal length if there is such a number close to it.
    (wanted..=most.min(wanted + wanted / 2)).find(|parts| k.is_multiple_of(*parts)).unwrap_or(wanted)
}

/// The largest power of two, up to [`MOST_READ`], at whose multiples all rows of `lhs` and all columns of `rhs` begin whose
/// numbers are next to each other.
fn aligned(lhs: &CubeTensor, rhs: &CubeTensor) -> usize {
    let ([of_row, of_term], [of_line, of_column]) = (strides(lhs), strides(rhs));
    let of = |neighbour: usize, stride: usize| if neighbour == 1 { power(stride) } else { MOST_READ };
    of(of_term, of_row).min(of(of_line, of_column))
}

/// Terms of each of so many parts of `k`. A kernel reads as many at a time as their number is a multiple of, and must find
/// every run of every row at such a place.
fn terms(k: usize, parts: usize, aligned: usize) -> usize {
    let terms = k / parts;
    // One less is odd.
    if power(terms) <= aligned { terms } else { terms - 1 }
}

/// The largest power of two that divides `x`, up to [`MOST_READ`].
fn power(x: usize) -> usize {
    1 << x.trailing_zeros().min(MOST_READ.trailing_zeros())
}

/// `lhs · rhs` in `parts` parts, by `multiply`, which writes the product of two matrices, or of two batches of them, to the
/// memory that it is given; row-major.
pub(super) fn product(
    lhs: CubeTensor,
    rhs: CubeTensor,
    parts: usize,
    dtype: DType,
    multiply: impl Fn(CubeTensor, CubeTensor, CubeTensor),
) -> CubeTensor {
    let ([m, k], [_, n]) = (dims(&lhs), dims(&rhs));
    let terms = terms(k, parts, aligned(&lhs, &rhs));
    let left = k - parts * terms;
    let results = empty(&lhs, [parts, m, n], dtype);

    let view = |tensor: &CubeTensor, shape: [usize; 3], strides: [usize; 3]| CubeTensor {
        meta: Box::new(Metadata::new(shape, strides)),
        ..tensor.clone()
    };
    let ([of_row, of_term], [of_line, of_column]) = (strides(&lhs), strides(&rhs));
    multiply(
        view(&lhs, [parts, m, terms], [terms * of_term, of_row, of_term]),
        view(&rhs, [parts, terms, n], [terms * of_line, of_line, of_column]),
        results.clone(),
    );
    let sum = sum(&results, parts, [m, n]);
    if left == 0 {
        return sum;
    }
    let [lhs, rhs] = [lhs, rhs].map(Floats::<CubeBackend>::new);
    let [lhs, rhs] = [lhs.narrow(1, parts * terms..k), rhs.narrow(0, parts * terms..k)].map(contiguous);
    let rest = empty(&sum, [m, n], dtype);
    multiply(lhs, rhs, rest.clone());
    contiguous(Floats::<CubeBackend>::new(sum) + Floats::new(rest))
}

fn dims(matrix: &CubeTensor) -> [usize; 2] {
    matrix.meta.shape().dims()
}

fn strides(matrix: &CubeTensor) -> [usize; 2] {
    let strides = matrix.meta.strides();
    [strides[0], strides[1]]
}

/// The sum of `count` matrices, one after the other in memory, in their order.
fn sum(parts: &CubeTensor, count: usize, shape: [usize; 2]) -> CubeTensor {
    if parts.dtype != DType::F32 {
        return contiguous(Floats::<CubeBackend>::new(parts.clone()).sum_dim(0).reshape(shape));
    }
    let out = empty(parts, shape, DType::F32);
    let length = shape[0] * shape[1];
    let (cubes, units) = one_unit_each(length, UNITS);
    // SAFETY: the parts have `count` times as many numbers as the sum, which has `length`.
    unsafe {
        add_parts::launch_unchecked(
            &parts.client,
            cubes,
            units,
            parts.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            count as u32,
            length as u32,
        );
    }
    out
}

#[cube(launch_unchecked)]
fn add_parts(parts: &[f32], out: &mut [f32], count: u32, length: u32) {
    let mut at = ABSOLUTE_POS as u32;
    while at < length {
        let mut sum = parts[at as usize];
        for part in 1..count {
            sum += parts[part as usize * length as usize + at as usize];
        }
        out[at as usize] = sum;
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_results_of_long_rows_are_made_in_parts() {
        let parts = |m, k, n| for_processors(132, [m, k, n]);
        assert_eq!(parts(655, 10_000, 280), 4, "a chunk's contexts");
        assert_eq!(parts(840, 10_000, 280), 4, "3 would leave a term");
        assert_eq!(parts(10_000, 655, 280), 1, "a decoder fills the device");
        assert_eq!(parts(655, 280, 10_000), 1, "so do logits");
        assert_eq!(parts(64, 10_000, 64), 39, "no part has fewer than 256 terms");
        assert_eq!(parts(64, 200, 64), 1);
        assert_eq!(parts(1, 10_000, 280), 1, "vectors have kernels of their own");
        assert_eq!(for_processors(0, [655, 10_000, 280]), 1);
    }

    #[test]
    fn runs_begin_where_a_kernel_can_read_them() {
        assert_eq!(terms(10_000, 4, 16), 2500);
        assert_eq!(terms(10_001, 4, 1), 2499, "rows of an odd length begin anywhere");
        assert_eq!(terms(33_278, 4, 2), 8319);
        assert_eq!(terms(33, 2, 1), 15);
    }
}
