//! Locked dropout: one mask a sequence, on whichever axis time is.

use burn::tensor::{DType, Device, Int, Tensor};
use highrank::{HeadConfig, LossOptions, OutputHead, TimeAxis};

use crate::support::*;

const VOCAB: usize = 7;
// Enough latent features that two masks are never the same by chance.
const WIDTH: usize = 40;

fn head_of(time: TimeAxis, budget: usize, device: &Device) -> OutputHead {
    let config = HeadConfig::mos(HIDDEN, WIDTH, VOCAB, 2)
        .with_latent_dropout(0.5, time)
        .with_memory_budget(Some(budget));
    head(&config, (device, DType::F32))
}

/// Equal hidden states for all tokens: what differs is the mask.
fn equal<const D: usize>(leading: &[usize], device: &Device) -> Tensor<D> {
    let tokens = leading.iter().product();
    let row = tensor([1, HIDDEN], 1, (device, DType::F32)).repeat_dim(0, tokens);
    let mut shape = [HIDDEN; D];
    shape[..D - 1].copy_from_slice(leading);
    row.reshape(shape)
}

/// Numbers the different values in the order of their first token.
fn groups(values: &[f64]) -> Vec<usize> {
    let mut seen: Vec<f64> = vec![];
    let group = |x: &f64| {
        let known = seen.iter().position(|y| (x - y).abs() < 1e-5);
        known.unwrap_or_else(|| {
            seen.push(*x);
            seen.len() - 1
        })
    };
    values.iter().map(group).collect()
}

#[track_caller]
fn check<const D: usize, const T: usize>(leading: [usize; T], time: TimeAxis, want: &[usize]) {
    let device = ad();
    // Room for all tokens, and for one: chunks find their rows of the mask.
    for budget in [1 << 20, 1] {
        let head = head_of(time, budget, &device);
        let hidden = equal::<D>(&leading, &device).require_grad();
        let targets = Tensor::<T, Int>::zeros(leading, &device);
        let nll = head.nll(hidden.clone(), targets.clone());
        assert_eq!(groups(&values(nll.clone())), want, "nll with {budget} bytes");
        // The backward pass uses the rows of the forward pass: equal tokens with equal masks have equal gradients.
        let store = nll.sum().backward();
        let gradients = values(hidden.grad(&store).unwrap());
        let first: Vec<f64> = gradients.chunks(HIDDEN).map(|row| row[0]).collect();
        assert_eq!(groups(&first), want, "gradients with {budget} bytes");
        let log_probs = values(head.forward(hidden));
        let first: Vec<f64> = log_probs.chunks(VOCAB).map(|row| row[0]).collect();
        assert_eq!(groups(&first), want, "log_probs with {budget} bytes");
    }
}

#[test]
fn sequences_have_one_mask_each() {
    use TimeAxis::*;
    check::<3, 2>([3, 2], First, &[0, 1, 0, 1, 0, 1]);
    check::<3, 2>([2, 3], Second, &[0, 0, 0, 1, 1, 1]);
    check::<4, 3>([2, 2, 2], First, &[0, 1, 2, 3, 0, 1, 2, 3]);
    check::<4, 3>([2, 2, 2], Second, &[0, 1, 0, 1, 2, 3, 2, 3]);
    // One step, and one sequence.
    check::<4, 3>([2, 1, 2], Second, &[0, 1, 2, 3]);
    check::<3, 2>([1, 3], Second, &[0, 0, 0]);
    for time in [First, Second] {
        check::<2, 1>([3], time, &[0, 1, 2]);
    }
}

/// Of a head with clusters, whose loss with statistics is made by several calls.
#[test]
fn statistics_are_of_the_contexts_that_the_loss_reads() {
    let on = (&ad(), DType::F64);
    let [_, adaptive] = adaptive_heads(VOCAB);
    let head = head(&adaptive.with_latent_dropout(0.5, TimeAxis::First), on);
    let state = || tensor::<3>([3, 4, HIDDEN], 1, on);
    let words = targets(12, VOCAB, on.0).reshape([3, 4]);
    let loss = |head: &OutputHead, statistics: bool| {
        head.loss_with(state(), words.clone(), &LossOptions::new().with_statistics(statistics))
    };
    let drawn = loss(&head, true);
    let nll = values(drawn.statistics.unwrap().nll);
    let value = values(drawn.value);
    assert_close(&value, &[nll.iter().sum::<f64>() / 12.0], 1e-11, "the mean nll");
    assert!((0..9).any(|_| values(loss(&head, true).value) != value), "another mask");
    // Under a mask that is given they change nothing.
    let masked = head.with_latent_mask(head.context.draw_latent_mask(4).expect("a mask in training"));
    let [with, without] = [true, false].map(|statistics| values(loss(&masked, statistics).value));
    assert_close(&with, &without, 1e-14, "the value");
}

#[test]
fn a_given_mask_meets_gradient_checkpointing() {
    let device = ad().gradient_checkpointing();
    let on = (&device, DType::F64);
    let [_, adaptive] = adaptive_heads(VOCAB);
    for config in [mos(VOCAB), adaptive] {
        let drawn = head(&config.with_latent_dropout(0.5, TimeAxis::First), on);
        let given = drawn.with_latent_mask(drawn.context.draw_latent_mask(4).expect("a mask in training"));
        for head in [drawn, given] {
            let state = tensor::<3>([3, 4, HIDDEN], 1, on).require_grad();
            let words = targets(12, VOCAB, on.0).reshape([3, 4]);
            let options = LossOptions::new().with_statistics(true);
            let gradients = head.loss_with(state.clone(), words, &options).value.backward();
            assert!(state.grad(&gradients).is_some());
        }
    }
}
