//! In which float type sums are made.

use burn::tensor::DType;

/// The float type of sums over numbers of a type: f64 for f64, f32 for all shorter types.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
