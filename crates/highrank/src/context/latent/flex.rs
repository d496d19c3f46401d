//! Native CPU kernel of the latent layer on Burn's Flex backend.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{LatentArgs, LatentGradients, LatentWanted, portable};
use crate::cpu::{Matrix, Real, contiguous, in_pool, into_contiguous, multiply, slice, tanh, tensor, wrap};

/// [`crate::LikelihoodBackend::latent`] on Flex.
pub(crate) fn latent(args: LatentArgs<Flex>) -> Tensor<Flex, 2> {
    match args.hidden.dtype() {
        DType::F32 => wrap(forward::<f32>(&Inputs::new(&args))),
        DType::F64 => wrap(forward::<f64>(&Inputs::new(&args))),
        _ => portable::latent(args),
    }
}

/// [`crate::LikelihoodBackend::latent_backward`] on Flex.
pub(crate) fn latent_backward(
    args: LatentArgs<Flex>,
    output: Tensor<Flex, 2>,
    grad: Tensor<Flex, 2>,
    wanted: LatentWanted,
) -> LatentGradients<Flex> {
    let backward = match args.hidden.dtype() {
        DType::F32 => backward::<f32>,
        DType::F64 => backward::<f64>,
        _ => return portable::latent_backward(args, output, grad, wanted),
    };
    backward(&Inputs::new(&args), &contiguous(&output), into_contiguous(grad), wanted)
}

/// The layer's inputs, row-major.
struct Inputs {
    hidden: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    mask: Option<FlexTensor>,
    keep: f64,
    tokens: usize,
    d_hidden: usize,
    features: usize,
}

impl Inputs {
    fn new(args: &LatentArgs<Flex>) -> Self {
        let ([tokens, d_hidden], [_, features]) = (args.hidden.dims(), args.weight.dims());
        Self {
            hidden: contiguous(&args.hidden),
            weight: contiguous(&args.weight),
            bias: args.bias.as_ref().map(contiguous),
            mask: args.mask.as_ref().map(|mask| contiguous(&mask.values)),
            keep: args.mask.as_ref().map_or(1.0, |mask| mask.keep),
            tokens,
            d_hidden,
            features,
        }
    }

    fn hidden<T: Real>(&self) -> Matrix<'_, T> {
        Matrix::new(slice(&self.hidden), self.tokens, self.d_hidden)
    }

    fn weight<T: Real>(&self) -> Matrix<'_, T> {
        Matrix::new(slice(&self.weight), self.d_hidden, self.features)
    }

    /// The mask's row for a token.
    fn mask_row<T: Real>(&self, token: usize) -> Option<&[T]> {
        let mask: &[T] = slice(self.mask.as_ref()?);
        let row = token % (mask.len() / self.features);
        Some(&mask[row * self.features..(row + 1) * self.features])
    }
}

fn forward<T: Real>(inputs: &Inputs) -> FlexTensor {
    let mut out = vec![T::ZERO; inputs.tokens * inputs.features];
    in_pool(|| {
        multiply(&mut out, inputs.hidden::<T>(), inputs.weight(), false);
        let arch = Arch::new();
        out.par_chunks_exact_mut(inputs.features).enumerate().for_each(|(token, row)| {
            let bias = inputs.bias.as_ref().map(slice);
            arch.dispatch(Forward { row, bias, mask: inputs.mask_row(token) });
        });
    });
    tensor(out, [inputs.tokens, inputs.features])
}

fn backward<T: Real>(
    inputs: &Inputs,
    output: &FlexTensor,
    mut grad: FlexTensor,
    wanted: LatentWanted,
) -> LatentGradients<Flex> {
    let Inputs { tokens, d_hidden: d_hidden_state, features, .. } = *inputs;
    let output: &[T] = slice(output);
    // In place where nobody else holds the upstream gradient, which is the rule.
    let grad: &mut [T] = grad.storage_mut();
    let zeros = |wanted: bool, count: usize| wanted.then(|| vec![T::ZERO; count]);
    let mut d_hidden = zeros(wanted.hidden, tokens * d_hidden_state);
    let mut d_weight = zeros(wanted.weight, d_hidden_state * features);
    let mut d_bias = zeros(wanted.bias && inputs.bias.is_some(), features);
    in_pool(|| {
        let arch = Arch::new();
        let keep = T::of(inputs.keep);
        let rows = grad.par_chunks_exact_mut(features).zip(output.par_chunks_exact(features)).enumerate();
        rows.for_each(|(token, (grad, output))| {
            arch.dispatch(Backward { grad, output, mask: inputs.mask_row(token), keep });
        });
        let grad_matrix = Matrix::new(&*grad, tokens, features);
        if let Some(out) = &mut d_hidden {
            multiply(out, grad_matrix, inputs.weight().t(), false);
        }
        if let Some(out) = &mut d_weight {
            multiply(out, inputs.hidden().t(), grad_matrix, false);
        }
        if let Some(out) = &mut d_bias {
            for row in grad.chunks_exact(features) {
                out.iter_mut().zip(row).for_each(|(sum, g)| *sum += *g);
            }
        }
    });
    LatentGradients {
        hidden: d_hidden.map(|out| wrap(tensor(out, [tokens, d_hidden_state]))),
        weight: d_weight.map(|out| wrap(tensor(out, [d_hidden_state, features]))),
        bias: d_bias.map(|out| wrap(tensor(out, [features]))),
    }
}

/// One row: bias, tanh, mask.
struct Forward<'a, T> {
    row: &'a mut [T],
    bias: Option<&'a [T]>,
    mask: Option<&'a [T]>,
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        if let Some(bias) = self.bias {
            self.row.iter_mut().zip(bias).for_each(|(x, b)| *x += *b);
        }
        match self.mask {
            Some(mask) => self.row.iter_mut().zip(mask).for_each(|(x, m)| *x = tanh(*x) * *m),
            None => self.row.iter_mut().for_each(|x| *x = tanh(*x)),
        }
    }
}

/// One row: the gradient of the pre-activations in place of that of the output.
struct Backward<'a, T> {
    grad: &'a mut [T],
    output: &'a [T],
    mask: Option<&'a [T]>,
    keep: T,
}

impl<T: Real> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let pairs = self.grad.iter_mut().zip(self.output);
        match self.mask {
            Some(mask) => pairs.zip(mask).for_each(|((g, h), m)| {
                let t = *h * self.keep;
                *g *= *m * (T::ONE - t * t);
            }),
            None => pairs.for_each(|(g, h)| *g *= T::ONE - *h * *h),
        }
    }
}
