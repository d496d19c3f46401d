//! Native CPU kernel of the gated logits of a Mixtape on Burn's Flex backend.
//!
//! A chunk of tokens: two products, three rows a token with the decoder and three with the gates, then one visit that combines
//! them. The backward pass makes both products again, turns them into their own gradients in one visit, and takes four products
//! out of these.

use burn::backend::Flex;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{
    Buffer, Factor, Matrix, Real, contiguous, in_pool, multiply_rounded, sigmoid, slice,
};
use highrank_kernels::{Floats, Precision};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::call::assert_length;
use super::factor::{Stored, as_factor};
use super::row::{LANES, Lanes, total};
use super::sweep::even;
use crate::ops::{GatedArgs, GatedGradients, GatedWanted, runs, wide};

/// The inner nodes of the tree of gates.
const GATES: usize = GatedArgs::<()>::GATES;

/// Its leaves.
const COMPONENTS: usize = GatedArgs::<()>::COMPONENTS;

/// Columns that a thread sums over all rows at a time.
const COLUMNS: usize = 256;

/// [`Kernels::gated`](crate::ops::Kernels::gated) on Flex.
pub(super) fn gated(args: GatedArgs<Floats<Flex>>) -> Floats<Flex> {
    let inputs = Inputs::new(args);
    Floats::new(match inputs.sums {
        DType::F64 => forward::<f64>(&inputs),
        _ => forward::<f32>(&inputs),
    })
}

/// [`Kernels::gated_backward`](crate::ops::Kernels::gated_backward) on Flex.
pub(super) fn gated_backward(
    args: GatedArgs<Floats<Flex>>,
    grad: Floats<Flex>,
    wanted: GatedWanted,
) -> GatedGradients<Floats<Flex>> {
    let inputs = Inputs::new(args);
    let grad = contiguous(&grad.cast(inputs.sums));
    match inputs.sums {
        DType::F64 => backward::<f64>(&inputs, &grad, wanted),
        _ => backward::<f32>(&inputs, &grad, wanted),
    }
}

/// The arguments row-major, in the type of sums, but for decoder rows that may stay bf16.
struct Inputs {
    prior: FlexTensor,
    latent: FlexTensor,
    features: FlexTensor,
    base: FlexTensor,
    vectors: FlexTensor,
    /// `[3, S]`
    bias: FlexTensor,
    weight: FlexTensor,
    sums: DType,
    tokens: usize,
    words: usize,
    d: usize,
    d_gate: usize,
    chunk: usize,
    precision: Precision,
}

impl Inputs {
    /// # Panics
    /// If tensors do not fit each other.
    fn new(args: GatedArgs<Floats<Flex>>) -> Self {
        let (tokens, words, d, d_gate) = (args.tokens(), args.words(), args.d_embedding(), args.d_gate());
        let sums = wide(args.weight.dtype());
        let as_read = |tensor: Floats<Flex>| contiguous(&tensor.cast(sums));
        let inputs = Self {
            chunk: args.chunk_tokens(),
            precision: args.precision,
            prior: as_read(args.prior),
            latent: as_read(args.latent),
            features: as_read(args.features),
            base: as_read(args.base),
            vectors: as_read(args.vectors),
            bias: as_read(args.bias.transpose()),
            weight: contiguous(&as_factor(args.weight, sums)),
            sums,
            tokens,
            words,
            d,
            d_gate,
        };
        assert_length("latent contexts", Some(&inputs.latent), tokens * COMPONENTS * d);
        assert_length("gate features", Some(&inputs.features), tokens * GATES * d_gate);
        assert_length("gate logits", Some(&inputs.base), tokens * GATES);
        assert_length("gate biases", Some(&inputs.bias), GATES * words);
        inputs
    }

    /// On slices.
    fn kernel<T: Real>(&self) -> Kernel<'_, T> {
        Kernel {
            prior: slice(&self.prior),
            latent: slice(&self.latent),
            features: slice(&self.features),
            base: slice(&self.base),
            vectors: Matrix::new(slice(&self.vectors), self.words, self.d_gate),
            bias: slice(&self.bias),
            weight: Stored::new(&self.weight).factor(self.words, self.d),
            words: self.words,
            d: self.d,
            d_gate: self.d_gate,
            precision: self.precision,
        }
    }

    /// Runs of tokens, start and end, and the longest of them.
    fn chunks(&self) -> (usize, impl Iterator<Item = (usize, usize)> + use<>) {
        let chunk = even(self.tokens.max(1), self.chunk);
        (chunk, runs(self.tokens, chunk))
    }
}

/// The inputs as slices.
struct Kernel<'a, T> {
    /// `[N, 4]`
    prior: &'a [T],
    /// `[N, 4·d]`
    latent: &'a [T],
    /// `[N, 3·G]`
    features: &'a [T],
    /// `[N, 3]`
    base: &'a [T],
    /// `[S, G]`
    vectors: Matrix<'a, T>,
    /// `[3, S]`
    bias: &'a [T],
    /// `[S, d]`
    weight: Factor<'a, T>,
    words: usize,
    d: usize,
    d_gate: usize,
    precision: Precision,
}

/// What a chunk is worked on in.
struct Room<T> {
    /// `h_j − h_4`, `[chunk·3, d]`
    differences: Buffer<T>,
    /// `(h_j − h_4)ᵀ w_x`, then its gradient, `[chunk·3, S]`
    products: Buffer<T>,
    /// `v_xᵀ t_j`, then its gradient, `[chunk·3, S]`
    gates: Buffer<T>,
}

impl<T: Real> Room<T> {
    fn new(chunk: usize, inputs: &Inputs) -> Self {
        let rows = chunk * GATES;
        Self {
            differences: Buffer::new(rows * inputs.d),
            products: Buffer::new(rows * inputs.words),
            gates: Buffer::new(rows * inputs.words),
        }
    }
}

impl<T: Real> Kernel<'_, T> {
    /// Both products of tokens `start .. end`.
    fn products(&self, start: usize, end: usize, room: &mut Room<T>) {
        let (d, words, rows) = (self.d, self.words, (end - start) * GATES);
        let differences = &mut room.differences[..rows * d];
        let latent = &self.latent[start * COMPONENTS * d..end * COMPONENTS * d];
        let tokens = differences.par_chunks_exact_mut(GATES * d).zip(latent.par_chunks_exact(COMPONENTS * d));
        tokens.for_each(|(differences, latent)| {
            let (contexts, last) = latent.split_at(GATES * d);
            for (out, context) in differences.chunks_exact_mut(d).zip(contexts.chunks_exact(d)) {
                out.iter_mut().zip(context.iter().zip(last)).for_each(|(out, (h, last))| *out = *h - *last);
            }
        });
        let differences = Matrix::new(&*differences, rows, d);
        let products = &mut room.products[..rows * words];
        multiply_rounded(products, differences, self.weight.t(), false, self.precision);
        let gates = &mut room.gates[..rows * words];
        multiply_rounded(gates, self.features(start, end), self.vectors.t(), false, self.precision);
    }

    /// `t` of tokens `start .. end`, `[tokens·3, G]`.
    fn features(&self, start: usize, end: usize) -> Matrix<'_, T> {
        let width = GATES * self.d_gate;
        Matrix::new(&self.features[start * width..end * width], (end - start) * GATES, self.d_gate)
    }

    /// What a token's rows are combined by.
    fn tree(&self, token: usize) -> Tree<'_, T> {
        Tree {
            prior: self.prior[token * COMPONENTS..][..COMPONENTS].try_into().expect("four leaves"),
            base: self.base[token * GATES..][..GATES].try_into().expect("three gates"),
            bias: self.bias,
        }
    }
}

/// What the rows of a token are combined by.
#[derive(Clone, Copy)]
struct Tree<'a, T> {
    prior: [T; COMPONENTS],
    base: [T; GATES],
    /// `[3, S]`
    bias: &'a [T],
}

/// Three rows of equal length.
#[inline(always)]
fn three<T>(rows: &[T]) -> [&[T]; GATES] {
    let (first, rest) = rows.split_at(rows.len() / GATES);
    let (second, third) = rest.split_at(first.len());
    [first, second, third]
}

/// As [`three`], to be changed.
#[inline(always)]
fn three_mut<T>(rows: &mut [T]) -> [&mut [T]; GATES] {
    let (first, rest) = rows.split_at_mut(rows.len() / GATES);
    let (second, third) = rest.split_at_mut(first.len());
    [first, second, third]
}

fn forward<T: Real>(inputs: &Inputs) -> FlexTensor {
    let (words, kernel) = (inputs.words, inputs.kernel::<T>());
    let (chunk, runs) = inputs.chunks();
    let (mut room, mut out) = (Room::new(chunk, inputs), Buffer::<T>::new(inputs.tokens * words));
    let arch = Arch::new();
    in_pool(|| {
        for (start, end) in runs {
            kernel.products(start, end, &mut room);
            let rows = (end - start) * GATES * words;
            let of_token = GATES * words;
            out[start * words..end * words]
                .par_chunks_exact_mut(words)
                .zip(room.products[..rows].par_chunks_exact(of_token))
                .zip(room.gates[..rows].par_chunks_exact(of_token))
                .enumerate()
                .for_each(|(n, ((out, products), gates))| {
                    arch.dispatch(Forward { tree: kernel.tree(start + n), products, gates, out });
                });
        }
    });
    out.into_tensor([inputs.tokens, words])
}

/// One token: its row of logits.
struct Forward<'a, T> {
    tree: Tree<'a, T>,
    /// `[3, S]`
    products: &'a [T],
    /// `[3, S]`
    gates: &'a [T],
    /// `[S]`
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { tree: Tree { prior, base, bias }, products, gates, out } = self;
        let ([d1, d2, d3], [l1, l2, l3], [b1, b2, b3]) = (three(products), three(gates), three(bias));
        let words = out.len();
        let [d1, d2, d3, l1, l2, l3, b1, b2, b3] =
            [d1, d2, d3, l1, l2, l3, b1, b2, b3].map(|row| &row[..words]);
        for x in 0..words {
            let first = sigmoid(l1[x] + base[0] + b1[x]);
            let second = sigmoid(l2[x] + base[1] + b2[x]);
            let third = sigmoid(l3[x] + base[2] + b3[x]);
            let (left, right) = (first * second - prior[0], first * (T::ONE - second) - prior[1]);
            let below = (T::ONE - first) * third - prior[2];
            out[x] = left.mul_add(d1[x], right.mul_add(d2[x], below * d3[x]));
        }
    }
}

/// Room for the wanted gradients.
struct Gradients<T> {
    prior: Option<Buffer<T>>,
    latent: Option<Buffer<T>>,
    features: Option<Buffer<T>>,
    base: Option<Buffer<T>>,
    vectors: Option<Buffer<T>>,
    /// `[3, S]`
    bias: Option<Buffer<T>>,
    weight: Option<Buffer<T>>,
}

fn backward<T: Real>(
    inputs: &Inputs,
    grad: &FlexTensor,
    wanted: GatedWanted,
) -> GatedGradients<Floats<Flex>> {
    let Inputs { tokens, words, d, d_gate, .. } = *inputs;
    assert_length("the gated logits' gradient", Some(grad), tokens * words);
    let (kernel, grad) = (inputs.kernel::<T>(), slice(grad));
    let room = |wanted: bool, len: usize| wanted.then(|| Buffer::<T>::zeros(len));
    let mut made = Gradients {
        prior: room(wanted.prior, tokens * COMPONENTS),
        latent: room(wanted.latent, tokens * COMPONENTS * d),
        features: room(wanted.features, tokens * GATES * d_gate),
        base: room(wanted.base, tokens * GATES),
        vectors: room(wanted.vectors, words * d_gate),
        bias: room(wanted.bias, GATES * words),
        weight: room(wanted.weight, words * d),
    };
    let (chunk, runs) = inputs.chunks();
    let mut rows = Room::new(chunk, inputs);
    let mut sums = vec![[T::ZERO; 2 * GATES]; chunk];
    in_pool(|| {
        for (start, end) in runs {
            kernel.products(start, end, &mut rows);
            kernel.backward(start, end, grad, &mut rows, &mut sums, &mut made);
        }
    });
    let tensor = |values: Option<Buffer<T>>, shape: [usize; 2]| {
        values.map(|values| Floats::new(values.into_tensor(shape)))
    };
    GatedGradients {
        prior: tensor(made.prior, [tokens, COMPONENTS]),
        latent: tensor(made.latent, [tokens, COMPONENTS * d]),
        features: tensor(made.features, [tokens, GATES * d_gate]),
        base: tensor(made.base, [tokens, GATES]),
        vectors: tensor(made.vectors, [words, d_gate]),
        bias: tensor(made.bias, [GATES, words]).map(Floats::transpose),
        weight: tensor(made.weight, [words, d]),
    }
}

impl<T: Real> Kernel<'_, T> {
    /// What tokens `start .. end`, whose products have been made, add to the gradients.
    fn backward(
        &self,
        start: usize,
        end: usize,
        grad: &[T],
        room: &mut Room<T>,
        sums: &mut [[T; 2 * GATES]],
        made: &mut Gradients<T>,
    ) {
        let (d, words, precision, arch) = (self.d, self.words, self.precision, Arch::new());
        let (tokens, rows) = (end - start, (end - start) * GATES);
        let (products, gates) = (&mut room.products[..rows * words], &mut room.gates[..rows * words]);
        let sums = &mut sums[..tokens];
        grad[start * words..end * words]
            .par_chunks_exact(words)
            .zip(products.par_chunks_exact_mut(GATES * words))
            .zip(gates.par_chunks_exact_mut(GATES * words))
            .zip(&mut *sums)
            .enumerate()
            .for_each(|(n, (((grad, products), gates), sums))| {
                *sums = arch.dispatch(Backward { tree: self.tree(start + n), grad, products, gates });
            });
        if let Some(out) = &mut made.prior {
            let out = &mut out[start * COMPONENTS..end * COMPONENTS];
            for (out, sums) in out.chunks_exact_mut(COMPONENTS).zip(&*sums) {
                out.iter_mut().zip(&sums[..GATES]).for_each(|(out, sum)| *out = -*sum);
            }
        }
        if let Some(out) = &mut made.base {
            for (out, sums) in out[start * GATES..end * GATES].chunks_exact_mut(GATES).zip(&*sums) {
                out.copy_from_slice(&sums[GATES..]);
            }
        }
        if let Some(out) = &mut made.bias {
            out.par_chunks_mut(COLUMNS).enumerate().for_each(|(part, out)| {
                let columns = part * COLUMNS..part * COLUMNS + out.len();
                for rows in gates.chunks_exact(GATES * words) {
                    out.iter_mut().zip(&rows[columns.clone()]).for_each(|(sum, g)| *sum += *g);
                }
            });
        }
        let (products, gates) = (Matrix::new(&*products, rows, words), Matrix::new(&*gates, rows, words));
        let accumulate = start > 0;
        if let Some(out) = &mut made.weight {
            let differences = Matrix::new(&room.differences[..rows * d], rows, d);
            multiply_rounded(out, products.t(), differences, accumulate, precision);
        }
        if let Some(out) = &mut made.vectors {
            multiply_rounded(out, gates.t(), self.features(start, end), accumulate, precision);
        }
        if let Some(out) = &mut made.features {
            let width = GATES * self.d_gate;
            multiply_rounded(&mut out[start * width..end * width], gates, self.vectors, false, precision);
        }
        if let Some(out) = &mut made.latent {
            let back = &mut room.differences[..rows * d];
            multiply_rounded(back, products, self.weight, false, precision);
            let out = &mut out[start * COMPONENTS * d..end * COMPONENTS * d];
            let tokens = out.par_chunks_exact_mut(COMPONENTS * d).zip(back.par_chunks_exact(GATES * d));
            tokens.for_each(|(out, back)| {
                let (contexts, last) = out.split_at_mut(GATES * d);
                contexts.copy_from_slice(back);
                for back in back.chunks_exact(d) {
                    last.iter_mut().zip(back).for_each(|(last, g)| *last -= *g);
                }
            });
        }
    }
}

/// One token: its rows become their own gradients. The sums over its words, of `∂π_j` and of the gate logits' gradients.
struct Backward<'a, T> {
    tree: Tree<'a, T>,
    /// `[S]`
    grad: &'a [T],
    /// `[3, S]`
    products: &'a mut [T],
    /// `[3, S]`
    gates: &'a mut [T],
}

impl<T: Real> WithSimd for Backward<'_, T> {
    type Output = [T; 2 * GATES];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> [T; 2 * GATES] {
        let Self { tree: Tree { prior, base, bias }, grad, products, gates } = self;
        let ([d1, d2, d3], [l1, l2, l3]) = (three_mut(products), three_mut(gates));
        let [b1, b2, b3] = three(bias);
        let mut sums: [Lanes<T>; 2 * GATES] = [[T::ZERO; LANES]; 2 * GATES];
        for first in (0..grad.len()).step_by(LANES) {
            let run = first..grad.len().min(first + LANES);
            let words = run.len();
            let grad = &grad[run.clone()];
            let [b1, b2, b3] = [b1, b2, b3].map(|row| &row[run.clone()][..words]);
            let (d1, d2, d3) = (&mut d1[run.clone()], &mut d2[run.clone()], &mut d3[run.clone()]);
            let (l1, l2, l3) = (&mut l1[run.clone()], &mut l2[run.clone()], &mut l3[run]);
            let [s1, s2, s3, s4, s5, s6] = &mut sums;
            for x in 0..words {
                let first = sigmoid(l1[x] + base[0] + b1[x]);
                let second = sigmoid(l2[x] + base[1] + b2[x]);
                let third = sigmoid(l3[x] + base[2] + b3[x]);
                let (not_first, not_second) = (T::ONE - first, T::ONE - second);
                let g = grad[x];
                let (p1, p2, p3) = (g * d1[x], g * d2[x], g * d3[x]);
                d1[x] = g * (first * second - prior[0]);
                d2[x] = g * (first * not_second - prior[1]);
                d3[x] = g * (not_first * third - prior[2]);
                let of_first = second * p1 + not_second * p2 - third * p3;
                l1[x] = first * not_first * of_first;
                l2[x] = second * not_second * first * (p1 - p2);
                l3[x] = third * (T::ONE - third) * not_first * p3;
                s1[x] += p1;
                s2[x] += p2;
                s3[x] += p3;
                s4[x] += l1[x];
                s5[x] += l2[x];
                s6[x] += l3[x];
            }
        }
        sums.map(total)
    }
}
