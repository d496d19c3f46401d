use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, TensorData};

use super::*;
use highrank::precision::product;

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

/// Spread numbers in [-scale, scale] that depend on nothing but their place.
fn wave(len: usize, phase: f64, scale: f64) -> Vec<f64> {
    (0..len).map(|n| scale * (1.7 * n as f64 + 3.1 * phase).sin()).collect()
}

fn inputs(sizes: Sizes) -> Vec<Vec<f64>> {
    shapes(sizes).iter().enumerate().map(|(n, s)| wave(s.iter().product(), n as f64, 0.9)).collect()
}

fn tensor<B: Backend, const D: usize>(values: &[f64], shape: &[usize], dtype: DType) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (&Default::default(), dtype))
}

fn mask<B: Backend>((_, _, _, h, masked): Sizes, dtype: DType) -> Option<Tensor<B, 2>> {
    let values: Vec<f64> = (0..4 * h * h).map(|n| if n % 3 == 1 { 0.0 } else { 1.25 }).collect();
    masked.then(|| tensor(&values, &[4 * h, h], dtype))
}

/// By the exponential, in the tensor's own precision; the layer itself has it by the hyperbolic tangent.
fn sigmoid<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    x.neg().exp().add_scalar(1.0).recip()
}

/// The layer written step by step, as the reference.
fn naive<B: Backend>(
    x: Tensor<B, 3>,
    state: LstmState<B>,
    weights: LstmWeights<B>,
) -> (Tensor<B, 3>, LstmState<B>) {
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
        let product = |lhs, rhs: Tensor<B, 2>| product(lhs, rhs.transpose(), weights.precision);
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
fn loss<B: Backend>(outputs: Tensor<B, 3>, state: LstmState<B>) -> Tensor<B, 1> {
    let dtype = outputs.dtype();
    let weights = |shape: &[usize], phase| wave(shape.iter().product(), phase, 1.0);
    let (all, last) = (outputs.dims(), state.hidden.dims());
    (outputs * tensor(&weights(&all, 9.0), &all, dtype)).sum()
        + (state.hidden * tensor(&weights(&last, 10.0), &last, dtype)).sum()
        + (state.cell * tensor(&weights(&last, 11.0), &last, dtype)).sum()
}

/// Outputs, final states and loss, then the gradient of each input that was asked for.
fn run<B: AutodiffBackend>(
    values: &[Vec<f64>],
    sizes: Sizes,
    dtype: DType,
    tracked: [bool; 7],
    layer: impl Fn(Tensor<B, 3>, LstmState<B>, LstmWeights<B>) -> (Tensor<B, 3>, LstmState<B>),
) -> (Vec<TensorData>, Vec<Option<TensorData>>) {
    let s = shapes(sizes);
    let x: Tensor<B, 3> = tensor(&values[0], &s[0], dtype).set_require_grad(tracked[0]);
    let matrix = |n: usize| -> Tensor<B, 2> { tensor(&values[n], &s[n], dtype).set_require_grad(tracked[n]) };
    let bias = |n: usize| -> Tensor<B, 1> { tensor(&values[n], &s[n], dtype).set_require_grad(tracked[n]) };
    let (h0, c0, w_ih, w_hh, b_ih, b_hh) = (matrix(1), matrix(2), matrix(3), matrix(4), bias(5), bias(6));
    let (outputs, state) = layer(
        x.clone(),
        LstmState { hidden: h0.clone(), cell: c0.clone() },
        LstmWeights {
            w_ih: w_ih.clone(),
            w_hh: w_hh.clone(),
            b_ih: b_ih.clone(),
            b_hh: b_hh.clone(),
            hh_mask: mask(sizes, dtype),
            precision: Precision::Full,
        },
    );
    assert_eq!(outputs.dtype(), dtype);
    let loss = loss(outputs.clone(), state.clone());
    let results =
        vec![outputs.to_data(), state.hidden.to_data(), state.cell.to_data(), loss.clone().to_data()];
    if tracked == [false; 7] {
        return (results, vec![None; 7]);
    }
    let grads = loss.backward();
    let two = |t: &Tensor<B, 2>| t.grad(&grads).map(Tensor::into_data);
    let one = |t: &Tensor<B, 1>| t.grad(&grads).map(Tensor::into_data);
    let gradients = vec![
        x.grad(&grads).map(Tensor::into_data),
        two(&h0),
        two(&c0),
        two(&w_ih),
        two(&w_hh),
        one(&b_ih),
        one(&b_hh),
    ];
    (results, gradients)
}

fn close(what: &str, got: &TensorData, want: &TensorData, tolerance: f64) {
    assert_eq!(got.shape, want.shape, "{what}");
    let scale = want.iter::<f64>().fold(1.0, |m: f64, v| m.max(v.abs()));
    for (n, (g, w)) in got.iter::<f64>().zip(want.iter::<f64>()).enumerate() {
        assert!((g - w).abs() <= tolerance * scale, "{what}[{n}] is {g} instead of {w}");
    }
}

/// The operation against the reference: every value and every gradient.
fn check<B: AutodiffBackend + LstmBackend>(sizes: Sizes, dtype: DType, tolerance: f64) {
    let values = inputs(sizes);
    let (got, got_grads) = run::<B>(&values, sizes, dtype, [true; 7], lstm_sequence);
    let (want, want_grads) = run::<B>(&values, sizes, dtype, [true; 7], naive);
    for (what, (got, want)) in ["outputs", "h_T", "c_T", "loss"].iter().zip(got.iter().zip(&want)) {
        close(what, got, want, tolerance);
    }
    for (name, (got, want)) in NAMES.iter().zip(got_grads.iter().zip(&want_grads)) {
        close(&format!("grad {name}"), got.as_ref().unwrap(), want.as_ref().unwrap(), tolerance);
    }
}

#[test]
fn agrees_with_the_composition_in_f32() {
    for sizes in [ONE_STEP, SEVERAL, NO_MASK, ALL_ONE] {
        check::<Autodiff<Flex>>(sizes, DType::F32, 2e-6);
    }
}

#[test]
fn agrees_with_the_composition_in_f64() {
    for sizes in [ONE_STEP, SEVERAL, NO_MASK, ALL_ONE] {
        check::<Autodiff<Flex>>(sizes, DType::F64, 1e-14);
    }
}

#[test]
fn agrees_under_gradient_checkpointing_and_nested_autodiff() {
    check::<Autodiff<Flex, BalancedCheckpointing>>(SEVERAL, DType::F64, 1e-14);
    check::<Autodiff<Autodiff<Flex>>>(SEVERAL, DType::F64, 1e-14);
}

#[cfg(feature = "ndarray")]
#[test]
fn agrees_on_ndarray() {
    for sizes in [ONE_STEP, SEVERAL, NO_MASK, ALL_ONE] {
        check::<Autodiff<burn::backend::NdArray<f32>>>(sizes, DType::F32, 2e-6);
        check::<Autodiff<burn::backend::NdArray<f64>>>(sizes, DType::F64, 1e-14);
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let step = 1e-6;
    for sizes in [ONE_STEP, SEVERAL] {
        let values = inputs(sizes);
        let (_, grads) = run::<Autodiff<Flex>>(&values, sizes, DType::F64, [true; 7], lstm_sequence);
        let loss_at = |n: usize, place: usize, by: f64| {
            let mut moved = values.clone();
            moved[n][place] += by;
            let (results, _) = run::<Autodiff<Flex>>(&moved, sizes, DType::F64, [false; 7], lstm_sequence);
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
    let values = inputs(SEVERAL);
    let (_, all) = run::<Autodiff<Flex>>(&values, SEVERAL, DType::F64, [true; 7], lstm_sequence);
    for subset in 0..128u32 {
        let tracked = std::array::from_fn(|n| subset >> n & 1 == 1);
        let (_, grads) = run::<Autodiff<Flex>>(&values, SEVERAL, DType::F64, tracked, lstm_sequence);
        for n in 0..7 {
            assert_eq!(grads[n].is_some(), tracked[n], "{} in subset {subset:b}", NAMES[n]);
            if let Some(grad) = &grads[n] {
                close(NAMES[n], grad, all[n].as_ref().unwrap(), 1e-14);
            }
        }
    }
}

#[test]
fn a_masked_weight_has_no_gradient() {
    let (_, grads) = run::<Autodiff<Flex>>(&inputs(SEVERAL), SEVERAL, DType::F64, [true; 7], lstm_sequence);
    let grad: Vec<f64> = grads[4].as_ref().unwrap().iter::<f64>().collect();
    assert!(grad.iter().enumerate().all(|(n, g)| (n % 3 == 1) == (*g == 0.0)), "{grad:?}");
}

#[test]
fn two_chunks_are_one_sequence() {
    let device = Default::default();
    let layer = LstmConfig::new(3, 4).init::<Flex>(&device);
    let x = tensor::<Flex, 3>(&wave(5 * 2 * 3, 1.0, 1.0), &[5, 2, 3], DType::F32);
    let (whole, end) = layer.forward(x.clone(), layer.zero_state(2), 0.0);
    let (first, state) = layer.forward(x.clone().narrow(0, 0, 2), LstmState::zeros(2, 4, &device), 0.0);
    let (second, state) = layer.forward(x.narrow(0, 2, 3), state.detach(), 0.0);
    close("outputs", &Tensor::cat(vec![first, second], 0).into_data(), &whole.into_data(), 1e-6);
    close("hidden", &state.hidden.into_data(), &end.hidden.into_data(), 1e-6);
    close("cell", &state.cell.into_data(), &end.cell.into_data(), 1e-6);
}

#[test]
fn saturated_gates_stay_finite() {
    let values: Vec<Vec<f64>> =
        inputs(SEVERAL).into_iter().map(|v| v.into_iter().map(|x| x * 1e4).collect()).collect();
    let (got, grads) = run::<Autodiff<Flex>>(&values, SEVERAL, DType::F32, [true; 7], lstm_sequence);
    for data in got.iter().chain(grads.iter().flatten()) {
        assert!(data.iter::<f64>().all(f64::is_finite), "{data}");
    }
}

#[test]
fn weights_are_dropped_in_training_only() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let layer = LstmConfig::new(3, 16).init::<B>(&device);
    let x = || tensor::<B, 3>(&wave(4 * 2 * 3, 1.0, 1.0), &[4, 2, 3], DType::F32);
    let output = |p: f64| layer.forward(x(), layer.zero_state(2), p).0.into_data();
    assert_eq!(output(0.0), output(0.0));
    assert_ne!(output(0.5), output(0.0));

    use burn::module::AutodiffModule;
    let valid = layer.valid();
    let (plain, _) = valid.forward(x().inner(), valid.zero_state(2), 0.5);
    close("evaluation", &plain.into_data(), &output(0.0), 1e-6);
}

#[test]
fn initial_weights_fill_their_range() {
    let layer = LstmConfig::new(30, 25).init::<Flex>(&Default::default());
    assert_eq!((layer.d_input(), layer.d_hidden()), (30, 25));
    assert_eq!(layer.b_ih.dims(), [100]);
    for data in [layer.w_ih.to_data(), layer.w_hh.to_data()] {
        let largest = data.iter::<f64>().fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!((0.19..=0.2).contains(&largest), "{largest}");
    }
}

#[test]
#[should_panic(expected = "lstm: w_ih has the shape [16, 5], but must have [16, 3]")]
fn a_wrong_input_width_is_named() {
    let device = Default::default();
    let layer = LstmConfig::new(5, 4).init::<Flex>(&device);
    layer.forward(Tensor::zeros([2, 1, 3], &device), LstmState::zeros(1, 4, &device), 0.0);
}

#[test]
#[should_panic(expected = "lstm: the hidden state has the shape [2, 4], but must have [1, 4]")]
fn a_state_of_another_batch_is_named() {
    let device = Default::default();
    let layer = LstmConfig::new(3, 4).init::<Flex>(&device);
    layer.forward(Tensor::zeros([2, 1, 3], &device), layer.zero_state(2), 0.0);
}

#[test]
fn every_product_reads_rounded_numbers() {
    for precision in [Precision::Tf32, Precision::Bf16] {
        let values = inputs(SEVERAL);
        let with = |weights| LstmWeights { precision, ..weights };
        let (got, got_grads) = run::<Autodiff<Flex>>(&values, SEVERAL, DType::F64, [true; 7], |x, s, w| {
            lstm_sequence(x, s, with(w))
        });
        let (want, want_grads) =
            run::<Autodiff<Flex>>(&values, SEVERAL, DType::F64, [true; 7], |x, s, w| naive(x, s, with(w)));
        for (got, want) in got.iter().zip(&want) {
            close("forward", got, want, 1e-14);
        }
        // Burn differentiates as if nothing were rounded, and so does not round the gradients that a product reads.
        for (name, (got, want)) in NAMES.iter().zip(got_grads.iter().zip(&want_grads)) {
            close(&format!("grad {name}"), got.as_ref().unwrap(), want.as_ref().unwrap(), 4e-3);
        }
        let (full, _) = run::<Autodiff<Flex>>(&values, SEVERAL, DType::F64, [false; 7], lstm_sequence);
        assert_ne!(got[0], full[0]);
    }
}
