//! The backends that the tests are built with, in the float types that each is tested in.

use burn::tensor::{DType, Device};

/// A device and a float type to compute with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As in messages.
    pub name: &'static str,
    pub device: Device,
    pub dtype: DType,
    /// Whether the backend's own products may read TF32.
    pub rounds_products: bool,
    /// Whether each of Burn's operations is compiled for each shape.
    pub compiles: bool,
}

impl Setting {
    /// The same with autodiff.
    pub fn autodiff(&self) -> Self {
        Self { device: self.device.clone().autodiff(), ..self.clone() }
    }

    #[cfg(any(feature = "flex", feature = "ndarray"))]
    fn cpu(name: &'static str, device: Device, dtype: DType) -> Self {
        Self { name, device, dtype, rounds_products: false, compiles: false }
    }

    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    fn gpu(name: &'static str, device: Device, rounds_products: bool) -> Self {
        Self { name, device, dtype: DType::F32, rounds_products, compiles: true }
    }
}

/// All of them, without autodiff.
pub fn settings() -> impl Iterator<Item = Setting> {
    [
        #[cfg(feature = "flex")]
        Setting::cpu("flex f32", Device::flex(), DType::F32),
        #[cfg(feature = "flex")]
        Setting::cpu("flex f64", Device::flex(), DType::F64),
        #[cfg(feature = "ndarray")]
        Setting::cpu("ndarray f32", ndarray(), DType::F32),
        #[cfg(feature = "ndarray")]
        Setting::cpu("ndarray f64", ndarray(), DType::F64),
        #[cfg(feature = "wgpu")]
        Setting::gpu("wgpu f32", Device::wgpu(Default::default()), false),
        #[cfg(feature = "cuda")]
        Setting::gpu("cuda f32", Device::cuda(0), true),
    ]
    .into_iter()
}

/// Burn's older CPU backend.
#[cfg(feature = "ndarray")]
// Deprecated, but its users are still served.
#[allow(deprecated)]
pub fn ndarray() -> Device {
    Device::ndarray()
}
