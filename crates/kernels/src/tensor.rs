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
use burn::backend::{
    AutodiffBackend, Backend, Dispatch, DispatchAutodiffContext, TensorMetadata, get_device_settings,
    read_sync,
};
use burn::tensor::{DType, Float, IndexingUpdateOp, Int, IntDType, Shape, Slice, Tensor, TensorData};

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
#[derive(Clone)]
pub struct Floats<B: Backend = Dispatch>(FloatTensor<B>);

/// An integer tensor of one backend.
#[derive(Clone)]
pub struct Ints<B: Backend = Dispatch>(IntTensor<B>);

/// Truth values of one backend, for [`Floats::fill_where`].
#[derive(Clone)]
pub struct Bools<B: Backend = Dispatch>(BoolTensor<B>);

/// What every kind of tensor has.
macro_rules! of_every_kind {
    ($($Tensor:ident: $Primitive:ident;)+) => {$(
        impl<B: Backend> fmt::Debug for $Tensor<B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?}, {:?})", stringify!($Tensor), self.shape(), self.0.dtype())
            }
        }

        #[allow(missing_docs)]
        impl<B: Backend> $Tensor<B> {
            pub fn new(primitive: $Primitive<B>) -> Self {
                Self(primitive)
            }

            pub fn primitive(&self) -> &$Primitive<B> {
                &self.0
            }

            pub fn into_primitive(self) -> $Primitive<B> {
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

            pub fn device(&self) -> Device<B> {
                self.0.device()
            }
        }
    )+};
}
of_every_kind! {
    Floats: FloatTensor;
    Ints: IntTensor;
    Bools: BoolTensor;
}

/// The way from the tensors that users see, and back.
macro_rules! of_users {
    ($($Tensor:ident: $Kind:ident;)+) => {$(
        impl<const D: usize> From<Tensor<D, $Kind>> for $Tensor {
            fn from(tensor: Tensor<D, $Kind>) -> Self {
                Self(tensor.into_dispatch())
            }
        }

        impl $Tensor {
            /// The tensor that users see.
            ///
            /// # Panics
            /// If `D` is not its rank.
            #[track_caller]
            pub fn tensor<const D: usize>(self) -> Tensor<D, $Kind> {
                let shape = self.shape();
                assert_eq!(shape.num_dims(), D, "a tensor of shape {shape:?} has not {D} dimensions");
                Tensor::from_dispatch(self.0)
            }
        }
    )+};
}
of_users! {
    Floats: Float;
    Ints: Int;
}

/// Methods that are one of Burn's operations.
macro_rules! operations {
    ($($(#[$about:meta])* $name:ident($($argument:ident: $Type:ty),*) = $operation:ident;)+) => {$(
        $(#[$about])*
        pub fn $name(self $(, $argument: $Type)*) -> Self {
            Self(B::$operation(self.0 $(, $argument.into())*))
        }
    )+};
}

/// Methods that compare each element with a number.
macro_rules! comparisons {
    ($Number:ty: $($name:ident = $operation:ident;)+) => {$(
        pub fn $name(&self, bound: $Number) -> Bools<B> {
            let dtype = get_device_settings::<B>(&self.device()).bool_dtype;
            Bools(B::$operation(self.0.clone(), bound.into(), dtype))
        }
    )+};
}

/// Slices that keep `range` of dimension `dim`, and all of the other dimensions.
fn narrowed(shape: &Shape, dim: usize, range: Range<usize>) -> Vec<Slice> {
    let full = |i: usize| if i == dim { range.clone() } else { 0..shape[i] };
    (0..shape.num_dims()).map(|i| Slice::from(full(i))).collect()
}

impl Floats {
    /// The values alone: a constant beside tensors of any checkpointing strategy, where one that is detached keeps its own.
    pub fn without_autodiff(self) -> Self {
        match self.0.autodiff {
            DispatchAutodiffContext::Disabled => self,
            DispatchAutodiffContext::Enabled(_) => Self(<Dispatch as AutodiffBackend>::inner(self.0)),
        }
    }
}

// A method without documentation does what Burn's method of that name does.
#[allow(missing_docs)]
impl<B: Backend> Floats<B> {
    operations! {
        detach() = float_detach;
        add_scalar(x: f64) = float_add_scalar;
        sub_scalar(x: f64) = float_sub_scalar;
        mul_scalar(x: f64) = float_mul_scalar;
        div_scalar(x: f64) = float_div_scalar;
        exp() = float_exp;
        log() = float_log;
        log1p() = float_log1p;
        tanh() = float_tanh;
        abs() = float_abs;
        floor() = float_floor;
        clamp(min: f64, max: f64) = float_clamp;
        /// The last two dimensions swapped.
        transpose() = float_transpose;
        reshape(shape: impl Into<Shape>) = float_reshape;
        /// The sum of all elements, `[1]`.
        sum() = float_sum;
        /// The sums over dimension `dim`, kept with size 1.
        sum_dim(dim: usize) = float_sum_dim;
        /// The largest element, `[1]`.
        max() = float_max;
        /// The largest elements along dimension `dim`, kept with size 1.
        max_dim(dim: usize) = float_max_dim;
        cumsum(dim: usize) = float_cumsum;
    }

    comparisons! {
        f64:
        at_least = float_greater_equal_elem;
        above = float_greater_elem;
        at_most = float_lower_equal_elem;
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype()
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

    pub fn square(self) -> Self {
        self.clone() * self
    }

    pub fn matmul(self, rhs: Self) -> Self {
        Self(B::float_matmul(self.0, rhs.0))
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

    /// `value` where `mask`, of the same shape, is true, itself elsewhere.
    pub fn fill_where(self, mask: Bools<B>, value: f64) -> Self {
        Self(B::float_mask_fill(self.0, mask.0, value.into()))
    }

    /// Itself where `mask`, of the same shape, is true, `other` elsewhere.
    pub fn keep_where(self, mask: Bools<B>, other: Self) -> Self {
        Self(B::float_mask_where(other.0, mask.0, self.0))
    }

    /// The nearest integers towards zero, of the device's integer type, or of 32 bits where that is shorter.
    pub fn int(self) -> Ints<B> {
        let dtype = match get_device_settings::<B>(&self.device()).int_dtype {
            IntDType::I8 | IntDType::I16 | IntDType::U8 | IntDType::U16 => IntDType::I32,
            dtype => dtype,
        };
        Ints(B::float_into_int(self.0, dtype))
    }
}

#[allow(missing_docs)]
impl<B: Backend> Ints<B> {
    operations! {
        reshape(shape: impl Into<Shape>) = int_reshape;
        add_scalar(x: i64) = int_add_scalar;
        clamp(min: i64, max: i64) = int_clamp;
    }

    comparisons! {
        i64:
        below = int_lower_elem;
        at_least = int_greater_equal_elem;
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
}

// As above.
#[allow(missing_docs)]
impl<B: Backend> Bools<B> {
    operations! {
        /// Repeats dimensions of size 1.
        expand(shape: impl Into<Shape>) = bool_expand;
    }

    pub fn or(self, other: Self) -> Self {
        Self(B::bool_or(self.0, other.0))
    }

    pub fn and(self, other: Self) -> Self {
        Self(B::bool_and(self.0, other.0))
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
