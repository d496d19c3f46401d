//! How exact the inputs of matrix products are.
//!
//! Tensor cores multiply short numbers several times as fast as f32, and many x86 processors twice as fast. Sums,
//! log-sum-exps, responsibilities and parameters keep their float type: only what a product reads is rounded, forward and
//! backward.

use std::fmt;
use std::str::FromStr;

use burn::tensor::{DType, Tensor};
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::rounding::{Rounding, significant};
use crate::tensor::Floats;

/// What the inputs of matrix products are rounded to.
///
/// The rounding is part of the result, so it is the same on every device, up to the order of sums. It brings speed where the
/// hardware multiplies short numbers: [`Tf32`](Self::Tf32) and [`Bf16`](Self::Bf16) on NVIDIA's tensor cores, `Bf16` also on
/// x86 processors with AVX-512 BF16 or, on Linux, AMX, which are detected at run time. Elsewhere numbers are rounded in software, with
/// the same results, and products become a little slower.
///
/// ```
/// use highrank_kernels::Precision;
///
/// assert_eq!(Precision::Bf16.to_string(), "bf16");
/// assert_eq!("full".parse(), Ok(Precision::default()));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Nothing is rounded: in a loss products of f32 are products of f32 on every device, also where the backend's own would
    /// quietly use TF32. Predictions on GPUs are made by the backend's own.
    #[default]
    Full,
    /// TF32 with 11 significant binary digits and the range of f32. A tensor core may also be passed over for an exact
    /// kernel that is faster.
    Tf32,
    /// bfloat16 with 8 significant binary digits and the range of f32. f16 has more: a head whose parameters are f16 leaves them as they
    /// are, but on the CPU backend, which reads them as f32, and rounds.
    Bf16,
}

impl Precision {
    /// Significant binary digits that are left of a number.
    pub(crate) fn digits(self) -> Option<u32> {
        match self {
            Self::Full => None,
            Self::Tf32 => Some(11),
            Self::Bf16 => Some(8),
        }
    }

    /// The nearest numbers of this precision, ties to even, in the tensor's own float type.
    ///
    /// f32 and f64 only: a shorter type is left as it is. NaN and infinities stay. A number overflows only where it is
    /// nearer to the next power of two than to any finite number of this precision. f64 keeps its own range. The gradient
    /// passes as if nothing were rounded.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use highrank_kernels::Precision;
    ///
    /// let x = Tensor::<1>::from_floats([1.0 + 1.0 / 512.0, 3.0, f32::INFINITY], &Default::default());
    /// let rounded: Vec<f32> = Precision::Bf16.round(x).into_data().try_to_vec().unwrap();
    /// assert_eq!(rounded, [1.0, 3.0, f32::INFINITY]);
    /// ```
    pub fn round<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        self.rounded(x.into()).tensor()
    }

    /// [`round`](Self::round) for the primitives of a backend.
    pub fn rounded<B: Rounding>(self, x: Floats<B>) -> Floats<B> {
        match self.digits() {
            Some(digits) if significant(x.dtype()).is_some() => B::nearest(x, digits),
            _ => x,
        }
    }
}

/// A [`Precision`] that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown precision `{given}`: expected full, tf32 or bf16")]
pub struct UnknownPrecision {
    /// The name given.
    pub given: String,
}

impl fmt::Display for Precision {
    /// Writes the name on command lines and in files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    /// Parses a precision's name.
    fn from_str(text: &str) -> Result<Self, UnknownPrecision> {
        let known = Self::deserialize(StrDeserializer::<serde::de::value::Error>::new(text));
        known.map_err(|_| UnknownPrecision { given: text.to_string() })
    }
}

/// The float type of sums over numbers of a type: f64 for f64, f32 for all shorter types.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The float type of a product of such matrices: the wider of their [types of sums](wide).
pub fn product_dtype(lhs: DType, rhs: DType) -> DType {
    if wide(lhs) == DType::F64 { lhs } else { wide(rhs) }
}

/// `lhs · rhs` of two matrices whose elements are rounded first; differentiable by composition, as if nothing were.
///
/// Matrices of different float types may be multiplied; half precision by way of f32, so sums are not rounded to it.
///
/// # Shapes
/// - lhs: `[m, k]`
/// - rhs: `[k, n]`
/// - output: `[m, n]`, of the [`product_dtype`] of the two
pub fn product<B: Rounding>(lhs: Floats<B>, rhs: Floats<B>, precision: Precision) -> Floats<B> {
    let dtype = product_dtype(lhs.dtype(), rhs.dtype());
    let [lhs, rhs] = [lhs, rhs].map(|matrix| precision.rounded(matrix).cast(dtype));
    lhs.matmul(rhs)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn sums_of_half_precision_are_in_f32() {
        const TYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
        let device = Device::flex().autodiff();
        // The sum of so many terms has no digit of any single one left in half precision.
        let (m, k, n) = (2, 4096, 3);
        let matrix = |shape: [usize; 2], dtype| {
            let values: Vec<f64> = (0..shape[0] * shape[1]).map(|i| 1.0 + (i % 8) as f64 / 8.0).collect();
            Tensor::<2>::from_data(TensorData::new(values, shape), (&device, dtype)).require_grad()
        };
        let want: Vec<f64> =
            product(matrix([m, k], DType::F64).into(), matrix([k, n], DType::F64).into(), Precision::Full)
                .into_data()
                .iter()
                .collect();
        for lhs_type in TYPES {
            for rhs_type in TYPES {
                let (lhs, rhs) = (matrix([m, k], lhs_type), matrix([k, n], rhs_type));
                let made = product(lhs.clone().into(), rhs.clone().into(), Precision::Bf16).tensor::<2>();
                let wide = if [lhs_type, rhs_type].contains(&DType::F64) { DType::F64 } else { DType::F32 };
                assert_eq!((made.dtype(), product_dtype(lhs_type, rhs_type)), (wide, wide));
                let gradients = made.clone().sum().backward();
                // All terms and sums are exact in f32.
                assert_eq!(
                    made.into_data().iter::<f64>().collect::<Vec<_>>(),
                    want,
                    "{lhs_type:?}, {rhs_type:?}"
                );
                for (input, dtype) in [(lhs, lhs_type), (rhs, rhs_type)] {
                    assert_eq!(input.grad(&gradients).expect("a gradient").dtype(), dtype);
                }
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for (precision, name) in
            [(Precision::Full, "full"), (Precision::Tf32, "tf32"), (Precision::Bf16, "bf16")]
        {
            assert_eq!((precision.to_string().as_str(), name.parse()), (name, Ok(precision)));
        }
        let message = "fp8".parse::<Precision>().unwrap_err().to_string();
        assert!(message.contains("`fp8`") && message.contains("full, tf32 or bf16"), "{message}");
    }
}
