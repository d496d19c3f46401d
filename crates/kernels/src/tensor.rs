//! A backend's tensor primitives with operators.
//!
//! Burn's [`Tensor`] lives on the dispatched backend alone. A formula that must also run inside of one backend, in a kernel
//! or a backward pass, is written once over [`Floats`] and [`Ints`]. At [`Dispatch`], their default backend, it runs on every
//! backend there is and is differentiable by composition.
//!
//! Ranks are values here, not types: a method that needs one says so. Operators broadcast dimensions of size 1.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Range, Sub};

use burn::backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata, get_device_settings, read_sync};
use burn::tensor::{DType, IndexingUpdateOp, Int, Shape, Slice, Tensor, TensorData};

/// A float tensor of one backend.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank_kernels::Floats;
///
/// let device = Device::default();
/// let x = Floats::from(Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device));
/// let sums: Tensor<2> = (x.clone() * x).sum_dim(1).tensor();
/// assert_eq!(sums.into_data().try_to_vec::<f32>().unwrap(), [5.0, 25.0]);
/// ```
pub struct Floats<B: Backend = Dispatch>(FloatTensor<B>);

/// An integer tensor of one backend.
pub struct Ints<B: Backend = Dispatch>(IntTensor<B>);

/// Truth values of one backend, for [`Floats::fill_where`].
pub struct Bools<B: Backend = Dispatch>(BoolTensor<B>);

// Derived, the backend would have to be `Clone`.
macro_rules! cloned {
    ($($tensor:ident)+) => {$(
        impl<B: Backend> Clone for $tensor<B> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
    )+};
}
cloned!(Floats Ints Bools);

impl<B: Backend> fmt::Debug for Floats<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Floats({:?}, {:?})", self.shape(), self.dtype())
    }
}

impl<B: Backend> fmt::Debug for Ints<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ints({:?}, {:?})", self.shape(), self.0.dtype())
    }
}

impl<B: Backend> fmt::Debug for Bools<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bools({:?})", self.0.shape())
    }
}

impl<const D: usize> From<Tensor<D>> for Floats {
    fn from(tensor: Tensor<D>) -> Self {
        Self(tensor.into_dispatch())
    }
}

impl<const D: usize> From<Tensor<D, Int>> for Ints {
    fn from(tensor: Tensor<D, Int>) -> Self {
        Self(tensor.into_dispatch())
    }
}

impl Floats {
    /// The tensor that users see.
    ///
    /// # Panics
    /// If `D` is not its rank.
    #[track_caller]
    pub fn tensor<const D: usize>(self) -> Tensor<D> {
        assert_eq!(self.shape().num_dims(), D, "a tensor of shape {:?} has not {D} dimensions", self.shape());
        Tensor::from_dispatch(self.0)
    }
}

impl Ints {
    /// The tensor that users see.
    ///
    /// # Panics
    /// If `D` is not its rank.
    #[track_caller]
    pub fn tensor<const D: usize>(self) -> Tensor<D, Int> {
        assert_eq!(self.shape().num_dims(), D, "a tensor of shape {:?} has not {D} dimensions", self.shape());
        Tensor::from_dispatch(self.0)
    }
}

/// Slices that keep `range` of dimension `dim`, and all of the other dimensions.
fn narrowed(shape: &Shape, dim: usize, range: Range<usize>) -> Vec<Slice> {
    let full = |i: usize| if i == dim { range.clone() } else { 0..shape[i] };
    (0..shape.num_dims()).map(|i| Slice::from(full(i))).collect()
}

// A method without documentation does what Burn's method of that name does.
#[allow(missing_docs)]
impl<B: Backend> Floats<B> {
    pub fn new(primitive: FloatTensor<B>) -> Self {
        Self(primitive)
    }

    pub fn primitive(&self) -> &FloatTensor<B> {
        &self.0
    }

    pub fn into_primitive(self) -> FloatTensor<B> {
        self.0
    }

    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// The sizes of its `D` dimensions.
    ///
    /// # Panics
    /// If `D` is not its rank.
    #[track_caller]
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        self.shape().dims()
    }

    pub fn num_elements(&self) -> usize {
        self.shape().num_elements()
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    pub fn device(&self) -> Device<B> {
        self.0.device()
    }

    /// Its elements on the host, row-major. Waits for the device.
    pub fn into_data(self) -> TensorData {
        read_sync(B::float_into_data(self.0)).expect("a tensor can be read back")
    }

    pub fn from_data(data: TensorData, device: &Device<B>) -> Self {
        Self(B::float_from_data(data, device))
    }

    pub fn full<const D: usize>(shape: [usize; D], value: f64, device: &Device<B>, dtype: DType) -> Self {
        Self(B::float_full(shape.into(), value.into(), device, dtype.into()))
    }

    pub fn zeros<const D: usize>(shape: [usize; D], device: &Device<B>, dtype: DType) -> Self {
        Self(B::float_zeros(shape.into(), device, dtype.into()))
    }

    pub fn zeros_like(&self) -> Self {
        Self(B::float_zeros(self.shape(), &self.device(), self.dtype().into()))
    }

    pub fn cast(self, dtype: DType) -> Self {
        if self.dtype() == dtype { self } else { Self(B::float_cast(self.0, dtype.into())) }
    }

    pub fn detach(self) -> Self {
        Self(B::float_detach(self.0))
    }

    pub fn add_scalar(self, x: f64) -> Self {
        Self(B::float_add_scalar(self.0, x.into()))
    }

    pub fn sub_scalar(self, x: f64) -> Self {
        Self(B::float_sub_scalar(self.0, x.into()))
    }

    pub fn mul_scalar(self, x: f64) -> Self {
        Self(B::float_mul_scalar(self.0, x.into()))
    }

    pub fn div_scalar(self, x: f64) -> Self {
        Self(B::float_div_scalar(self.0, x.into()))
    }

    pub fn square(self) -> Self {
        self.clone() * self
    }

    pub fn exp(self) -> Self {
        Self(B::float_exp(self.0))
    }

    pub fn log(self) -> Self {
        Self(B::float_log(self.0))
    }

    pub fn log1p(self) -> Self {
        Self(B::float_log1p(self.0))
    }

    pub fn tanh(self) -> Self {
        Self(B::float_tanh(self.0))
    }

    pub fn abs(self) -> Self {
        Self(B::float_abs(self.0))
    }

    pub fn floor(self) -> Self {
        Self(B::float_floor(self.0))
    }

    pub fn clamp(self, min: f64, max: f64) -> Self {
        Self(B::float_clamp(self.0, min.into(), max.into()))
    }

    pub fn matmul(self, rhs: Self) -> Self {
        Self(B::float_matmul(self.0, rhs.0))
    }

    /// The last two dimensions swapped.
    pub fn transpose(self) -> Self {
        Self(B::float_transpose(self.0))
    }

    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        Self(B::float_reshape(self.0, shape.into()))
    }

    /// Entries `range` of the first dimension.
    pub fn rows(self, range: Range<usize>) -> Self {
        self.narrow(0, range)
    }

    /// Entries `range` of dimension `dim`.
    pub fn narrow(self, dim: usize, range: Range<usize>) -> Self {
        let shape = self.shape();
        if range == (0..shape[dim]) {
            return self;
        }
        Self(B::float_slice(self.0, &narrowed(&shape, dim, range)))
    }

    /// A copy whose entries `range` of the first dimension are `values`.
    pub fn assign_rows(self, range: Range<usize>, values: Self) -> Self {
        let slices = narrowed(&self.shape(), 0, range);
        Self(B::float_slice_assign(self.0, &slices, values.0))
    }

    pub fn cat(parts: Vec<Self>, dim: usize) -> Self {
        match <[Self; 1]>::try_from(parts) {
            Ok([only]) => only,
            Err(parts) => Self(B::float_cat(parts.into_iter().map(|part| part.0).collect(), dim)),
        }
    }

    pub fn flip(self, dim: usize) -> Self {
        Self(B::float_flip(self.0, &[dim]))
    }

    /// The sum of all elements, `[1]`.
    pub fn sum(self) -> Self {
        Self(B::float_sum(self.0))
    }

    /// The sums over dimension `dim`, kept with size 1.
    pub fn sum_dim(self, dim: usize) -> Self {
        Self(B::float_sum_dim(self.0, dim))
    }

    /// The largest element, `[1]`.
    pub fn max(self) -> Self {
        Self(B::float_max(self.0))
    }

    /// The largest elements along dimension `dim`, kept with size 1.
    pub fn max_dim(self, dim: usize) -> Self {
        Self(B::float_max_dim(self.0, dim))
    }

    pub fn cumsum(self, dim: usize) -> Self {
        Self(B::float_cumsum(self.0, dim))
    }

    pub fn gather(self, dim: usize, indices: Ints<B>) -> Self {
        Self(B::float_gather(dim, self.0, indices.0))
    }

    /// Adds `values` at `indices` of dimension `dim`.
    pub fn scatter_add(self, dim: usize, indices: Ints<B>, values: Self) -> Self {
        Self(B::float_scatter(dim, self.0, indices.0, values.0, IndexingUpdateOp::Add))
    }

    pub fn select(self, dim: usize, indices: Ints<B>) -> Self {
        Self(B::float_select(self.0, dim, indices.0))
    }

    /// Adds the entries of `values` to those of dimension `dim` that `indices` names, which may repeat.
    pub fn select_add(self, dim: usize, indices: Ints<B>, values: Self) -> Self {
        Self(B::float_select_assign(self.0, dim, indices.0, values.0, IndexingUpdateOp::Add))
    }

    pub fn at_least(&self, bound: f64) -> Bools<B> {
        let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
        Bools(B::float_greater_equal_elem(self.0.clone(), bound.into(), dtype))
    }

    pub fn above(&self, bound: f64) -> Bools<B> {
        let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
        Bools(B::float_greater_elem(self.0.clone(), bound.into(), dtype))
    }

    pub fn at_most(&self, bound: f64) -> Bools<B> {
        let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
        Bools(B::float_lower_equal_elem(self.0.clone(), bound.into(), dtype))
    }

    /// `value` where `mask`, of the same shape, is true, itself elsewhere.
    pub fn fill_where(self, mask: Bools<B>, value: f64) -> Self {
        Self(B::float_mask_fill(self.0, mask.0, value.into()))
    }

    /// Itself where `mask`, of the same shape, is true, `other` elsewhere.
    pub fn keep_where(self, mask: Bools<B>, other: Self) -> Self {
        Self(B::float_mask_where(other.0, mask.0, self.0))
    }

    /// The nearest integers towards zero, of the device's integer type.
    pub fn int(self) -> Ints<B> {
        let dtype = get_device_settings::<B>(&self.device()).int_dtype;
        Ints(B::float_into_int(self.0, dtype))
    }
}

#[allow(missing_docs)]
impl<B: Backend> Ints<B> {
    pub fn new(primitive: IntTensor<B>) -> Self {
        Self(primitive)
    }

    pub fn primitive(&self) -> &IntTensor<B> {
        &self.0
    }

    pub fn into_primitive(self) -> IntTensor<B> {
        self.0
    }

    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    pub fn device(&self) -> Device<B> {
        self.0.device()
    }

    /// Its elements on the host, row-major. Waits for the device.
    pub fn into_data(self) -> TensorData {
        read_sync(B::int_into_data(self.0)).expect("a tensor can be read back")
    }

    /// `start, start + 1, ..`, of the device's integer type.
    pub fn arange(range: Range<i64>, device: &Device<B>) -> Self {
        let dtype = get_device_settings::<B>(device).int_dtype;
        Self(B::int_arange(range, device, dtype))
    }

    pub fn zeros<const D: usize>(shape: [usize; D], device: &Device<B>, dtype: DType) -> Self {
        Self(B::int_zeros(shape.into(), device, dtype.into()))
    }

    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        Self(B::int_reshape(self.0, shape.into()))
    }

    pub fn repeat_dim(self, dim: usize, times: usize) -> Self {
        if times == 1 { self } else { Self(B::int_repeat_dim(self.0, dim, times)) }
    }

    /// Entries `range` of the first dimension.
    pub fn rows(self, range: Range<usize>) -> Self {
        let shape = self.shape();
        if range == (0..shape[0]) {
            return self;
        }
        Self(B::int_slice(self.0, &narrowed(&shape, 0, range)))
    }

    pub fn num_elements(&self) -> usize {
        self.shape().num_elements()
    }

    /// The sizes of its `D` dimensions.
    ///
    /// # Panics
    /// If `D` is not its rank.
    #[track_caller]
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        self.shape().dims()
    }

    /// Numbers from the host, in the data's own integer type, which the device must have.
    pub fn from_data(data: TensorData, device: &Device<B>) -> Self {
        Self(B::int_from_data(data, device))
    }

    /// Numbers from the host, in the device's usual integer type.
    pub fn converted(data: TensorData, device: &Device<B>) -> Self {
        let dtype = get_device_settings::<B>(device).int_dtype;
        Self::from_data(data.convert_dtype(dtype.into()), device)
    }

    pub fn select(self, dim: usize, indices: Self) -> Self {
        Self(B::int_select(self.0, dim, indices.0))
    }

    /// The numbers as floats of a type.
    pub fn float(self, dtype: DType) -> Floats<B> {
        Floats(B::int_into_float(self.0, dtype.into()))
    }

    pub fn below(&self, bound: i64) -> Bools<B> {
        let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
        Bools(B::int_lower_elem(self.0.clone(), bound.into(), dtype))
    }

    pub fn at_least(&self, bound: i64) -> Bools<B> {
        let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
        Bools(B::int_greater_equal_elem(self.0.clone(), bound.into(), dtype))
    }

    pub fn clamp(self, min: i64, max: i64) -> Self {
        Self(B::int_clamp(self.0, min.into(), max.into()))
    }

    pub fn add_scalar(self, x: i64) -> Self {
        Self(B::int_add_scalar(self.0, x.into()))
    }

    pub fn remainder_scalar(self, x: i64) -> Self {
        Self(B::int_remainder_scalar(self.0, x.into()))
    }
}

// As above.
#[allow(missing_docs)]
impl<B: Backend> Bools<B> {
    /// Repeats dimensions of size 1.
    pub fn expand(self, shape: impl Into<Shape>) -> Self {
        Self(B::bool_expand(self.0, shape.into()))
    }

    pub fn or(self, other: Self) -> Self {
        Self(B::bool_or(self.0, other.0))
    }
}

macro_rules! operator {
    ($operator:ident $method:ident $operation:ident) => {
        impl<B: Backend> $operator for Floats<B> {
            type Output = Self;

            fn $method(self, rhs: Self) -> Self {
                Self(B::$operation(self.0, rhs.0))
            }
        }
    };
}
operator!(Add add float_add);
operator!(Sub sub float_sub);
operator!(Mul mul float_mul);
operator!(Div div float_div);

impl<B: Backend> Neg for Floats<B> {
    type Output = Self;

    fn neg(self) -> Self {
        Self(B::float_neg(self.0))
    }
}
