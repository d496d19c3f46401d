use burn::optim::GradientsParams;
use burn::tensor::Gradients;

use super::*;
use crate::config::{HeadKind, Preset};
use crate::testing::gradients_of;

const REGULARISED: Penalties = Penalties { alpha: 2.0, beta: 1.0, prior_cv: 0.0 };

fn training() -> Device {
    Device::flex().autodiff()
}

fn config(head: HeadKind, tied: bool) -> ModelConfig {
    ModelConfig {
        d_embedding: 4,
        // Of another width than the embedding where that is allowed.
        lstm_sizes: vec![6, if head.is_mixture() || !tied { 5 } else { 4 }],
        components: 3,
        knots: 7,
        plif_bound: 2.0,
        tied,
        ..ModelConfig::tiny(head, 13)
    }
}

fn model(head: HeadKind, tied: bool) -> LanguageModel {
    config(head, tied).try_init(&training()).unwrap()
}

/// T = 5, B = 2, and the next tokens.
fn text() -> (Tensor<2, Int>, Tensor<2, Int>) {
    let ids: Vec<i32> = (0..12).map(|n| n * 5 % 13).collect();
    let stream = Tensor::<1, Int>::from_ints(ids.as_slice(), &Device::flex()).reshape([6, 2]);
    (stream.clone().narrow(0, 0, 5), stream.narrow(0, 1, 5))
}

/// The losses of the text.
fn loss(model: &LanguageModel, penalties: Penalties) -> StepLoss {
    let (tokens, targets) = text();
    model.loss(tokens, targets, model.zero_state(2), penalties).0
}

fn gradients(model: &LanguageModel) -> Gradients {
    loss(model, REGULARISED).total.backward()
}

fn scalar(tensor: Tensor<1>) -> f64 {
    tensor.into_data().iter::<f64>().next().unwrap()
}

fn close<const D: usize>(got: Tensor<D>, want: Tensor<D>, tolerance: f64) {
    assert_eq!(got.dims(), want.dims());
    for (g, w) in got.into_data().iter::<f64>().zip(want.into_data().iter::<f64>()) {
        assert!((g - w).abs() <= tolerance, "{g} instead of {w}");
    }
}

#[test]
fn the_closed_form_counts_the_parameters() {
    for head in HeadKind::ALL {
        for tied in [true, false] {
            assert_eq!(model(*head, tied).num_params(), config(*head, tied).num_params(), "{head}, {tied}");
        }
    }
}

#[test]
fn a_mixture_may_start_at_the_softmax() {
    for (head, of) in [
        (HeadKind::Mos, HeadKind::Softmax),
        (HeadKind::Moc, HeadKind::Softmax),
        (HeadKind::MosPlif, HeadKind::Plif),
    ] {
        // Untied, and the decoder of either as wide as the last LSTM.
        let sizes = |head| ModelConfig { lstm_sizes: vec![6, 4], ..config(head, false) };
        let below = sizes(of).try_init(&training()).unwrap();
        let mixture = ModelConfig { start_spread: Some(0.0), ..sizes(head) };
        let mixture = mixture.try_init(&training()).unwrap();
        let mixture = LanguageModel {
            embedding: below.embedding.clone(),
            lstms: below.lstms.clone(),
            decoder: below.decoder.clone(),
            ..mixture
        };
        let (tokens, _) = text();
        let [got, want] = [mixture, below].map(|model| {
            let model = model.valid();
            model.log_probs(tokens.clone().inner(), model.zero_state(2)).0
        });
        close(got, want, 1e-5);
    }
}

#[test]
fn an_untied_decoder_has_a_matrix_of_its_own() {
    for (head, width) in [(HeadKind::Softmax, 5), (HeadKind::Plif, 5), (HeadKind::Mos, 4)] {
        let (config, model) = (config(head, false), model(head, false));
        let decoder = model.decoder.as_ref().expect("a decoder").val();
        assert_eq!((decoder.dims(), config.d_decoder()), ([13, width], width), "{head}");
        let values: Vec<f64> = decoder.to_data().iter().collect();
        assert!(
            values.iter().all(|value| value.abs() <= 0.1) && values.iter().any(|value| value.abs() > 0.05)
        );
        assert_ne!(values[..4], model.embedding.val().to_data().iter::<f64>().collect::<Vec<f64>>()[..4]);
        let (log_probs, _) = model.log_probs(text().0, model.zero_state(2));
        assert_eq!(log_probs.dims(), [5, 2, 13]);
        let gradient = model.decoder.as_ref().unwrap().grad(&gradients(&model)).unwrap();
        assert!(scalar(gradient.abs().sum()) > 1e-3);
    }
    // 13 words, d 4, LSTMs of 6 and 5, a decoder of width 5 with its bias.
    let count = 13 * 4 + 4 * 6 * (4 + 6 + 2) + 4 * 5 * (6 + 5 + 2) + 13 * 5 + 13;
    assert_eq!(config(HeadKind::Softmax, false).num_params(), count);
}

#[test]
fn a_configuration_is_tied_unless_it_says_otherwise() {
    let config = config(HeadKind::Softmax, true);
    let mut json = serde_json::to_value(&config).unwrap();
    json.as_object_mut().unwrap().remove("tied");
    assert_eq!(serde_json::from_value::<ModelConfig>(json).unwrap(), config);

    let apart = ModelConfig { lstm_sizes: vec![6, 5], ..config };
    let message = apart.validate().unwrap_err().to_string();
    let expected = "the last LSTM has size 5, but the softmax head has no mixture: \
                    tied to the embedding, it needs d_embedding = 4";
    assert_eq!(message, expected);
    ModelConfig { tied: false, ..apart }.validate().unwrap();
}

#[test]
fn the_presets_have_the_published_sizes() {
    for (preset, head, count) in [
        (Preset::Paper, HeadKind::Mos, 21_500_620),
        (Preset::Small, HeadKind::Mos, 1_966_096),
        (Preset::Small, HeadKind::Softmax, 1_882_896),
    ] {
        let config = preset.model(head, 10_000);
        let model = config.try_init(&Device::flex()).unwrap();
        assert_eq!((config.num_params(), model.num_params()), (count, count));
    }
}

#[test]
fn a_tied_matrix_gets_the_gradients_of_lookup_and_decoder() {
    for head in [HeadKind::Softmax, HeadKind::Mos] {
        let tied = model(head, true);
        let mut apart = tied.clone();
        apart.decoder = Some(Param::from_tensor(tied.embedding.val().detach()));
        let (of_tied, of_apart) = (gradients(&tied), gradients(&apart));
        let lookup = apart.embedding.grad(&of_apart).unwrap();
        let decoder = apart.decoder.as_ref().unwrap().grad(&of_apart).unwrap();
        assert!(scalar(lookup.clone().abs().sum()) > 1e-3 && scalar(decoder.clone().abs().sum()) > 1e-3);
        let both = tied.embedding.grad(&of_tied).unwrap();
        close(both, lookup + decoder, 1e-6);
    }
}

#[test]
fn every_parameter_gets_a_gradient_under_every_head() {
    for head in HeadKind::ALL {
        let model = model(*head, true);
        let grads = GradientsParams::from_grads(gradients(&model), &model);
        assert_eq!(gradients_of(&model, &grads).concat().len(), model.num_params(), "{head}");
    }
}

#[test]
fn the_loss_is_the_mean_nll_and_the_total_adds_the_regularisers() {
    let model = model(HeadKind::Mos, true);
    let (tokens, targets) = text();
    let (nll, _) = model.nll(tokens.clone(), targets, model.zero_state(2));
    assert_eq!(nll.dims(), [5, 2]);
    let step = loss(&model, REGULARISED);
    let mean = scalar(nll.mean());
    assert!((scalar(step.nll.clone()) - mean).abs() < 1e-6);

    let (raw, _) = model.hidden(tokens, model.zero_state(2));
    let change = raw.clone().narrow(0, 1, 4) - raw.clone().narrow(0, 0, 4);
    let extra = 2.0 * scalar((raw.clone() * raw).mean()) + scalar((change.clone() * change).mean());
    assert!(extra > 1e-6);
    assert!((scalar(step.total) - mean - extra).abs() < 1e-6);

    let plain = loss(&model, Penalties::default());
    assert_eq!(scalar(plain.total), scalar(plain.nll));
}

#[test]
fn log_probs_are_a_distribution_and_hold_the_nll() {
    let model = model(HeadKind::MosPlif, true).valid();
    let (tokens, targets) = text();
    let (log_probs, _) = model.log_probs(tokens.clone(), model.zero_state(2));
    assert_eq!(log_probs.dims(), [5, 2, 13]);
    close(log_probs.clone().exp().sum_dim(2), Tensor::ones([5, 2, 1], &Device::flex()), 1e-5);
    let (nll, _) = model.nll(tokens, targets.clone(), model.zero_state(2));
    let gathered = log_probs.gather(2, targets.reshape([5, 2, 1])).neg();
    close(nll, gathered.reshape([5, 2]), 1e-5);
}

#[test]
fn carried_state_makes_chunks_one_text() {
    let model = model(HeadKind::Softmax, true).valid();
    let (tokens, targets) = text();
    let (whole, _) = model.nll(tokens.clone(), targets.clone(), model.zero_state(2));
    let part = |start, len, state| {
        model.nll(tokens.clone().narrow(0, start, len), targets.clone().narrow(0, start, len), state)
    };
    let (first, state) = part(0, 2, model.zero_state(2));
    let (second, _) = part(2, 3, state.detach());
    close(Tensor::cat(vec![first, second], 0), whole, 1e-5);
}

#[test]
fn dropout_acts_in_training_only() {
    let mut config = config(HeadKind::Mos, true);
    config.dropouts =
        Dropouts { output: 0.5, hidden: 0.5, input: 0.5, latent: 0.5, embedding: 0.5, weight: 0.5 };
    let model = config.try_init(&training()).unwrap();
    assert_eq!(model.dropouts(), config.dropouts);
    let train = || scalar(loss(&model, Penalties::default()).nll);
    assert_ne!(train(), train());

    // Only the weights decide, not the word ids.
    let (valid, (tokens, targets)) = (model.valid(), text());
    for (tokens, targets) in [text(), (tokens.autodiff(), targets.autodiff())] {
        let eval = || valid.nll(tokens.clone(), targets.clone(), valid.zero_state(2)).0;
        assert_eq!(eval().into_data(), eval().into_data());
        assert!(!eval().is_autodiff());
    }
}

/// What a dropout changes in a text of two time steps of the same word in eight streams.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Changed {
    /// The first layer's state after the first step.
    first_state: bool,
    /// The last layer's output at the first and at the second step, before the dropout at its end.
    raw: [bool; 2],
    /// The same after that dropout, from what it was before.
    dropped: bool,
    /// The loss of that output.
    loss: bool,
    /// Whether streams of the same words differ, in the last layer's output before the dropout at its end.
    streams: bool,
}

#[test]
fn each_dropout_acts_at_its_own_place_alone() {
    let differ = |a: &Tensor<3>, b: &Tensor<3>| scalar((a.clone() - b.clone()).abs().max()) > 1e-6;
    let changed = |dropouts: Dropouts| {
        let plain = model(HeadKind::Mos, true);
        let model = ModelConfig { dropouts, ..config(HeadKind::Mos, true) }.try_init(&training()).unwrap();
        let model = model.load_record(plain.clone().into_record());
        let ids = Tensor::<2, Int>::full([2, 8], 7, &Device::flex());
        let first = |model: &LanguageModel| {
            let step = model.encode(ids.clone().narrow(0, 0, 1), model.zero_state(8));
            step.state.layers[0].hidden.clone().unsqueeze::<3>()
        };
        let [before, after] = [&plain, &model].map(|model| model.encode(ids.clone(), model.zero_state(8)));
        let step = |raw: &Tensor<3>, step| raw.clone().narrow(0, step, 1);
        let stream = |n| after.raw.clone().narrow(1, n, 1);
        let loss =
            |model: &LanguageModel| model.head().nll(after.dropped[2].clone(), ids.clone()).unsqueeze::<3>();
        Changed {
            first_state: differ(&first(&plain), &first(&model)),
            raw: [0, 1].map(|n| differ(&step(&before.raw, n), &step(&after.raw, n))),
            dropped: differ(&after.raw, &after.dropped[2]),
            loss: differ(&loss(&plain), &loss(&model)),
            streams: (1..8).any(|n| differ(&stream(0), &stream(n))),
        }
    };
    let (off, everywhere, later) = (Dropouts::NONE, [true; 2], [false, true]);
    let none = Changed { first_state: false, raw: [false; 2], dropped: false, loss: false, streams: false };
    let cases = [
        (off, none),
        // Whole words: the same for every stream.
        (Dropouts { embedding: 0.5, ..off }, Changed { first_state: true, raw: everywhere, ..none }),
        (
            Dropouts { input: 0.5, ..off },
            Changed { first_state: true, raw: everywhere, streams: true, ..none },
        ),
        (Dropouts { hidden: 0.5, ..off }, Changed { raw: everywhere, streams: true, ..none }),
        // Recurrent weights: from the second step on, the same for every stream.
        (Dropouts { weight: 0.5, ..off }, Changed { raw: later, ..none }),
        (Dropouts { output: 0.5, ..off }, Changed { dropped: true, ..none }),
        (Dropouts { latent: 0.5, ..off }, Changed { loss: true, ..none }),
    ];
    for (dropouts, expected) in cases {
        assert_eq!(changed(dropouts), expected, "{dropouts:?}");
    }
}

#[test]
fn a_connected_head_reads_the_dropped_outputs_of_its_layers() {
    let config = ModelConfig { lower_components: vec![1, 2], ..config(HeadKind::Doc, true) };
    let model = config.try_init(&training()).unwrap();
    assert_eq!(model.connected(), [0, 1, 2]);
    let (tokens, _) = text();
    let (hidden, _) = model.hidden(tokens.clone(), model.zero_state(2));
    assert_eq!(hidden.dims(), [5, 2, 4 + 6 + 5]);
    let dropouts = Dropouts { input: 0.5, hidden: 0.5, output: 0.5, ..Dropouts::NONE };
    let dropped = ModelConfig { dropouts, ..config }.try_init(&training()).unwrap();
    let encoded = dropped.encode(tokens, dropped.zero_state(2));
    let parts = encoded.dropped.clone();
    let widths: Vec<usize> = parts.iter().map(|part| part.dims()[2]).collect();
    assert_eq!(widths, [4, 6, 5]);
    let input = dropped.head_input(&encoded);
    close(input.clone(), Tensor::cat(parts, 2), 0.0);
    assert!(input.equal_elem(0.0).int().sum().into_scalar::<i64>() > 10);

    // Every layer's contexts, and through them every layer, is trained.
    let step = loss(&model, Penalties { prior_cv: 0.5, ..REGULARISED });
    let [nll, total, ar, tar, prior_cv] = step.clone().into_array().map(scalar);
    assert!(prior_cv > 0.0 && (total - nll - ar - tar - prior_cv).abs() < 1e-6);
    let grads = GradientsParams::from_grads(step.total.backward(), &model);
    let grads = gradients_of(&model, &grads);
    assert!(grads.iter().all(|grad| grad.iter().map(|x| x.abs()).sum::<f64>() > 0.0));
    // Embedding, two LSTMs of four, a prior, three layers of contexts of two, the decoder's bias.
    assert_eq!(grads.len(), 1 + 8 + 1 + 6 + 1);
}

#[test]
fn a_tied_head_cluster_shares_the_rows_of_the_frequent_words() {
    let config = ModelConfig { cutoffs: vec![4, 9], ..config(HeadKind::Adaptive, true) };
    let tied = config.try_init(&training()).unwrap();
    let own = tied.decoder.as_ref().unwrap().val();
    assert_eq!(own.dims(), [2, 4]);
    let mut apart = tied.clone();
    let matrix = Tensor::cat(vec![tied.embedding.val().narrow(0, 0, 4), own], 0);
    apart.decoder = Some(Param::from_tensor(matrix.detach()));
    let (tokens, targets) = text();
    let nll = |model: &LanguageModel| model.nll(tokens.clone(), targets.clone(), model.zero_state(2)).0;
    close(nll(&tied), nll(&apart), 0.0);
    let (log_probs, _) = tied.log_probs(tokens, tied.zero_state(2));
    assert_eq!(log_probs.dims(), [5, 2, tied.vocab()]);
    // The decoder's part of the gradient reaches the rows that it shares, and those alone.
    let of = |model: &LanguageModel| {
        let grads = gradients(model);
        let decoder = model.decoder.as_ref().unwrap().grad(&grads).unwrap();
        (model.embedding.grad(&grads).unwrap(), decoder)
    };
    let ((shared, clusters), (lookup, decoder)) = (of(&tied), of(&apart));
    close(clusters, decoder.clone().narrow(0, 4, 2), 1e-6);
    let sum = lookup.clone().narrow(0, 0, 4) + decoder.narrow(0, 0, 4);
    close(shared.clone().narrow(0, 0, 4), sum, 1e-6);
    let rest = tied.vocab() - 4;
    close(shared.narrow(0, 4, rest), lookup.narrow(0, 4, rest), 1e-6);
}

#[test]
fn the_variation_of_the_priors_is_penalised_where_there_are_any() {
    for &head in HeadKind::ALL {
        let model = model(head, true);
        let plain = loss(&model, Penalties::default());
        let step = loss(&model, Penalties { prior_cv: 0.25, ..Penalties::default() });
        assert_eq!(scalar(plain.prior_cv), 0.0);
        let term = scalar(step.prior_cv);
        assert_eq!(term > 0.0, model.head.context.has_priors(), "{head}");
        let (nll, total) = (scalar(step.nll), scalar(step.total));
        assert!((nll - scalar(plain.nll)).abs() < 1e-6 && (total - nll - term).abs() < 1e-6, "{head}");
    }
}

#[test]
fn a_bad_configuration_is_an_error() {
    let mut config = config(HeadKind::Mos, true);
    config.components = 0;
    let error = config.try_init(&Device::flex()).unwrap_err();
    assert_eq!(error.to_string(), "components is 0, but must be at least 1");
}

#[test]
fn records_bring_the_weights_back() {
    let (a, b) = (model(HeadKind::Plif, false), model(HeadKind::Plif, false));
    assert_ne!(a.embedding.val().to_data(), b.embedding.val().to_data());
    let b = b.load_record(a.clone().into_record());
    let (tokens, _) = text();
    let run = |model: &LanguageModel| model.log_probs(tokens.clone(), model.zero_state(2)).0.into_data();
    assert_eq!(run(&a), run(&b));
}
