//! Tensors of all ranks.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Element, Tensor, TensorData};
use highrank_kernels::Floats;

use super::group::{GroupHandle, ShardError, ShardGroup};
use crate::likelihood::OutputOps;

const EXPECT: &str = "exchanged numbers are in f32 or f64";

/// The values of a tensor, f32 or f64, on all ranks: constants, in the order of the ranks.
pub(super) fn gathered<const D: usize>(
    group: &dyn ShardGroup,
    own: &Tensor<D>,
) -> Result<Vec<Tensor<D>>, ShardError> {
    let (shape, on) = (own.dims(), (&own.device(), own.dtype()));
    let data = own.clone().detach().into_data();
    let each = shape.iter().product::<usize>();
    let parts = match data.dtype() {
        DType::F64 => parts(group.gather_f64(data.as_slice().expect(EXPECT))?, each, shape),
        _ => parts(group.gather_f32(data.as_slice().expect(EXPECT))?, each, shape),
    };
    Ok(parts.into_iter().map(|data| Tensor::from_data(data, on)).collect())
}

fn parts<E: Element, const D: usize>(all: Vec<E>, each: usize, shape: [usize; D]) -> Vec<TensorData> {
    all.chunks(each).map(|part| TensorData::new(part.to_vec(), shape)).collect()
}

/// The values of all ranks as [`gathered`], of which those of this rank have the gradient of `own`, any finite numbers.
pub(super) fn tracked<const D: usize>(
    group: &dyn ShardGroup,
    own: Tensor<D>,
    mut all: Vec<Tensor<D>>,
) -> Vec<Tensor<D>> {
    let constant = &mut all[group.rank()];
    // Their difference is exactly 0, so all ranks have the same bits.
    *constant = constant.clone() + (own.clone() - own.detach());
    all
}

/// The sum of tensors, in their order.
pub(super) fn total<const D: usize>(all: impl IntoIterator<Item = Tensor<D>>) -> Tensor<D> {
    all.into_iter().reduce(|sum, part| sum + part).expect("a group has a rank")
}

/// The numbers of the first rank.
pub(super) fn of_first(group: &dyn ShardGroup, own: Vec<f64>) -> Result<Vec<f64>, ShardError> {
    let count = own.len();
    let mut all = group.gather_f64(&own)?;
    all.truncate(count);
    Ok(all)
}

/// The tensor itself, in f32 or f64, whose gradient is summed over ranks.
pub(super) fn shared<const D: usize>(group: &GroupHandle, tensor: Tensor<D>) -> Tensor<D> {
    let group = group.clone();
    let sum = move |data: TensorData| {
        summed(&*group, data).unwrap_or_else(|error| panic!("backward pass of a shared vocabulary: {error}"))
    };
    let tensor = Floats::from(tensor).into_primitive();
    Floats::<Dispatch>::new(<Dispatch as OutputOps>::with_gradient_sum(tensor, Arc::new(sum))).tensor()
}

/// The sums over ranks of values in f32 or f64.
pub(super) fn summed(group: &dyn ShardGroup, data: TensorData) -> Result<TensorData, ShardError> {
    let mut data = data;
    match data.dtype() {
        DType::F64 => group.sum_f64(data.as_mut_slice().expect(EXPECT))?,
        _ => group.sum_f32(data.as_mut_slice().expect(EXPECT))?,
    }
    Ok(data)
}
