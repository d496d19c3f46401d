//! What the file of a logit map provides for the GPU, where its line in the list names a module with the body:
//!
//! ```text
//! pub(crate) fn numbers(function: Function) -> MapNumbers
//! #[cube] pub(crate) fn apply(z: f32, table: &[f32], numbers: &MapNumbers) -> f32    // f(z)
//! #[cube] pub(crate) fn slope(z: f32, table: &[f32], numbers: &MapNumbers) -> f32    // f'(z)
//! ```
//!
//! Any other map takes the portable path on GPUs. So does one whose few parameters every logit moves: the kernels sum the
//! gradient of a PLIF's pieces and no other parameters'.

use cubecl::prelude::*;

/// A map's numbers that no kernel is compiled for.
#[derive(Clone, Copy, Debug, Default, CubeType, CubeLaunch)]
pub(crate) struct MapNumbers {
    /// The cap of a soft cap, or the `T` of a PLIF, whose knots lie in `[−T, T]`.
    pub(crate) bound: f32,
    /// Width of a PLIF's piece.
    pub(crate) delta: f32,
    /// Pieces of a PLIF; 0 for a map without a table.
    pub(crate) pieces: u32,
}

/// Generates, from the lines of the list, [`GpuMap`](super::GpuMap) and the choice among the maps that kernels can compute.
macro_rules! gpu_maps {
    ($($Map:ident: $file:ident $([$gpu:ident])?;)+) => {
        /// A logit map that kernels can compute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum GpuMap {
            $($(
                #[doc = concat!("By the functions of `", stringify!($file), "::", stringify!($gpu), "`.")]
                $Map,
            )?)+
        }

        impl LogitMapConfig {
            /// The map as kernels know it, and its numbers; `None` for a map that takes the portable path.
            pub(crate) fn on_gpu(self) -> Option<(GpuMap, MapNumbers)> {
                match self.plain() {
                    $($(PlainMap::$Map(function) => Some((GpuMap::$Map, $file::$gpu::numbers(function))),)?)+
                    _ => None,
                }
            }
        }

        /// The choice among the maps, made when a kernel is compiled.
        pub(crate) mod kernels {
            use cubecl::prelude::*;

            use super::GpuMap;
            use super::gpu::MapNumbers;
            // Some have no body here.
            #[allow(unused_imports)]
            use super::{$($file),+};

            // `self::` makes the paths the macro's own: `#[cube]` takes its hidden variable from where a path begins.
            /// `f(z)`.
            #[cube]
            pub(crate) fn apply(z: f32, table: &[f32], numbers: &MapNumbers, #[comptime] map: GpuMap) -> f32 {
                $($(if comptime!(map == GpuMap::$Map) {
                    self::$file::$gpu::apply(z, table, numbers)
                } else)?)+ {
                    z
                }
            }

            /// `f'(z)`.
            #[cube]
            pub(crate) fn slope(z: f32, table: &[f32], numbers: &MapNumbers, #[comptime] map: GpuMap) -> f32 {
                $($(if comptime!(map == GpuMap::$Map) {
                    self::$file::$gpu::slope(z, table, numbers)
                } else)?)+ {
                    1.0f32.runtime()
                }
            }
        }
    };
}

pub(super) use gpu_maps;
