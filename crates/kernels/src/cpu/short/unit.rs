//! Which instructions a processor has.

use super::amx::Amx;
use super::avx512::Avx512;

/// What this processor makes products of pairs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum Unit {
    Vectors(Avx512),
    Tiles(Amx),
}

impl Unit {
    /// The fastest, if it has any.
    pub(in crate::cpu) fn new() -> Option<Self> {
        Amx::new().map(Self::Tiles).or_else(|| Avx512::new().map(Self::Vectors))
    }
}
