//! Derivatives: finite differences, subsets of tracked inputs, tied matrices.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::likelihood::{mean_nll, nll};
use highrank::ops::{ContextSource, LatentArgs, LatentMask, Likelihood, MapFunction, Targets};
use highrank::{HeadConfig, LossOptions, Precision, Reduction};

use crate::support::*;

const VOCAB: usize = 9;
const TOKENS: usize = 4;

/// What is differentiated: the mean nll, every option by itself, and all of them.
fn all_options(device: &Device) -> Vec<(&'static str, LossOptions)> {
    let plain = LossOptions::new();
    let ids = [[3i64, 5, 1], [2, 0, 4], [7, 1, 5], [6, 0, 3]];
    let probs = [[0.5, 0.0, 0.25], [0.5, 0.25, 0.25], [0.125, 0.75, 0.0], [0.25, 0.0, 0.5]];
    let teacher = |options: LossOptions| {
        let ids = Tensor::<2, Int>::from_data(ids, device);
        options.with_teacher(ids, Tensor::from_data(probs, (device, DType::F64)))
    };
    let weights = Tensor::<1>::from_data([0.5, 2.0, 0.0, 1.0], (device, DType::F64));
    let most = |options: LossOptions| {
        teacher(options).with_label_smoothing(0.2).with_z_loss(0.1).with_temperature(1.5)
    };
    vec![
        ("nothing", plain.clone()),
        ("smoothing", plain.clone().with_label_smoothing(0.2)),
        ("z-loss", plain.clone().with_z_loss(0.1)),
        ("temperature", plain.clone().with_temperature(1.5)),
        ("a teacher", teacher(plain.clone())),
        ("most", most(plain.clone()).with_reduction(Reduction::Sum)),
        ("all", most(plain).with_ignore_index(2).with_token_weights(weights).with_statistics(true)),
    ]
}

/// Loss of a head whose parameters are all moved by `step` times a direction. Words 5 and 8 may be masked.
fn moved_loss(config: &HeadConfig, masked: bool, options: &LossOptions, step: f64) -> f64 {
    struct Move(f64, usize);
    impl burn::module::ModuleMapper for Move {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.1 += 1;
            let value = param.val();
            let direction = tensor::<D>(value.dims(), 1000 + self.1, (&value.device(), DType::F64));
            Param::from_tensor(value + direction.mul_scalar(self.0))
        }
    }
    let device = cpu();
    let on = (&device, DType::F64);
    let head = head(config, on).map(&mut Move(step, 0));
    let head = if masked { head.mask_words(&[5, 8]) } else { head };
    let direction = tensor([TOKENS, config.d_hidden], 900, on);
    let hidden = tensor([TOKENS, config.d_hidden], 1, on) + direction.mul_scalar(step);
    values(head.loss_with(hidden, targets(TOKENS, VOCAB, &device), options).loss)[0]
}

/// The gradient along the direction of [`moved_loss`].
fn directional_gradient(config: &HeadConfig, masked: bool, options: &LossOptions) -> f64 {
    struct Directions(usize, Vec<f64>);
    impl burn::module::ModuleVisitor for Directions {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 += 1;
            self.1.extend(spread(param.val().shape().num_elements(), 1000 + self.0));
        }
    }
    let device = ad();
    let on = (&device, DType::F64);
    let head = head(config, on);
    let head = if masked { head.mask_words(&[5, 8]) } else { head };
    let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
    let loss = head.loss_with(hidden.clone(), targets(TOKENS, VOCAB, &device), options).loss;
    let gradient = all_gradients(&head, &hidden, loss);
    let mut directions = Directions(0, vec![]);
    head.visit(&mut directions);
    directions.1.extend(spread(TOKENS * config.d_hidden, 900));
    gradient.iter().zip(&directions.1).map(|(g, d)| g * d).sum()
}

#[test]
fn every_head_and_option_matches_central_differences() {
    let (inner, tracking) = (all_options(&cpu()), all_options(&ad()));
    for config in all_heads(VOCAB) {
        for masked in [false, true] {
            for ((name, inner), (_, tracking)) in inner.iter().zip(&tracking) {
                let step = 1e-6;
                let moved = |step: f64| moved_loss(&config, masked, inner, step);
                let numeric = (moved(step) - moved(-step)) / (2.0 * step);
                let exact = directional_gradient(&config, masked, tracking);
                let error = (numeric - exact).abs();
                let what = format!("{name}, masked {masked}, {config:?}");
                assert!(error < 2e-8 * exact.abs().max(1.0), "{what}: {exact} against {numeric}");
                assert!(exact.abs() > 1e-4, "{what}: the direction shows nothing");
            }
        }
    }
}

/// Inputs of the likelihood: contexts or hidden states, weight and bias of the latent layer, and the others.
const INPUTS: usize = 8;

/// Inputs of the likelihood, each tracked if its bit is set; the gradients that come out, by input. The contexts are
/// given, or made by a latent layer in blocks that its mask does not divide.
fn gradients_of_subset(tracked: usize, layer: bool) -> [Option<Vec<f64>>; INPUTS] {
    fn leaf<const D: usize>(shape: [usize; D], seed: usize, tracked: bool) -> Tensor<D> {
        tensor(shape, seed, (&ad(), DType::F64)).detach().set_require_grad(tracked)
    }
    let bit = |i: usize| tracked >> i & 1 == 1;
    let (tokens, d_hidden, components, d, vocab, pieces) = (6, 4, 3, 5, 7, 6);
    let contexts = leaf(if layer { [tokens, d_hidden] } else { [tokens * components, d] }, 1, bit(0));
    let latent_weight = leaf([d_hidden, components * d], 7, bit(1));
    let latent_bias = leaf([components * d], 8, bit(2));
    let log_prior = leaf([tokens, components], 2, bit(3));
    let weight = leaf([vocab, d], 3, bit(4));
    let bias = leaf([vocab], 4, bit(5));
    let params = leaf([pieces + 1], 5, bit(6));
    let weights = leaf([tokens], 6, bit(7));
    let kept = leaf([3, components * d], 9, false).greater_elem(0.0);
    let source = match layer {
        false => ContextSource::Given(contexts.clone().into()),
        true => ContextSource::Latent(LatentArgs {
            hidden: contexts.clone().into(),
            weight: latent_weight.clone().into(),
            bias: Some(latent_bias.clone().into()),
            mask: Some(LatentMask {
                values: (kept.float().cast(DType::F64) * 2.0).into(),
                rows: None,
                first: 0,
                keep: 0.5,
            }),
            precision: Precision::Full,
        }),
    };
    let input = Likelihood {
        contexts: source,
        log_prior: Some(log_prior.clone().into()),
        weight: weight.clone().into(),
        bias: Some(bias.clone().into()),
        map: MapFunction::Plif { knots: pieces, bound: 1.5 },
        map_params: Some(params.clone().into()),
        temperature: 1.0,
        // Two tokens a chunk and a block.
        chunk_bytes: 350,
        precision: Precision::Full,
    };
    let words = || Targets::Words(targets(tokens, vocab, &ad()).into());
    // The mean and the per-token path must treat the same subset alike.
    let mean = mean_nll(input.clone(), words(), Some(weights.clone()));
    let token_weights = weights.clone() / weights.clone().sum();
    let per_token = (nll(input, words()) * token_weights).sum();
    let collect = |loss: Tensor<1>| {
        let store = loss.backward();
        [
            contexts.grad(&store).map(values),
            latent_weight.grad(&store).map(values),
            latent_bias.grad(&store).map(values),
            log_prior.grad(&store).map(values),
            weight.grad(&store).map(values),
            bias.grad(&store).map(values),
            params.grad(&store).map(values),
            weights.grad(&store).map(values),
        ]
    };
    if tracked == 0 {
        assert!(!mean.is_tracked() && !per_token.is_tracked());
        return Default::default();
    }
    let (mean, per_token) = (collect(mean), collect(per_token));
    for (a, b) in mean.iter().zip(&per_token) {
        if let (Some(a), Some(b)) = (a, b) {
            assert_close(a, b, 1e-12, "mean against per-token path");
        }
    }
    mean
}

#[test]
fn every_subset_of_inputs_may_require_gradients() {
    for layer in [false, true] {
        let all = gradients_of_subset((1 << INPUTS) - 1, layer);
        for subset in 0..1 << INPUTS {
            // Given contexts leave the layer's two parameters out.
            if !layer && subset & 0b110 != 0 {
                continue;
            }
            for (i, (got, want)) in gradients_of_subset(subset, layer).iter().zip(&all).enumerate() {
                match subset >> i & 1 {
                    1 => assert_close(got.as_ref().unwrap(), want.as_ref().unwrap(), 1e-13, "subset"),
                    _ => assert!(got.is_none(), "subset {subset:b}: input {i} was not tracked"),
                }
            }
        }
    }
}

#[test]
fn a_tied_matrix_gets_its_gradient_once_and_whole() {
    let device = ad();
    let on = (&device, DType::F64);
    let config = HeadConfig::mos(HIDDEN, EMBEDDING, 11, 3);
    let owned = head(&config, on);
    let mut tied = head(&config.clone().with_tied(true), on);
    tied.context = owned.context.clone();
    tied.decoder.bias = owned.decoder.bias.clone();
    let embedding = Param::from_tensor(owned.decoder.weight.as_ref().unwrap().val().detach());

    let hidden = || tensor([6, HIDDEN], 1, on);
    let store = owned.loss(hidden(), targets(6, 11, &device), None).backward();
    let want = values(owned.decoder.weight.as_ref().unwrap().val().grad(&store).unwrap());

    let store = tied.tied_to(embedding.val()).loss(hidden(), targets(6, 11, &device), None).backward();
    let got = values(embedding.val().grad(&store).unwrap());
    assert_close(&got, &want, 1e-13, "tied decoder");

    // Used as decoder and for something else: both parts add up.
    let loss = tied.tied_to(embedding.val()).loss(hidden(), targets(6, 11, &device), None);
    let store = (loss + embedding.val().sum()).backward();
    let got = values(embedding.val().grad(&store).unwrap());
    let want: Vec<f64> = want.iter().map(|g| g + 1.0).collect();
    assert_close(&got, &want, 1e-13, "shared matrix");
}
