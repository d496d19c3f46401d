use burn::tensor::{Device, TensorData};

use super::*;
use crate::optim::testing::{Pair, pair, pair_on, values};

/// The gradients of `Σ weight + 2 Σ bias`: ones, and twos.
fn grads(module: &Pair) -> GradientsParams {
    let loss = module.weight.val().sum() + module.bias.val().sum() * 2.0;
    GradientsParams::from_grads(loss.backward(), module)
}

fn step(optim: &mut NtAsgd, lr: f64, module: Pair) -> Pair {
    let grads = grads(&module);
    optim.step(lr, module, grads)
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-6 * w.abs().max(1.0), "{got:?} instead of {want:?}");
    }
}

#[test]
fn a_step_subtracts_gradient_and_decay() {
    let mut optim = NtAsgd::new(0.5);
    let module = step(&mut optim, 0.1, pair());
    // w - 0.1 (g + 0.5 w)
    close(&values(&module), &[1.0 - 0.15, -2.0 - 0.0, 4.0 - 0.4]);
    assert!(module.weight.is_require_grad() && module.bias.is_require_grad());
}

#[test]
fn a_step_keeps_gradient_checkpointing() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    let mut optim = NtAsgd::new(0.0);
    let mut module = pair_on(&device);
    let strategy = module.weight.val().gradient_checkpointing_strategy();
    for _ in 0..2 {
        module = step(&mut optim, 0.5, module);
        assert_eq!(module.weight.val().gradient_checkpointing_strategy(), strategy);
    }
    close(&values(&module), &[0.0, -3.0, 2.0]);
}

#[test]
fn the_average_is_the_mean_of_the_iterates_after_the_trigger() {
    let mut optim = NtAsgd::new(0.0);
    let mut module = step(&mut optim, 1.0, pair());
    optim.start_averaging();
    assert!(optim.is_averaging());
    close(&values(&optim.averaged(&module)), &values(&module));
    let mut iterates = Vec::new();
    for lr in [1.0, 0.25, 0.5] {
        module = step(&mut optim, lr, module);
        iterates.push(values(&module));
        let count = iterates.len() as f64;
        let mean: Vec<f64> = (0..3).map(|i| iterates.iter().map(|w| w[i]).sum::<f64>() / count).collect();
        close(&values(&optim.averaged(&module)), &mean);
    }
    assert_eq!(optim.iterates(), 3);
    // The updates themselves do not change: w_0 - Σ lr g.
    close(&values(&module), &[1.0 - 2.75, -2.0 - 2.75, 4.0 - 5.5]);
    assert!(optim.averaged(&module).weight.is_require_grad());
}

#[test]
fn clipping_within_the_step_gives_the_same_bits() {
    // The norm of the gradients is √6.
    for max_norm in [0.7, 10.0] {
        let run = |clipped: bool| {
            let mut optim = NtAsgd::new(0.3);
            optim.start_averaging();
            let mut module = pair();
            for lr in [0.3, 0.9] {
                let grads = grads(&module);
                module = match clipped {
                    true => {
                        let (module, norm) = optim.step_clipped(lr, module, grads, max_norm).unwrap();
                        let norm = norm.expect("there are gradients").into_scalar::<f64>();
                        assert!((norm - 6.0f64.sqrt()).abs() < 1e-6, "{norm}");
                        module
                    }
                    false => {
                        let (grads, _) = clip::clip_global_norm(&module, grads, max_norm);
                        optim.step(lr, module, grads)
                    }
                };
            }
            (values(&module), values(&optim.averaged(&module)))
        };
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn a_factor_is_on_the_steps_of_its_part_alone() {
    let module = pair();
    let optim = |factor| NtAsgd::new(0.5).with_factor(&module.bias, factor);
    // w - lr · factor (g + 0.5 w); the norm of the gradients is √6, and clipping to half of it halves them.
    for (factor, bias) in [(1.0, 4.0 - 0.1 * 4.0), (0.25, 4.0 - 0.025 * 4.0), (3.0, 4.0 - 0.3 * 4.0)] {
        let stepped = step(&mut optim(factor), 0.1, module.clone());
        close(&values(&stepped), &[1.0 - 0.15, -2.0, bias]);
        let (half, grads) = (6.0f64.sqrt() / 2.0, grads(&module));
        let (stepped, norm) = optim(factor).step_clipped(0.1, module.clone(), grads, half).unwrap();
        assert!((norm.unwrap().into_scalar::<f64>() - 2.0 * half).abs() < 1e-6);
        close(&values(&stepped), &[1.0 - 0.1, -2.0 + 0.05, 4.0 - 0.1 * factor * 3.0]);
    }
}

#[test]
#[should_panic(expected = "the factor is 0, but must be finite and above 0")]
fn a_factor_of_zero_is_refused() {
    let _ = NtAsgd::new(1.2e-6).with_factor(&pair(), 0.0);
}

#[test]
#[should_panic(expected = "max_norm is 0, but must be above 0")]
fn a_norm_of_zero_is_refused() {
    let module = pair();
    let grads = grads(&module);
    NtAsgd::new(1.2e-6).step_clipped(1.0, module, grads, 0.0).unwrap();
}

#[test]
fn without_gradients_there_is_no_norm() {
    let stepped = NtAsgd::new(1.2e-6).step_clipped(1.0, pair(), GradientsParams::new(), 1.0);
    let (module, norm) = stepped.unwrap();
    assert!(norm.is_none());
    close(&values(&module), &[1.0, -2.0, 4.0]);
}

#[test]
fn without_averaging_the_average_is_the_module() {
    let mut optim = NtAsgd::new(1.2e-6);
    let module = step(&mut optim, 1.0, pair());
    assert!(!optim.is_averaging());
    assert_eq!(values(&optim.averaged(&module)), values(&module));
}

#[test]
fn a_parameter_without_gradient_stays() {
    let mut optim = NtAsgd::new(0.5);
    let module = pair();
    let grads = GradientsParams::from_grads(module.weight.val().sum().backward(), &module);
    optim.start_averaging();
    let module = optim.step(0.1, module, grads);
    close(&values(&module), &[0.85, -2.0, 4.0]);
    close(&values(&optim.averaged(&module)), &[0.85, -2.0, 4.0]);
}

#[test]
fn a_saved_optimiser_goes_on_to_the_same_bits() {
    let mut optim = NtAsgd::new(1.2e-6);
    optim.start_averaging();
    let mut module = pair();
    for _ in 0..3 {
        module = step(&mut optim, 0.3, module);
    }
    let saved = [optim.averaged(&module).weight.to_data(), optim.averaged(&module).bias.to_data()];
    let [weight, bias] = saved;
    let device = Device::flex().autodiff();
    let averaged = Pair {
        weight: module.weight.clone().map(|_| Tensor::from_data(weight, &device)),
        bias: module.bias.clone().map(|_| Tensor::from_data(bias, &device)),
    };
    let mut resumed = NtAsgd::new(1.2e-6);
    resumed.resume_averaging(&averaged, optim.iterates());
    assert!(resumed.is_averaging());
    assert_eq!(values(&resumed.averaged(&module)), values(&optim.averaged(&module)));

    let ahead = step(&mut optim, 0.7, module.clone());
    let again = step(&mut resumed, 0.7, module);
    assert_eq!(values(&ahead), values(&again));
    assert_eq!(values(&optim.averaged(&ahead)), values(&resumed.averaged(&again)));
}

#[test]
fn an_average_does_not_alias_the_weights() {
    let mut optim = NtAsgd::new(0.0);
    optim.start_averaging();
    let module = step(&mut optim, 1.0, pair());
    let averaged = optim.averaged(&module);
    let before = averaged.weight.to_data();
    let _later = step(&mut optim, 1.0, module);
    assert_eq!(averaged.weight.to_data(), before);
    assert_eq!(before, TensorData::from([[0.0f32, -3.0]]));
}
