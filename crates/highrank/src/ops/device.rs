//! Which devices compute on the host.

use burn::backend::Backend;
use burn::backend::tensor::Device;

/// The names of backends that do so.
const CPUS: [&str; 3] = ["flex", "ndarray", "libtorch<cpu>"];

/// Whether a device is the host's own processor and an operation has made its tensor when it returns, so
/// reading one back costs nothing.
///
/// The backend's name says so. The variants of a dispatched device do not: they depend on features of Burn
/// that another crate may have switched on and this one cannot see. CubeCL's runtime for CPUs counts as a
/// GPU, because it queues its work and lets indices out of bounds pass.
pub fn is_cpu<B: Backend>(device: &Device<B>) -> bool {
    is_name_of_cpu(&B::name(device))
}

/// For a name that may stand in those of other backends, such as `dispatch<flex>`.
fn is_name_of_cpu(name: &str) -> bool {
    let name = name.trim_start_matches("dispatch<").trim_start_matches("autodiff<");
    CPUS.iter().any(|cpu| name.starts_with(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_told_apart_by_their_names() {
        let cpus = ["flex", "ndarray", "dispatch<flex>", "dispatch<libtorch<cpu>>", "autodiff<ndarray>"];
        assert!(cpus.into_iter().all(is_name_of_cpu));
        let others = [
            "dispatch<libtorch<cuda>>",
            "dispatch<fusion<cubecl<cuda>>>",
            "fusion<cubecl<cpu>>",
            "cubecl<wgpu<wgsl>>",
            "dispatch<remote-flex>",
            "capture",
            "",
        ];
        assert!(!others.into_iter().any(is_name_of_cpu));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn flex_is_a_cpu_with_and_without_autodiff() {
        use burn::backend::{Autodiff, Dispatch, Flex};

        let flex = burn::tensor::Device::flex();
        assert!(is_cpu::<Flex>(&Default::default()) && is_cpu::<Autodiff<Flex>>(&Default::default()));
        assert!(is_cpu::<Dispatch>(flex.as_dispatch()) && is_cpu::<Dispatch>(flex.autodiff().as_dispatch()));
    }
}
