//! The type in which gradients travel.

use serde::{Deserialize, Serialize};

/// The type in which gradients are sent from rank to rank. Sums are made in f32 either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReducePrecision {
    /// As they are.
    #[default]
    F32,
    /// Half as many bytes. Every rank's gradient and their sum are rounded to 8 binary digits: each to within a relative error of
    /// `2⁻⁸`.
    Bf16,
}

crate::by_name!(ReducePrecision, "precision": F32 => "f32", Bf16 => "bf16");
