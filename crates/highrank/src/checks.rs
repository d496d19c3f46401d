//! Whether tensors and numbers fit the decoder that they meet: shapes, devices, float types.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};
use highrank_kernels::Floats;
use highrank_kernels::precision::wide;

use crate::error::{HeadError, expect_shape, in_digits};
use crate::parameters::float_type;

/// What all tensors of a call must agree with: the device of the decoder, and the type of its sums.
#[derive(Debug, Clone)]
pub(crate) struct TensorChecks {
    device: Device,
    sums: DType,
}

impl TensorChecks {
    /// Of a decoder's matrix.
    pub(crate) fn of(weight: &Tensor<2>) -> Self {
        Self::new(weight.device(), weight.dtype())
    }

    /// Of a decoder's parameter.
    pub(crate) fn of_param(weight: &Param<Tensor<2>>) -> Self {
        Self::new(weight.base().device(), float_type(weight))
    }

    fn new(device: Device, dtype: DType) -> Self {
        Self { device: device.inner(), sums: wide(dtype) }
    }

    /// The float type of the decoder's sums.
    pub(crate) fn sums(&self) -> DType {
        self.sums
    }

    /// A parameter of the head.
    pub(crate) fn param<const D: usize>(
        &self,
        what: &'static str,
        param: &Param<Tensor<D>>,
        expected: [usize; D],
    ) -> Result<(), HeadError> {
        // Whether it is quantised or has LoRA, it needs no values here.
        let stored = param.base();
        expect_shape(what, &stored.dims(), &expected, "as the head's other parameters say")?;
        self.device(what, &stored.device())?;
        self.float_type(what, float_type(param))
    }

    /// A parameter that may be absent.
    pub(crate) fn optional<const D: usize>(
        &self,
        what: &'static str,
        param: Option<&Param<Tensor<D>>>,
        expected: [usize; D],
    ) -> Result<(), HeadError> {
        param.map_or(Ok(()), |param| self.param(what, param, expected))
    }

    /// The device and the float type of a tensor. Numbers of f64 would lose digits where sums are in f32.
    pub(crate) fn floats<const D: usize>(
        &self,
        what: &'static str,
        tensor: &Tensor<D>,
    ) -> Result<(), HeadError> {
        self.device(what, &tensor.device())?;
        self.float_type(what, tensor.dtype())
    }

    /// As [`floats`](Self::floats), of a tensor of any shape.
    pub(crate) fn tensor(&self, what: &'static str, tensor: &Floats) -> Result<(), HeadError> {
        self.device(what, &Device::new(tensor.device()))?;
        self.float_type(what, tensor.dtype())
    }

    /// The float type of what makes numbers that are added to the head's own.
    pub(crate) fn same_sums(&self, what: &'static str, got: DType) -> Result<(), HeadError> {
        match wide(got) == self.sums {
            true => Ok(()),
            false => Err(HeadError::FloatType { what, got, sums: self.sums }),
        }
    }

    fn float_type(&self, what: &'static str, got: DType) -> Result<(), HeadError> {
        match (wide(got), self.sums) {
            (DType::F64, DType::F32) => Err(HeadError::FloatType { what, got, sums: self.sums }),
            _ => Ok(()),
        }
    }

    /// A tensor's device, with autodiff or without.
    pub(crate) fn device(&self, what: &'static str, device: &Device) -> Result<(), HeadError> {
        match device.clone().inner() == self.device {
            true => Ok(()),
            false => Err(HeadError::Device {
                what,
                got: format!("{device:?}"),
                expected: format!("{:?}", self.device),
            }),
        }
    }

    /// What the tensors of another head agree with: its numbers are read as this one's sums.
    pub(crate) fn agree(&self, what: &'static str, other: &Self) -> Result<(), HeadError> {
        self.device(what, &other.device)?;
        self.float_type(what, other.sums)
    }

    /// A positive number that is multiplied and divided with: it and its inverse have all digits in the type of sums.
    pub(crate) fn scale(&self, name: &'static str, value: f64) -> Result<(), HeadError> {
        match self.sums {
            DType::F64 => scale(name, value, f64::MIN_POSITIVE),
            _ => scale_of_f32(name, value),
        }
    }

    /// A number of at least 0 that is multiplied with.
    pub(crate) fn factor(&self, name: &'static str, value: f64) -> Result<(), HeadError> {
        let most = if self.sums == DType::F64 { f64::MAX } else { f32::MAX.into() };
        held(name, value, 0.0, most)
    }
}

/// As [`TensorChecks::scale`], before it is known what the head computes in: nearly always f32.
pub(crate) fn scale_of_f32(name: &'static str, value: f64) -> Result<(), HeadError> {
    scale(name, value, f32::MIN_POSITIVE.into())
}

fn scale(name: &'static str, value: f64, least: f64) -> Result<(), HeadError> {
    held(name, value, least, least.recip())
}

/// Checks that the type of sums holds a number.
fn held(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), HeadError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => {
            let expected =
                format!("{} to {}, which the type of sums holds", in_digits(least), in_digits(most));
            Err(HeadError::Range { name, value, expected })
        }
    }
}
