//! The backends that the tests are built with.

use awd_lstm::LmBackend;
use burn::tensor::DType;

/// Something to do on each of them.
pub trait Visitor {
    fn visit<B: LmBackend>(&mut self, dtype: DType, backend: &str);
}

/// Visits every backend in every precision that it is tested in.
pub fn visit_all(visitor: &mut impl Visitor) {
    #[cfg(feature = "flex")]
    {
        visitor.visit::<burn::backend::Flex>(DType::F32, "flex f32");
        visitor.visit::<burn::backend::Flex>(DType::F64, "flex f64");
    }
    #[cfg(feature = "ndarray")]
    {
        use burn::backend::NdArray;
        visitor.visit::<NdArray<f32>>(DType::F32, "ndarray f32");
        visitor.visit::<NdArray<f64>>(DType::F64, "ndarray f64");
    }
    #[cfg(feature = "wgpu")]
    {
        use highrank::gpu::{CubeBackend, WgpuRuntime};
        visitor.visit::<burn::backend::Wgpu>(DType::F32, "wgpu f32");
        visitor.visit::<CubeBackend<WgpuRuntime, f32, i32, u32>>(DType::F32, "wgpu f32 without fusion");
    }
    #[cfg(feature = "cuda")]
    {
        use highrank::gpu::{CubeBackend, CudaRuntime};
        visitor.visit::<burn::backend::Cuda>(DType::F32, "cuda f32");
        visitor.visit::<CubeBackend<CudaRuntime, f32, i32, u8>>(DType::F32, "cuda f32 without fusion");
    }
}
