//! What the file of a logit map provides.
//!
//! | | a map without parameters | a map with parameters |
//! |---|---|---|
//! | module | the map itself | a struct that implements [`MapModule`] |
//! | the function without its parameters, named `Function` | the map itself | a struct that implements [`PortableMap`] |
//! | portable body | [`Pointwise`] | in [`PortableMap`] |
//!
//! The fields of `Function` are those of the map's configuration.

use burn::backend::Backend;
use burn::module::Param;
use burn::tensor::{DType, Tensor, TensorCreationOptions};
use highrank_kernels::Floats;

use crate::checks::TensorChecks;
use crate::error::HeadError;
use crate::parameters::value;

/// The `Function` of a map's file: the fields of its configuration. Its parameters come
/// [packed](MapModule::packed_params) in one vector.
///
/// A logit is looked up in the function's *table*, made from the parameters once a call. Most maps have the parameters
/// themselves as their table.
pub(crate) trait PortableMap: Copy {
    /// Checks the ranges of all fields.
    fn validate(self) -> Result<(), HeadError> {
        Ok(())
    }

    /// Length of the packed parameters.
    fn num_params(self) -> usize {
        0
    }

    /// The table of packed parameters, differentiable by composition.
    fn table<B: Backend>(self, params: Floats<B>) -> Floats<B> {
        params
    }

    /// The gradient of the packed parameters for that of their table.
    fn table_vjp<B: Backend>(self, _params: &Floats<B>, d_table: Floats<B>) -> Floats<B> {
        d_table
    }

    /// `f(z)`, differentiable by composition.
    fn apply<B: Backend>(self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B>;

    /// The gradient of `Σ g ∘ f(z)` with respect to the logits and, if there is one, the table.
    fn vjp<B: Backend>(
        self,
        z: Floats<B>,
        table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>);
}

/// The module of a logit map: its parameters.
pub(crate) trait MapModule {
    /// The `Function` of the map's file.
    type Function: PortableMap;

    /// The module with its starting parameters.
    fn new(function: Self::Function, on: TensorCreationOptions) -> Self;

    /// The function itself, without its parameters.
    fn function(&self) -> Self::Function;

    /// Checks that parameters fit each other and the decoder, and that the type of sums holds all numbers.
    fn check(&self, _fit: &TensorChecks) -> Result<(), HeadError> {
        Ok(())
    }

    /// The packed parameters, differentiable; `None` for a map without any.
    ///
    /// They are what the function reads, and need not be the module's own: a PLIF packs its raw slopes `v`, of which the table
    /// takes the softplus, and a monotonic network packs the softplus of its raw heights and steepness.
    fn packed_params(&self) -> Option<Tensor<1>> {
        None
    }
}

/// A map without parameters.
pub(crate) trait Pointwise: Copy {
    /// Checks the ranges of all fields.
    fn validate(self) -> Result<(), HeadError> {
        Ok(())
    }

    /// Checks that the type of sums holds all fields.
    fn check(self, _fit: &TensorChecks) -> Result<(), HeadError> {
        Ok(())
    }

    /// `f(z)`, differentiable by composition.
    fn apply<B: Backend>(self, z: Floats<B>) -> Floats<B>;

    /// `g ∘ f'(z)`.
    fn vjp<B: Backend>(self, z: Floats<B>, g: Floats<B>) -> Floats<B>;
}

impl<M: Pointwise> PortableMap for M {
    fn validate(self) -> Result<(), HeadError> {
        Pointwise::validate(self)
    }

    fn apply<B: Backend>(self, z: Floats<B>, _table: Option<&Floats<B>>) -> Floats<B> {
        Pointwise::apply(self, z)
    }

    fn vjp<B: Backend>(
        self,
        z: Floats<B>,
        _table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>) {
        (Pointwise::vjp(self, z, g), None)
    }
}

impl<M: Pointwise> MapModule for M {
    type Function = Self;

    fn new(function: Self, _on: TensorCreationOptions) -> Self {
        function
    }

    fn function(&self) -> Self {
        *self
    }

    fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
        Pointwise::check(*self, checks)
    }
}

/// The table of a map with parameters.
///
/// # Panics
/// If there is none.
#[track_caller]
pub(super) fn required<T>(table: Option<T>) -> T {
    table.expect("a logit map with parameters needs its table")
}

/// The values of a map's parameters in one type, that of sums, whatever their own: f64 if one is.
pub(super) fn widened<const N: usize>(params: [&Param<Tensor<1>>; N]) -> [Floats; N] {
    let values = params.map(value);
    let is_double = values.iter().any(|value| value.dtype() == DType::F64);
    let dtype = if is_double { DType::F64 } else { DType::F32 };
    values.map(|value| Floats::from(value.cast(dtype)))
}

/// Element `i` of a vector as a `[1, 1]` matrix, which broadcasts over logits.
pub(super) fn element<B: Backend>(vector: &Floats<B>, i: usize) -> Floats<B> {
    vector.clone().rows(i..i + 1).reshape([1, 1])
}
