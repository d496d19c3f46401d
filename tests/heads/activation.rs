//! Contexts that are not tanh, mixtures that start at the softmax, and a softmax that goes on as another head.

use burn::nn::LinearConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use highrank::context::{Context, Mixture, MixtureConfig};
use highrank::{Activation, ContextConfig, HeadConfig, OutputHead, Start};

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 7;

/// A softmax with spread values for parameters.
fn softmax(on: On<'_>) -> OutputHead {
    head(&HeadConfig::softmax(EMBEDDING, VOCAB), on)
}

fn hidden(width: usize, on: On<'_>) -> Tensor<2> {
    tensor([TOKENS, width], 1, on).mul_scalar(2.0)
}

#[test]
fn a_trained_projection_may_be_where_contexts_start() {
    let projection = tensor([HIDDEN, EMBEDDING], 3, (&ad(), DType::F32)).require_grad();
    for components in [1, 4] {
        let made = Mixture::around(projection.clone(), components, 0.02);
        assert!(made.latent.weight.val().is_require_grad());
    }
}

/// The heads with contexts that may start at the softmax, of this width of hidden states.
fn mixtures(d_hidden: usize, spread: f64) -> impl Iterator<Item = HeadConfig> {
    let heads = [
        HeadConfig::mos(d_hidden, EMBEDDING, VOCAB, 3),
        HeadConfig::moc(d_hidden, EMBEDDING, VOCAB, 3),
        HeadConfig::mos_plif(d_hidden, EMBEDDING, VOCAB, 3, 20),
    ];
    heads.into_iter().flat_map(move |head| {
        let residual = head.clone().with_activation(Activation::Residual);
        [head, residual].map(|head| head.starting_at_softmax(spread))
    })
}

#[test]
fn a_mixture_that_starts_at_the_softmax_is_the_softmax_of_the_first_features() {
    let on = (&cpu(), DType::F64);
    let want = softmax(on);
    for width in [EMBEDDING, EMBEDDING + 3] {
        let hidden = hidden(width, on);
        let first = results(&want, hidden.clone().narrow(1, 0, EMBEDDING));
        for config in mixtures(width, 0.0) {
            let mut mixture = highrank::cast_parameters(config.init(on.0), on.1);
            mixture.decoder = want.decoder.clone();
            assert_close(&results(&mixture, hidden.clone()), &first, 1e-6, &format!("{config:?}"));
        }
    }
}

#[test]
fn noise_parts_the_components_and_leaves_the_priors_even() {
    let device = cpu();
    device.seed(5);
    let d = 40;
    let config = HeadConfig::mos(d, d, VOCAB, 3).starting_at_softmax(0.5);
    let Context::MixtureOfSoftmaxes(mixture) = config.init(&device).context else { unreachable!() };
    assert!(values(mixture.prior.weight.val()).iter().all(|w| *w == 0.0));
    assert!(values(mixture.latent.bias.unwrap().val()).iter().all(|b| *b == 0.0));
    let eye = Tensor::<2>::eye(d, &device);
    let noise = values(mixture.latent.weight.val() - Tensor::cat(vec![eye; 3], 1));
    let spread = (noise.iter().map(|x| x * x).sum::<f64>() / noise.len() as f64).sqrt();
    // Of 4,800 draws the spread is known to a hundredth.
    assert!((spread - 0.5).abs() < 0.025, "{spread}");
    let mean = noise.iter().sum::<f64>() / noise.len() as f64;
    assert!(mean.abs() < 0.05, "{mean}");
    assert_ne!(noise[..d], noise[d..2 * d]);
}

#[test]
fn a_context_that_is_wider_than_the_hidden_state_starts_with_zeros_after_it() {
    let on = (&cpu(), DType::F32);
    let config = HeadConfig::mos(3, EMBEDDING, VOCAB, 2).starting_at_softmax(0.0);
    let mut mixture = config.init(on.0);
    let softmax = softmax(on);
    mixture.decoder = softmax.decoder.clone();
    let narrow = hidden(3, on);
    let wide = Tensor::cat(vec![narrow.clone(), Tensor::zeros([TOKENS, EMBEDDING - 3], on)], 1);
    assert_close(&results(&mixture, narrow), &results(&softmax, wide), 1e-6, "padded");
}

#[test]
fn a_given_projection_is_where_contexts_start() {
    let on = (&cpu(), DType::F64);
    let (softmax, hidden) = (softmax(on), hidden(HIDDEN, on));
    let projection = tensor([HIDDEN, EMBEDDING], 3, on);
    let mut mixture = HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 4).init(on.0);
    mixture.context = Context::MixtureOfSoftmaxes(Mixture::around(projection.clone(), 4, 0.0));
    mixture.decoder = softmax.decoder.clone();
    let want = results(&softmax, hidden.clone().matmul(projection));
    assert_close(&results(&mixture, hidden), &want, 1e-12, "projected");
}

/// A head, its continuation, what this is, and by how much an exact type shows it to differ.
fn continuations(on: On<'_>) -> Vec<(OutputHead, OutputHead, &'static str, f64)> {
    let softmax = softmax(on);
    let plif = softmax.clone().into_plif(50, 4.0);
    vec![
        (softmax.clone(), softmax.clone().into_mixture(3, 0.0), "a mixture", 1e-12),
        (softmax.clone(), plif.clone(), "a PLIF", 1e-12),
        (plif.clone(), plif.into_mixture(2, 0.0), "a mixture with a PLIF", 1e-12),
    ]
}

#[test]
fn a_softmax_goes_on_as_another_head_of_the_same_function_and_parameters() {
    for dtype in [DType::F64, DType::F32] {
        let on = (&ad(), dtype);
        for (old, new, what, tolerance) in continuations(on) {
            let hidden = hidden(EMBEDDING, on);
            assert_close(
                &results(&new, hidden.clone()),
                &results(&old, hidden.clone()),
                if dtype == DType::F64 { tolerance } else { 1e-6 },
                &format!("{what}, {dtype:?}"),
            );
            let ids = |head: &OutputHead| {
                let decoder = &head.decoder;
                (decoder.weight.as_ref().unwrap().id, decoder.bias.as_ref().unwrap().id)
            };
            assert_eq!(ids(&new), ids(&old), "{what}");
            // All parameters are of one type and trained.
            let loss = new.loss(hidden, targets(TOKENS, VOCAB, on.0));
            let gradients = GradientsParams::from_grads(loss.backward(), &new);
            assert_eq!(gradients.len(), burn::module::list_param_ids(&new).len(), "{what}");
        }
    }
}

#[test]
fn a_tied_softmax_without_bias_goes_on_where_it_was_made() {
    let on = (&ad(), DType::F32);
    let tied = HeadConfig::softmax(EMBEDDING, VOCAB).with_tied(true).with_bias(false).init(on.0);
    let matrix = tensor::<2>([VOCAB, EMBEDDING], 3, on);
    for head in [tied.clone().into_mixture(2, 0.1), tied.into_plif(50, 4.0)] {
        let lent = head.tied_to(matrix.clone());
        let loss = lent.loss(hidden(EMBEDDING, on), targets(TOKENS, VOCAB, on.0));
        let gradients = GradientsParams::from_grads(loss.backward(), &head);
        assert_eq!(gradients.len(), burn::module::list_param_ids(&head).len(), "{head}");
    }
}

#[test]
fn what_an_optimiser_keeps_for_the_decoder_stays_in_use() {
    let on = (&ad(), DType::F32);
    let step = |optimiser: &mut burn::optim::ModuleOptimizer, head: OutputHead, seed| {
        let hidden = tensor([TOKENS, EMBEDDING], seed, on);
        let loss = head.loss(hidden, targets(TOKENS, VOCAB, on.0));
        let gradients = GradientsParams::from_grads(loss.backward(), &head);
        optimiser.step(0.05, head, gradients)
    };
    let decoder = |head: &OutputHead| values(head.decoder.weight.as_ref().unwrap().val());
    let mut optimiser = AdamConfig::new().init();
    let softmax = (0..3).fold(softmax(on), |head, seed| step(&mut optimiser, head, seed));
    let want = decoder(&step(&mut optimiser.clone(), softmax.clone(), 3));
    let fresh = decoder(&step(&mut AdamConfig::new().init(), softmax.clone(), 3));
    let got = decoder(&step(&mut optimiser, softmax.into_mixture(3, 0.0), 3));
    assert_close(&got, &want, 1e-5, "the decoder after a step");
    assert!(relative_error(&fresh, &want) > 1e-3, "without the moments the step is another");
}

#[test]
fn the_output_layer_of_a_burn_model_starts_a_mixture() {
    let device = cpu();
    let linear = LinearConfig::new(EMBEDDING, VOCAB).init(&device);
    let want = OutputHead::from(linear.clone());
    let config = HeadConfig::mos(EMBEDDING, EMBEDDING, VOCAB, 3).starting_at_softmax(0.0);
    let hidden = hidden(EMBEDDING, (&device, DType::F32));
    let got = results(&config.init_from_linear(linear), hidden.clone());
    assert_close(&got, &results(&want, hidden), 1e-6, "a mixture of a linear layer");
}

#[test]
fn a_tied_softmax_goes_on_as_a_mixture_of_the_same_embedding() {
    let on = (&cpu(), DType::F64);
    let matrix = tensor::<2>([VOCAB, EMBEDDING], 4, on);
    let softmax = HeadConfig::softmax(EMBEDDING, VOCAB).with_tied(true).init(on.0);
    let hidden = hidden(EMBEDDING, on);
    let want =
        results(&highrank::cast_parameters(softmax.clone(), on.1).tied_to(matrix.clone()), hidden.clone());
    let mixture = highrank::cast_parameters(softmax.into_mixture(2, 0.0), on.1);
    assert_close(&results(&mixture.tied_to(matrix), hidden), &want, 1e-12, "tied");
}

#[test]
fn a_start_survives_json() {
    let start = mos(VOCAB).starting_at_softmax(0.25);
    let text = serde_json::to_string(&start).unwrap();
    let said = r#""components":3,"activation":"linear","start":{"softmax":{"spread":0.25}}"#;
    assert!(text.contains(said), "{text}");
    assert_eq!(serde_json::from_str::<HeadConfig>(&text).unwrap(), start);
    // Files say nothing of the papers' contexts, as before there were others.
    let text = serde_json::to_string(&mos(VOCAB)).unwrap();
    assert!(!text.contains("activation") && !text.contains("start"), "{text}");
}

#[test]
fn a_head_says_its_activation_unless_it_is_the_papers() {
    let shown = |config: HeadConfig| config.init(&cpu()).to_string();
    let mos = mos(VOCAB);
    let line = "{d_hidden: 6, d_embedding: 5, components: 3, activation: Linear, params: 123}";
    assert!(shown(mos.clone().with_activation(Activation::Linear)).contains(line));
    let doc = HeadConfig::direct_output_connection(&[(5, 1), (6, 2)], EMBEDDING, VOCAB)
        .with_activation(Activation::Residual);
    assert!(shown(doc).contains("components: [1, 2], activation: Residual, params:"));
    assert!(!shown(mos).contains("activation"));
}

#[test]
fn what_makes_no_contexts_is_refused() {
    let mos = |d_hidden| HeadConfig::mos(d_hidden, EMBEDDING, VOCAB, 3);
    let with = |mixture: MixtureConfig| mos(HIDDEN).with_context(ContextConfig::MixtureOfSoftmaxes(mixture));
    let start = Start::Softmax { spread: 0.1 };
    let narrow = "d_hidden is 4, expected at least d_embedding, 5: residual contexts have";
    let layers = HeadConfig::direct_output_connection(&[(4, 1), (6, 2)], EMBEDDING, VOCAB);
    for config in [mos(4).with_activation(Activation::Residual), layers.with_activation(Activation::Residual)]
    {
        let message = config.validate().unwrap_err().to_string();
        assert!(message.starts_with(narrow), "{message}, {config:?}");
    }
    assert!(mos(4).with_activation(Activation::Linear).validate().is_ok());
    for (config, message) in [
        (
            with(MixtureConfig { start, ..MixtureConfig::new(3) }),
            "start is set, but tanh contexts cannot start as the hidden state: make them linear or residual",
        ),
        (
            with(MixtureConfig {
                activation: Activation::Linear,
                start,
                initializer: burn::module::Initializer::Ones,
                ..MixtureConfig::new(3)
            }),
            "the mixture's initializer is set, but a mixture that starts at the softmax draws nothing from it: leave it out",
        ),
        (mos(HIDDEN).starting_at_softmax(-0.1), "spread is -0.1, expected a finite number of at least 0"),
    ] {
        assert_eq!(config.validate().unwrap_err().to_string(), message);
    }
    let mixtape = || HeadConfig::mixtape(HIDDEN, EMBEDDING, VOCAB);
    assert_eq!(
        panic_of(|| drop(mixtape().with_activation(Activation::Linear))),
        "with_activation: only MoS, MoC and direct output connections choose an activation"
    );
    assert_eq!(
        panic_of(|| drop(mixtape().starting_at_softmax(0.1))),
        "starting_at_softmax: only MoS and MoC start at the softmax"
    );
    let on = (&Device::flex(), DType::F32);
    assert_eq!(
        panic_of(|| drop(head(&mos(HIDDEN), on).into_mixture(2, 0.1))),
        "into_mixture: the head has contexts of its own, expected a softmax"
    );
    assert_eq!(
        panic_of(|| drop(softmax(on).into_mixture(0, 0.1))),
        "OutputHead::into_mixture: components is 0, expected at least 1"
    );
    assert_eq!(
        panic_of(|| drop(softmax(on).into_plif(8, 2.0).into_plif(8, 2.0))),
        "into_plif: the head has a logit map, expected none"
    );
    assert_eq!(
        "relu".parse::<Activation>().unwrap_err().to_string(),
        "unknown activation `relu`: expected tanh, linear or residual"
    );
}
