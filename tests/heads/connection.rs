//! Direct output connection: its equality with a mixture, its dropout, its configuration and its messages.

use burn::module::Param;
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::context::{ConnectedLayer, Context, DirectOutputConnectionConfig};
use highrank::{ContextConfig, HeadConfig, HeadError, LossOptions, OutputHead, TimeAxis};

use crate::support::*;

const VOCAB: usize = 11;
const BELOW: usize = 4;

fn doc() -> HeadConfig {
    HeadConfig::direct_output_connection(&[(BELOW, 1), (HIDDEN, 2)], EMBEDDING, VOCAB)
}

/// A Mixture of Softmaxes of three components and the connection with the same parameters, whose layers are all the same.
fn of_one_layer(layers: &[usize], on: On<'_>) -> [OutputHead; 2] {
    let mos = head(&mos(VOCAB), on);
    let layers: Vec<(usize, usize)> = layers.iter().map(|components| (HIDDEN, *components)).collect();
    let mut doc = HeadConfig::direct_output_connection(&layers, EMBEDDING, VOCAB).init(on.0);
    let Context::MixtureOfSoftmaxes(mixture) = &mos.context else { unreachable!() };
    let Context::DirectOutputConnection(connection) = &mut doc.context else { unreachable!() };
    connection.prior = mixture.prior.clone();
    let mut first = 0;
    for (latent, (_, components)) in connection.latents.iter_mut().zip(&layers) {
        let count = components * EMBEDDING;
        let weight = mixture.latent.weight.val().narrow(1, first, count).detach();
        let bias = mixture.latent.bias.as_ref().unwrap().val().narrow(0, first, count).detach();
        latent.weight = Param::from_tensor(weight);
        latent.bias = Some(Param::from_tensor(bias));
        first += count;
    }
    doc.decoder = mos.decoder.clone();
    [mos, doc]
}

#[test]
fn layers_that_are_all_the_same_make_a_mixture_of_softmaxes() {
    for device in cpus().map(Device::autodiff) {
        for layers in [[3].as_slice(), &[1, 2], &[1, 1, 1]] {
            let on = (&device, DType::F64);
            let [mos, doc] = of_one_layer(layers, on);
            let state = || tensor::<2>([5, HIDDEN], 1, on).require_grad();
            let (one, several) = (state(), state());
            let hidden = Tensor::cat(vec![several.clone(); layers.len()], 1);
            let words = || targets(5, VOCAB, &device);
            let what = format!("{layers:?}");
            let log_probs = |head: &OutputHead, hidden: &Tensor<2>| values(head.forward(hidden.clone()));
            assert_close(&log_probs(&doc, &hidden), &log_probs(&mos, &one), 1e-13, &what);
            let [got, want] =
                [(&doc, hidden), (&mos, one.clone())].map(|(head, hidden)| head.loss(hidden, words()));
            assert_close(&values(got.clone()), &values(want.clone()), 1e-13, &what);
            let (got, want) = (got.backward(), want.backward());
            let [got, want] = [several.grad(&got), one.grad(&want)].map(|grad| values(grad.unwrap()));
            assert_close(&got, &want, 1e-13, &format!("gradients, {what}"));
        }
    }
}

#[test]
fn each_layer_reaches_its_own_components_alone() {
    let on = (&cpu(), DType::F64);
    let head = head(&doc(), on);
    let Context::DirectOutputConnection(connection) = &head.context else { unreachable!() };
    let shapes: Vec<_> = connection.latents.iter().map(|latent| latent.weight.dims()).collect();
    assert_eq!(shapes, [[BELOW, EMBEDDING], [HIDDEN, 2 * EMBEDDING]]);
    let hidden = tensor::<2>([2, BELOW + HIDDEN], 1, on);
    let logits = |hidden: Tensor<2>| -> Vec<Vec<f64>> {
        let rows = values(Tensor::cat(head.logit_blocks(hidden).collect(), 0));
        rows.chunks(VOCAB).map(<[f64]>::to_vec).collect()
    };
    // The components' distributions by priors of the last layer.
    let mixed = |hidden: Tensor<2>| {
        let logits = Tensor::cat(head.logit_blocks(hidden.clone()).collect(), 0);
        let probs: Tensor<3> = softmax(logits, 1).reshape([2, 3, VOCAB]);
        let last = hidden.narrow(1, BELOW, HIDDEN);
        let prior: Tensor<3> = softmax(connection.prior.forward(last), 1).unsqueeze_dim(2);
        values((probs * prior).sum_dim(1))
    };
    let before = logits(hidden.clone());
    // Rows of the logits: three components of the first token, then of the second.
    for (column, moved) in [(0, [true, false, false]), (BELOW, [false, true, true])] {
        let change = Tensor::zeros([2, BELOW + HIDDEN], on).slice_fill([0..2, column..column + 1], 0.5);
        let changed = hidden.clone() + change;
        let after = logits(changed.clone());
        let differ: Vec<bool> = before.iter().zip(&after).map(|(a, b)| a != b).collect();
        assert_eq!(differ, [moved, moved].concat(), "column {column}");
        for hidden in [hidden.clone(), changed] {
            let what = format!("priors, column {column}");
            assert_close(&values(head.forward(hidden.clone()).exp()), &mixed(hidden), 1e-13, &what);
        }
    }
}

/// Whether masks of latent dropout are alike, by the contexts of equal hidden states under equal weights.
#[test]
fn one_dropout_mask_serves_all_components_and_steps_of_a_sequence() {
    const WIDTH: usize = 40;
    let device = ad();
    for (time, leading) in [(TimeAxis::First, [3, 2]), (TimeAxis::Second, [2, 3])] {
        // Logits that are the contexts themselves.
        let config =
            HeadConfig::direct_output_connection(&[(BELOW, 1), (HIDDEN, 2)], WIDTH, WIDTH).with_bias(false);
        let mut head = config.with_latent_dropout(0.5, time).init(&device);
        head.decoder.weight = Some(Param::from_tensor(Tensor::eye(WIDTH, &device)));
        let hidden = Tensor::<3>::ones([leading[0], leading[1], BELOW + HIDDEN], &device);
        let contexts = Tensor::cat(head.logit_blocks(hidden).collect(), 0);
        let kept: Vec<Vec<bool>> =
            values(contexts).chunks(WIDTH).map(|row| row.iter().map(|x| *x != 0.0).collect()).collect();
        assert_eq!(kept.len(), 6 * 3);
        let sequence = |token: usize| if time == TimeAxis::First { token % 2 } else { token / 3 };
        for (row, mask) in kept.iter().enumerate() {
            let first = (0..6).find(|token| sequence(*token) == sequence(row / 3)).unwrap();
            assert_eq!(mask, &kept[first * 3], "{time:?}, row {row}");
        }
        let other = (0..6).find(|token| sequence(*token) != sequence(0)).unwrap();
        assert_ne!(kept[0], kept[other * 3]);
        let drawn = values(head.context.draw_latent_mask(2).expect("a mask in training"));
        for mask in drawn.chunks(3 * WIDTH) {
            assert!(mask.chunks(WIDTH).all(|of_component| of_component == &mask[..WIDTH]));
        }
    }
}

#[test]
fn a_given_mask_acts_alike_in_losses_and_predictions() {
    let on = (&cpu(), DType::F64);
    let head = head(&doc().with_latent_dropout(0.5, TimeAxis::First), on);
    let mask = tensor::<2>([2, 3 * EMBEDDING], 5, on).greater_elem(0.0).float().cast(DType::F64) * 2.0;
    let masked = head.with_latent_mask(mask);
    let hidden = tensor::<3>([3, 2, BELOW + HIDDEN], 1, on);
    let words = Tensor::<2, Int>::from_data([[1, 5], [2, 0], [10, 7]], on.0);
    let picked = masked.forward(hidden.clone()).gather(2, words.clone().unsqueeze_dim(2)).neg();
    let nll = values(masked.nll(hidden.clone(), words.clone()));
    assert_close(&nll, &values(picked), 1e-13, "nll under a mask");
    assert_ne!(nll, values(head.nll(hidden, words)));
}

#[test]
fn a_connection_says_its_layers() {
    let config = doc().with_latent_dropout(0.25, TimeAxis::Second);
    config.validate().unwrap();
    let text = serde_json::to_string(&config).unwrap();
    let context = r#""context":{"DirectOutputConnection":{"layers":[{"d_hidden":4,"components":1},{"d_hidden":6,"components":2}],"dropout":{"probability":0.25,"time_axis":"Second"}"#;
    assert!(text.contains(context), "{text}");
    let shown = config.init(&cpu()).to_string();
    let line = "context: DirectOutputConnection {d_hidden: [4, 6], d_embedding: 5, components: [1, 2], dropout: 0.25, \
                time_axis: Second, params: 113}";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn wrong_layers_and_hidden_states_are_errors() {
    let layers = |layers: &[(usize, usize)]| {
        layers.iter().map(|&(d_hidden, components)| ConnectedLayer { d_hidden, components }).collect()
    };
    let with = |list: &[(usize, usize)]| {
        let config = DirectOutputConnectionConfig::new(layers(list));
        doc().with_context(ContextConfig::DirectOutputConnection(config))
    };
    let cases = [
        (
            with(&[(5, 1), (6, 2)]),
            "d_hidden is 10, expected 11, the sum of its layers' widths: a hidden state is their outputs side by side",
        ),
        (with(&[(4, 0), (6, 2)]), "components of a layer is 0, expected at least 1"),
        (with(&[(0, 1), (10, 2)]), "d_hidden of a layer is 0, expected at least 1"),
        (with(&[]), "components is 0, expected at least 1"),
        (HeadConfig::direct_output_connection(&[], EMBEDDING, VOCAB), "d_hidden is 0, expected at least 1"),
    ];
    for (config, message) in cases {
        assert_eq!(config.validate().unwrap_err().to_string(), message);
    }
    let head = doc().init(&cpu());
    let hidden = tensor::<2>([2, HIDDEN], 1, (&cpu(), DType::F32));
    let wrong = head.try_loss_with(hidden, targets(2, VOCAB, &cpu()), &LossOptions::new()).unwrap_err();
    assert!(matches!(wrong, HeadError::Shape { what: "hidden", .. }));
    assert!(wrong.to_string().contains("expected [.., 10]"), "{wrong}");
}
