//! Native CPU kernel of the LSTM operation on Burn's Flex backend.
//!
//! The input products of all steps are one product into the buffer that becomes the gates. A step adds its recurrent product
//! there and makes gates, cell and hidden state in one pass over each row, vectorised, the rows side by side where they are
//! many. The backward pass mirrors it and ends in one product a weight over all steps. A step allocates nothing, and a
//! sequence reuses the [buffers](Buffer) of the one before.
//!
//! A step's product is small in the batch and reads all recurrent weights, so it runs at the speed of memory, provided
//! that they lie in the order in which it wants them: either pass cuts them into [`Panels`] once a sequence.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{
    Buffer, Matrix, Panels, Real, contiguous, in_pool, multiply, sigmoid, slice, tanh,
};
use highrank_kernels::{Floats, Precision};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

/// Elements of a step's state below which its rows are done by one thread: handing them out costs some microseconds,
/// which is what one thread needs for this many.
const PARALLEL: usize = 4096;

impl LstmOps for Flex {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        Self::lstm_with_saved(args).0.into_primitive()
    }
}

impl LstmKernels for Flex {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        let forward = match (args.x.dtype(), args.precision) {
            (DType::F32, Precision::Full) => forward::<f32>,
            (DType::F64, Precision::Full) => forward::<f64>,
            _ => return portable::forward_with_saved(args),
        };
        let args = args.as_ref().map(contiguous);
        let (packed, saved) = in_pool(|| forward(&args));
        (Floats::new(packed), saved.map(Floats::new))
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        let backward = match (args.x.dtype(), args.precision) {
            (DType::F32, Precision::Full) => backward::<f32>,
            (DType::F64, Precision::Full) => backward::<f64>,
            _ => return portable::backward(args, packed, saved, grad, wanted),
        };
        let (args, grad) = (args.as_ref().map(contiguous), contiguous(&grad));
        let saved = saved.as_ref().map(Floats::primitive);
        in_pool(|| backward(&args, packed.primitive(), saved, &grad, wanted)).map(Floats::new)
    }
}

/// T, B, I and H.
struct Sizes {
    steps: usize,
    batch: usize,
    inputs: usize,
    units: usize,
}

impl Sizes {
    fn of(args: &LstmArgs<FlexTensor>) -> Self {
        let (x, w_hh) = (args.x.shape(), args.w_hh.shape());
        Self { steps: x[0], batch: x[1], inputs: x[2], units: w_hh[1] }
    }

    /// Elements of a state, `B·H`.
    fn state(&self) -> usize {
        self.batch * self.units
    }
}

fn forward<T: Real>(args: &LstmArgs<FlexTensor>) -> (FlexTensor, LstmSaved<FlexTensor>) {
    let sizes = Sizes::of(args);
    let Sizes { steps, batch, inputs, units } = sizes;
    let (state, rows) = (sizes.state(), 4 * units);
    let recurrent = match &args.hh_mask {
        Some(mask) => {
            let mut weights = Buffer::<T>::new(rows * units);
            product(&mut weights, slice(&args.w_hh), slice(mask));
            weights.into_tensor([rows, units])
        }
        None => args.w_hh.clone(),
    };
    let weights = Panels::<T>::new(Matrix::new(slice(&recurrent), rows, units).t());
    let bias: Vec<T> =
        slice::<T>(&args.b_ih).iter().zip(slice::<T>(&args.b_hh)).map(|(a, b)| *a + *b).collect();

    let mut gates = Buffer::<T>::new(steps * batch * rows);
    let x = Matrix::new(slice(&args.x), steps * batch, inputs);
    multiply(&mut gates, x, Matrix::new(slice(&args.w_ih), rows, inputs).t(), false);
    let mut cells = Buffer::<T>::new(steps * state);
    let mut packed = Buffer::<T>::new((steps + 1) * state);
    for t in 0..steps {
        let z = &mut gates[t * batch * rows..(t + 1) * batch * rows];
        let (hidden_before, hidden) = packed.split_at_mut(t * state);
        let hidden_before: &[T] = if t == 0 { slice(&args.h0) } else { &hidden_before[(t - 1) * state..] };
        let (cells_before, cell) = cells.split_at_mut(t * state);
        let cells_before: &[T] = if t == 0 { slice(&args.c0) } else { &cells_before[(t - 1) * state..] };
        weights.multiply_add(z, Matrix::new(hidden_before, batch, units));

        let jobs = z
            .chunks_exact_mut(rows)
            .zip(cells_before.chunks_exact(units))
            .zip(cell[..state].chunks_exact_mut(units))
            .zip(hidden[..state].chunks_exact_mut(units))
            .map(|(((z, before), cell), hidden)| Forward { z, bias: &bias, before, cell, hidden });
        run_rows(jobs, state);
    }
    packed[steps * state..].copy_from_slice(&cells[(steps - 1) * state..]);
    let saved = LstmSaved {
        gates: gates.into_tensor([steps, batch, rows]),
        cells: cells.into_tensor([steps, batch, units]),
        recurrent,
    };
    (packed.into_tensor([steps + 1, batch, units]), saved)
}

fn backward<T: Real>(
    args: &LstmArgs<FlexTensor>,
    packed: &FlexTensor,
    saved: LstmSaved<&FlexTensor>,
    grad: &FlexTensor,
    wanted: LstmWanted,
) -> LstmGrads<FlexTensor> {
    let sizes = Sizes::of(args);
    let Sizes { steps, batch, inputs, units } = sizes;
    let (state, rows) = (sizes.state(), 4 * units);
    let (gates, cells): (&[T], &[T]) = (slice(saved.gates), slice(saved.cells));
    let grad: &[T] = slice(grad);
    let weights = Panels::<T>::new(Matrix::new(slice(saved.recurrent), rows, units));

    let mut d_gates = Buffer::<T>::new(steps * batch * rows);
    let mut d_cell = Buffer::of(&grad[steps * state..]);
    let mut d_hidden = Buffer::<T>::new(state);
    for t in (0..steps).rev() {
        let (dz, next) = d_gates.split_at_mut((t + 1) * batch * rows);
        d_hidden.copy_from_slice(&grad[t * state..(t + 1) * state]);
        if t + 1 < steps {
            weights.multiply_add(&mut d_hidden, Matrix::new(&next[..batch * rows], batch, rows));
        }
        let before: &[T] = if t == 0 { slice(&args.c0) } else { &cells[(t - 1) * state..t * state] };
        let jobs = dz[t * batch * rows..]
            .chunks_exact_mut(rows)
            .zip(gates[t * batch * rows..(t + 1) * batch * rows].chunks_exact(rows))
            .zip(before.chunks_exact(units))
            .zip(cells[t * state..(t + 1) * state].chunks_exact(units))
            .zip(d_hidden.chunks_exact(units))
            .zip(d_cell.chunks_exact_mut(units))
            .map(|(((((dz, gates), before), cell), d_hidden), d_cell)| Backward {
                dz,
                gates,
                before,
                cell,
                d_hidden,
                d_cell,
            });
        run_rows(jobs, state);
    }

    let all = Matrix::new(&d_gates, steps * batch, rows);
    let h0 = wanted.h0.then(|| {
        d_hidden.fill(T::ZERO);
        weights.multiply_add(&mut d_hidden, Matrix::new(&d_gates[..batch * rows], batch, rows));
        d_hidden.into_tensor([batch, units])
    });
    let x = wanted.x.then(|| {
        let mut out = Buffer::<T>::new(steps * batch * inputs);
        multiply(&mut out, all, Matrix::new(slice(&args.w_ih), rows, inputs), false);
        out.into_tensor([steps, batch, inputs])
    });
    let w_ih = wanted.w_ih.then(|| {
        let mut out = Buffer::<T>::new(rows * inputs);
        multiply(&mut out, all.t(), Matrix::new(slice(&args.x), steps * batch, inputs), false);
        out.into_tensor([rows, inputs])
    });
    let w_hh = wanted.w_hh.then(|| {
        let mut out = Buffer::<T>::new(rows * units);
        let (first, rest) = d_gates.split_at(batch * rows);
        let h0 = Matrix::new(slice(&args.h0), batch, units);
        multiply(&mut out, Matrix::new(first, batch, rows).t(), h0, false);
        if steps > 1 {
            let hidden = &slice::<T>(packed)[..(steps - 1) * state];
            let hidden = Matrix::new(hidden, (steps - 1) * batch, units);
            multiply(&mut out, Matrix::new(rest, (steps - 1) * batch, rows).t(), hidden, true);
        }
        if let Some(mask) = &args.hh_mask {
            multiply_by(&mut out, slice(mask));
        }
        out.into_tensor([rows, units])
    });
    let bias = wanted.bias.then(|| {
        let mut out = Buffer::<T>::zeros(rows);
        for row in d_gates.chunks_exact(rows) {
            out.iter_mut().zip(row).for_each(|(sum, dz)| *sum += *dz);
        }
        out.into_tensor([rows])
    });
    LstmGrads { x, h0, c0: wanted.c0.then(|| d_cell.into_tensor([batch, units])), w_ih, w_hh, bias }
}

/// Runs one job a row of the batch, side by side where the state is large.
fn run_rows<J: WithSimd<Output = ()> + Send>(jobs: impl Iterator<Item = J>, state: usize) {
    let arch = Arch::new();
    if state < PARALLEL {
        jobs.for_each(|job| arch.dispatch(job));
    } else {
        jobs.collect::<Vec<_>>().into_par_iter().for_each(|job| arch.dispatch(job));
    }
}

/// `out ← a ∘ b`.
fn product<T: Real>(out: &mut [T], a: &[T], b: &[T]) {
    let factors = a.par_chunks(PARALLEL).zip(b.par_chunks(PARALLEL));
    out.par_chunks_mut(PARALLEL).zip(factors).for_each(|(out, (a, b))| {
        out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = *a * *b);
    });
}

/// `a ← a ∘ b`.
fn multiply_by<T: Real>(a: &mut [T], b: &[T]) {
    let pairs = a.par_chunks_mut(PARALLEL).zip(b.par_chunks(PARALLEL));
    pairs.for_each(|(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a *= *b));
}

/// One row of one step: gates in place of their pre-activations, the new cell and hidden state.
struct Forward<'a, T> {
    /// `[4H]`
    z: &'a mut [T],
    bias: &'a [T],
    before: &'a [T],
    cell: &'a mut [T],
    hidden: &'a mut [T],
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { z, bias, before, cell, hidden } = self;
        let units = cell.len();
        for (quarter, (z, bias)) in z.chunks_exact_mut(units).zip(bias.chunks_exact(units)).enumerate() {
            let pairs = z.iter_mut().zip(bias);
            if quarter == 2 {
                pairs.for_each(|(z, b)| *z = tanh(*z + *b));
            } else {
                pairs.for_each(|(z, b)| *z = sigmoid(*z + *b));
            }
        }
        let [input, forget, candidate, output] = quarters(z);
        for j in 0..units {
            cell[j] = forget[j] * before[j] + input[j] * candidate[j];
        }
        for j in 0..units {
            hidden[j] = output[j] * tanh(cell[j]);
        }
    }
}

/// One row of one step backward: the gradient of the pre-activations, and that of the cell passed on to the step before.
struct Backward<'a, T> {
    /// `[4H]`
    dz: &'a mut [T],
    gates: &'a [T],
    before: &'a [T],
    cell: &'a [T],
    d_hidden: &'a [T],
    d_cell: &'a mut [T],
}

impl<T: Real> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { dz, gates, before, cell, d_hidden, d_cell } = self;
        let units = cell.len();
        let [input, forget, candidate, output] = quarters(gates);
        let (d_input, rest) = dz.split_at_mut(units);
        let (d_forget, rest) = rest.split_at_mut(units);
        let (d_candidate, d_output) = rest.split_at_mut(units);
        let (before, d_hidden, d_cell) = (&before[..units], &d_hidden[..units], &mut d_cell[..units]);
        let (d_candidate, d_output) = (&mut d_candidate[..units], &mut d_output[..units]);
        for j in 0..units {
            let (i, f, g, o) = (input[j], forget[j], candidate[j], output[j]);
            let c = tanh(cell[j]);
            let dc = d_cell[j] + d_hidden[j] * o * (T::ONE - c * c);
            d_input[j] = dc * g * i * (T::ONE - i);
            d_forget[j] = dc * before[j] * f * (T::ONE - f);
            d_candidate[j] = dc * i * (T::ONE - g * g);
            d_output[j] = d_hidden[j] * c * o * (T::ONE - o);
            d_cell[j] = dc * f;
        }
    }
}

/// The four gates of a row: input, forget, candidate, output.
#[inline(always)]
fn quarters<T>(row: &[T]) -> [&[T]; 4] {
    let units = row.len() / 4;
    let (input, rest) = row.split_at(units);
    let (forget, rest) = rest.split_at(units);
    let (candidate, output) = rest.split_at(units);
    [input, forget, candidate, &output[..units]]
}
