//! Native CPU kernel of the LSTM operation on Burn's Flex backend.
//!
//! The input products of all steps are one product into the buffer that becomes the gates. A step adds its recurrent product
//! there and makes gates, cell and hidden state in one pass over each row, vectorised, the rows side by side where they are
//! many, and in pieces where threads are more. The backward pass mirrors it and ends in one product a weight over all steps.
//! A sequence reuses the [buffers](Buffer) of the one before. Products round what they read as the portable formulas do.
//!
//! A step's product is small in the batch and reads all recurrent weights, so it runs at the speed of memory, provided
//! that they lie in the order in which it wants them: either pass cuts them into [`Panels`] once a sequence.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, bf16};
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{
    Buffer, Factor, Matrix, Panels, Real, in_pool, into_contiguous, multiply, share, sigmoid, slice, tanh,
};
use highrank_kernels::vectorised;
use highrank_kernels::{Floats, Precision};
use pulp::{Arch, Simd, WithSimd};

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

/// Elements of a step's state below which its rows are done by one thread: handing them out costs some microseconds,
/// which is what one thread needs for this many.
const PARALLEL: usize = 4096;

/// Units that a row of a step is cut into at least, where there are more threads than rows: less is not worth a thread.
const PIECE: usize = 128;

/// Columns of the gates that a thread adds up at a time.
const COLUMNS: usize = 256;

impl LstmOps for Flex {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        Self::lstm_with_saved(args).0.into_primitive()
    }
}

impl LstmKernels for Flex {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        let forward = match args.x.dtype() {
            DType::F32 => forward::<f32>,
            DType::F64 => forward::<f64>,
            _ => return portable::forward_with_saved(args),
        };
        let args = args.map(into_contiguous);
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
        let backward = match args.x.dtype() {
            DType::F32 => backward::<f32>,
            DType::F64 => backward::<f64>,
            _ => return portable::backward(args, packed, saved, grad, wanted),
        };
        let (args, grad) = (args.map(into_contiguous), into_contiguous(grad));
        let saved = saved.map(Floats::into_primitive);
        in_pool(|| backward(&args, packed.primitive(), &saved, &grad, wanted)).map(Floats::new)
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
    let recurrent = recurrent::<T>(args);
    let weights = Panels::<T>::new(factor(&recurrent, rows, units).t(), args.precision);
    let bias: Vec<T> =
        slice::<T>(&args.b_ih).iter().zip(slice::<T>(&args.b_hh)).map(|(a, b)| *a + *b).collect();

    let mut gates = Buffer::<T>::new(steps * batch * rows);
    let x = Matrix::new(slice::<T>(&args.x), steps * batch, inputs);
    let w_ih = Matrix::new(slice::<T>(&args.w_ih), rows, inputs);
    multiply(&mut gates, x, w_ih.t(), false, args.precision);
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
            .map(|(((z, before), cell), hidden)| Forward {
                z: quarters_mut(z),
                bias: quarters(&bias),
                before,
                cell,
                hidden,
            });
        run_rows(jobs, &sizes);
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
    saved: &LstmSaved<FlexTensor>,
    grad: &FlexTensor,
    wanted: LstmWanted,
) -> LstmGrads<FlexTensor> {
    let sizes = Sizes::of(args);
    let Sizes { steps, batch, inputs, units } = sizes;
    let (state, rows) = (sizes.state(), 4 * units);
    let (gates, cells): (&[T], &[T]) = (slice(&saved.gates), slice(&saved.cells));
    let grad: &[T] = slice(grad);
    let precision = args.precision;
    let weights = Panels::<T>::new(factor(&saved.recurrent, rows, units), precision);

    let mut d_gates = Buffer::<T>::new(steps * batch * rows);
    let mut d_cell = Buffer::of(&grad[steps * state..]);
    // What reaches the state from its own output and, by the recurrent product, from the step after it.
    let mut d_hidden = Buffer::of(&grad[(steps - 1) * state..steps * state]);
    let nothing = Buffer::<T>::zeros(state);
    for t in (0..steps).rev() {
        let (dz, next) = d_gates.split_at_mut((t + 1) * batch * rows);
        if t + 1 < steps {
            weights.multiply_add(&mut d_hidden, Matrix::new(&next[..batch * rows], batch, rows));
        }
        let before: &[T] = if t == 0 { slice(&args.c0) } else { &cells[(t - 1) * state..t * state] };
        let upstream = if t == 0 { &nothing } else { &grad[(t - 1) * state..t * state] };
        let jobs = dz[t * batch * rows..]
            .chunks_exact_mut(rows)
            .zip(gates[t * batch * rows..(t + 1) * batch * rows].chunks_exact(rows))
            .zip(before.chunks_exact(units))
            .zip(cells[t * state..(t + 1) * state].chunks_exact(units))
            .zip(upstream.chunks_exact(units))
            .zip(d_hidden.chunks_exact_mut(units))
            .zip(d_cell.chunks_exact_mut(units))
            .map(|((((((dz, gates), before), cell), upstream), d_hidden), d_cell)| Backward {
                dz: quarters_mut(dz),
                gates: quarters(gates),
                before,
                cell,
                upstream,
                d_hidden,
                d_cell,
            });
        run_rows(jobs, &sizes);
    }

    let all = Matrix::new(&d_gates, steps * batch, rows);
    let h0 = wanted.h0.then(|| {
        weights.multiply_add(&mut d_hidden, Matrix::new(&d_gates[..batch * rows], batch, rows));
        d_hidden.into_tensor([batch, units])
    });
    let x = wanted.x.then(|| {
        let mut out = Buffer::<T>::new(steps * batch * inputs);
        multiply(&mut out, all, Matrix::new(slice::<T>(&args.w_ih), rows, inputs), false, precision);
        out.into_tensor([steps, batch, inputs])
    });
    let w_ih = wanted.w_ih.then(|| {
        let mut out = Buffer::<T>::new(rows * inputs);
        let x = Matrix::new(slice::<T>(&args.x), steps * batch, inputs);
        multiply(&mut out, all.t(), x, false, precision);
        out.into_tensor([rows, inputs])
    });
    let w_hh = wanted.w_hh.then(|| {
        let mut out = Buffer::<T>::new(rows * units);
        let before = hidden_before::<T>(slice(&args.h0), slice(packed));
        multiply(&mut out, all.t(), Matrix::new(&before, steps * batch, units), false, precision);
        if let Some(mask) = &args.hh_mask {
            multiply_by(&mut out, slice(mask));
        }
        out.into_tensor([rows, units])
    });
    let bias = wanted.bias.then(|| {
        let mut out = Buffer::<T>::zeros(rows);
        add_rows(&mut out, &d_gates);
        out.into_tensor([rows])
    });
    LstmGrads { x, h0, c0: wanted.c0.then(|| d_cell.into_tensor([batch, units])), w_ih, w_hh, bias }
}

/// Runs one job a row of the batch, side by side where the state is large, and in pieces where there are more threads than
/// rows.
fn run_rows<J: Row>(jobs: impl Iterator<Item = J>, sizes: &Sizes) {
    let arch = Arch::new();
    if sizes.state() < PARALLEL {
        return jobs.for_each(|job| arch.dispatch(job));
    }
    let pieces = (2 * rayon::current_num_threads()).div_ceil(sizes.batch);
    let width = sizes.units.div_ceil(pieces).max(PIECE.min(sizes.units));
    share(jobs.flat_map(|job| pieces_of(job, width)), |job| arch.dispatch(job));
}

/// What is done to one row of a step, unit by unit.
trait Row: WithSimd<Output = ()> + Send + Sized {
    /// Its number of units.
    fn units(&self) -> usize;
    /// Takes its first `units` units off.
    fn split_off(&mut self, units: usize) -> Self;
}

/// The row in pieces of `width` units, the last of which may be shorter.
fn pieces_of<J: Row>(job: J, width: usize) -> impl Iterator<Item = J> {
    let mut rest = Some(job);
    core::iter::from_fn(move || {
        let mut job = rest.take()?;
        if job.units() <= width {
            return Some(job);
        }
        let piece = job.split_off(width);
        rest = Some(job);
        Some(piece)
    })
}

/// Takes the first `units` elements of a row off.
fn off<'a, T>(row: &mut &'a [T], units: usize) -> &'a [T] {
    row.split_off(..units).expect("a piece is shorter than its row")
}

/// As [`off`].
fn off_mut<'a, T>(row: &mut &'a mut [T], units: usize) -> &'a mut [T] {
    row.split_off_mut(..units).expect("a piece is shorter than its row")
}

/// Adds all rows of `matrix` to `out`: each sum is made by one thread, from the first row to the last.
fn add_rows<T: Real>(out: &mut [T], matrix: &[T]) {
    let columns = out.len();
    share(out.chunks_mut(COLUMNS).enumerate(), |(block, out)| {
        for row in matrix.chunks_exact(columns) {
            let row = &row[block * COLUMNS..][..out.len()];
            out.iter_mut().zip(row).for_each(|(sum, x)| *sum += *x);
        }
    });
}

/// The recurrent weights in use, `[4H, H]`; if they must be made, then in bfloat16 where products read no more of them.
fn recurrent<T: Real>(args: &LstmArgs<FlexTensor>) -> FlexTensor {
    let Some(mask) = &args.hh_mask else { return args.w_hh.clone() };
    let (rows, units) = (args.w_hh.shape()[0], args.w_hh.shape()[1]);
    if T::dtype() == DType::F32 && args.precision == Precision::Bf16 {
        let mut out = Buffer::<bf16>::new(rows * units);
        product::<f32, _>(&mut out, slice(&args.w_hh), slice(mask), bf16::from_f32);
        return out.into_tensor([rows, units]);
    }
    let mut out = Buffer::<T>::new(rows * units);
    product(&mut out, slice(&args.w_hh), slice(mask), |x: T| x);
    out.into_tensor([rows, units])
}

/// Such weights as a factor.
fn factor<T: Real>(weights: &FlexTensor, rows: usize, units: usize) -> Factor<'_, T> {
    if weights.dtype() == DType::BF16 {
        let values: &[bf16] = weights.as_slice().expect("made row by row");
        return Matrix::new(values, rows, units).into();
    }
    Matrix::new(slice::<T>(weights), rows, units).into()
}

/// The hidden states before each step, `[T·B, H]`, from the first and the packed ones after each.
fn hidden_before<T: Real>(h0: &[T], packed: &[T]) -> Buffer<T> {
    // Without the last step's hidden state and the cell state after it.
    let mut out = Buffer::<T>::new(packed.len() - h0.len());
    let (first, rest) = out.split_at_mut(h0.len());
    first.copy_from_slice(h0);
    let after = packed[..rest.len()].chunks(PARALLEL);
    share(rest.chunks_mut(PARALLEL).zip(after), |(out, hidden)| out.copy_from_slice(hidden));
    out
}

/// `out ← number(a ∘ b)`.
fn product<T: Real, U: Send>(out: &mut [U], a: &[T], b: &[T], number: impl Fn(T) -> U + Sync) {
    let arch = Arch::new();
    let factors = a.chunks(PARALLEL).zip(b.chunks(PARALLEL));
    share(out.chunks_mut(PARALLEL).zip(factors), |(out, (a, b))| {
        let number = &number;
        vectorised!(
            arch,
            [T: Real, U: Send, F: Fn(T) -> U],
            |out: &'a mut [U], a: &'a [T], b: &'a [T], number: &'a F| {
                out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = number(*a * *b));
            }
        );
    });
}

/// `a ← a ∘ b`.
fn multiply_by<T: Real>(a: &mut [T], b: &[T]) {
    let pairs = a.chunks_mut(PARALLEL).zip(b.chunks(PARALLEL));
    share(pairs, |(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a *= *b));
}

/// A row of one step, or a piece of it: gates in place of their pre-activations, the new cell and hidden state.
struct Forward<'a, T> {
    /// Input, forget, candidate, output.
    z: [&'a mut [T]; 4],
    bias: [&'a [T]; 4],
    before: &'a [T],
    cell: &'a mut [T],
    hidden: &'a mut [T],
}

impl<T: Real> Row for Forward<'_, T> {
    fn units(&self) -> usize {
        self.cell.len()
    }

    fn split_off(&mut self, units: usize) -> Self {
        Self {
            z: self.z.each_mut().map(|z| off_mut(z, units)),
            bias: self.bias.each_mut().map(|bias| off(bias, units)),
            before: off(&mut self.before, units),
            cell: off_mut(&mut self.cell, units),
            hidden: off_mut(&mut self.hidden, units),
        }
    }
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { z, bias, before, cell, hidden } = self;
        let units = cell.len();
        let [input, forget, candidate, output] = z.map(|z| &mut z[..units]);
        // A loop a gate: all in one would not fit the registers.
        let [b_input, b_forget, b_candidate, b_output] = bias;
        input.iter_mut().zip(b_input).for_each(|(z, b)| *z = sigmoid(*z + *b));
        forget.iter_mut().zip(b_forget).for_each(|(z, b)| *z = sigmoid(*z + *b));
        candidate.iter_mut().zip(b_candidate).for_each(|(z, b)| *z = tanh(*z + *b));
        output.iter_mut().zip(b_output).for_each(|(z, b)| *z = sigmoid(*z + *b));
        let (before, hidden) = (&before[..units], &mut hidden[..units]);
        for j in 0..units {
            cell[j] = forget[j] * before[j] + input[j] * candidate[j];
        }
        for j in 0..units {
            hidden[j] = output[j] * tanh(cell[j]);
        }
    }
}

/// A row of one step backward, or a piece of it: the gradient of the pre-activations; those of the cell and the hidden state
/// are passed on to the step before.
struct Backward<'a, T> {
    /// Input, forget, candidate, output.
    dz: [&'a mut [T]; 4],
    gates: [&'a [T]; 4],
    before: &'a [T],
    cell: &'a [T],
    /// Gradient of the hidden state before this step as far as it comes from its own output.
    upstream: &'a [T],
    d_hidden: &'a mut [T],
    d_cell: &'a mut [T],
}

impl<T: Real> Row for Backward<'_, T> {
    fn units(&self) -> usize {
        self.cell.len()
    }

    fn split_off(&mut self, units: usize) -> Self {
        Self {
            dz: self.dz.each_mut().map(|dz| off_mut(dz, units)),
            gates: self.gates.each_mut().map(|gate| off(gate, units)),
            before: off(&mut self.before, units),
            cell: off(&mut self.cell, units),
            upstream: off(&mut self.upstream, units),
            d_hidden: off_mut(&mut self.d_hidden, units),
            d_cell: off_mut(&mut self.d_cell, units),
        }
    }
}

impl<T: Real> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { dz, gates, before, cell, upstream, d_hidden, d_cell } = self;
        let units = cell.len();
        let [input, forget, candidate, output] = gates.map(|gate| &gate[..units]);
        let [d_input, d_forget, d_candidate, d_output] = dz.map(|dz| &mut dz[..units]);
        let (before, upstream) = (&before[..units], &upstream[..units]);
        let (d_hidden, d_cell) = (&mut d_hidden[..units], &mut d_cell[..units]);
        for j in 0..units {
            let (i, f, g, o) = (input[j], forget[j], candidate[j], output[j]);
            let (c, dh) = (tanh(cell[j]), d_hidden[j]);
            let dc = d_cell[j] + dh * o * (T::ONE - c * c);
            d_input[j] = dc * g * i * (T::ONE - i);
            d_forget[j] = dc * before[j] * f * (T::ONE - f);
            d_candidate[j] = dc * i * (T::ONE - g * g);
            d_output[j] = dh * c * o * (T::ONE - o);
            d_cell[j] = dc * f;
            d_hidden[j] = upstream[j];
        }
    }
}

/// The four gates of a row: input, forget, candidate, output.
fn quarters<T>(row: &[T]) -> [&[T]; 4] {
    let (first, second) = row.split_at(row.len() / 2);
    let (input, forget) = first.split_at(first.len() / 2);
    let (candidate, output) = second.split_at(second.len() / 2);
    [input, forget, candidate, output]
}

/// As [`quarters`].
fn quarters_mut<T>(row: &mut [T]) -> [&mut [T]; 4] {
    let (first, second) = row.split_at_mut(row.len() / 2);
    let (input, forget) = first.split_at_mut(first.len() / 2);
    let (candidate, output) = second.split_at_mut(second.len() / 2);
    [input, forget, candidate, output]
}

#[cfg(test)]
#[path = "flex_tests.rs"]
mod tests;
