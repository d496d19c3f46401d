//! Generalised SigSoftmax: Parthiban, Mao, Inkpen, *On the Softmax Bottleneck of Recurrent Language Models*, AAAI 2021.

use burn::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use highrank_kernels::Floats;

use super::contract::{MapModule, PortableMap, element, required};
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

    fn new(_function: Function, device: &Device) -> Self {
        Self {
            center: Param::from_tensor(Tensor::zeros([1], device)),
            slope: Param::from_tensor(Tensor::full([1], 2.0, device)),
        }
    }

    fn function(&self) -> Function {
        Function
    }

    fn packed_params(&self) -> Option<Tensor<1>> {
        Some(Tensor::cat(vec![self.center.val(), self.slope.val()], 0))
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
