//! Matrix products of a stated precision.
//!
//! Burn's own product on a CUDA device is tuned over kernels of which the fast ones read f32 as TF32: whether a result has
//! 24 significant digits or 11 depends on a race. Here the caller says which.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::matmul::{MatmulStrategy, init_matmul_output, matmul};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, CubeTuneId};
use cubecl::ir::{ElemType, FloatKind, StorageType};
use cubecl::tune::{LocalTuner, Tunable, TunableSet, TuneGroup, local_tuner};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulKind};
use cubek::matmul::launch::{MatmulAutotuneKey, Strategy, launch_ref};
use cubek::matmul::routines::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::routines::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::routines::{BlueprintStrategy, TileSizeSelection};
use cubek::std::InputBinding;

use crate::Precision;
use crate::autodiff::{unwrap, wrap};

/// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says. Either may have been
/// [rounded](rounded) before.
///
/// # Shapes
/// - lhs: `[m, k]`
/// - rhs: `[k, n]`
/// - output: `[m, n]`, in f32 if either input is
pub fn product<R, B>(lhs: Tensor<B, 2>, rhs: Tensor<B, 2>, precision: Precision) -> Tensor<B, 2>
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    let (lhs, rhs) = (rounded::<R, B, 2>(lhs, precision), rounded::<R, B, 2>(rhs, precision));
    match (lhs.dtype(), precision) {
        (DType::BF16, Precision::Bf16) => {
            let product = matmul(unwrap(lhs), unwrap(rhs), None, MatmulStrategy::default(), DType::F32);
            wrap(product.expect("a product of matrices whose sizes fit"))
        }
        // Kernels for TF32 would read f32 as that.
        (DType::F32, Precision::Full) if has_units(&unwrap(lhs.clone()), FloatKind::TF32) => {
            wrap(exact(unwrap(lhs), unwrap(rhs)))
        }
        _ => lhs.matmul(rhs),
    }
}

/// A tensor in the form in which [`product`] reads it: for one that enters several products.
///
/// On a device with units for the precision's type that is the type itself or what its kernels round by themselves,
/// elsewhere the tensor's own type with rounded values.
pub fn rounded<R, B, const D: usize>(tensor: Tensor<B, D>, precision: Precision) -> Tensor<B, D>
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    if tensor.dtype() != DType::F32 || precision == Precision::Full {
        return tensor;
    }
    let has_units = |kind| has_units::<R>(&unwrap(tensor.clone()), kind);
    match precision {
        Precision::Tf32 if has_units(FloatKind::TF32) => tensor,
        Precision::Bf16 if has_units(FloatKind::BF16) => tensor.cast(DType::BF16),
        _ => precision.round(tensor),
    }
}

/// Whether the device of a tensor has units that multiply matrices of such numbers: NVIDIA's tensor cores from Ampere on
/// for both types here.
fn has_units<R: CubeRuntime>(tensor: &CubeTensor<R>, kind: FloatKind) -> bool {
    let number = StorageType::from(ElemType::Float(kind));
    let units = &tensor.client.properties().features.matmul;
    units.cmma.iter().chain(&units.mma).any(|unit| unit.a_type == number)
}

/// A product in f32 throughout, by the fastest of the kernels that are so.
pub(super) fn exact<R: CubeRuntime>(lhs: CubeTensor<R>, rhs: CubeTensor<R>) -> CubeTensor<R> {
    static TUNER: LocalTuner<MatmulAutotuneKey, CubeTuneId> = local_tuner!("exact");
    let out = init_matmul_output(&lhs, &rhs, DType::F32);
    let kernels = TUNER.init(|| {
        // Groups are tried from the highest number down until a kernel of one takes the sizes; a negative one never is.
        let vectors = TuneGroup::new("vectors", |key: &MatmulAutotuneKey| match key.analysis.kind {
            MatmulKind::MatVec | MatmulKind::VecMat => 2,
            _ => -1,
        });
        let tiled = TuneGroup::new("tiled", |_: &MatmulAutotuneKey| 1);
        let always = TuneGroup::new("always", |_: &MatmulAutotuneKey| 0);
        let kernel = |strategy: Strategy, group| {
            Tunable::new(&strategy.to_string(), move |(lhs, rhs, out)| launch::<R>(&strategy, lhs, rhs, out))
                .group(group, |_| 1)
        };
        // The first is the one that takes any sizes.
        let mut set = TunableSet::new(key::<R>, inputs::<R>).with(kernel(Strategy::Naive, &always));
        for strategy in [
            Strategy::SimpleVecMat(BlueprintStrategy::Inferred(().into())),
            Strategy::DoubleVecMat(BlueprintStrategy::Inferred(().into())),
            Strategy::GemvPlaneParallel(BlueprintStrategy::Inferred(Default::default())),
            Strategy::GemvUnitPerpendicular(BlueprintStrategy::Inferred(Default::default())),
        ] {
            set = set.with(kernel(strategy, &vectors));
        }
        for tile_size in [TileSizeSelection::MaxTileSize, TileSizeSelection::MinTileSize] {
            let simple = BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size });
            let double = BlueprintStrategy::Inferred(DoubleUnitSelectionArgs { tile_size });
            set = set.with(kernel(Strategy::SimpleUnit(simple), &tiled));
            set = set.with(kernel(Strategy::DoubleUnit(double), &tiled));
        }
        set
    });
    let id = CubeTuneId::new(&lhs.client, &lhs.device);
    let client = lhs.client.clone();
    TUNER.execute(&id, &client, kernels, (lhs, rhs, out.clone()));
    out
}

type Matrices<R> = (CubeTensor<R>, CubeTensor<R>, CubeTensor<R>);

/// What a choice of kernel depends on.
fn key<R: CubeRuntime>((lhs, rhs, out): &Matrices<R>) -> MatmulAutotuneKey {
    MatmulAutotuneKey::generate(
        &lhs.client,
        lhs.meta.shape(),
        rhs.meta.shape(),
        lhs.meta.strides(),
        rhs.meta.strides(),
        lhs.dtype.into(),
        rhs.dtype.into(),
        out.dtype.into(),
        None,
        None,
    )
}

/// What the kernels are timed on: results of their own.
fn inputs<R: CubeRuntime>(_: &MatmulAutotuneKey, (lhs, rhs, out): &Matrices<R>) -> Matrices<R> {
    (lhs.clone(), rhs.clone(), out.copy())
}

fn launch<R: CubeRuntime>(
    strategy: &Strategy,
    lhs: CubeTensor<R>,
    rhs: CubeTensor<R>,
    out: CubeTensor<R>,
) -> Result<(), String> {
    let types = MatmulGlobalElems { lhs: lhs.dtype.into(), rhs: rhs.dtype.into(), out: out.dtype.into() };
    let client = out.client.clone();
    let (lhs_type, rhs_type) = (types.lhs, types.rhs);
    launch_ref(
        strategy,
        &client,
        InputBinding::new(lhs.binding(), lhs_type),
        InputBinding::new(rhs.binding(), rhs_type),
        out.binding(),
        &mut MatmulElems::from_globals(&types),
    )
    .map_err(|error| format!("{error:?}"))
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{Plain, spread, values};

    /// In f64 on the host.
    fn expected(lhs: &Tensor<Plain, 2>, rhs: &Tensor<Plain, 2>) -> Vec<f64> {
        let ([m, k], [_, n]) = (lhs.dims(), rhs.dims());
        let (lhs, rhs) = (values(lhs.clone()), values(rhs.clone()));
        let dot = |i: usize, j: usize| {
            (0..k).map(|l| f64::from(lhs[i * k + l]) * f64::from(rhs[l * n + j])).sum::<f64>()
        };
        (0..m * n).map(|at| dot(at / n, at % n)).collect()
    }

    #[track_caller]
    fn assert_close(got: Tensor<Plain, 2>, want: &[f64], tolerance: f64) {
        for (i, (got, want)) in values(got).into_iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() <= tolerance, "{i}: {got}, expected {want}");
        }
    }

    #[test]
    fn the_exact_kernels_multiply_in_any_layout() {
        for (m, k, n) in [(1, 3, 5), (70, 33, 65)] {
            let (lhs, rhs) = (spread([m, k], 1), spread([k, n], 2));
            let want = expected(&lhs, &rhs);
            assert_close(wrap(exact(unwrap(lhs.clone()), unwrap(rhs.clone()))), &want, 2e-5);
            let (lhs, rhs) = (spread([k, m], 3).transpose(), spread([n, k], 4).transpose());
            let want = expected(&lhs, &rhs);
            assert_close(wrap(exact(unwrap(lhs), unwrap(rhs))), &want, 2e-5);
        }
    }

    #[test]
    fn a_product_reads_what_the_precision_leaves() {
        let (lhs, rhs) = (spread([9, 33], 1), spread([33, 7], 2));
        for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
            let want = expected(&precision.round(lhs.clone()), &precision.round(rhs.clone()));
            assert_close(product(lhs.clone(), rhs.clone(), precision), &want, 2e-5);
            let before = rounded(rhs.clone(), precision);
            assert_close(product(lhs.clone(), before, precision), &want, 2e-5);
        }
    }
}
