//! Losses under dropout that must have the same masks. All threads share the random numbers of the CPU backend, so this test has a
//! process of its own.

use burn::tensor::{DType, Device, Distribution, Int, Tensor};
use highrank::{AdaptiveConfig, HeadConfig, LossOptions, TimeAxis, cast_parameters};

const TOKENS: usize = 12;
const HIDDEN: usize = 8;
const VOCAB: usize = 23;

#[test]
fn statistics_are_of_the_contexts_that_the_loss_reads() {
    let device = Device::flex().autodiff();
    let adaptive = AdaptiveConfig::new(vec![4, 9, 16]).with_division(2.0);
    let config = HeadConfig::mos(HIDDEN, 5, VOCAB, 3)
        .with_adaptive(adaptive)
        .with_latent_dropout(0.5, TimeAxis::First);
    let head = cast_parameters(config.init(&device), DType::F64);
    let state = Tensor::<3>::random([3, 4, HIDDEN], Distribution::Normal(0.0, 1.0), (&device, DType::F64));
    let words: Vec<i64> = (0..TOKENS as i64).map(|token| (token * 7 + 3) % VOCAB as i64).collect();
    let words = Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape([3, 4]);
    let loss = |statistics| {
        device.seed(8);
        head.loss_with(state.clone(), words.clone(), &LossOptions::new().with_statistics(statistics))
    };
    let (with, without) = (loss(true), loss(false));
    assert_close(&values(with.value.clone()), &values(without.value));
    let nll = values(with.statistics.unwrap().nll);
    assert_close(&values(with.value), &[nll.iter().sum::<f64>() / TOKENS as f64]);
    device.seed(9);
    let another = values(head.loss(state.clone(), words.clone()));
    assert_ne!(another, values(loss(false).value));
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn assert_close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() < 1e-11 * b.abs().max(1.0);
    assert!(got.iter().zip(want).all(close), "{got:?} against {want:?}");
}
