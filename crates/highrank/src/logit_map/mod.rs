//! Logit maps: increasing functions `f` applied to every logit before the softmax.
//!
//! A pointwise non-linearity after the product `h·Wᵀ` breaks the rank bound of the softmax, because
//! `f` of a low-rank matrix need not have low rank. One file a map: formula, module, tests.
//!
//! [`LogitMap`] is the module with its parameters. [`MapFunction`] is the same function as a plain value
//! whose parameters come packed in one vector, as the [fused likelihood](crate::likelihood) uses it.

mod element;
mod gss;
mod monotonic_net;
mod plif;
mod sigsoftmax;
mod soft_cap;

pub use gss::Gss;
pub use monotonic_net::MonotonicNet;
pub use plif::{MAX_KNOTS, Plif};
pub use sigsoftmax::Sigsoftmax;
pub use soft_cap::SoftCap;

use burn::backend::Backend;
use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::tensor::{Device, Tensor};
use highrank_kernels::Floats;

use crate::error::{HeadError, OrPanic};
use crate::ops::{MapFunction, wide};

/// Which logit map a head applies.
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub enum LogitMapConfig {
    /// `f(z) = z`: the plain softmax.
    Identity,
    /// `f(z) = z + log σ(z)`, see [`Sigsoftmax`].
    Sigsoftmax,
    /// `f(z) = z + (k − 1) log σ(z − c)` with learnable `c` and `k`, see [`Gss`].
    Gss,
    /// `f(z) = cap · tanh(z / cap)`, see [`SoftCap`].
    SoftCap {
        /// Largest magnitude of a mapped logit.
        cap: f64,
    },
    /// Learnable piecewise linear increasing function, see [`Plif`].
    Plif {
        /// Number of linear pieces on `[-bound, bound]`, 1 to 1,000,000.
        knots: usize,
        /// `T`: half the width of the interval that holds the knots.
        bound: f64,
    },
    /// Learnable monotonic network, see [`MonotonicNet`].
    MonotonicNet {
        /// Number of sigmoid units.
        units: usize,
    },
}

impl LogitMapConfig {
    /// Checks the ranges of all fields.
    ///
    /// # Errors
    /// [`HeadError::ZeroSize`], [`HeadError::TooManyKnots`] or [`HeadError::NotPositive`].
    pub fn validate(&self) -> Result<(), HeadError> {
        let positive = |name, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(HeadError::NotPositive { name, value }),
        };
        match *self {
            Self::Identity | Self::Sigsoftmax | Self::Gss => Ok(()),
            Self::SoftCap { cap } => positive("cap", cap),
            Self::Plif { knots: 0, .. } => Err(HeadError::ZeroSize { name: "knots" }),
            Self::Plif { knots, .. } if knots > MAX_KNOTS => {
                Err(HeadError::TooManyKnots { knots, max: MAX_KNOTS })
            }
            Self::Plif { bound, .. } => positive("PLIF's bound T", bound),
            Self::MonotonicNet { units: 0 } => Err(HeadError::ZeroSize { name: "units" }),
            Self::MonotonicNet { .. } => Ok(()),
        }
    }

    /// Creates the map with its starting parameters.
    ///
    /// # Panics
    /// With the message of [`validate`](Self::validate) if the configuration is invalid.
    pub fn init(&self, device: &Device) -> LogitMap {
        self.validate().or_panic("LogitMapConfig::init");
        match *self {
            Self::Identity => LogitMap::Identity(Identity),
            Self::Sigsoftmax => LogitMap::Sigsoftmax(Sigsoftmax),
            Self::Gss => LogitMap::Gss(Gss::new(device)),
            Self::SoftCap { cap } => LogitMap::SoftCap(SoftCap { cap }),
            Self::Plif { knots, bound } => LogitMap::Plif(Plif::new(knots, bound, device)),
            Self::MonotonicNet { units } => LogitMap::MonotonicNet(MonotonicNet::new(units, device)),
        }
    }
}

/// `f(z) = z`.
#[derive(Module, Debug, Default)]
pub struct Identity;

/// An increasing function applied to every logit, with its parameters.
///
/// Should be created with [`LogitMapConfig`].
// A head has one map: the size of the largest variant costs nothing, a box would only add a look-up.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
#[module(custom_display)]
#[non_exhaustive]
pub enum LogitMap {
    /// See [`Identity`].
    Identity(Identity),
    /// See [`Sigsoftmax`].
    Sigsoftmax(Sigsoftmax),
    /// See [`Gss`].
    Gss(Gss),
    /// See [`SoftCap`].
    SoftCap(SoftCap),
    /// See [`Plif`].
    Plif(Plif),
    /// See [`MonotonicNet`].
    MonotonicNet(MonotonicNet),
}

impl LogitMap {
    /// Applies the map to logits of any shape.
    ///
    /// Differentiable by composition; training goes through the [fused likelihood](crate::likelihood) instead. Logits in
    /// half precision are mapped in f32 and rounded at the end.
    ///
    /// # Shapes
    /// - logits: `[..]`
    /// - output: `[..]`
    pub fn forward<const D: usize>(&self, logits: Tensor<D>) -> Tensor<D> {
        let (shape, dtype) = (logits.shape(), logits.dtype());
        let elements = shape.num_elements();
        let function = self.function();
        let params = self.packed_params().map(|params| Floats::from(params).cast(wide(dtype)));
        let table = params.map(|params| function.table(params));
        let logits = Floats::from(logits).cast(wide(dtype)).reshape([1, elements]);
        function.apply(logits, table.as_ref()).cast(dtype).reshape(shape).tensor()
    }

    /// The function itself, without its parameters.
    pub fn function(&self) -> MapFunction {
        match self {
            Self::Identity(_) => MapFunction::Identity,
            Self::Sigsoftmax(_) => MapFunction::Sigsoftmax,
            Self::Gss(_) => MapFunction::Gss,
            Self::SoftCap(map) => MapFunction::SoftCap { cap: map.cap },
            Self::Plif(map) => MapFunction::Plif { pieces: map.knots(), bound: map.bound },
            Self::MonotonicNet(map) => MapFunction::MonotonicNet { units: map.units() },
        }
    }

    /// The parameters in the packed form of [`MapFunction`], differentiable; `None` for a map without any.
    pub fn packed_params(&self) -> Option<Tensor<1>> {
        match self {
            Self::Identity(_) | Self::Sigsoftmax(_) | Self::SoftCap(_) => None,
            Self::Gss(map) => Some(map.packed_params()),
            Self::Plif(map) => Some(map.packed_params()),
            Self::MonotonicNet(map) => Some(map.packed_params()),
        }
    }
}

impl ModuleDisplay for LogitMap {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = match self {
            Self::Identity(_) => content.set_top_level_type("Identity"),
            Self::Sigsoftmax(_) => content.set_top_level_type("Sigsoftmax"),
            Self::Gss(_) => content.set_top_level_type("Gss"),
            Self::SoftCap(map) => content.set_top_level_type("SoftCap").add("cap", &map.cap),
            Self::Plif(map) => {
                content.set_top_level_type("Plif").add("knots", &map.knots()).add("bound", &map.bound)
            }
            Self::MonotonicNet(map) => content.set_top_level_type("MonotonicNet").add("units", &map.units()),
        };
        content.optional()
    }
}

impl MapFunction {
    /// The table of packed parameters, differentiable by composition.
    pub fn table<B: Backend>(&self, params: Floats<B>) -> Floats<B> {
        match *self {
            Self::Plif { pieces, bound } => plif::table(params, pieces, bound),
            _ => params,
        }
    }

    /// The gradient of the packed parameters for that of their table.
    pub fn table_vjp<B: Backend>(&self, params: &Floats<B>, d_table: Floats<B>) -> Floats<B> {
        match *self {
            Self::Plif { pieces, bound } => plif::table_vjp(params, pieces, bound, d_table),
            _ => d_table,
        }
    }

    /// `f(z)`, differentiable by composition.
    ///
    /// # Panics
    /// If a map with parameters gets no table.
    pub fn apply<B: Backend>(&self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B> {
        match *self {
            Self::Identity => z,
            Self::Sigsoftmax => sigsoftmax::apply(z),
            Self::Gss => gss::apply(z, required(table)),
            Self::SoftCap { cap } => soft_cap::apply(z, cap),
            Self::Plif { pieces, bound } => plif::apply(z, required(table), pieces, bound),
            Self::MonotonicNet { units } => monotonic_net::apply(z, required(table), units),
        }
    }

    /// The gradient with respect to the logits and the table of `Σ g ∘ f(z)`.
    ///
    /// # Shapes
    /// - z, g: `[rows, V]`
    /// - returns: `[rows, V]` and that of the table
    ///
    /// # Panics
    /// If a map with parameters gets no table.
    pub fn vjp<B: Backend>(
        &self,
        z: Floats<B>,
        table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>) {
        match *self {
            Self::Identity => (g, None),
            Self::Sigsoftmax => (sigsoftmax::vjp(z, g), None),
            Self::Gss => some(gss::vjp(z, required(table), g)),
            Self::SoftCap { cap } => (soft_cap::vjp(z, cap, g), None),
            Self::Plif { pieces, bound } => some(plif::vjp(z, required(table), pieces, bound, g)),
            Self::MonotonicNet { units } => some(monotonic_net::vjp(z, required(table), units, g)),
        }
    }
}

fn some<A, P>((a, p): (A, P)) -> (A, Option<P>) {
    (a, Some(p))
}

#[track_caller]
fn required<T>(table: Option<T>) -> T {
    table.expect("a logit map with parameters needs its table")
}
