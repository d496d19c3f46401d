//! Generalised SigSoftmax: Parthiban, Mao, Inkpen, *On the Softmax Bottleneck of Recurrent Language Models*, AAAI 2021.

use burn::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorCreationOptions};
use highrank_kernels::Floats;

use super::contract::{MapModule, PortableMap, element, required, widened};
use crate::checks::TensorChecks;
use crate::error::HeadError;
use crate::math::{log_sigmoid, sigmoid};

/// The generalised sigsoftmax map with a learnable centre `c` and slope `k`:
///
/// `f(z) = k (z − c) + c − (k − 1) log(1 + e^{z − c}) = z + (k − 1) log σ(z − c)`
///
/// Its slope is `k` far below `c` and 1 far above. It starts as [sigsoftmax](super::Sigsoftmax): `k = 2`, `c = 0`.
/// Packed parameters: `c, k`.
///
/// Introduced by Parthiban, Mao and Inkpen, *On the Softmax Bottleneck of Recurrent Language Models*, AAAI 2021.
#[derive(Module, Debug)]
pub struct Gss {
    /// `c`, shape `[1]`, starts at 0.
    pub center: Param<Tensor<1>>,
    /// `k`, shape `[1]`, starts at 2.
    pub slope: Param<Tensor<1>>,
}

/// The map without its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function;

impl MapModule for Gss {
    type Function = Function;

    fn new(_function: Function, on: TensorCreationOptions) -> Self {
        Self {
            center: Param::from_tensor(Tensor::zeros([1], on.clone())),
            slope: Param::from_tensor(Tensor::full([1], 2.0, on)),
        }
    }

    fn function(&self) -> Function {
        Function
    }

    fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
        checks.param("the generalised sigsoftmax's center", &self.center, [1])?;
        checks.param("the generalised sigsoftmax's slope", &self.slope, [1])
    }

    fn packed_params(&self) -> Option<Tensor<1>> {
        Some(Floats::cat(widened([&self.center, &self.slope]).into(), 0).tensor())
    }
}

impl PortableMap for Function {
    fn num_params(self) -> usize {
        2
    }

    fn apply<B: Backend>(self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B> {
        let params = required(table);
        let (c, k) = (element(params, 0), element(params, 1));
        z.clone() + log_sigmoid(z - c) * k.sub_scalar(1.0)
    }

    /// `∂f/∂z = 1 + (k − 1) σ(c − z)`, `∂f/∂c = 1 − ∂f/∂z`, `∂f/∂k = log σ(z − c)`.
    fn vjp<B: Backend>(
        self,
        z: Floats<B>,
        table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>) {
        let params = required(table);
        let (c, k) = (element(params, 0), element(params, 1));
        let shifted = z - c;
        let excess = sigmoid(-shifted.clone()) * k.sub_scalar(1.0);
        let dc = -(g.clone() * excess.clone()).sum();
        let dk = (g.clone() * log_sigmoid(shifted)).sum();
        (g * excess.add_scalar(1.0), Some(Floats::cat(vec![dc, dk], 0)))
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use highrank_kernels::cpu::{Real, softplus, softplus_and_sigmoid};

    use super::super::cpu::{CpuBody, Layout, OnCpu};
    use super::Function;

    /// `f(z) = z − (k − 1) softplus(c − z)`.
    #[derive(Clone, Copy)]
    pub(crate) struct Body<T> {
        /// `c`
        center: T,
        /// `k − 1`
        excess: T,
    }

    impl OnCpu for Function {
        type Body<T> = Body<T>;

        fn on_cpu<T: Real>(self, params: &[T]) -> Body<T> {
            Body { center: params[0], excess: params[1] - T::ONE }
        }
    }

    impl<T: Real> CpuBody<T> for Body<T> {
        /// Keeps `σ(c − z)` and `softplus(c − z)`.
        fn layout(&self) -> Layout {
            Layout { parts: 2, num_sums: 2, ..Layout::NOTHING }
        }

        #[inline(always)]
        fn apply(&self, block: &mut [T], parts: &mut [T]) {
            let Self { center, excess } = *self;
            if parts.is_empty() {
                block.iter_mut().for_each(|z| *z = *z - excess * softplus(center - *z));
                return;
            }
            let (sigmoids, softplus) = parts.split_at_mut(parts.len() / 2);
            for ((z, sigmoid), softplus) in block.iter_mut().zip(sigmoids).zip(softplus) {
                [*softplus, *sigmoid] = softplus_and_sigmoid(center - *z);
                *z -= excess * *softplus;
            }
        }

        #[inline(always)]
        fn pull_back(&self, parts: &[T], g: &mut [T], lanes: &mut [T]) {
            let Self { excess, .. } = *self;
            let (sigmoids, softplus) = parts.split_at(parts.len() / 2);
            let (of_sigmoids, of_softplus) = lanes.split_at_mut(lanes.len() / 2);
            add_products(of_sigmoids, g, sigmoids);
            add_products(of_softplus, g, softplus);
            g.iter_mut().zip(sigmoids).for_each(|(g, sigmoid)| *g *= excess.mul_add(*sigmoid, T::ONE));
        }

        fn finish(&self, _params: &[T], sums: &[T], d_params: &mut [T]) {
            d_params.copy_from_slice(&[-self.excess * sums[0], -sums[1]]);
        }
    }

    /// `sums_v += x_v y_v`, as far as all go.
    #[inline(always)]
    fn add_products<T: Real>(sums: &mut [T], xs: &[T], ys: &[T]) {
        for ((sum, x), y) in sums.iter_mut().zip(xs).zip(ys) {
            *sum = x.mul_add(*y, *sum);
        }
    }
}
