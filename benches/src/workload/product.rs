//! A square matrix product: what a device reaches at best.

use burn::tensor::{Device, Distribution, Tensor};
use highrank::Precision;
use highrank_kernels::{Floats, precision};

use super::FloatType;
use program::device::DeviceName;
use program::failure::Failure;

/// A product of two square matrices, by the routine that the kernels use where there are native ones, and otherwise by the
/// backend's own.
pub struct SquareProduct {
    side: usize,
    work: Work,
}

/// Multiplies once and waits for it.
type Work = Box<dyn FnMut() -> Result<(), Failure>>;

impl SquareProduct {
    /// Of matrices of `side` rows and a float type, rounded to `precision` first.
    ///
    /// # Errors
    /// A float type that the device does not have.
    pub fn new(
        side: usize,
        name: DeviceName,
        float_type: FloatType,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, Failure> {
        let matrix = || {
            let values = Tensor::<2>::random([side, side], Distribution::Normal(0.0, 1.0), device);
            values.cast(float_type.dtype())
        };
        let work = match name {
            #[cfg(feature = "flex")]
            DeviceName::Flex => native(matrix(), matrix(), float_type, precision)?,
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            DeviceName::Wgpu | DeviceName::Cuda => on_gpu(matrix(), matrix(), precision, device),
            _ => composed(matrix(), matrix(), precision, device),
        };
        Ok(Self { side, work })
    }

    /// Multiplies once.
    ///
    /// # Errors
    /// What the device says.
    pub fn run(&mut self) -> Result<(), Failure> {
        (self.work)()
    }

    /// Floating-point operations of a product.
    pub fn flops(&self) -> f64 {
        2.0 * (self.side as f64).powi(3)
    }
}

#[cfg(feature = "flex")]
fn native(a: Tensor<2>, b: Tensor<2>, float_type: FloatType, precision: Precision) -> Result<Work, Failure> {
    use burn::tensor::bf16;
    use highrank_kernels::cpu::{Factor, Matrix, in_pool, multiply};

    let [side, _] = a.dims();
    let mut out = vec![0f32; side * side];
    Ok(match float_type {
        FloatType::F32 => {
            let (a, b) = (values::<f32>(a)?, values::<f32>(b)?);
            Box::new(move || {
                let factor = |values| Factor::Wide(Matrix::new(values, side, side));
                in_pool(|| multiply(&mut out, factor(&a), factor(&b), false, precision));
                Ok(())
            })
        }
        FloatType::Bf16 => {
            let (a, b) = (values::<bf16>(a)?, values::<bf16>(b)?);
            Box::new(move || {
                let factor = |values| Factor::Short(Matrix::new(values, side, side));
                in_pool(|| multiply(&mut out, factor(&a), factor(&b), false, precision));
                Ok(())
            })
        }
    })
}

#[cfg(feature = "flex")]
fn values<E: burn::tensor::Element>(matrix: Tensor<2>) -> Result<Vec<E>, Failure> {
    let held = matrix.dtype();
    let values = matrix.into_data().try_to_vec::<E>();
    values.map_err(|_| format!("the device made a matrix of {held:?} of one of {:?}", E::dtype()).into())
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn on_gpu(a: Tensor<2>, b: Tensor<2>, precision: Precision, device: &Device) -> Work {
    use burn::backend::{Backend, DispatchDevice};
    use highrank_kernels::gpu::{self, CubeBackend};

    let DispatchDevice::Cube(device) = device.as_dispatch() else { unreachable!("the device is a GPU") };
    let device = device.clone();
    let [a, b] = [a, b].map(|matrix| Floats::<CubeBackend>::from_data(matrix.into_data(), &device));
    Box::new(move || {
        let product = gpu::product(a.clone(), b.clone(), precision);
        CubeBackend::sync(&device)?;
        drop(product);
        Ok(())
    })
}

fn composed(a: Tensor<2>, b: Tensor<2>, precision: Precision, device: &Device) -> Work {
    let device = device.clone();
    Box::new(move || {
        let product = precision::product(Floats::from(a.clone()), Floats::from(b.clone()), precision);
        device.sync()?;
        drop(product);
        Ok(())
    })
}
