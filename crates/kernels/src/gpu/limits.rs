//! What a device can do at a time, and launches that keep to it.

use std::cell::Cell;

use cubecl::prelude::{CubeCount, CubeDim};

use super::CubeTensor;

/// Storage buffers that every WebGPU device binds to a kernel. One of them holds a kernel's numbers.
pub const MAX_BUFFERS: usize = 8;

/// Units of a cube, where the device has so many.
pub const MOST_UNITS: u32 = 256;

/// Most cubes of a launch along one axis that every API takes.
pub const MAX_CUBES: usize = 65_535;

/// Launches a kernel on the device of a tensor, in so many cubes and units; then come the kernel's tensors, and its numbers.
///
/// A kernel of more than [`MAX_BUFFERS`] buffers does not compile.
///
/// Unsafe as the launch: tensors must have the values that the kernel reads or writes.
#[macro_export]
macro_rules! launch {
    ($like:expr, $grid:expr, $($kernel:ident)::+; $($tensor:expr),+; $($number:expr),+ $(,)?) => {{
        const {
            let buffers = [$(stringify!($tensor)),+].len() + 1;
            assert!(buffers <= $crate::gpu::MAX_BUFFERS, "more buffers than every device binds to a kernel");
        }
        let (cubes, units) = $grid;
        let client = &$like.client;
        $($kernel)::+::launch_unchecked(
            client, cubes, units, $($tensor.clone().into_buffer_arg(),)+ $($number),+
        )
    }};
}

/// What limits a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processors that work on cubes side by side, if the device says how many.
    pub processors: Option<usize>,
    /// Most units of a cube.
    pub units: u32,
    /// Memory that the units of a cube share, in bytes.
    pub shared_bytes: usize,
}

thread_local! {
    /// Set by tests, which then see what a launch does on another device.
    static PRETENDED: Cell<Option<Limits>> = const { Cell::new(None) };
}

impl Limits {
    /// Those of a tensor's device.
    pub fn of(like: &CubeTensor) -> Self {
        let hardware = &like.client.properties().hardware;
        PRETENDED.get().unwrap_or_else(|| Self {
            processors: hardware.num_streaming_multiprocessors.map(|processors| processors as usize),
            units: hardware.max_units_per_cube.min(hardware.max_cube_dim.0),
            shared_bytes: hardware.max_shared_memory_size,
        })
    }

    /// Runs `launches` as if the device of the calling thread's tensors had these limits.
    #[doc(hidden)]
    pub fn pretended<T>(self, launches: impl FnOnce() -> T) -> T {
        let before = PRETENDED.replace(Some(self));
        let made = launches();
        PRETENDED.set(before);
        made
    }

    /// Units of a cube: [`MOST_UNITS`], or the largest power of two that the device takes.
    pub fn cube_units(self) -> u32 {
        1 << self.units.clamp(1, MOST_UNITS).ilog2()
    }
}

/// One cube for each of `count` pieces of work, or as many as a launch may have: a kernel strides over the rest.
pub fn one_cube_each(like: &CubeTensor, count: usize) -> (CubeCount, CubeDim) {
    let cubes = count.clamp(1, MAX_CUBES) as u32;
    (CubeCount::Static(cubes, 1, 1), CubeDim::new_1d(Limits::of(like).cube_units()))
}

/// Cubes for one unit for each of `count` pieces of work, or as many as a launch may have: a kernel strides over the rest, by
/// `CUBE_COUNT_X * CUBE_DIM_X`.
pub fn one_unit_each(like: &CubeTensor, count: usize) -> (CubeCount, CubeDim) {
    one_cube_each(like, count.div_ceil(Limits::of(like).cube_units() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_have_as_many_units_as_the_device_takes() {
        let units = |units| Limits { processors: None, units, shared_bytes: 0 }.cube_units();
        assert_eq!([1024, 256, 255, 128, 1].map(units), [256, 256, 128, 128, 1]);
    }

    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    #[test]
    fn a_pretended_device_ends_with_its_launches() {
        let x = crate::gpu::contiguous(crate::gpu::testing::spread::<crate::gpu::testing::Plain, 1>([3], 1));
        let own = Limits::of(&x);
        let small = Limits { processors: Some(132), units: 64, ..own };
        small.pretended(|| {
            assert_eq!(Limits::of(&x), small);
            let (cubes, units) = one_unit_each(&x, 65);
            assert!(matches!(cubes, CubeCount::Static(2, 1, 1)));
            assert_eq!(units, CubeDim::new_1d(64));
        });
        assert_eq!(Limits::of(&x), own);
    }
}
