//! Half-precision heads: losses in f32, gradients in the types of their inputs, errors of the rounding of the inputs alone.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::activation::{log_softmax, sigmoid, softmax};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank::context::{Context, Mixtape};
use highrank::{Activation, LossOptions, OutputHead, Reduction, cast_parameters};

use crate::support::*;

const VOCAB: usize = 40;
const TOKENS: usize = 12;
const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// Options and the temperature of the head.
fn options() -> [(LossOptions, f64); 3] {
    let plain = LossOptions::new();
    let smoothed = plain.clone().with_label_smoothing(0.1).with_z_loss(1e-3);
    [(plain, 1.0), (smoothed.clone(), 1.0), (smoothed.with_reduction(Reduction::Sum), 1.5)]
}

/// All gradients in the module's order and last that of the hidden state, and their types.
fn gradients(head: &OutputHead, hidden: &Tensor<2>, loss: Tensor<1>) -> (Vec<f64>, Vec<DType>) {
    let store = loss.backward();
    let of_params = parameters(head, Some(&store)).into_iter();
    let of_params = of_params.map(|(_, gradient)| gradient.expect("a gradient of each parameter"));
    let of_hidden = hidden.grad(&store).expect("a gradient of the hidden state").into_data();
    let all: Vec<TensorData> = of_params.chain([of_hidden]).collect();
    (all.iter().flat_map(|data| data.iter::<f64>()).collect(), all.iter().map(TensorData::dtype).collect())
}

/// The mean nll as Burn's own layers would compute it, each operation in the parameters' type.
fn naive(head: &OutputHead, hidden: Tensor<2>, device: &Device) -> Tensor<1> {
    let [tokens, _] = hidden.dims();
    let state = hidden.clone();
    let activate = |activation, sum: Tensor<2>, of: Tensor<2>| match activation {
        Activation::Tanh => sum.tanh(),
        Activation::Residual => {
            let components = sum.dims()[1] / EMBEDDING;
            sum.tanh() + of.narrow(1, 0, EMBEDDING).repeat_dim(1, components)
        }
        _ => sum,
    };
    let (latent, prior) = match &head.context {
        Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) => {
            let sum = mixture.latent.forward(hidden.clone());
            let latent = activate(mixture.activation, sum, hidden.clone());
            (latent.reshape([tokens, mixture.components, EMBEDDING]), mixture.prior.forward(hidden))
        }
        Context::DirectOutputConnection(connection) => {
            let mut column = 0;
            let of_layer = |latent: &Linear| {
                let [width, _] = latent.weight.shape().dims();
                column += width;
                let of = hidden.clone().narrow(1, column - width, width);
                activate(connection.activation, latent.forward(of.clone()), of)
            };
            let latent = Tensor::cat(connection.latents.iter().map(of_layer).collect(), 1);
            let [last, components] = connection.prior.weight.shape().dims();
            let top = hidden.clone().narrow(1, column - last, last);
            (latent.reshape([tokens, components, EMBEDDING]), connection.prior.forward(top))
        }
        _ => {
            let context = hidden.clone().narrow(1, 0, EMBEDDING).reshape([tokens, 1, EMBEDDING]);
            (context, hidden.narrow(1, 0, 1).zeros_like())
        }
    };
    let (contexts, log_prior) = match &head.context {
        Context::MixtureOfContexts(_) => {
            let mixed: Tensor<3> = (latent * softmax(prior.clone(), 1).unsqueeze_dim(2)).sum_dim(1);
            (mixed, prior.narrow(1, 0, 1).zeros_like())
        }
        _ => (latent, log_softmax(prior, 1)),
    };
    let [_, components, _] = contexts.dims();
    let weight = head.decoder.weight.as_ref().unwrap().val().transpose();
    let product = match &head.context {
        Context::Mixtape(mixtape) => gated(mixtape, state, weight),
        _ => contexts.reshape([tokens * components, EMBEDDING]).matmul(weight),
    };
    let logits = product + head.decoder.bias.as_ref().unwrap().val().unsqueeze();
    let component = log_softmax(head.logit_map.forward(logits), 1);
    let words = targets(tokens, VOCAB, device).reshape([tokens, 1]).repeat_dim(1, components);
    let at_words = component.gather(1, words.reshape([tokens * components, 1]));
    let joint = log_prior + at_words.reshape([tokens, components]);
    let max = joint.clone().detach().max_dim(1);
    ((joint - max.clone()).exp().sum_dim(1).log() + max).neg().mean()
}

/// The logits of a Mixtape without the decoder's bias, each word's mixed by itself.
fn gated(mixtape: &Mixtape, hidden: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let ([tokens, _], [_, words]) = (hidden.dims(), weight.dims());
    let rows: Vec<i64> = (0..words).map(|word| word.min(mixtape.frequent) as i64).collect();
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &hidden.device());
    let of_words = |param: &Param<Tensor<2>>| param.val().select(0, rows.clone());
    let [_, width] = mixtape.vectors.val().dims();
    let features = mixtape.features.forward(hidden.clone()).tanh().reshape([tokens * 3, width]);
    let gates = features.matmul(of_words(&mixtape.vectors).transpose()).reshape([tokens, 3, words])
        + mixtape.base.forward(hidden.clone()).reshape([tokens, 3, 1])
        + of_words(&mixtape.bias).transpose().reshape([1, 3, words]);
    let gates = sigmoid(gates);
    let gate = |j: usize| gates.clone().narrow(1, j, 1).reshape([tokens, words]);
    let [first, second, third] = [gate(0), gate(1), gate(2)];
    let shut = |gate: Tensor<2>| gate.neg().add_scalar(1.0);
    let probs = [
        first.clone() * second.clone(),
        first.clone() * shut(second),
        shut(first.clone()) * third.clone(),
        shut(first) * shut(third),
    ];
    let latent = mixtape.latent.forward(hidden).tanh();
    let parts = probs
        .into_iter()
        .enumerate()
        .map(|(k, prob)| prob * latent.clone().narrow(1, k * EMBEDDING, EMBEDDING).matmul(weight.clone()));
    parts.reduce(|sum, part| sum + part).expect("four contexts")
}

/// What rounding a number to a type may be off by, relatively.
fn rounding(dtype: DType) -> f64 {
    if dtype == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-8) }
}

#[test]
fn losses_are_as_exact_as_their_inputs_and_gradients_as_their_types() {
    let device = ad();
    for dtype in HALVES {
        for config in all_heads(VOCAB) {
            let what = format!("{config:?}, {dtype:?}");
            let half = cast_parameters(head(&config, (&device, DType::F32)), dtype);
            let exact = cast_parameters(half.clone(), DType::F64);
            let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, (&device, dtype)).require_grad();
            let words = || targets(TOKENS, VOCAB, &device);
            for (i, (options, temperature)) in options().iter().enumerate() {
                let [half, exact] = [&half, &exact].map(|head| head.at_temperature(*temperature));
                let state = hidden().cast(DType::F64).detach().require_grad();
                let loss = exact.loss_with(state.clone(), words(), options).value;
                let (want_loss, (want, _)) = (values(loss.clone()), gradients(&exact, &state, loss));
                let check = |name: &str, state: &Tensor<2>, loss: Tensor<1>| {
                    assert_close(&values(loss.clone()), &want_loss, 2e-6, &format!("{name} {i} of {what}"));
                    let (got, types) = gradients(&half, state, loss);
                    assert!(types.iter().all(|found| *found == dtype), "{what}: {types:?}");
                    // One rounding, at the end, and of hidden states that contexts and priors read one of each part. A value near the smallest of f16 is off by more, but is small.
                    let error = relative_error(&got, &want);
                    assert!(error < 0.65 * rounding(dtype), "{name} {i} of {what}: {error:e}");
                };
                let state = hidden();
                let loss = half.loss_with(state.clone(), words(), options).value;
                assert_eq!(loss.dtype(), DType::F32, "{what}");
                check("loss", &state, loss);

                // The same from the losses of tokens.
                let state = hidden();
                let scale = if i == 2 { 1.0 } else { 1.0 / TOKENS as f64 };
                let losses = options.clone().with_per_token(true).with_statistics(true);
                let made = half.loss_with(state.clone(), words(), &losses);
                assert_eq!(made.statistics.unwrap().entropy.dtype(), DType::F32, "{what}");
                assert_close(&values(made.value), &want_loss, 2e-6, &format!("value {i} of {what}"));
                check("losses", &state, made.per_token.unwrap().mul_scalar(scale).sum());
            }
        }
    }
}

#[test]
fn errors_are_no_larger_than_those_of_the_composed_formula() {
    let device = ad();
    for dtype in HALVES {
        for config in all_heads(VOCAB) {
            let half = cast_parameters(head(&config, (&device, DType::F32)), dtype);
            let exact = cast_parameters(half.clone(), DType::F64);
            let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, (&device, dtype)).require_grad();
            let run = |head: &OutputHead, state: Tensor<2>, loss: Tensor<1>| {
                (values(loss.clone()), gradients(head, &state, loss).0)
            };
            let state = hidden().cast(DType::F64).detach().require_grad();
            let want = run(&exact, state.clone(), naive(&exact, state, &device));
            let state = hidden();
            let fused = run(&half, state.clone(), half.loss(state, targets(TOKENS, VOCAB, &device)));
            let state = hidden();
            let composed = run(&half, state.clone(), naive(&half, state, &device));
            for (name, got, composed, want) in
                [("loss", &fused.0, &composed.0, &want.0), ("gradients", &fused.1, &composed.1, &want.1)]
            {
                let (got, composed) = (relative_error(got, want), relative_error(composed, want));
                assert!(
                    got <= composed + 1e-6,
                    "{name}: {got:e} against {composed:e}, {config:?}, {dtype:?}"
                );
            }
        }
    }
}

/// A factor that lifts gradients of f16 above its smallest numbers must act before they are rounded to it.
#[test]
fn gradients_are_scaled_before_they_are_rounded() {
    let device = ad();
    let scale = 2f64.powi(24);
    for config in all_heads(VOCAB) {
        let half = cast_parameters(head(&config, (&device, DType::F32)), DType::F16);
        let exact = cast_parameters(half.clone(), DType::F64);
        let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, (&device, DType::F16)).require_grad();
        let words = || targets(TOKENS, VOCAB, &device);
        for (i, (options, temperature)) in options().into_iter().enumerate() {
            let [half, exact] = [&half, &exact].map(|head| head.at_temperature(temperature));
            // Weights so small that no gradient by itself is a number of f16.
            let weights = || Tensor::<1>::full([TOKENS], 2f64.powi(-27), (&device, DType::F32));
            let options = options.with_reduction(Reduction::Sum).with_token_weights(weights());
            let state = hidden().cast(DType::F64).detach().require_grad();
            let loss = exact.loss_with(state.clone(), words(), &options).value;
            let (want, _) = gradients(&exact, &state, loss.mul_scalar(scale));
            for per_token in [false, true] {
                let what = format!("{config:?}, options {i}, of tokens: {per_token}");
                let options = options.clone().with_per_token(per_token);
                let scaled = |factor: f64| {
                    let state = hidden();
                    let made = half.loss_with(state.clone(), words(), &options);
                    let loss = made.per_token.map_or(made.value, Tensor::sum);
                    gradients(&half, &state, loss.mul_scalar(factor)).0
                };
                assert!(relative_error(&scaled(1.0), &want) > 0.5, "{what}: nothing to be lifted");
                let error = relative_error(&scaled(scale), &want);
                assert!(error < 0.6 * rounding(DType::F16), "{what}: {error:e}");
            }
        }
    }
}

#[test]
fn everything_else_works_in_half_precision() {
    let device = cpu();
    for dtype in HALVES {
        for config in all_heads(VOCAB) {
            let half = cast_parameters(head(&config, (&device, DType::F32)), dtype);
            let exact = cast_parameters(half.clone(), DType::F64);
            let hidden = tensor::<2>([TOKENS, config.d_hidden], 1, (&device, dtype));
            let wide = hidden.clone().cast(DType::F64);
            let what = format!("{config:?}, {dtype:?}");
            let log_probs = half.forward(hidden.clone());
            assert_eq!(log_probs.dtype(), DType::F32, "{what}");
            assert_close(&values(log_probs), &values(exact.forward(wide.clone())), 1e-5, &what);
            let words = || targets(TOKENS, VOCAB, &device);
            assert_close(
                &values(half.nll(hidden.clone(), words())),
                &values(exact.nll(wide.clone(), words())),
                1e-5,
                &what,
            );
            let options = LossOptions::new().with_statistics(true);
            let made = half.loss_with(hidden.clone(), words(), &options).statistics.unwrap();
            let want = exact.loss_with(wide.clone(), words(), &options).statistics.unwrap();
            assert_close(&values(made.entropy), &values(want.entropy), 1e-5, &what);
            let rows = || softmax(tensor::<2>([TOKENS, VOCAB], 3, (&device, DType::F32)), 1);
            let against = |rows: Tensor<2>| LossOptions::new().with_distributions(rows);
            let soft = half.loss_with(hidden.clone(), words(), &against(rows().cast(dtype))).value;
            assert_eq!(soft.dtype(), DType::F32, "{what}");
            let options = against(rows().cast(dtype).cast(DType::F64));
            let want = exact.loss_with(wide, words(), &options).value;
            assert_close(&values(soft), &values(want), 1e-5, &what);

            // Masked words, a token that does not count, and weights in half precision.
            let masked = half.mask_words(&[0, 7]);
            let states = hidden.slice_fill(0..1, f64::NAN);
            let weights = Tensor::<1>::ones([TOKENS], (&device, dtype)).slice_fill(0..1, 0.0);
            let options = LossOptions::new().with_token_weights(weights).with_label_smoothing(0.1);
            let words =
                targets(TOKENS, VOCAB, &device).mask_fill(targets(TOKENS, VOCAB, &device).equal_elem(7), 8);
            let words = words.clone().mask_fill(words.equal_elem(0), 8);
            let loss = masked.loss_with(states, words, &options).value;
            assert!(values(loss)[0].is_finite(), "{what}");
        }
    }
}

/// Logits of a half-precision head are f32.
#[test]
fn blocks_keep_to_the_memory_budget() {
    for dtype in HALVES {
        let on = (&cpu(), dtype);
        let config = crate::support::softmax(VOCAB).with_memory_budget(Some(2 * VOCAB * size_of::<f32>()));
        let head = head(&config, on);
        let hidden = || tensor::<2>([7, EMBEDDING], 1, on);
        for blocks in
            [head.logit_blocks(hidden()).collect::<Vec<_>>(), head.log_prob_blocks(hidden()).collect()]
        {
            let rows: Vec<usize> = blocks.iter().map(|block| block.dims()[0]).collect();
            assert_eq!(rows, [2, 2, 2, 1], "{dtype:?}");
        }
    }
}
