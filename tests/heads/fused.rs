//! The fused likelihood against the composed formula.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank::{HeadConfig, LossOptions};

use crate::support::*;

/// Fused and composed values and gradients of a head on a device with autodiff, for an upstream gradient that differs from
/// token to token.
fn check(config: &HeadConfig, tokens: usize, on: On<'_>, tolerance: f64) {
    let head = head(config, on);
    let hidden = || tensor([tokens, config.d_hidden], 1, on).require_grad();
    let targets = || targets(tokens, config.vocab, on.0);
    let upstream = || tensor([tokens], 2, on);
    let what = format!("{config:?}, {tokens} tokens, {on:?}");

    let state = hidden();
    let composed = composed_nll(&head, state.clone(), targets());
    let want_nll = values(composed.clone());
    let want = all_gradients(&head, &state, (composed * upstream()).sum());

    let state = hidden();
    let nll = head.nll(state.clone(), targets());
    assert_close(&values(nll.clone()), &want_nll, tolerance, &format!("nll of {what}"));
    let got = all_gradients(&head, &state, (nll * upstream()).sum());
    assert_close(&got, &want, tolerance, &format!("gradients of the nll of {what}"));

    // Scaled, so that the scalar's own upstream gradient is not 1, nor a number that f32 has.
    let weights = || upstream().add_scalar(1.5);
    let state = hidden();
    let nll = composed_nll(&head, state.clone(), targets());
    let mean = (nll * weights()).sum() / weights().sum();
    let want = all_gradients(&head, &state, mean.mul_scalar(-3.1));
    let state = hidden();
    let options = LossOptions::new().with_token_weights(weights());
    let loss = head.loss_with(state.clone(), targets(), &options).value;
    let got = all_gradients(&head, &state, loss.mul_scalar(-3.1));
    assert_close(&got, &want, tolerance, &format!("gradients of the loss of {what}"));
}

#[test]
fn every_head_agrees_with_the_composed_formula_on_every_backend() {
    for device in cpus().map(Device::autodiff) {
        for config in all_heads(11) {
            check(&config, 7, (&device, DType::F32), 2e-5);
            check(&config, 7, (&device, DType::F64), 1e-12);
        }
    }
}

#[test]
fn ragged_sizes_around_every_chunk_boundary_agree() {
    let (vocab, chunk) = (13, 4);
    let device = ad();
    for base in [softmax(vocab), HeadConfig::mos_plif(HIDDEN, EMBEDDING, vocab, 3, 9)] {
        let token_bytes = base.context.components() * vocab * size_of::<f64>();
        let config = base.with_memory_budget(Some(chunk * token_bytes));
        for tokens in [1, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 2 * chunk, 2 * chunk + 1] {
            check(&config, tokens, (&device, DType::F64), 1e-12);
        }
    }
}

/// All options at once; of the teacher's words none is above 6.
fn every_option(tokens: usize, vocab: usize, on: On<'_>) -> LossOptions {
    let ids: Vec<i64> = (0..tokens as i64).flat_map(|token| [token % 7, (token + 3) % 7]).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [tokens, 2]), on.0);
    LossOptions::new()
        .with_ignore_index(1)
        .with_token_weights(tensor([tokens], 7, on).add_scalar(1.5))
        .with_class_weights(tensor([vocab], 9, on).add_scalar(1.5))
        .with_teacher(ids, tensor([tokens, 2], 8, on).add_scalar(1.0).mul_scalar(0.2))
        .with_label_smoothing(0.1)
        .with_z_loss(0.01)
        .with_statistics(true)
}

#[test]
fn one_chunk_gives_what_many_give() {
    // One byte is less than a token needs, so every token is a chunk of its own; with many words to a context's
    // features, a block of contexts has several.
    let on = (&ad(), DType::F64);
    for (vocab, small) in [(19, 1), (101, 101 * 3 * size_of::<f64>())] {
        for config in all_heads(vocab) {
            let run = |budget: usize| {
                let head = head(&config.clone().with_memory_budget(Some(budget)), on);
                let hidden = || tensor([10, config.d_hidden], 1, on).require_grad();
                let mut all = values(head.forward(hidden()));
                for (options, temperature) in [(LossOptions::new(), 1.0), (every_option(10, vocab, on), 1.3)]
                {
                    let (state, words) = (hidden(), targets(10, vocab, on.0));
                    let loss =
                        head.at_temperature(temperature).loss_with(state.clone(), words, &options).value;
                    all.extend(values(loss.clone()));
                    all.extend(all_gradients(&head, &state, loss));
                }
                all
            };
            assert_close(&run(small), &run(1 << 30), 1e-13, &format!("{config:?}"));
        }
    }
}

#[test]
fn soft_targets_agree_with_the_composed_formula() {
    let on = (&ad(), DType::F64);
    for config in all_heads(11) {
        for budget in [1, 1 << 20] {
            let config = config.clone().with_memory_budget(Some(budget));
            let head = head(&config, on);
            let hidden = || tensor([5, config.d_hidden], 1, on).require_grad();
            let rows = || {
                let raw = tensor([5, 11], 4, on).add_scalar(1.0);
                raw.clone() / raw.sum_dim(1)
            };
            let weights = || tensor([5], 3, on).add_scalar(1.2);
            let state = hidden();
            let cross_entropy = (rows() * head.forward(state.clone())).sum_dim(1).neg().squeeze_dim::<1>(1);
            let mean = (cross_entropy * weights()).sum() / weights().sum();
            let want_value = values(mean.clone());
            let want = all_gradients(&head, &state, mean);
            let state = hidden();
            let options = LossOptions::new().with_distributions(rows()).with_token_weights(weights());
            let loss = head.loss_with(state.clone(), targets(5, 11, on.0), &options).value;
            assert_close(&values(loss.clone()), &want_value, 1e-12, "soft loss");
            assert_close(&all_gradients(&head, &state, loss), &want, 1e-12, &format!("{config:?}"));
        }
    }
}

#[test]
fn gradient_checkpointing_changes_nothing() {
    let device = ad().gradient_checkpointing();
    for config in all_heads(11) {
        check(&config, 5, (&device, DType::F64), 1e-12);
    }
}
