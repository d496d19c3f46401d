//! A Mixtape in terms of other heads: who shares a gate, and what the gates of a word make.

use burn::module::Param;
use burn::tensor::{DType, Tensor};
use highrank::context::{Context, Mixtape, MixtapeConfig};
use highrank::{ContextConfig, HeadConfig, OutputHead, Precision, TimeAxis};

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 6;

fn parts(head: &mut OutputHead) -> &mut Mixtape {
    match &mut head.context {
        Context::Mixtape(mixtape) => mixtape,
        other => panic!("{other}"),
    }
}

/// Four priors `softmax(p + q, p − q, −p + q, −p − q)` are the leaves of a tree with gates `σ(2p)`, `σ(2q)` and `σ(2q)`.
#[test]
fn with_one_gate_for_all_words_it_is_a_mixture_of_contexts() {
    let on = (&cpu(), DType::F64);
    let mut shared = head(&mixtape(VOCAB, 0), on);
    let mut moc = head(&HeadConfig::moc(HIDDEN, EMBEDDING, VOCAB, 4), on);
    moc.decoder = shared.decoder.clone();
    let [p, q] = [31, 32].map(|seed| tensor::<2>([HIDDEN, 1], seed, on));
    let mixtape = parts(&mut shared);
    mixtape.vectors = Param::from_tensor(tensor([1, 3], 1, on) * 0.0);
    mixtape.bias = Param::from_tensor(tensor([1, 3], 1, on) * 0.0);
    let gates = vec![p.clone() * 2.0, q.clone() * 2.0, q.clone() * 2.0];
    mixtape.base.weight = Param::from_tensor(Tensor::cat(gates, 1));
    let Context::MixtureOfContexts(mixture) = &mut moc.context else { panic!("not a mixture") };
    mixture.latent = mixtape.latent.clone();
    let columns = vec![p.clone() + q.clone(), p.clone() - q.clone(), q.clone() - p.clone(), -p - q];
    mixture.prior.weight = Param::from_tensor(Tensor::cat(columns, 1));
    let hidden = || tensor([TOKENS, HIDDEN], 1, on);
    assert_close(&results(&shared, hidden()), &results(&moc, hidden()), 1e-13, "all words shared");
}

#[test]
fn frequent_words_with_the_gate_of_all_others_are_as_if_they_shared_it() {
    let on = (&cpu(), DType::F64);
    let mut shared = head(&mixtape(VOCAB, 0), on);
    for frequent in [1, 4, VOCAB - 1] {
        let mut own = head(&mixtape(VOCAB, frequent), on);
        own.decoder = shared.decoder.clone();
        let from = parts(&mut shared).clone();
        let repeated = |param: &Param<Tensor<2>>| Param::from_tensor(param.val().repeat_dim(0, frequent + 1));
        let vectors = repeated(&from.vectors);
        let bias = repeated(&from.bias);
        *parts(&mut own) = Mixtape { vectors, bias, frequent, ..from };
        let hidden = || tensor([TOKENS, HIDDEN], 1, on);
        let what = format!("{frequent} frequent words");
        assert_close(&results(&own, hidden()), &results(&shared, hidden()), 1e-13, &what);
    }
}

/// A gate of ±∞ picks one context: the first word has the first, the second the second and so on.
#[test]
fn shut_gates_give_every_word_a_context_of_its_own() {
    let on = (&cpu(), DType::F64);
    let mut made = head(&mixtape(VOCAB, 4), on);
    const OPEN: f64 = 300.0;
    let mixtape = parts(&mut made);
    mixtape.vectors = Param::from_tensor(tensor([5, 3], 1, on) * 0.0);
    mixtape.base.weight = Param::from_tensor(tensor([HIDDEN, 3], 1, on) * 0.0);
    let gates =
        [[OPEN, OPEN, 0.0], [OPEN, -OPEN, 0.0], [-OPEN, 0.0, OPEN], [-OPEN, 0.0, -OPEN], [OPEN, OPEN, 0.0]];
    mixtape.bias = Param::from_tensor(Tensor::from_data(gates, on));
    let latent = mixtape.latent.clone();
    let hidden = || tensor([TOKENS, HIDDEN], 1, on);
    let contexts = latent.forward(hidden()).tanh();
    let weight = made.decoder.weight.as_ref().unwrap().val();
    let bias = made.decoder.bias.as_ref().unwrap().val();
    let columns = (0..VOCAB).map(|word| {
        let context = if word < 4 { word } else { 0 };
        let context = contexts.clone().narrow(1, context * EMBEDDING, EMBEDDING);
        context.matmul(weight.clone().narrow(0, word, 1).transpose())
    });
    let logits = Tensor::cat(columns.collect(), 1) + bias.unsqueeze();
    let want = values(logits.clone());
    let got: Vec<f64> = made.logit_blocks(hidden()).flat_map(values).collect();
    assert_close(&got, &want, 1e-13, "logits");
    let log_probs = burn::tensor::activation::log_softmax(logits, 1);
    assert_close(&values(made.forward(hidden())), &values(log_probs), 1e-12, "log-probabilities");
}

#[test]
fn configurations_without_a_shared_gate_or_a_gate_at_all_are_refused() {
    let config = mixtape(VOCAB, VOCAB);
    let message = config.validate().unwrap_err().to_string();
    assert_eq!(message, "frequent is 11, expected fewer than the 11 words: at least one must share its gate");
    let config = HeadConfig::mixtape(HIDDEN, EMBEDDING, VOCAB)
        .with_context(ContextConfig::Mixtape(MixtapeConfig::new(2, 0)));
    assert_eq!(config.validate().unwrap_err().to_string(), "d_gate is 0, expected at least 1");
    assert_eq!(HeadConfig::mixtape(HIDDEN, EMBEDDING, 500).context.components(), 4);
}

#[test]
fn a_latent_mask_drops_features_of_the_contexts() {
    let on = (&cpu(), DType::F64);
    let head = head(&mixtape(VOCAB, 4).with_latent_dropout(0.5, TimeAxis::First), on);
    let hidden = || tensor::<3>([3, 2, HIDDEN], 1, on);
    let mask = tensor::<2>([2, 4 * EMBEDDING], 5, on).greater_elem(0.0).float().cast(DType::F64) * 2.0;
    let masked = head.with_latent_mask(mask.clone());
    let words = targets(6, VOCAB, on.0).reshape([3, 2]);
    let fused = values(masked.nll(hidden(), words.clone()));
    let picked = masked.forward(hidden()).gather(2, words.unsqueeze_dim(2)).neg();
    assert_close(&fused, &values(picked), 1e-13, "nll under a mask");
    // With all contexts dropped, the decoder's bias alone is left.
    let none = head.with_latent_mask(mask * 0.0).forward(hidden());
    let bias = head.decoder.bias.as_ref().unwrap().val();
    let want = burn::tensor::activation::log_softmax(bias.unsqueeze::<3>(), 2).repeat(&[3, 2, 1]);
    assert_close(&values(none), &values(want), 1e-13, "all features dropped");
}

/// A wider decoder, in chunks of one, two and all tokens.
#[test]
fn under_a_wide_decoder_all_paths_agree() {
    let (device, vocab) = (ad(), 50);
    let wide = |budget| {
        let context = ContextConfig::Mixtape(MixtapeConfig::new(37, 5));
        HeadConfig::mixtape(HIDDEN, 40, vocab).with_context(context).with_memory_budget(budget)
    };
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        let on = (&device, dtype);
        let hidden = || tensor([TOKENS, HIDDEN], 1, on).require_grad();
        let words = || targets(TOKENS, vocab, &device);
        let gradients = |budget, composed: bool| {
            let (head, hidden) = (head(&wide(budget), on), hidden());
            let loss = match composed {
                true => composed_nll(&head, hidden.clone(), words()).mean(),
                false => head.loss(hidden.clone(), words()),
            };
            all_gradients(&head, &hidden, loss)
        };
        let want = gradients(None, true);
        for budget in [None, Some(1), Some(2 * vocab * 8)] {
            let what = format!("{dtype:?}, {budget:?} bytes");
            assert_close(&gradients(budget, false), &want, tolerance, &what);
        }
    }
    // What products read is rounded, and gradients with it.
    let on = (&device, DType::F32);
    let gradients = |precision| {
        let head = head(&wide(None).with_precision(precision), on);
        let hidden = tensor([TOKENS, HIDDEN], 1, on).require_grad();
        let loss = head.loss(hidden.clone(), targets(TOKENS, vocab, &device));
        all_gradients(&head, &hidden, loss)
    };
    let (rounded, exact) = (gradients(Precision::Bf16), gradients(Precision::Full));
    assert_close(&rounded, &exact, 0.03, "bf16");
    assert_ne!(rounded, exact);
}

/// The loss of the gates' own tensors, each tracked alone: no gradient is made that nobody asked for, and none is lost.
#[test]
fn frozen_parameters_get_no_gradient_and_change_no_other() {
    let on = (&ad(), DType::F64);
    let gradients = |frozen: &[&str]| {
        let mut head = head(&mixtape(VOCAB, 4), on);
        let mixtape = parts(&mut head);
        for (name, param) in [("vectors", &mut mixtape.vectors), ("bias", &mut mixtape.bias)] {
            if frozen.contains(&name) {
                *param = param.clone().set_require_grad(false);
            }
        }
        let hidden = tensor([TOKENS, HIDDEN], 1, on).require_grad();
        let store = head.loss(hidden.clone(), targets(TOKENS, VOCAB, on.0)).backward();
        let mixtape = parts(&mut head);
        let of = |param: &Param<Tensor<2>>| param.val().grad(&store).map(values);
        [of(&mixtape.vectors), of(&mixtape.bias), hidden.grad(&store).map(values)]
    };
    let all = gradients(&[]);
    for (name, index) in [("vectors", 0), ("bias", 1)] {
        let some = gradients(&[name]);
        for i in 0..3 {
            match i == index {
                true => assert!(some[i].is_none(), "{name} is frozen"),
                false => assert_close(some[i].as_ref().unwrap(), all[i].as_ref().unwrap(), 1e-14, name),
            }
        }
    }
}
