//! Which backends a crate's dispatched operations reach.

/// Defines a function that says whether the backend of a device, with autodiff or without, is among those that the *calling*
/// crate has switched on by its features `flex`, `ndarray` and `gpu`: those that it gives to `backend_extension`. Burn may
/// have others, by another crate's features.
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
                ::burn::backend::DispatchDevice::Cube(_) => true,
                ::burn::backend::DispatchDevice::Autodiff(device) => $name(device),
                // Where these are all the backends that Burn was built with.
                #[allow(unreachable_patterns)]
                _ => false,
            }
        }
    };
}
