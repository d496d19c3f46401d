use burn::backend::{Autodiff, AutodiffBackend, Flex};
use burn::module::Module;
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank_kernels::precision::product;
use highrank_kernels::{Floats, Precision};

use super::sequence::{arguments, unpacked};
use super::testing::{self, wave};
use super::*;

/// T, B, I, H and whether there is a mask.
type Sizes = (usize, usize, usize, usize, bool);

const ONE_STEP: Sizes = (1, 2, 3, 4, true);
const SEVERAL: Sizes = (5, 3, 4, 2, true);
const NO_MASK: Sizes = (4, 2, 5, 3, false);
const ALL_ONE: Sizes = (1, 1, 1, 1, false);

/// The names of the inputs that may have a gradient, in the order used throughout.
const NAMES: [&str; 7] = ["x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh"];

fn shapes((t, b, i, h, _): Sizes) -> [Vec<usize>; 7] {
    [vec![t, b, i], vec![b, h], vec![b, h], vec![4 * h, i], vec![4 * h, h], vec![4 * h], vec![4 * h]]
}

fn inputs(sizes: Sizes) -> Vec<Vec<f64>> {
    shapes(sizes).iter().enumerate().map(|(n, s)| wave(s.iter().product(), n as f64, 0.9)).collect()
}

fn data(values: &[f64], shape: &[usize]) -> TensorData {
    TensorData::new(values.to_vec(), shape)
}

fn tensor<const D: usize>(values: &[f64], shape: &[usize], device: &Device, dtype: DType) -> Tensor<D> {
    Tensor::from_data(data(values, shape), (device, dtype))
}

fn mask_values((_, _, _, h, masked): Sizes) -> Option<Vec<f64>> {
    masked.then(|| (0..4 * h * h).map(|n| if n % 3 == 1 { 0.0 } else { 1.25 }).collect())
}

/// By the exponential, in the tensor's own precision; the layer itself has it by the hyperbolic tangent.
fn sigmoid(x: Tensor<2>) -> Tensor<2> {
    x.neg().exp().add_scalar(1.0).recip()
}

/// The layer written step by step, as the reference.
fn naive(x: Tensor<3>, state: LstmState, weights: LstmWeights) -> (Tensor<3>, LstmState) {
    let [steps, batch, d_input] = x.dims();
    let [_, h] = state.hidden.dims();
    let LstmState { mut hidden, mut cell } = state;
    let mut outputs = Vec::new();
    for t in 0..steps {
        let recurrent = match &weights.hh_mask {
            Some(mask) => weights.w_hh.clone() * mask.clone(),
            None => weights.w_hh.clone(),
        };
        let x_t = x.clone().narrow(0, t, 1).reshape([batch, d_input]);
        let product = |lhs: Tensor<2>, rhs: Tensor<2>| -> Tensor<2> {
            product(Floats::from(lhs), rhs.transpose().into(), weights.precision).tensor()
        };
        let z = product(x_t, weights.w_ih.clone())
            + weights.b_ih.clone().unsqueeze()
            + product(hidden, recurrent)
            + weights.b_hh.clone().unsqueeze();
        let gate = |n: usize| z.clone().narrow(1, n * h, h);
        cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * gate(2).tanh();
        hidden = sigmoid(gate(3)) * cell.clone().tanh();
        outputs.push(hidden.clone().reshape([1, batch, h]));
    }
    (Tensor::cat(outputs, 0), LstmState { hidden, cell })
}

/// A loss that gives every output and both final states a different weight.
fn loss(outputs: Tensor<3>, state: LstmState) -> Tensor<1> {
    let (device, dtype) = (outputs.device(), outputs.dtype());
    let weights = |shape: &[usize], phase| wave(shape.iter().product(), phase, 1.0);
    let (all, last) = (outputs.dims(), state.hidden.dims());
    (outputs * tensor(&weights(&all, 9.0), &all, &device, dtype)).sum()
        + (state.hidden * tensor(&weights(&last, 10.0), &last, &device, dtype)).sum()
        + (state.cell * tensor(&weights(&last, 11.0), &last, &device, dtype)).sum()
}

/// Where and how a layer is run.
#[derive(Clone)]
struct Case {
    /// Of the inputs that require gradients.
    device: Device,
    /// Of all others.
    constants: Device,
    dtype: DType,
    sizes: Sizes,
}

impl Case {
    fn new(device: &Device, sizes: Sizes, dtype: DType) -> Self {
        Self { device: device.clone(), constants: device.clone(), dtype, sizes }
    }

    /// In f64 on the CPU.
    fn exact(sizes: Sizes) -> Self {
        Self::new(&Device::flex().autodiff(), sizes, DType::F64)
    }

    fn input<const D: usize>(&self, values: &[f64], shape: &[usize], tracked: bool) -> Tensor<D> {
        match tracked {
            true => tensor(values, shape, &self.device, self.dtype).require_grad(),
            false => tensor(values, shape, &self.constants, self.dtype),
        }
    }
}

/// Outputs, final states and loss, then the gradient of each input that was asked for.
fn run(
    case: &Case,
    values: &[Vec<f64>],
    tracked: [bool; 7],
    layer: impl Fn(Tensor<3>, LstmState, LstmWeights) -> (Tensor<3>, LstmState),
) -> (Vec<TensorData>, Vec<Option<TensorData>>) {
    let s = shapes(case.sizes);
    let x: Tensor<3> = case.input(&values[0], &s[0], tracked[0]);
    let matrices = [1, 2, 3, 4].map(|n: usize| -> Tensor<2> { case.input(&values[n], &s[n], tracked[n]) });
    let biases = [5, 6].map(|n: usize| -> Tensor<1> { case.input(&values[n], &s[n], tracked[n]) });
    let hh_mask = mask_values(case.sizes).map(|values| case.input(&values, &s[4], false));
    let ([hidden, cell, w_ih, w_hh], [b_ih, b_hh]) = (matrices.clone(), biases.clone());
    let weights = LstmWeights { w_ih, w_hh, b_ih, b_hh, hh_mask, precision: Precision::Full };
    let (outputs, state) = layer(x.clone(), LstmState { hidden, cell }, weights);
    assert_eq!(outputs.dtype(), case.dtype);
    let loss = loss(outputs.clone(), state.clone());
    let results =
        vec![outputs.to_data(), state.hidden.to_data(), state.cell.to_data(), loss.clone().to_data()];
    if tracked == [false; 7] {
        return (results, vec![None; 7]);
    }
    let grads = loss.backward();
    let mut gradients = vec![x.grad(&grads).map(Tensor::into_data)];
    gradients.extend(matrices.map(|input| input.grad(&grads).map(Tensor::into_data)));
    gradients.extend(biases.map(|input| input.grad(&grads).map(Tensor::into_data)));
    (results, gradients)
}

fn close(what: &str, got: &TensorData, want: &TensorData, tolerance: f64) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let [got, want] = [got, want].map(|data| data.iter::<f64>().collect::<Vec<_>>());
    testing::close(what, &got, &want, tolerance);
}

/// A layer against the reference: every value and every gradient.
fn check(
    case: &Case,
    tolerance: f64,
    layer: impl Fn(Tensor<3>, LstmState, LstmWeights) -> (Tensor<3>, LstmState),
) {
    let values = inputs(case.sizes);
    let (got, got_grads) = run(case, &values, [true; 7], layer);
    let (want, want_grads) = run(case, &values, [true; 7], naive);
    for (what, (got, want)) in ["outputs", "h_T", "c_T", "loss"].iter().zip(got.iter().zip(&want)) {
        close(what, got, want, tolerance);
    }
    for (name, (got, want)) in NAMES.iter().zip(got_grads.iter().zip(&want_grads)) {
        close(&format!("grad {name}"), got.as_ref().unwrap(), want.as_ref().unwrap(), tolerance);
    }
}

/// The operation on a device with autodiff.
fn check_on(device: &Device) {
    for sizes in [ONE_STEP, SEVERAL, NO_MASK, ALL_ONE] {
        for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::F64, 1e-14)] {
            check(&Case::new(device, sizes, dtype), tolerance, lstm_sequence);
        }
    }
}

#[test]
fn agrees_with_the_composition() {
    check_on(&Device::flex().autodiff());
}

#[test]
fn agrees_under_gradient_checkpointing() {
    check_on(&Device::flex().autodiff().gradient_checkpointing());
}

/// On a device without kernels the formulas run on the dispatched backend.
#[test]
fn the_composed_formulas_agree_where_there_are_no_kernels() {
    let composed = |x, state, weights| unpacked(portable::forward(arguments(x, state, weights)));
    for sizes in [ONE_STEP, SEVERAL, NO_MASK, ALL_ONE] {
        check(&Case::exact(sizes), 1e-14, composed);
    }
}

/// The gradients of all inputs on a backend that may be no device's, in f64.
fn gradients_on<A: AutodiffBackend>(forward: fn(LstmArgs<Floats<A>>) -> Floats<A>) -> [TensorData; 7] {
    let (values, s) = (inputs(SEVERAL), shapes(SEVERAL));
    let constant =
        |values: &[f64], shape: &[usize]| Floats::<A>::from_data(data(values, shape), &Default::default());
    let tracked =
        |n: usize| Floats::new(A::float_set_require_grad(constant(&values[n], &s[n]).into_primitive(), true));
    let args = LstmArgs {
        x: tracked(0),
        h0: tracked(1),
        c0: tracked(2),
        w_ih: tracked(3),
        w_hh: tracked(4),
        b_ih: tracked(5),
        b_hh: tracked(6),
        hh_mask: mask_values(SEVERAL).map(|values| constant(&values, &s[4])),
        precision: Precision::Full,
    };
    let packed = forward(args.clone());
    let shape: [usize; 3] = packed.dims();
    let weights = constant(&wave(shape.iter().product(), 9.0, 1.0), &shape);
    let grads = A::backward((packed * weights).sum().into_primitive());
    let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, .. } = args;
    [x, h0, c0, w_ih, w_hh, b_ih, b_hh].map(|input| {
        let gradient = A::grad(input.primitive(), &grads).expect("a gradient");
        Floats::<A::InnerBackend>::new(gradient).into_data()
    })
}

#[test]
fn agrees_under_nested_autodiff() {
    type Nested = Autodiff<Autodiff<Flex>>;
    let got = gradients_on::<Nested>(|args| Floats::new(Nested::lstm(LstmCall(args))));
    let want = gradients_on::<Nested>(portable::forward);
    for (name, (got, want)) in NAMES.iter().zip(got.iter().zip(&want)) {
        close(&format!("grad {name}"), got, want, 1e-14);
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn agrees_on_ndarray() {
    #[allow(deprecated, reason = "the feature stays for as long as Burn has the backend")]
    let device = Device::ndarray().autodiff();
    check_on(&device);
}

#[test]
fn gradients_agree_with_finite_differences() {
    let step = 1e-6;
    for sizes in [ONE_STEP, SEVERAL] {
        let (case, values) = (Case::exact(sizes), inputs(sizes));
        let (_, grads) = run(&case, &values, [true; 7], lstm_sequence);
        let loss_at = |n: usize, place: usize, by: f64| {
            let mut moved = values.clone();
            moved[n][place] += by;
            let (results, _) = run(&case, &moved, [false; 7], lstm_sequence);
            results[3].iter::<f64>().next().unwrap()
        };
        for (n, name) in NAMES.iter().enumerate() {
            let grad: Vec<f64> = grads[n].as_ref().unwrap().iter::<f64>().collect();
            for (place, analytic) in grad.iter().enumerate() {
                let numeric = (loss_at(n, place, step) - loss_at(n, place, -step)) / (2.0 * step);
                assert!((numeric - analytic).abs() < 1e-8, "{name}[{place}]: {analytic} against {numeric}");
            }
        }
    }
}

#[test]
fn every_subset_of_inputs_may_require_gradients() {
    let (case, values) = (Case::exact(SEVERAL), inputs(SEVERAL));
    let (_, all) = run(&case, &values, [true; 7], lstm_sequence);
    // The others may be constants with or without an association with autodiff.
    for constants in [Device::flex().autodiff(), Device::flex()] {
        let case = Case { constants, ..case.clone() };
        for subset in 0..128u32 {
            let tracked = std::array::from_fn(|n| subset >> n & 1 == 1);
            let (_, grads) = run(&case, &values, tracked, lstm_sequence);
            for n in 0..7 {
                assert_eq!(grads[n].is_some(), tracked[n], "{} in subset {subset:b}", NAMES[n]);
                if let Some(grad) = &grads[n] {
                    close(NAMES[n], grad, all[n].as_ref().unwrap(), 1e-14);
                }
            }
        }
    }
}

#[test]
fn a_masked_weight_has_no_gradient() {
    let (_, grads) = run(&Case::exact(SEVERAL), &inputs(SEVERAL), [true; 7], lstm_sequence);
    let grad: Vec<f64> = grads[4].as_ref().unwrap().iter::<f64>().collect();
    assert!(grad.iter().enumerate().all(|(n, g)| (n % 3 == 1) == (*g == 0.0)), "{grad:?}");
}

#[test]
fn two_chunks_are_one_sequence() {
    let device = Device::flex();
    let layer = LstmConfig::new(3, 4).init(&device);
    let x = tensor::<3>(&wave(5 * 2 * 3, 1.0, 1.0), &[5, 2, 3], &device, DType::F32);
    let (whole, end) = layer.forward(x.clone(), layer.zero_state(2), 0.0);
    let (first, state) = layer.forward(x.clone().narrow(0, 0, 2), layer.zero_state(2), 0.0);
    let (second, state) = layer.forward(x.narrow(0, 2, 3), state.detach(), 0.0);
    close("outputs", &Tensor::cat(vec![first, second], 0).into_data(), &whole.into_data(), 1e-6);
    close("hidden", &state.hidden.into_data(), &end.hidden.into_data(), 1e-6);
    close("cell", &state.cell.into_data(), &end.cell.into_data(), 1e-6);
}

#[test]
fn saturated_gates_stay_finite() {
    let values: Vec<Vec<f64>> =
        inputs(SEVERAL).into_iter().map(|v| v.into_iter().map(|x| x * 1e4).collect()).collect();
    let case = Case::new(&Device::flex().autodiff(), SEVERAL, DType::F32);
    let (got, grads) = run(&case, &values, [true; 7], lstm_sequence);
    for data in got.iter().chain(grads.iter().flatten()) {
        assert!(data.iter::<f64>().all(f64::is_finite), "{data}");
    }
}

#[test]
fn weights_are_dropped_in_training_only() {
    let device = Device::flex().autodiff();
    let layer = LstmConfig::new(3, 16).init(&device);
    let x = || tensor::<3>(&wave(4 * 2 * 3, 1.0, 1.0), &[4, 2, 3], &device, DType::F32);
    let output = |p: f64| layer.forward(x(), layer.zero_state(2), p).0.into_data();
    assert_eq!(output(0.0), output(0.0));
    assert_ne!(output(0.5), output(0.0));

    let valid = layer.valid();
    let (plain, _) = valid.forward(x().inner(), valid.zero_state(2), 0.5);
    close("evaluation", &plain.into_data(), &output(0.0), 1e-6);
}

#[test]
fn initial_weights_fill_their_range() {
    let layer = LstmConfig::new(30, 25).init(&Device::flex());
    assert_eq!((layer.w_ih.dims(), layer.d_hidden()), ([100, 30], 25));
    assert_eq!(layer.b_ih.dims(), [100]);
    for data in [layer.w_ih.to_data(), layer.w_hh.to_data()] {
        let largest = data.iter::<f64>().fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!((0.19..=0.2).contains(&largest), "{largest}");
    }
}

#[test]
#[should_panic(expected = "lstm: w_ih has the shape [16, 5], but must have [16, 3]")]
fn a_wrong_input_width_is_named() {
    let device = Device::flex();
    let layer = LstmConfig::new(5, 4).init(&device);
    layer.forward(Tensor::zeros([2, 1, 3], &device), layer.zero_state(1), 0.0);
}

#[test]
#[should_panic(expected = "lstm: the hidden state has the shape [2, 4], but must have [1, 4]")]
fn a_state_of_another_batch_is_named() {
    let device = Device::flex();
    let layer = LstmConfig::new(3, 4).init(&device);
    layer.forward(Tensor::zeros([2, 1, 3], &device), layer.zero_state(2), 0.0);
}

#[test]
fn every_product_reads_rounded_numbers() {
    let (case, values) = (Case::exact(SEVERAL), inputs(SEVERAL));
    for precision in [Precision::Tf32, Precision::Bf16] {
        let with = |weights| LstmWeights { precision, ..weights };
        let (got, got_grads) =
            run(&case, &values, [true; 7], |x, state, weights| lstm_sequence(x, state, with(weights)));
        let (want, want_grads) =
            run(&case, &values, [true; 7], |x, state, weights| naive(x, state, with(weights)));
        for (got, want) in got.iter().zip(&want) {
            close("forward", got, want, 1e-14);
        }
        // Burn differentiates as if nothing were rounded, and so does not round the gradients that a product reads.
        for (name, (got, want)) in NAMES.iter().zip(got_grads.iter().zip(&want_grads)) {
            close(&format!("grad {name}"), got.as_ref().unwrap(), want.as_ref().unwrap(), 4e-3);
        }
        let (full, _) = run(&case, &values, [false; 7], lstm_sequence);
        assert_ne!(got[0], full[0]);
    }
}
