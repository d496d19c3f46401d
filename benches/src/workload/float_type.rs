//! The float type that parameters and hidden states are kept in.

use burn::tensor::DType;
use clap::ValueEnum;
use serde::Serialize;

/// Float type of parameters and hidden states; sums and the loss of a shorter one are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FloatType {
    /// 32 bits.
    F32,
    /// bfloat16.
    Bf16,
}

impl FloatType {
    /// Its name among Burn's types.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}
