//! Which backends a crate's dispatched operations reach.

/// Defines a function that says whether the backend of a device, with autodiff or without, is among those that the *calling*
/// crate has switched on by its features `flex`, `ndarray` and `gpu`: those that it gives to `backend_extension`. Burn may
/// have others, by another crate's features. Of CubeCL's devices those of WebGPU and CUDA count.
///
/// ```
/// use burn::tensor::Device;
///
/// highrank_kernels::listed_backends! {
///     /// Whether there are kernels for a device.
///     fn has_kernels
/// }
/// # #[cfg(feature = "flex")]
/// assert!(has_kernels(Device::flex().as_dispatch()));
/// ```
#[macro_export]
macro_rules! listed_backends {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident) => {
        $(#[$attribute])*
        $visibility fn $name(device: &::burn::backend::DispatchDevice) -> bool {
            match device {
                #[cfg(feature = "flex")]
                ::burn::backend::DispatchDevice::Flex(_) => true,
                #[cfg(feature = "ndarray")]
                ::burn::backend::DispatchDevice::NdArray(_) => true,
                #[cfg(feature = "gpu")]
                ::burn::backend::DispatchDevice::Cube(device) => $crate::is_tested(device),
                ::burn::backend::DispatchDevice::Autodiff(device) => $name(device),
                // Where these are all the backends that Burn was built with.
                #[allow(unreachable_patterns)]
                _ => false,
            }
        }
    };
}

/// Whether kernels are tested on a device of CubeCL: one of WebGPU or CUDA. Burn may have others, by another crate's features.
#[cfg(feature = "gpu")]
#[doc(hidden)]
pub fn is_tested(device: &burn_cubecl::CubeDevice) -> bool {
    match device {
        #[cfg(feature = "wgpu")]
        burn_cubecl::CubeDevice::Wgpu(_) => true,
        #[cfg(feature = "cuda")]
        burn_cubecl::CubeDevice::Cuda(_) => true,
        // Where these are all that there are.
        #[allow(unreachable_patterns)]
        _ => false,
    }
}
