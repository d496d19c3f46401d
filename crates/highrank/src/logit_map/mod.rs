//! Logit maps: increasing functions `f` applied to every logit before the softmax.
//!
//! A pointwise non-linearity after the product `h·Wᵀ` breaks the rank bound of the softmax, because
//! `f` of a low-rank matrix need not have low rank.
//!
//! [`LogitMap`] is the module with its parameters. [`LogitMapConfig`] says which map it is and what it has beside parameters;
//! inside the crate it stands for the function, whose parameters then come packed in one vector.

mod contract;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod registry;

use burn::backend::Backend;
use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::tensor::{Tensor, TensorCreationOptions};
use highrank_kernels::Floats;
#[cfg(feature = "flex")]
use highrank_kernels::cpu::Real;
use highrank_kernels::precision::wide;

use crate::checks::TensorChecks;
use crate::error::{HeadError, OrPanic};
use contract::{MapModule, PortableMap};
#[cfg(feature = "flex")]
use cpu::{CpuBody, Layout, OnCpu};
#[cfg(feature = "gpu")]
pub(crate) use gpu::{MapNumbers, MapNumbersLaunch};

pub use plif::MAX_KNOTS;

// A map is one file and one line here. The file holds the formula, the module with its parameters, the configuration's fields
// and their ranges, the bodies and the tests: `contract.rs`, `cpu.rs` and `gpu.rs` say what it provides, and `soft_cap.rs` is
// a short example. One body is elsewhere: that of the gradient of PLIF's table on GPUs, in `backends/cube/pieces.rs`. A map
// may also have a constructor in `head/config.rs` and its name in the table of `lib.rs`.
registry::logit_maps! {
    Identity: identity [gpu], "z";
    Sigsoftmax: sigsoftmax [gpu], "z + log σ(z)";
    Gss: gss, "z + (k − 1) log σ(z − c)";
    SoftCap { cap: f64 = 3.0 }: soft_cap [gpu], "cap · tanh(z / cap)";
    Plif { knots: usize = 17, bound: f64 = 1.5 }: plif [gpu], "f(l_i) + s_i (z − l_i)";
    MonotonicNet { units: usize = 3 }: monotonic_net, "Σ_i a_i σ(s_i z + b_i) + offset";
}

impl LogitMap {
    /// Applies the map to logits of any shape.
    ///
    /// Differentiable by composition; training goes through a head's loss instead. Logits in
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
}
