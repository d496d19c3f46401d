//! Split-K: products of long rows by long columns with a small result, in several parts at a time.
//!
//! A device makes a product tile by tile. The gradient of a few hundred contexts over a large vocabulary has fewer tiles than
//! the device has processors, so most of them would be idle. The rows are therefore cut into parts, with one product for each,
//! all in one launch. A second launch adds the results in the order of the parts.
//!
//! Nothing is copied. The parts of a row-major matrix lie closer together than its rows, which the launchers of `cubek` take for
//! a layout that no kernel reads; the kernels themselves read any.

// `#[cube]` makes a module beside each function, which cannot have documentation.
#![allow(missing_docs)]

use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;
use cubek::matmul::definition::{
    AvailableVectorSizes, MatmulElems, MatmulGlobalElems, MatmulProblem, MatmulVectorSizes,
};
use cubek::matmul::multi_level::args::TensorArgs;
use cubek::matmul::multi_level::definition::BatchMatmulBlueprint;
use cubek::matmul::multi_level::{BatchMatmulRoutine, launch_kernel_concrete};
use cubek::matmul::routine::BlueprintStrategy;
use cubek::std::InputBinding;

use super::limits::Limits;
use super::{CubeTensor, MAX_INDEX, empty, one_unit_each};
use crate::launch;

/// Starting and ending a tile takes as long as this many terms.
const OVERHEAD: usize = 64;

/// Fewest terms of a part: shorter ones cost more than they save.
const TERMS: usize = 256;

/// Numbers of f32 that a kernel reads at a time, if a part begins at a multiple of so many.
const AT_A_TIME: usize = 4;

/// Rows and columns of the largest tiles that a kernel makes, multiplied.
const LARGEST_TILE: usize = 256 * 128;

/// Whether a product might be faster in parts: a kernel's tiles may leave half of the processors idle, and rows are long.
///
/// Of f32 alone: a device's units for shorter numbers are left to Burn's tuner.
pub(super) fn is_deep(lhs: &CubeTensor, rhs: &CubeTensor, out: &CubeTensor) -> bool {
    let Some(processors) = Limits::of(lhs).processors else { return false };
    let is_plain = [lhs, rhs, out].iter().all(|x| {
        x.dtype == DType::F32
            && x.meta.num_dims() == 2
            && x.handle.size_in_used() as usize / size_of::<f32>() <= MAX_INDEX
    });
    if !is_plain {
        return false;
    }
    let ([m, k], [_, n]) = (dims(lhs), dims(rhs));
    // Kernels for vectors cut rows by themselves.
    m > 1 && n > 1 && k >= 2 * TERMS && 2 * m * n <= processors * LARGEST_TILE
}

/// Parts in which `processors` make `tiles` tiles of `terms` terms about as soon as in any other number: the fewest, since all
/// are stored and added. Processors work side by side, each on a tile of a part until there is none left.
fn count(processors: usize, tiles: usize, terms: usize) -> usize {
    let most = (terms / TERMS).max(1);
    let time = |parts: usize| (tiles * parts).div_ceil(processors) * (terms / parts + OVERHEAD);
    let least = (1..=most).map(time).min().unwrap_or(0);
    (1..=most).find(|parts| time(*parts) <= least + least / 10).unwrap_or(1)
}

/// Terms of each of so many parts of `k`: what is left of them the second launch adds.
fn terms(k: usize, parts: usize) -> usize {
    let terms = k / parts;
    if terms < AT_A_TIME { terms } else { terms - terms % AT_A_TIME }
}

/// Writes `lhs · rhs` by a kernel of `cubek`, in as many parts as suit the tiles that it makes.
pub(super) fn launch<A>(
    strategy: &BlueprintStrategy<(), A>,
    lhs: CubeTensor,
    rhs: CubeTensor,
    out: CubeTensor,
) -> Result<(), String>
where
    A: BatchMatmulRoutine<(), Blueprint = BatchMatmulBlueprint>,
{
    let ([m, k], [_, n]) = (dims(&lhs), dims(&rhs));
    let whole = problem(&lhs, &rhs, &out)?;
    let settings = A::device_settings(&lhs.client, whole.1);
    let made = A::expand_blueprint(&whole.0, &settings, strategy).map_err(|error| format!("{error:?}"))?;
    let tile = made.blueprint.tiling_scheme;
    let tiles = m.div_ceil(tile.elements_per_stage_along_m() as usize)
        * n.div_ceil(tile.elements_per_stage_along_n() as usize);
    let parts = Limits::of(&lhs).processors.map_or(1, |processors| count(processors, tiles, k));
    match parts {
        1 => multiply(strategy, lhs, rhs, out, whole),
        _ => product(strategy, lhs, rhs, out, parts),
    }
}

/// Writes `lhs · rhs` in `parts` parts, two at least.
pub(super) fn product<A>(
    strategy: &BlueprintStrategy<(), A>,
    lhs: CubeTensor,
    rhs: CubeTensor,
    out: CubeTensor,
    parts: usize,
) -> Result<(), String>
where
    A: BatchMatmulRoutine<(), Blueprint = BatchMatmulBlueprint>,
{
    let ([m, k], [_, n]) = (dims(&lhs), dims(&rhs));
    let terms = terms(k, parts);
    let view = |tensor: &CubeTensor, shape: [usize; 3], strides: [usize; 3]| CubeTensor {
        meta: Box::new(Metadata::new(shape, strides)),
        ..tensor.clone()
    };
    let ([of_row, of_term], [of_line, of_column]) = (strides(&lhs), strides(&rhs));
    let results = empty(&lhs, [parts, m, n], DType::F32);
    let of_lhs = view(&lhs, [parts, m, terms], [terms * of_term, of_row, of_term]);
    let of_rhs = view(&rhs, [parts, terms, n], [terms * of_line, of_line, of_column]);
    let of_parts = problem(&of_lhs, &of_rhs, &results)?;
    multiply(strategy, of_lhs, of_rhs, results.clone(), of_parts)?;
    let rest = RestLaunch::new(
        (parts * terms) as u32,
        k as u32,
        of_row as u32,
        of_term as u32,
        of_line as u32,
        of_column as u32,
    );
    // SAFETY: the results have `parts` times as many numbers as the product, `m·n`. What is left of rows and columns is read at
    // their strides.
    unsafe {
        launch!(
            out, one_unit_each(&out, m * n), add_parts;
            results, lhs, rhs, out;
            parts as u32, (m * n) as u32, n as u32, rest
        );
    }
    Ok(())
}

/// Writes the product of two matrices, or of two batches of them, in whatever layout they are.
fn multiply<A>(
    strategy: &BlueprintStrategy<(), A>,
    lhs: CubeTensor,
    rhs: CubeTensor,
    out: CubeTensor,
    (problem, sizes): Problem,
) -> Result<(), String>
where
    A: BatchMatmulRoutine<(), Blueprint = BatchMatmulBlueprint>,
{
    let types = problem.global_dtypes.clone();
    let client = out.client.clone();
    launch_kernel_concrete::<TensorArgs, A>(
        &client,
        InputBinding::new(lhs.binding(), types.lhs),
        InputBinding::new(rhs.binding(), types.rhs),
        out.binding(),
        problem,
        sizes,
        strategy,
        &mut MatmulElems::from_globals(&types),
    )
    .map_err(|error| format!("{error:?}"))
}

/// A product as a kernel is chosen for it, and how many numbers it reads at a time.
type Problem = (MatmulProblem, MatmulVectorSizes);

fn problem(lhs: &CubeTensor, rhs: &CubeTensor, out: &CubeTensor) -> Result<Problem, String> {
    let [of_lhs, of_rhs, of_out] = [lhs, rhs, out].map(|x| dtype_to_elem_type(x.dtype));
    let inputs = [(lhs, of_lhs), (rhs, of_rhs)].map(|(x, of)| InputBinding::new(x.clone().binding(), of));
    let address_type = inputs.iter().map(InputBinding::required_address_type);
    let address_type =
        address_type.fold(out.clone().binding().required_address_type(of_out.size()), Ord::max);
    let problem = MatmulProblem::from_shapes_and_strides(
        lhs.meta.shape().clone(),
        rhs.meta.shape().clone(),
        out.meta.shape().clone(),
        lhs.meta.strides().clone(),
        rhs.meta.strides().clone(),
        out.meta.strides().clone(),
        MatmulGlobalElems { lhs: of_lhs, rhs: of_rhs, out: of_out },
        address_type,
        None,
        None,
    )
    .map_err(|error| format!("{error:?}"))?;
    let sizes =
        AvailableVectorSizes::from_type_sizes(&lhs.client, of_lhs.size(), of_rhs.size(), of_out.size())
            .filter_lhs(|size| is_aligned(lhs, *size))
            .filter_rhs(|size| is_aligned(rhs, *size))
            .filter_out(|size| is_aligned(out, *size))
            .pick_max()
            .map_err(|error| format!("{error:?}"))?;
    Ok((problem, sizes))
}

/// Whether a kernel can read so many numbers of a matrix at a time: every run of neighbours has a multiple of them, and begins
/// at one. `cubek` itself asks that of the smallest stride alone.
fn is_aligned(matrix: &CubeTensor, size: usize) -> bool {
    let (shape, strides) = (matrix.meta.shape(), matrix.meta.strides());
    let Some(along) = (0..shape.num_dims()).rev().find(|dim| strides[*dim] == 1) else { return size == 1 };
    let others = (0..shape.num_dims()).filter(|dim| *dim != along);
    shape[along].is_multiple_of(size)
        && others.map(|dim| strides[dim]).all(|stride| stride.is_multiple_of(size))
}

fn dims(matrix: &CubeTensor) -> [usize; 2] {
    matrix.meta.shape().dims()
}

fn strides(matrix: &CubeTensor) -> [usize; 2] {
    let strides = matrix.meta.strides();
    [strides[0], strides[1]]
}

/// The terms that no part has, and where they lie in both matrices.
#[derive(Clone, Copy, Debug, CubeType, CubeLaunch)]
struct Rest {
    first: u32,
    end: u32,
    of_row: u32,
    of_term: u32,
    of_line: u32,
    of_column: u32,
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn add_parts(
    parts: &[f32],
    lhs: &[f32],
    rhs: &[f32],
    out: &mut [f32],
    count: u32,
    length: u32,
    columns: u32,
    rest: Rest,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < length {
        let mut sum = parts[at as usize];
        for part in 1..count {
            sum += parts[part as usize * length as usize + at as usize];
        }
        let row = at / columns;
        let column = at % columns;
        for term in rest.first..rest.end {
            sum += lhs[(row * rest.of_row + term * rest.of_term) as usize]
                * rhs[(term * rest.of_line + column * rest.of_column) as usize];
        }
        out[at as usize] = sum;
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_processors() {
        assert_eq!(count(132, 75, 10_000), 5, "375 tiles of parts in three rounds");
        assert_eq!(count(132, 132, 10_000), 1, "a whole round");
        assert_eq!(count(132, 500, 10_000), 1, "many tiles");
        assert_eq!(count(132, 1, 10_000), 35, "no part has fewer than 256 terms");
        assert_eq!(count(132, 8, 400), 1, "short rows");
        assert_eq!(count(1, 4, 10_000), 1, "one processor");
    }

    #[test]
    fn parts_begin_where_a_kernel_reads_four_numbers_at_a_time() {
        assert_eq!(terms(10_000, 4), 2500);
        assert_eq!(terms(10_000, 7), 1428);
        assert_eq!(terms(2475, 9), 272, "not 275");
        assert_eq!(terms(33, 11), 3);
    }
}
