//! Where programs compute: devices by name, found and opened without a panic if there are none.

#[cfg(feature = "cuda")]
mod cuda;
mod memory;
mod name;
mod open;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use memory::{check_room, memory_bytes};
pub use name::{DeviceChoice, DeviceName};
pub use open::{cpu_or_fastest, open, open_at, resolve};
