//! Matrix products of a stated precision.
//!
//! Burn's own product on a CUDA device is tuned over kernels of which the fast ones read f32 as TF32: whether a result has
//! 24 significant digits or 11 depends on a race. Here the caller says which.

use std::fmt;

use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeTuneId;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::tune::{AutotuneKey, LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulKind};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::definition::BatchMatmulBlueprint;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::multi_level::routines::batch::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::multi_level::{BatchMatmulRoutine, Strategy};
use cubek::matmul::routine::BlueprintStrategy;
use cubek::matmul::tune_key::MatmulAutotuneKey;
use cubek::std::InputBinding;
use serde::{Deserialize, Serialize};

use super::{CubeBackend, CubeTensor, empty, split_k};
use crate::precision::{Precision, product_dtype};
use crate::tensor::Floats;

/// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says. Either may have been
/// [rounded](rounded) before, and they may have different float types.
///
/// # Shapes
/// - lhs: `[m, k]`
/// - rhs: `[k, n]`
/// - output: `[m, n]`, of the [`product_dtype`] of the two: sums of half-precision numbers are in f32
///
/// # Panics
/// If the columns of the first are not as many as the rows of the second matrix.
pub fn product(
    lhs: Floats<CubeBackend>,
    rhs: Floats<CubeBackend>,
    precision: Precision,
) -> Floats<CubeBackend> {
    let ([m, k], [rows, n]) = (lhs.dims(), rhs.dims());
    assert_eq!(k, rows, "product: columns of a matrix [{m}, {k}], rows of the other one [{rows}, {n}]");
    let dtype = product_dtype(lhs.dtype(), rhs.dtype());
    if [m, k, n].contains(&0) {
        return Floats::zeros([m, n], &lhs.device(), dtype);
    }
    let [lhs, rhs] = [lhs, rhs].map(|matrix| rounded(matrix, precision));
    let number = number(lhs.dtype(), rhs.dtype(), precision);
    // Kernels read two matrices of one type.
    let [lhs, rhs] = match lhs.dtype() == rhs.dtype() {
        true => [lhs, rhs],
        false => [lhs, rhs].map(|matrix| matrix.cast(dtype)),
    };
    let (lhs, rhs) = (lhs.into_primitive(), rhs.into_primitive());
    let has_units = has_units(&lhs, number);
    // Burn would pad its rows on CUDA, and the kernels that read it would have to copy it first.
    let out = empty(&lhs, [m, n], dtype);
    multiply(lhs, rhs, out.clone(), has_units);
    Floats::new(out)
}

/// The numbers that units must multiply for a product of such matrices to be what the precision says. Units for shorter ones
/// would round what they read.
fn number(lhs: DType, rhs: DType, precision: Precision) -> FloatKind {
    let is_half = |dtype| matches!(dtype, DType::F16 | DType::BF16);
    match (lhs, rhs) {
        (DType::F64, _) | (_, DType::F64) => FloatKind::F64,
        (DType::F16, DType::F16) => FloatKind::F16,
        (DType::BF16, DType::BF16) => FloatKind::BF16,
        // The type that holds both.
        _ if precision == Precision::Tf32 || (is_half(lhs) && is_half(rhs)) => FloatKind::TF32,
        _ => FloatKind::F32,
    }
}

/// A tensor in the form in which [`product`] reads it: for one that enters several products.
///
/// On a device with units for the precision's type that is the type itself or what its kernels round by themselves,
/// elsewhere the tensor's own type with rounded values. Half precision stays as it is.
pub fn rounded(tensor: Floats<CubeBackend>, precision: Precision) -> Floats<CubeBackend> {
    match (precision, tensor.dtype()) {
        (Precision::Tf32, DType::F32) if has_units(tensor.primitive(), FloatKind::TF32) => tensor,
        (Precision::Bf16, DType::F32) if has_units(tensor.primitive(), FloatKind::BF16) => {
            tensor.cast(DType::BF16)
        }
        _ => precision.rounded(tensor),
    }
}

/// The precision at which [`product`] multiplies matrices that are [rounded](rounded) for another one, so that it rounds neither
/// again: TF32 if the units of their device do that by themselves.
pub fn left_to_round(like: &CubeTensor, precision: Precision) -> Precision {
    match precision == Precision::Tf32 && has_units(like, FloatKind::TF32) {
        true => Precision::Tf32,
        false => Precision::Full,
    }
}

/// Whether the device of a tensor has units that multiply matrices of such numbers: NVIDIA's tensor cores from Ampere on
/// for TF32 and bfloat16, none of them for f32.
fn has_units(tensor: &CubeTensor, kind: FloatKind) -> bool {
    let number = ElemType::Float(kind);
    let units = &tensor.client.properties().features.matmul;
    units.cmma.iter().chain(&units.mma).any(|unit| unit.a_type == number)
}

/// Writes a product by the fastest of some kernels: such as multiply by the device's units for short numbers where it
/// `has_units`, and otherwise such whose terms and sums are in the type of `out` throughout.
///
/// Burn's own product would try two dozen kernels for each size, which takes minutes, since each is compiled for a second or two. Its
/// tuner rounds the sizes that it chooses by, and panics where the kernel chosen for one size refuses another.
fn multiply(lhs: CubeTensor, rhs: CubeTensor, out: CubeTensor, has_units: bool) {
    static TUNER: LocalTuner<Key, CubeTuneId> = local_tuner!("products");
    let id = CubeTuneId::new(&lhs.client, &lhs.device);
    let kernels = TUNER.init(&id, || {
        // Groups are tried from the highest number down until a kernel of one takes the sizes; a negative one never is.
        let copied =
            TuneGroup::new("copied in bulk", |key: &Key| if key.is_copied_in_bulk() { 4 } else { -1 });
        let units = TuneGroup::new("units", |key: &Key| if key.has_units { 3 } else { -1 });
        let vectors = TuneGroup::new("vectors", |key: &Key| if key.powers.is_some() { 2 } else { -1 });
        let tiled = TuneGroup::new("tiled", |_: &Key| 1);
        let always = TuneGroup::new("always", |_: &Key| 0);
        let kernel = |strategy: Strategy, group| -> Tunable<Key, Matrices, ()> {
            Tunable::new(&strategy.to_string(), move |Matrices { lhs, rhs, out, .. }| {
                launch(&strategy, lhs, rhs, out)
            })
            .group(group, |_| 1)
        };
        // The first is the one that takes any sizes.
        let mut set = TunableSet::new(key, inputs).with(kernel(Strategy::Naive, &always));
        for strategy in [
            Strategy::SimpleVecMat(BlueprintStrategy::Inferred(().into())),
            Strategy::DoubleVecMat(BlueprintStrategy::Inferred(().into())),
            Strategy::Gemm(BlueprintStrategy::Inferred(Default::default())),
            Strategy::GemvUnitPerpendicular(BlueprintStrategy::Inferred(Default::default())),
        ] {
            set = set.with(kernel(strategy, &vectors));
        }
        for tile_size in [TileSizeSelection::MaxTileSize, TileSizeSelection::MinTileSize] {
            let simple = BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size });
            let double = BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size });
            set = set.with(in_parts(&format!("simple_unit_{tile_size}_in_parts"), simple.clone(), &tiled));
            set = set.with(in_parts(&format!("double_unit_{tile_size}_in_parts"), double.clone(), &tiled));
            set = set.with(kernel(Strategy::SimpleUnit(simple), &tiled));
            set = set.with(kernel(Strategy::DoubleUnit(double), &tiled));
        }
        // Of three dozen with units the fastest for heads and LSTMs on an H200, by the tuner, and at most a quarter slower than that
        // on an H100; and two that take any layout. Kernels that copy to shared memory asynchronously cut f32 off to TF32, where these round.
        let simple = SimpleArgs { multi_rows: true, tile_matmul: TileMatmulKind::Cmma };
        let ordered = OrderedSelectionArgs {
            tile_matmul: TileMatmulKind::Mma,
            partition_k: Some(2),
            row_count: Some(4),
            rows_per_plane: Some(2),
        };
        set.with(kernel(Strategy::SpecializedTmaMma(BlueprintStrategy::Inferred(().into())), &copied))
            .with(kernel(Strategy::SimpleCyclicCmma(BlueprintStrategy::Inferred(simple)), &units))
            .with(kernel(Strategy::OrderedDoubleMma(BlueprintStrategy::Inferred(ordered)), &units))
    });
    let client = lhs.client.clone();
    TUNER.execute(&id, &client, kernels, Matrices { lhs, rhs, out, has_units });
}

/// Two matrices, memory for their product, and whether the device's units for short numbers make it.
#[derive(Clone)]
struct Matrices {
    lhs: CubeTensor,
    rhs: CubeTensor,
    out: CubeTensor,
    has_units: bool,
}

/// A kernel that makes a product in parts, for those that are tried so.
fn in_parts<A>(
    name: &str,
    strategy: BlueprintStrategy<(), A>,
    group: &TuneGroup<Key>,
) -> Tunable<Key, Matrices, ()>
where
    A: BatchMatmulRoutine<(), Blueprint = BatchMatmulBlueprint> + 'static,
    BlueprintStrategy<(), A>: Send + Sync,
{
    Tunable::new(name, move |Matrices { lhs, rhs, out, .. }| split_k::launch(&strategy, lhs, rhs, out))
        .group(group, |key| if key.is_deep { 1 } else { -1 })
}

/// What a choice of kernel depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    problem: MatmulAutotuneKey,
    /// The largest powers of two that divide the sizes, up to [`MAX_POWER`]; only of a product by a vector.
    ///
    /// The problem's own sizes are rounded, but the kernels for vectors refuse sizes that are no multiples of what they
    /// work on at a time: a choice made for one size could not be launched for another.
    powers: Option<[u32; 3]>,
    /// Whether it is tried in parts.
    is_deep: bool,
    /// Whether units for short numbers make it.
    has_units: bool,
}

/// Of the most numbers that a kernel for vectors works on at a time, 64 units with 8 each.
const MAX_POWER: u32 = 9;

/// Rows begin at multiples of `2^4` bytes where a device copies them in bulk.
const BULK_FACTOR: u8 = 4;

impl Key {
    /// Whether units make it of matrices that a device of NVIDIA's, from Hopper on, copies to shared memory in bulk: those whose
    /// rows begin at multiples of 16 bytes.
    fn is_copied_in_bulk(&self) -> bool {
        let problem = &self.problem.definition;
        self.has_units && problem.lhs_stride_factor.min(problem.rhs_stride_factor) >= BULK_FACTOR
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)?;
        self.powers.map_or(Ok(()), |powers| write!(f, ", powers {powers:?}"))?;
        let said = [(self.is_deep, ", deep"), (self.has_units, ", by units")];
        said.iter().filter(|(is, _)| *is).try_for_each(|(_, what)| f.write_str(what))
    }
}

impl AutotuneKey for Key {}

fn key(Matrices { lhs, rhs, out, has_units }: &Matrices) -> Key {
    let (left, right) = (lhs.meta.shape(), rhs.meta.shape());
    let mut problem = MatmulAutotuneKey::generate(
        &lhs.client,
        left,
        right,
        lhs.meta.strides(),
        rhs.meta.strides(),
        lhs.meta.tiling,
        rhs.meta.tiling,
        dtype_to_elem_type(lhs.dtype),
        dtype_to_elem_type(rhs.dtype),
        dtype_to_elem_type(out.dtype),
        None,
        None,
    );
    // Rows that begin at multiples of more bytes are read no faster.
    let strides = &mut problem.definition;
    strides.lhs_stride_factor = strides.lhs_stride_factor.min(BULK_FACTOR);
    strides.rhs_stride_factor = strides.rhs_stride_factor.min(BULK_FACTOR);
    let is_vector = matches!(problem.analysis.kind, MatmulKind::MatVec | MatmulKind::VecMat);
    let power = |size: usize| size.trailing_zeros().min(MAX_POWER);
    let (rows, terms) = (left.num_dims() - 2, left.num_dims() - 1);
    let powers = is_vector.then(|| [left[rows], left[terms], right[terms]].map(power));
    let is_deep = !has_units && split_k::is_deep(lhs, rhs, out);
    Key { problem, powers, is_deep, has_units: *has_units }
}

/// What the kernels are timed on: results of their own.
fn inputs(_: &Key, matrices: &Matrices) -> Matrices {
    Matrices { out: matrices.out.copy(), ..matrices.clone() }
}

fn launch(strategy: &Strategy, lhs: CubeTensor, rhs: CubeTensor, out: CubeTensor) -> Result<(), String> {
    let types = MatmulGlobalElems {
        lhs: dtype_to_elem_type(lhs.dtype),
        rhs: dtype_to_elem_type(rhs.dtype),
        out: dtype_to_elem_type(out.dtype),
    };
    let client = out.client.clone();
    launch_ref(
        &strategy.clone().into(),
        &client,
        InputBinding::new(lhs.binding(), types.lhs),
        InputBinding::new(rhs.binding(), types.rhs),
        out.binding(),
        &mut MatmulElems::from_globals(&types),
    )
    .map_err(|error| format!("{error:?}"))
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests {
    use super::*;
    use crate::gpu::Limits;
    use crate::gpu::contiguous;
    use crate::gpu::testing::{Plain, launches, spread, values};
    use burn::backend::Backend;
    use cubek::matmul::multi_level::routines::batch::double_unit::DoubleUnitAlgorithm;
    use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitAlgorithm;

    /// In f64 on the host.
    fn expected(lhs: &Floats<Plain>, rhs: &Floats<Plain>) -> Vec<f64> {
        let ([m, k], [_, n]) = (lhs.dims(), rhs.dims());
        let (lhs, rhs) = (values(lhs.clone()), values(rhs.clone()));
        let dot = |i: usize, j: usize| {
            (0..k).map(|l| f64::from(lhs[i * k + l]) * f64::from(rhs[l * n + j])).sum::<f64>()
        };
        (0..m * n).map(|at| dot(at / n, at % n)).collect()
    }

    #[track_caller]
    fn assert_close(got: Floats<Plain>, want: &[f64], tolerance: f64) {
        let got = values(got);
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.into_iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() <= tolerance, "{i}: {got}, expected {want}");
        }
    }

    fn multiplied(lhs: Floats<Plain>, rhs: Floats<Plain>, has_units: bool) -> Floats<Plain> {
        let out = Floats::<Plain>::zeros([lhs.dims::<2>()[0], rhs.dims::<2>()[1]], &lhs.device(), DType::F32);
        let out = contiguous(out);
        multiply(lhs.into_primitive(), rhs.into_primitive(), out.clone(), has_units);
        Floats::new(out)
    }

    /// Matrices `[m, k]` and `[k, n]`, row-major and as transposes.
    fn layouts(m: usize, k: usize, n: usize) -> [(Floats<Plain>, Floats<Plain>); 2] {
        let transposes = (spread([k, m], 3).transpose(), spread([n, k], 4).transpose());
        [(spread([m, k], 1), spread([k, n], 2)), transposes]
    }

    #[test]
    fn parts_add_up_in_any_layout() {
        for (m, k, n, count) in
            [(5, 64, 7, 4), (70, 33, 65, 2), (3, 1000, 9, 7), (40, 512, 33, 5), (4, 10, 8, 4)]
        {
            let ranges = (spread([m + 3, k], 5).rows(2..m + 2), spread([k + 2, n], 6).rows(1..k + 1));
            for (lhs, rhs) in layouts(m, k, n).into_iter().chain([ranges]) {
                let want = expected(&lhs, &rhs);
                let (lhs, rhs) = (lhs.into_primitive(), rhs.into_primitive());
                let out = empty(&lhs, [m, n], DType::F32);
                let kernel: BlueprintStrategy<(), DoubleUnitAlgorithm> =
                    BlueprintStrategy::Inferred(Default::default());
                split_k::product(&kernel, lhs, rhs, out.clone(), count).expect("the kernel takes any sizes");
                assert_close(Floats::new(out), &want, 1e-4);
            }
        }
    }

    /// As on a device of many processors: the product and the sum of its parts, and no copy.
    #[test]
    fn a_product_in_parts_takes_two_launches() {
        // Three terms are in no part. Rows of an odd length begin anywhere.
        for (m, k, n) in [(20, 520, 17), (20, 523, 17)] {
            for (lhs, rhs) in layouts(m, k, n) {
                let want = expected(&lhs, &rhs);
                let in_parts = || {
                    let (lhs, rhs) = (lhs.into_primitive(), rhs.into_primitive());
                    let out = empty(&lhs, [m, n], DType::F32);
                    assert!(split_k::is_deep(&lhs, &rhs, &out));
                    let kernel: BlueprintStrategy<(), SimpleUnitAlgorithm> =
                        BlueprintStrategy::Inferred(Default::default());
                    split_k::launch(&kernel, lhs, rhs, out.clone()).expect("the kernel takes any sizes");
                    Floats::<Plain>::new(out)
                };
                let (made, launches) = MANY.pretended(|| launches(in_parts));
                assert_close(made, &want, 1e-4);
                assert_eq!(launches.len(), 2, "{launches:?}");
            }
        }
    }

    #[test]
    fn the_tuner_tries_parts_where_a_device_has_many_processors() {
        let (lhs, rhs) = (spread([20, 520], 1), spread([520, 17], 2));
        let want = expected(&lhs, &rhs);
        let multiply = || MANY.pretended(|| product(lhs.clone(), rhs.clone(), Precision::Full));
        assert_close(multiply(), &want, 1e-4);
        let (made, launches) = launches(multiply);
        assert_close(made, &want, 1e-4);
        assert!([1, 2].contains(&launches.len()), "as it was tuned before: {launches:?}");
    }

    /// The processors of an H100.
    const MANY: Limits = Limits { processors: Some(132), units: 1024, shared_bytes: 227 << 10 };

    #[test]
    fn the_exact_kernels_multiply_in_any_layout() {
        // Vectors of sizes that share a class of the tuner's, of which its kernels for vectors take only some.
        for (m, k, n) in
            [(1, 3, 5), (1, 64, 64), (1, 48, 64), (1, 64, 40), (64, 64, 1), (40, 56, 1), (70, 33, 65)]
        {
            for (lhs, rhs) in layouts(m, k, n) {
                let want = expected(&lhs, &rhs);
                assert_close(multiplied(lhs, rhs, false), &want, 2e-5);
            }
        }
    }

    /// As where a device has units for some sizes only: the other kernels then make the product.
    #[test]
    fn units_that_take_no_such_product_are_done_without() {
        if has_units(spread::<Plain, 1>([1], 1).primitive(), FloatKind::TF32) {
            return;
        }
        for (m, k, n) in [(1, 64, 40), (64, 32, 48), (70, 33, 65)] {
            let (lhs, rhs) = (spread([m, k], 1), spread([k, n], 2));
            let want = expected(&lhs, &rhs);
            assert_close(multiplied(lhs, rhs, true), &want, 2e-5);
        }
    }

    #[test]
    fn a_product_reads_what_the_precision_leaves() {
        let (lhs, rhs) = (spread([9, 33], 1), spread([33, 7], 2));
        for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
            let want = expected(&precision.rounded(lhs.clone()), &precision.rounded(rhs.clone()));
            assert_close(product(lhs.clone(), rhs.clone(), precision), &want, 2e-5);
            let before = rounded(rhs.clone(), precision);
            assert_close(product(lhs.clone(), before.clone(), precision), &want, 2e-5);
            let left = left_to_round(before.primitive(), precision);
            assert_close(product(rounded(lhs.clone(), precision), before, left), &want, 2e-5);
        }
    }

    /// In every pair of types that the device computes with.
    #[test]
    fn half_precision_is_summed_in_f32() {
        // Sums of this many terms of about one size lose three digits in f16, and all in bf16.
        let (m, k, n) = (5, 1024, 9);
        let device = crate::gpu::testing::device();
        let mut types = vec![DType::F32, DType::F16, DType::BF16];
        types.retain(|dtype| Plain::supports_dtype(&device, *dtype));
        println!("{types:?}");
        for lhs_type in &types {
            for rhs_type in &types {
                let lhs = spread([m, k], 1).add_scalar(2.0).cast(*lhs_type);
                let rhs = spread([n, k], 2).add_scalar(2.0).cast(*rhs_type).transpose();
                assert_eq!(product_dtype(*lhs_type, *rhs_type), DType::F32);
                for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
                    // A short number has no more digits than these; casting it back is exact.
                    let read = |x: &Floats<Plain>| precision.rounded(x.clone()).cast(DType::F32);
                    let want = expected(&read(&lhs), &read(&rhs));
                    let got = product(lhs.clone(), rhs.clone(), precision);
                    assert_eq!(got.dtype(), DType::F32, "{lhs_type:?}, {rhs_type:?}, {precision}");
                    assert_close(got, &want, 1e-5 * want[0]);
                    let before = rounded(rhs.clone(), precision);
                    assert_close(product(lhs.clone(), before, precision), &want, 1e-5 * want[0]);
                }
            }
        }
    }

    #[test]
    fn a_product_without_terms_is_zero() {
        let [lhs, rhs] = [[2, 0], [0, 3]].map(|shape| spread(shape, 1));
        assert_eq!(values(product(lhs, rhs, Precision::Full)), [0f32; 6]);
        let none = product(spread([0, 4], 1), spread([4, 3], 1), Precision::Bf16);
        assert_eq!(none.dims(), [0, 3]);
    }

    #[test]
    #[should_panic(expected = "product: columns of a matrix [2, 3], rows of the other one [4, 5]")]
    fn matrices_that_do_not_fit_are_refused() {
        product(spread([2, 3], 1), spread([4, 5], 1), Precision::Full);
    }
}
