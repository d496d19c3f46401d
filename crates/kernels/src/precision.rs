//! How exact the inputs of matrix products are.
//!
//! A GPU multiplies short numbers several times as fast as f32. Sums, log-sum-exps, responsibilities and
//! parameters keep their float type: only what a product reads is rounded, forward and backward.

use std::fmt;
use std::str::FromStr;

use burn::backend::Backend;
use burn::tensor::{DType, Tensor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::tensor::Floats;

/// What the inputs of matrix products are rounded to.
///
/// The rounding is part of the result, so it is the same on every device, up to the order of sums. It brings speed only
/// where the hardware multiplies short numbers, on NVIDIA's tensor cores; elsewhere it is made by hand, to see what it
/// costs, and makes products a little slower.
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
    /// Nothing is rounded: products of f32 are products of f32 on every device, also where the backend's own would
    /// quietly use TF32.
    #[default]
    Full,
    /// TF32 with 11 significant binary digits and the range of f32. A tensor core may also be passed over for an exact
    /// kernel that is faster.
    Tf32,
    /// bfloat16 with 8 significant binary digits and the range of f32.
    Bf16,
}

impl Precision {
    const ALL: [Self; 3] = [Self::Full, Self::Tf32, Self::Bf16];

    /// The name on command lines and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }

    /// Significant binary digits that are left of a number.
    fn digits(self) -> Option<i32> {
        match self {
            Self::Full => None,
            Self::Tf32 => Some(11),
            Self::Bf16 => Some(8),
        }
    }

    /// The nearest numbers of this precision, in the tensor's own float type.
    ///
    /// f32 and f64 only: a shorter type is left as it is. A number above 2¹¹⁰ in f32 overflows on the way.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use highrank_kernels::Precision;
    ///
    /// let x = Tensor::<1>::from_floats([1.0 + 1.0 / 512.0, 3.0], &Default::default());
    /// let rounded: Vec<f32> = Precision::Bf16.round(x).into_data().try_to_vec().unwrap();
    /// assert_eq!(rounded, [1.0, 3.0]);
    /// ```
    pub fn round<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        self.rounded(x.into()).tensor()
    }

    /// [`round`](Self::round) for the primitives of any backend.
    pub fn rounded<B: Backend>(self, x: Floats<B>) -> Floats<B> {
        let significant = match x.dtype() {
            DType::F32 | DType::Flex32 => 24,
            DType::F64 => 53,
            _ => return x,
        };
        let Some(digits) = self.digits() else { return x };
        // Veltkamp's splitting: the sum with a multiple that is so much larger pushes the other digits out.
        let far = x.clone().mul_scalar(2f64.powi(significant - digits) + 1.0);
        far.clone() - (far - x)
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    /// Parses a precision's name.
    fn from_str(text: &str) -> Result<Self, UnknownPrecision> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| UnknownPrecision { given: text.to_string() })
    }
}

/// `lhs · rhs` of two matrices whose elements are rounded first; differentiable by composition, as if nothing were.
///
/// # Shapes
/// - lhs: `[m, k]`
/// - rhs: `[k, n]`
/// - output: `[m, n]`
pub fn product<B: Backend>(lhs: Floats<B>, rhs: Floats<B>, precision: Precision) -> Floats<B> {
    precision.rounded(lhs).matmul(precision.rounded(rhs))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};
    use serde::de::value::{Error, StrDeserializer};

    fn round(precision: Precision, values: &[f32], dtype: DType) -> Vec<f64> {
        let data = TensorData::new(values.to_vec(), [values.len()]);
        let x = Tensor::<1>::from_data(data, (&Device::flex(), dtype));
        assert_eq!(x.dtype(), dtype);
        precision.round(x).into_data().iter::<f64>().collect()
    }

    /// The bits of an f32 cut to `digits` significant ones, to nearest, ties to even.
    fn expected(x: f32, digits: u32) -> f64 {
        let cut = 24 - digits;
        let bits = x.to_bits();
        let odd = (bits >> cut) & 1;
        f64::from(f32::from_bits((bits + ((1 << (cut - 1)) - 1) + odd) >> cut << cut))
    }

    #[test]
    fn rounds_to_the_nearest_number_with_so_many_digits() {
        let mut values: Vec<f32> =
            (0..2000).map(|i| (i as f32 * 0.731).sin() * 2f32.powi(i % 41 - 20)).collect();
        values.extend([0.0, 1.0, -1.0, 1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), 1.0 - 2f32.powi(-9)]);
        for dtype in [DType::F32, DType::F64] {
            let as_is: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
            assert_eq!(round(Precision::Full, &values, dtype), as_is);
            for (precision, digits) in [(Precision::Tf32, 11), (Precision::Bf16, 8)] {
                let want: Vec<f64> = values.iter().map(|x| expected(*x, digits)).collect();
                assert_eq!(round(precision, &values, dtype), want, "{precision} {dtype:?}");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
            let read = Precision::deserialize(StrDeserializer::<Error>::new(precision.name()));
            assert_eq!(read, Ok(precision));
        }
        let message = "fp8".parse::<Precision>().unwrap_err().to_string();
        assert!(message.contains("`fp8`") && message.contains("full, tf32 or bf16"), "{message}");
    }
}
