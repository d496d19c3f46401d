//! Native CPU kernel of the latent layer on Burn's Flex backend.

use core::ops::Range;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{
    Buffer, Factor, Matrix, Real, in_pool, into_contiguous, multiply, share, share_with, tanh,
};
use highrank_kernels::vectorised;
use pulp::Arch;

use super::tensors::{as_factor, factor, gradient_buffer, row_major, values};
use crate::ops::{Activation, LatentArgs, LatentGradients, LatentInputs, LatentMask, LatentWanted};

/// Columns that a thread sums over all rows at a time: a run of cache lines of each row, a microsecond's work or more.
const COLUMNS: usize = 256;

/// The layer on Flex, its tensors [as they are read](as_read).
type Layer = LatentArgs<Floats<Flex>>;

/// [`Kernels::latent`](crate::ops::Kernels::latent) with sums of type `T`.
pub(super) fn forward<T: Real>(args: Layer) -> Floats<Flex> {
    let layer = as_read(args, T::dtype());
    let ([tokens, _], [_, features]) = (layer.hidden.dims(), layer.weight.dims());
    let mut out = Buffer::<T>::new(tokens * features);
    in_pool(|| write(&layer, 0..tokens, &mut out));
    Floats::new(out.into_tensor([tokens, features]))
}

/// [`Kernels::latent_backward`](crate::ops::Kernels::latent_backward) with sums of type `T`.
pub(super) fn backward<T: Real>(
    args: Layer,
    output: Floats<Flex>,
    grad: Floats<Flex>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<Flex>> {
    let (layer, output) = (as_read(args, T::dtype()), row_major(output));
    let (tokens, wanted) = (layer.hidden.shape()[0], layer.inputs().zip(wanted));
    let mut made =
        wanted.map(|(input, is_wanted)| Some(gradient_buffer::<T>(input.filter(|_| is_wanted)?, tokens)));
    let mut into = LatentInputs {
        hidden: made.hidden.as_deref_mut(),
        weight: made.weight.as_deref_mut(),
        bias: made.bias.as_deref_mut(),
    };
    // In place where nobody else holds the upstream gradient, which is the rule.
    let mut grad = into_contiguous(grad);
    in_pool(|| pull_back(&layer, 0..tokens, values(&output), grad.storage_mut(), &mut into));
    layer.inputs().zip(made).map(|(input, made)| Some(Floats::new(made?.into_tensor(input?.shape()))))
}

/// The layer's tensors row-major in the type of sums, but for factors of products that may stay bf16.
pub(super) fn as_read(args: Layer, sums: DType) -> Layer {
    let wide = |tensor: Floats<Flex>| row_major(tensor.cast(sums));
    LatentArgs {
        hidden: row_major(as_factor(args.hidden, sums)),
        weight: row_major(as_factor(args.weight, sums)),
        bias: args.bias.map(wide),
        mask: args.mask.map(|mask| LatentMask { values: wide(mask.values), ..mask }),
        ..args
    }
}

/// The hidden states of some tokens, `[tokens, H]`.
fn hidden<T: Real>(layer: &Layer, tokens: Range<usize>) -> Factor<'_, T> {
    let hidden = factor(&layer.hidden);
    hidden.block(tokens, 0..hidden.columns())
}

/// The dropout mask's row for each token, if there is a mask.
fn mask_row<'a, T: Real>(layer: &'a Layer) -> impl Fn(usize) -> Option<&'a [T]> {
    let mask = layer.mask.as_ref().map(|mask| (mask, values::<T>(&mask.values)));
    let [_, features] = layer.weight.dims();
    move |token| {
        let (mask, values) = mask?;
        let row = mask.rows[token] as usize;
        Some(&values[row * features..(row + 1) * features])
    }
}

/// Writes the latent contexts of some tokens, `[tokens, F]`.
pub(super) fn write<T: Real>(layer: &Layer, tokens: Range<usize>, out: &mut [T]) {
    let ([_, features], d) = (layer.weight.dims(), layer.d);
    let hidden = hidden::<T>(layer, tokens.clone());
    multiply(out, hidden, factor(&layer.weight), false, layer.precision);
    let (arch, bias, mask_row) = (Arch::new(), layer.bias.as_ref().map(values), mask_row(layer));
    let activation = layer.activation;
    if activation == Activation::Linear && bias.is_none() && layer.mask.is_none() {
        return;
    }
    let is_residual = activation == Activation::Residual;
    let rows = out.chunks_exact_mut(features).enumerate();
    let past = || vec![T::ZERO; if is_residual { d } else { 0 }];
    share_with(rows, past, |past, (i, row)| {
        let mask = mask_row(tokens.start + i);
        if is_residual {
            hidden.write_row(i, past, |x| x);
        }
        let past = is_residual.then_some(&**past);
        vectorised!(arch, |row: &'a mut [T],
                           bias: Option<&'a [T]>,
                           mask: Option<&'a [T]>,
                           activation: Activation,
                           past: Option<&'a [T]>| {
            if let Some(bias) = bias {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += *b);
            }
            match (activation, mask) {
                (Activation::Linear, Some(mask)) => row.iter_mut().zip(mask).for_each(|(x, m)| *x *= *m),
                (Activation::Linear, None) => {}
                (_, Some(mask)) if past.is_none() => {
                    row.iter_mut().zip(mask).for_each(|(x, m)| *x = tanh(*x) * *m);
                }
                _ => row.iter_mut().for_each(|x| *x = tanh(*x)),
            }
            let Some(past) = past else { return };
            for context in row.chunks_exact_mut(past.len()) {
                context.iter_mut().zip(past).for_each(|(x, g)| *x += *g);
            }
            if let Some(mask) = mask {
                row.iter_mut().zip(mask).for_each(|(x, m)| *x *= *m);
            }
        });
    });
}

/// Takes the gradient of some tokens' latent contexts, which is overwritten, back through the layer, of which `output` is the
/// output. The gradient of the hidden states is that of all tokens, `[N, H]`; those of weight and bias are added to, but
/// the first tokens write the weight's.
pub(super) fn pull_back<T: Real>(
    layer: &Layer,
    tokens: Range<usize>,
    output: &[T],
    grad: &mut [T],
    into: &mut LatentInputs<Option<&mut [T]>>,
) {
    let ([_, d_hidden], [_, features], d) = (layer.hidden.dims(), layer.weight.dims(), layer.d);
    let past = match layer.activation {
        Activation::Residual => Some(pull_back_residual(layer, tokens.clone(), grad)),
        Activation::Linear if layer.mask.is_none() => None,
        activation => {
            let (arch, mask_row) = (Arch::new(), mask_row(layer));
            let rows = grad.chunks_exact_mut(features).zip(output.chunks_exact(features));
            share(rows.enumerate(), |(i, (grad, output))| {
                let mask = mask_row(tokens.start + i);
                vectorised!(arch, |grad: &'a mut [T],
                                   output: &'a [T],
                                   mask: Option<&'a [T]>,
                                   activation: Activation| {
                    let pairs = grad.iter_mut().zip(output);
                    match mask {
                        Some(mask) if activation == Activation::Linear => {
                            pairs.zip(mask).for_each(|((g, _), m)| *g *= *m);
                        }
                        Some(mask) => pairs.zip(mask).for_each(|((g, h), m)| {
                            // Dropped, both are 0.
                            let t = *h / if *m == T::ZERO { T::ONE } else { *m };
                            *g *= *m * (T::ONE - t * t);
                        }),
                        None => pairs.for_each(|(g, h)| *g *= T::ONE - *h * *h),
                    }
                });
            });
            None
        }
    };
    let grad_matrix = Matrix::new(&*grad, tokens.len(), features);
    if let Some(out) = &mut into.hidden {
        let out = &mut out[tokens.start * d_hidden..tokens.end * d_hidden];
        multiply(out, grad_matrix, factor(&layer.weight).t(), false, layer.precision);
        for (out, past) in
            out.chunks_exact_mut(d_hidden).zip(past.iter().flat_map(|past| past.chunks_exact(d)))
        {
            out.iter_mut().zip(past).for_each(|(out, past)| *out += *past);
        }
    }
    if let Some(out) = &mut into.weight {
        let (hidden, is_added) = (hidden(layer, tokens.clone()).t(), tokens.start > 0);
        multiply(out, hidden, grad_matrix, is_added, layer.precision);
    }
    if let Some(out) = &mut into.bias {
        add_columns(out, grad);
    }
}

/// Puts the gradient of the pre-activations in place of that of some tokens' contexts, which have the hidden state added to the
/// tanh. Returns the gradient that comes past it to the hidden state's first features, `[tokens, d]`.
fn pull_back_residual<T: Real>(layer: &Layer, tokens: Range<usize>, grad: &mut [T]) -> Buffer<T> {
    let ([_, features], d) = (layer.weight.dims(), layer.d);
    let mut sums = Buffer::<T>::new(grad.len());
    let hidden = hidden(layer, tokens.clone());
    multiply(&mut sums, hidden, factor(&layer.weight), false, layer.precision);
    let mut past = Buffer::<T>::zeros(tokens.len() * d);
    let (arch, bias, mask_row) = (Arch::new(), layer.bias.as_ref().map(values), mask_row(layer));
    let rows = grad.chunks_exact_mut(features).zip(sums.chunks_exact(features));
    share(rows.zip(past.chunks_exact_mut(d)).enumerate(), |(i, ((grad, sums), past))| {
        let mask = mask_row(tokens.start + i);
        vectorised!(arch, |grad: &'a mut [T],
                           sums: &'a [T],
                           bias: Option<&'a [T]>,
                           mask: Option<&'a [T]>,
                           past: &'a mut [T]| {
            if let Some(mask) = mask {
                grad.iter_mut().zip(mask).for_each(|(g, m)| *g *= *m);
            }
            for context in grad.chunks_exact(past.len()) {
                past.iter_mut().zip(context).for_each(|(past, g)| *past += *g);
            }
            let slope = |u: T| {
                let t = tanh(u);
                T::ONE - t * t
            };
            match bias {
                Some(bias) => {
                    grad.iter_mut().zip(sums).zip(bias).for_each(|((g, u), b)| *g *= slope(*u + *b));
                }
                None => grad.iter_mut().zip(sums).for_each(|(g, u)| *g *= slope(*u)),
            }
        });
    });
    past
}

/// Adds the sums over rows to as many numbers as a row has, each thread for a run of columns.
pub(super) fn add_columns<T: Real>(sums: &mut [T], rows: &[T]) {
    let width = sums.len();
    share(sums.chunks_mut(COLUMNS).enumerate(), |(part, sums)| {
        let columns = part * COLUMNS..part * COLUMNS + sums.len();
        for row in rows.chunks_exact(width) {
            sums.iter_mut().zip(&row[columns.clone()]).for_each(|(sum, x)| *sum += *x);
        }
    });
}
