//! Native CPU kernel of the latent layer on Burn's Flex backend.

use core::ops::Range;
use std::sync::Arc;

use burn::backend::Flex;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{
    Buffer, Factor, Matrix, Real, contiguous, in_pool, into_contiguous, multiply_rounded, slice, tanh,
};
use highrank_kernels::{Floats, Precision};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::factor::{Stored, as_factor};
use crate::ops::{LatentArgs, LatentGradients, LatentMask, LatentWanted, wide};

/// Columns that a thread sums over all rows at a time: a run of cache lines of each row, a microsecond's work or more.
const COLUMNS: usize = 256;

/// [`Kernels::latent`](crate::ops::Kernels::latent) on Flex.
pub(super) fn latent(args: LatentArgs<Floats<Flex>>) -> Floats<Flex> {
    let dtype = wide(args.weight.dtype());
    let inputs = Inputs::new(&as_read(args, dtype));
    Floats::new(match dtype {
        DType::F64 => forward::<f64>(&inputs),
        _ => forward::<f32>(&inputs),
    })
}

/// [`Kernels::latent_backward`](crate::ops::Kernels::latent_backward) on Flex.
pub(super) fn latent_backward(
    args: LatentArgs<Floats<Flex>>,
    output: Floats<Flex>,
    grad: Floats<Flex>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<Flex>> {
    let dtype = wide(args.weight.dtype());
    let inputs = Inputs::new(&as_read(args, dtype));
    let backward = match dtype {
        DType::F64 => backward::<f64>,
        _ => backward::<f32>,
    };
    backward(&inputs, &contiguous(&output), into_contiguous(grad), wanted)
}

/// The layer's tensors in the type of sums, but for factors of products that may stay bf16.
pub(super) fn as_read(args: LatentArgs<Floats<Flex>>, sums: DType) -> LatentArgs<Floats<Flex>> {
    LatentArgs {
        hidden: as_factor(args.hidden, sums),
        weight: as_factor(args.weight, sums),
        bias: args.bias.map(|bias| bias.cast(sums)),
        mask: args.mask.map(|mask| LatentMask { values: mask.values.cast(sums), ..mask }),
        precision: args.precision,
    }
}

/// The layer's inputs, row-major.
pub(super) struct Inputs {
    hidden: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    mask: Option<FlexTensor>,
    rows: Option<Arc<[u32]>>,
    first: usize,
    keep: f64,
    precision: Precision,
    tokens: usize,
    d_hidden: usize,
    features: usize,
}

impl Inputs {
    /// Of tensors [as they are read](as_read).
    pub(super) fn new(args: &LatentArgs<Floats<Flex>>) -> Self {
        let ([tokens, d_hidden], [_, features]) = (args.hidden.dims(), args.weight.dims());
        Self {
            hidden: contiguous(&args.hidden),
            weight: contiguous(&args.weight),
            bias: args.bias.as_ref().map(contiguous),
            mask: args.mask.as_ref().map(|mask| contiguous(&mask.values)),
            rows: args.mask.as_ref().and_then(|mask| mask.rows.clone()),
            first: args.mask.as_ref().map_or(0, |mask| mask.first),
            keep: args.mask.as_ref().map_or(1.0, |mask| mask.keep),
            precision: args.precision,
            tokens,
            d_hidden,
            features,
        }
    }

    /// The layer on slices.
    pub(super) fn layer<T: Real>(&self) -> Layer<'_, T> {
        Layer {
            hidden: Stored::new(&self.hidden),
            weight: Stored::new(&self.weight).factor(self.d_hidden, self.features),
            bias: self.bias.as_ref().map(slice),
            mask: self.mask.as_ref().map(slice),
            rows: self.rows.as_deref(),
            first: self.first,
            keep: T::of(self.keep),
            precision: self.precision,
            d_hidden: self.d_hidden,
            features: self.features,
        }
    }

    /// Room for the wanted gradients.
    pub(super) fn room<T: Real>(&self, wanted: LatentWanted) -> LayerGradients<T> {
        // The first run of tokens writes, the others add.
        let room = |wanted: bool, count: usize| {
            wanted.then(|| if self.tokens > 0 { Buffer::new(count) } else { Buffer::zeros(count) })
        };
        LayerGradients {
            hidden: room(wanted.hidden, self.tokens * self.d_hidden),
            weight: room(wanted.weight, self.d_hidden * self.features),
            bias: (wanted.bias && self.bias.is_some()).then(|| Buffer::zeros(self.features)),
        }
    }

    /// The gradients as tensors.
    pub(super) fn finish<T: Real>(&self, gradients: LayerGradients<T>) -> LatentGradients<Floats<Flex>> {
        let Self { tokens, d_hidden, features, .. } = *self;
        LatentGradients {
            hidden: gradients.hidden.map(|out| Floats::new(out.into_tensor([tokens, d_hidden]))),
            weight: gradients.weight.map(|out| Floats::new(out.into_tensor([d_hidden, features]))),
            bias: gradients.bias.map(|out| Floats::new(out.into_tensor([features]))),
        }
    }
}

/// The layer for any run of its tokens.
pub(super) struct Layer<'a, T> {
    /// `[N, H]`
    hidden: Stored<'a, T>,
    weight: Factor<'a, T>,
    bias: Option<&'a [T]>,
    /// `[M, F]`
    mask: Option<&'a [T]>,
    /// The mask's row for each token, if they do not follow each other.
    rows: Option<&'a [u32]>,
    first: usize,
    keep: T,
    precision: Precision,
    d_hidden: usize,
    features: usize,
}

/// Sums of gradients over the runs of tokens so far.
pub(super) struct LayerGradients<T> {
    hidden: Option<Buffer<T>>,
    weight: Option<Buffer<T>>,
    bias: Option<Buffer<T>>,
}

impl<T: Real> Layer<'_, T> {
    /// The mask's row for a token.
    fn mask_row(&self, token: usize) -> Option<&[T]> {
        let mask = self.mask?;
        let row = match self.rows {
            Some(rows) => rows[self.first + token] as usize,
            None => (self.first + token) % (mask.len() / self.features),
        };
        Some(&mask[row * self.features..(row + 1) * self.features])
    }

    fn hidden(&self, tokens: &Range<usize>) -> Factor<'_, T> {
        self.hidden.rows(tokens.clone(), self.d_hidden).factor(tokens.len(), self.d_hidden)
    }

    /// Writes the tokens' latent contexts, `[tokens, F]`.
    pub(super) fn forward(&self, tokens: Range<usize>, out: &mut [T]) {
        multiply_rounded(out, self.hidden(&tokens), self.weight, false, self.precision);
        let arch = Arch::new();
        out.par_chunks_exact_mut(self.features).enumerate().for_each(|(i, row)| {
            arch.dispatch(Forward { row, bias: self.bias, mask: self.mask_row(tokens.start + i) });
        });
    }

    /// Takes the tokens' gradient `grad`, which is overwritten, back through the layer, of which `output` is the output.
    pub(super) fn backward(
        &self,
        tokens: Range<usize>,
        output: &[T],
        grad: &mut [T],
        into: &mut LayerGradients<T>,
    ) {
        let (arch, features, keep) = (Arch::new(), self.features, self.keep);
        let rows = grad.par_chunks_exact_mut(features).zip(output.par_chunks_exact(features)).enumerate();
        rows.for_each(|(i, (grad, output))| {
            arch.dispatch(Backward { grad, output, mask: self.mask_row(tokens.start + i), keep });
        });
        let grad_matrix = Matrix::new(&*grad, tokens.len(), features);
        if let Some(out) = &mut into.hidden {
            let out = &mut out[tokens.start * self.d_hidden..tokens.end * self.d_hidden];
            multiply_rounded(out, grad_matrix, self.weight.t(), false, self.precision);
        }
        if let Some(out) = &mut into.weight {
            multiply_rounded(out, self.hidden(&tokens).t(), grad_matrix, tokens.start > 0, self.precision);
        }
        if let Some(out) = &mut into.bias {
            out.par_chunks_mut(COLUMNS).enumerate().for_each(|(part, out)| {
                let columns = part * COLUMNS..part * COLUMNS + out.len();
                for row in grad.chunks_exact(features) {
                    out.iter_mut().zip(&row[columns.clone()]).for_each(|(sum, g)| *sum += *g);
                }
            });
        }
    }
}

fn forward<T: Real>(inputs: &Inputs) -> FlexTensor {
    let mut out = Buffer::<T>::new(inputs.tokens * inputs.features);
    in_pool(|| inputs.layer().forward(0..inputs.tokens, &mut out));
    out.into_tensor([inputs.tokens, inputs.features])
}

fn backward<T: Real>(
    inputs: &Inputs,
    output: &FlexTensor,
    mut grad: FlexTensor,
    wanted: LatentWanted,
) -> LatentGradients<Floats<Flex>> {
    let mut gradients = inputs.room::<T>(wanted);
    // In place where nobody else holds the upstream gradient, which is the rule.
    let grad: &mut [T] = grad.storage_mut();
    in_pool(|| inputs.layer().backward(0..inputs.tokens, slice(output), grad, &mut gradients));
    inputs.finish(gradients)
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
