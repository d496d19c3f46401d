//! The fused likelihood against the composed formula.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor};
use highrank::{HeadConfig, LikelihoodBackend};

use crate::support::*;

/// Fused and composed values and gradients of a head, with a non-uniform upstream gradient.
fn check<B: AutodiffBackend + LikelihoodBackend>(
    config: &HeadConfig,
    tokens: usize,
    dtype: DType,
    tolerance: f64,
) {
    let head = head::<B>(config, dtype);
    let hidden = || tensor::<B, 2>([tokens, config.d_hidden], 1, dtype).require_grad();
    let targets = || targets::<B>(tokens, config.vocab);
    let upstream = || tensor::<B, 1>([tokens], 2, dtype);
    let what = format!("{config:?}, {tokens} tokens, {dtype:?}");

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
    let loss = head.loss(state.clone(), targets(), Some(weights()));
    let got = all_gradients(&head, &state, loss.mul_scalar(-3.1));
    assert_close(&got, &want, tolerance, &format!("gradients of the loss of {what}"));
}

#[test]
fn every_head_agrees_with_the_composed_formula_on_every_backend() {
    for config in all_heads(11) {
        check::<Ad>(&config, 7, DType::F32, 2e-5);
        check::<Ad>(&config, 7, DType::F64, 1e-12);
        #[cfg(feature = "ndarray")]
        {
            use burn::backend::{Autodiff, NdArray};
            check::<Autodiff<NdArray<f32>>>(&config, 7, DType::F32, 2e-5);
            check::<Autodiff<NdArray<f64>>>(&config, 7, DType::F64, 1e-12);
        }
    }
}

#[test]
fn ragged_sizes_around_every_chunk_boundary_agree() {
    let (vocab, chunk) = (13, 4);
    for base in [HeadConfig::softmax(EMBEDDING, vocab), HeadConfig::mos_plif(HIDDEN, EMBEDDING, vocab, 3, 9)]
    {
        let token_bytes = base.context.components() * vocab * size_of::<f64>();
        let config = base.with_memory_budget(Some(chunk * token_bytes));
        for tokens in [1, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 2 * chunk, 2 * chunk + 1] {
            check::<Ad>(&config, tokens, DType::F64, 1e-12);
        }
    }
}

#[test]
fn one_chunk_gives_what_many_give() {
    // One byte is less than a token needs, so every token is a chunk of its own; with many words to a context's
    // features, a block of contexts has several.
    for (vocab, small) in [(19, 1), (101, 101 * 3 * size_of::<f64>())] {
        for config in all_heads(vocab) {
            let run = |budget: usize| {
                let head = head::<Ad>(&config.clone().with_memory_budget(Some(budget)), DType::F64);
                let hidden = tensor::<Ad, 2>([10, config.d_hidden], 1, DType::F64).require_grad();
                let loss = head.loss(hidden.clone(), targets(10, vocab), None);
                let mut all = values(loss.clone());
                all.extend(all_gradients(&head, &hidden, loss));
                all.extend(values(head.log_probs(hidden.clone())));
                all
            };
            assert_close(&run(small), &run(1 << 30), 1e-13, &format!("{config:?}"));
        }
    }
}

#[test]
fn soft_targets_agree_with_the_composed_formula() {
    for config in all_heads(11) {
        for budget in [1, 1 << 20] {
            let config = config.clone().with_memory_budget(Some(budget));
            let head = head::<Ad>(&config, DType::F64);
            let hidden = || tensor::<Ad, 2>([5, config.d_hidden], 1, DType::F64).require_grad();
            let rows = || {
                let raw = tensor::<Ad, 2>([5, 11], 4, DType::F64).add_scalar(1.0);
                raw.clone() / raw.sum_dim(1)
            };
            let weights = || tensor::<Ad, 1>([5], 3, DType::F64).add_scalar(1.2);
            let state = hidden();
            let cross_entropy = (rows() * head.log_probs(state.clone())).sum_dim(1).neg().squeeze_dim::<1>(1);
            let mean = (cross_entropy * weights()).sum() / weights().sum();
            let want_value = values(mean.clone());
            let want = all_gradients(&head, &state, mean);
            let state = hidden();
            let loss = head.soft_loss(state.clone(), rows(), Some(weights()));
            assert_close(&values(loss.clone()), &want_value, 1e-12, "soft loss");
            assert_close(&all_gradients(&head, &state, loss), &want, 1e-12, &format!("{config:?}"));
        }
    }
}

#[test]
fn a_soft_target_that_is_certain_is_a_hard_target() {
    let config = HeadConfig::mos(HIDDEN, EMBEDDING, 11, 3);
    let head = head::<Cpu>(&config, DType::F64);
    let hidden = tensor::<Cpu, 2>([6, HIDDEN], 1, DType::F64);
    let words = targets::<Cpu>(6, 11);
    let one_hot = Tensor::<Cpu, 2>::zeros([6, 11], (&Default::default(), DType::F64)).scatter(
        1,
        words.clone().reshape([6, 1]),
        Tensor::ones([6, 1], (&Default::default(), DType::F64)),
        burn::tensor::IndexingUpdateOp::Add,
    );
    let hard = values(head.loss(hidden.clone(), words, None));
    assert_close(&values(head.soft_loss(hidden, one_hot, None)), &hard, 1e-13, "soft against hard");
}

#[test]
fn the_gradient_of_token_weights_is_there() {
    let config = HeadConfig::mos(HIDDEN, EMBEDDING, 11, 2);
    let head = head::<Ad>(&config, DType::F64);
    let hidden = tensor::<Ad, 2>([6, HIDDEN], 1, DType::F64);
    let weights = || tensor::<Ad, 1>([6], 3, DType::F64).add_scalar(1.2).detach().require_grad();
    let fused = weights();
    let store = head.loss(hidden.clone(), targets(6, 11), Some(fused.clone())).backward();
    let got = values(fused.grad(&store).expect("a gradient of the weights"));
    let composed = weights();
    let nll = composed_nll(&head, hidden, targets(6, 11));
    let store = ((nll * composed.clone()).sum() / composed.clone().sum()).backward();
    assert_close(&got, &values(composed.grad(&store).unwrap()), 1e-12, "weights");
}

#[test]
fn gradient_checkpointing_changes_nothing() {
    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    type Checkpointed = burn::backend::Autodiff<Cpu, BalancedCheckpointing>;
    for config in all_heads(11) {
        check::<Checkpointed>(&config, 5, DType::F64, 1e-12);
    }
}
