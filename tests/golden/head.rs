//! Output heads: log-probabilities, nll, loss and every gradient, by the fused and by the composed path.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Gradients, Tensor};
use highrank::context::{Context, ContextConfig, MixtapeConfig};
use highrank::logit_map::LogitMap;
use highrank::{AdaptiveConfig, HeadConfig, LogitMapConfig, LossOptions, OutputHead};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};

/// Parameters of a direct output connection, lowest layer first.
const LATENT_WEIGHTS: [&str; 3] = ["latent_weight_0", "latent_weight_1", "latent_weight_2"];
const LATENT_BIASES: [&str; 3] = ["latent_bias_0", "latent_bias_1", "latent_bias_2"];

/// Parameters of the tails of an adaptive softmax, the cluster of the most frequent words first.
const PROJECTIONS: [&str; 3] = ["tail_0_projection", "tail_1_projection", "tail_2_projection"];
const TAIL_WEIGHTS: [&str; 3] = ["tail_0_weight", "tail_1_weight", "tail_2_weight"];

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(head) = load(case, on, report) else { return };
    let tolerance = Tolerance::new(&case.entry, on);
    let hidden = || case.tensor::<2>("hidden", on).require_grad();
    let targets = || case.ints::<1>("targets", &on.device);
    let weights = || case.find("token_weights").map(|weights| weights.tensor::<1>(on));

    let log_probs = head.forward(hidden());
    let composed_tolerance = tolerance.composed("log_probs");
    report.compare("log_probs", &values(log_probs), case.array("log_probs"), composed_tolerance);

    let composed = |hidden| {
        let [tokens, _] = Tensor::dims(&hidden);
        head.forward(hidden).gather(1, targets().reshape([tokens, 1])).neg().squeeze_dim::<1>(1)
    };
    let mean = |nll: Tensor<1>| match weights() {
        Some(weights) => (nll * weights.clone()).sum() / weights.sum(),
        None => nll.mean(),
    };

    let compare = |path: &str, state: &Tensor<2>, loss: Tensor<1>, report: &mut Report| {
        report.compare(path, &values(loss.clone()), case.array("loss"), tolerance.value("loss"));
        gradients(path, case, &head, state, loss, tolerance, report);
    };

    let state = hidden();
    let nll = head.nll(state.clone(), targets());
    report.compare("nll", &values(nll.clone()), case.array("nll"), tolerance.value("nll"));
    compare("per-token nll", &state, mean(nll), report);

    let state = hidden();
    let loss = match weights() {
        None => head.loss(state.clone(), targets()),
        Some(weights) => {
            head.loss_with(state.clone(), targets(), &LossOptions::new().with_token_weights(weights)).value
        }
    };
    compare("fused loss", &state, loss, report);

    // Burn's own derivative, in which the project has no part.
    if !on.compiles {
        let state = hidden();
        let loss = mean(composed(state.clone()));
        compare("composed loss", &state, loss, report);
    }
}

/// Compares all gradients of a loss, taken together, with the reference.
pub fn gradients(
    path: &str,
    case: &Case,
    head: &OutputHead,
    hidden: &Tensor<2>,
    loss: Tensor<1>,
    tolerance: Tolerance<'_>,
    report: &mut Report,
) {
    let store = loss.backward();
    let mut got = parameter_gradients(head, &store);
    got.insert("hidden", hidden.grad(&store).map(values));
    let scale = case
        .names_after("grad.")
        .flat_map(|name| &case.array(&format!("grad.{name}")).values)
        .fold(1.0, |max: f64, x| max.max(x.abs()));
    for name in case.names_after("grad.") {
        let want = case.array(&format!("grad.{name}"));
        let label = format!("{path}: grad.{name}");
        match got.remove(name) {
            Some(Some(got)) => {
                report.compare_scaled(&label, &got, want, tolerance.gradient() * scale);
                exact_zeros(&label, &got, &case.without_gradient(name), report);
            }
            Some(None) => report.fail(format!("{label} is missing")),
            None => report.fail(format!("{label}: unknown parameter")),
        }
    }
    for name in got.keys() {
        report.fail(format!("{path}: grad.{name} has no reference"));
    }
}

/// Reports rows of a gradient that are not exactly 0, of those that must be.
fn exact_zeros(label: &str, got: &[f64], without: &[bool], report: &mut Report) {
    let width = got.len() / without.len().max(1);
    for (row, _) in without.iter().enumerate().filter(|(_, without)| **without) {
        if let Some(x) = got[row * width..(row + 1) * width].iter().find(|x| **x != 0.0) {
            report.fail(format!("{label}: {x:e} in row {row}, expected 0"));
        }
    }
}

/// A head with the case's parameters; reports a kind that is not known.
pub fn load(case: &Case, on: &Setting, report: &mut Report) -> Option<OutputHead> {
    let made = make(case, on);
    if made.is_none() {
        report.fail(format!("unknown head `{}`", case.entry.head.as_deref().unwrap_or("none")));
    }
    made
}

fn make(case: &Case, on: &Setting) -> Option<OutputHead> {
    let shape = &case.array("param.decoder_weight").shape;
    let (vocab, d) = (shape[0], shape[1]);
    let hidden = case.array("hidden").shape[1];
    let components = case.find("param.prior_weight").map_or(1, |prior| prior.shape[0]);
    // Width and components of each layer.
    let layers: Vec<(usize, usize)> = LATENT_WEIGHTS
        .iter()
        .map_while(|name| case.find(&format!("param.{name}")))
        .map(|weight| (weight.shape[1], weight.shape[0] / d))
        .collect();
    let plif =
        || LogitMapConfig::Plif { knots: case.array("param.plif_v").shape[0], bound: case.number("plif.t") };
    let config = match case.entry.head.as_deref()? {
        "softmax" => HeadConfig::softmax(d, vocab),
        "sigsoftmax" => HeadConfig::sigsoftmax(d, vocab),
        "gss" => HeadConfig::gss(d, vocab),
        "soft_cap" => HeadConfig::soft_cap(d, vocab, case.number("soft_cap.c")),
        "plif" => HeadConfig::softmax(d, vocab).with_logit_map(plif()),
        "mononet" => HeadConfig::monotonic_net(d, vocab, case.array("param.mononet_v").shape[0]),
        "moc" => HeadConfig::moc(hidden, d, vocab, components),
        "mos" => HeadConfig::mos(hidden, d, vocab, components),
        "mos_plif" => HeadConfig::mos(hidden, d, vocab, components).with_logit_map(plif()),
        "adaptive" => adaptive(HeadConfig::softmax(d, words(case)), case),
        "adaptive_mos" => adaptive(HeadConfig::mos(hidden, d, words(case), components), case),
        "doc" => HeadConfig::doc(&layers, d, vocab),
        "doc_plif" => HeadConfig::doc(&layers, d, vocab).with_logit_map(plif()),
        "mixtape" => {
            let [rows, d_gate] = case.array("param.gate_vectors").shape[..] else { return None };
            let context = ContextConfig::Mixtape(MixtapeConfig::new(rows - 1, d_gate));
            HeadConfig::mixtape(hidden, d, vocab).with_context(context)
        }
        _ => return None,
    };
    let config = match case.entry.hyperparameters.get("activation") {
        Some(name) => {
            let name = name.as_str().expect("an activation by name");
            config.with_activation(name.parse().expect("an activation"))
        }
        None => config,
    };
    let mut head = config.init(&on.device);
    let vector = |name: &str| Param::from_tensor(case.tensor::<1>(name, on));
    let transposed = |name: &str| Param::from_tensor(case.tensor::<2>(name, on).transpose());
    head.decoder.weight = Some(Param::from_tensor(case.tensor("param.decoder_weight", on)));
    head.decoder.bias = Some(vector("param.decoder_bias"));
    if let Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) = &mut head.context {
        mixture.prior.weight = transposed("param.prior_weight");
        mixture.latent.weight = transposed("param.latent_weight");
        mixture.latent.bias = Some(vector("param.latent_bias"));
    }
    if let Context::Mixtape(mixtape) = &mut head.context {
        mixtape.latent.weight = transposed("param.latent_weight");
        mixtape.latent.bias = Some(vector("param.latent_bias"));
        mixtape.features.weight = transposed("param.gate_weight");
        mixtape.base.weight = transposed("param.gate_base");
        mixtape.vectors = Param::from_tensor(case.tensor("param.gate_vectors", on));
        mixtape.bias = Param::from_tensor(case.tensor("param.gate_bias", on));
    }
    if let Context::DirectOutputConnection(connection) = &mut head.context {
        connection.prior.weight = transposed("param.prior_weight");
        for (layer, latent) in connection.latents.iter_mut().enumerate() {
            latent.weight = transposed(&format!("param.{}", LATENT_WEIGHTS[layer]));
            latent.bias = Some(vector(&format!("param.{}", LATENT_BIASES[layer])));
        }
    }
    for (cluster, tail) in head.clusters.iter_mut().flat_map(|clusters| &mut clusters.tails).enumerate() {
        tail.projection = transposed(&format!("param.{}", PROJECTIONS[cluster]));
        let weight = case.tensor(&format!("param.{}", TAIL_WEIGHTS[cluster]), on);
        tail.decoder.weight = Some(Param::from_tensor(weight));
    }
    load_map(case, on, &mut head.logit_map);
    Some(head)
}

/// V of an adaptive softmax.
fn words(case: &Case) -> usize {
    case.array("log_probs").shape[1]
}

/// A head with the case's clusters and masked words.
fn adaptive(config: HeadConfig, case: &Case) -> HeadConfig {
    let cutoffs = case.entry.hyperparameters["cutoffs"].as_array().expect("a list of cutoffs");
    let cutoffs = cutoffs.iter().map(|cutoff| cutoff.as_u64().expect("a word") as usize);
    let clusters = AdaptiveConfig::new(cutoffs.collect()).with_division(case.number("division"));
    config.with_adaptive(clusters).with_masked_words(case.masked_words().unwrap_or_default())
}

/// Gives a logit map the case's parameters.
pub fn load_map(case: &Case, on: &Setting, map: &mut LogitMap) {
    let vector = |name: &str| Param::from_tensor(case.tensor::<1>(name, on));
    match map {
        LogitMap::Gss(map) => {
            map.center = vector("param.gss_c");
            map.slope = vector("param.gss_k");
        }
        LogitMap::Plif(map) => {
            map.raw_slopes = vector("param.plif_v");
            map.offset = vector("param.plif_b0");
        }
        LogitMap::MonotonicNet(map) => {
            map.raw_height = vector("param.mononet_v");
            map.raw_steepness = vector("param.mononet_u");
            map.bias = vector("param.mononet_bias");
            map.offset = vector("param.mononet_offset");
        }
        _ => {}
    }
}

type Named = BTreeMap<&'static str, Option<Vec<f64>>>;

fn parameter_gradients(head: &OutputHead, store: &Gradients) -> Named {
    let mut named = map_gradients(&head.logit_map, store);
    let matrix = |param: &Param<Tensor<2>>, transpose: bool| {
        let grad = param.val().grad(store)?;
        Some(values(if transpose { grad.transpose() } else { grad }))
    };
    let decoder = &head.decoder;
    named.insert("decoder_weight", matrix(decoder.weight.as_ref().unwrap(), false));
    named.insert("decoder_bias", vector_gradient(decoder.bias.as_ref().unwrap(), store));
    if let Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) = &head.context {
        named.insert("prior_weight", matrix(&mixture.prior.weight, true));
        named.insert("latent_weight", matrix(&mixture.latent.weight, true));
        named.insert("latent_bias", vector_gradient(mixture.latent.bias.as_ref().unwrap(), store));
    }
    if let Context::DirectOutputConnection(connection) = &head.context {
        named.insert("prior_weight", matrix(&connection.prior.weight, true));
        for (layer, latent) in connection.latents.iter().enumerate() {
            named.insert(LATENT_WEIGHTS[layer], matrix(&latent.weight, true));
            named.insert(LATENT_BIASES[layer], vector_gradient(latent.bias.as_ref().unwrap(), store));
        }
    }
    for (cluster, tail) in head.clusters.iter().flat_map(|clusters| &clusters.tails).enumerate() {
        named.insert(PROJECTIONS[cluster], matrix(&tail.projection, true));
        named.insert(TAIL_WEIGHTS[cluster], matrix(tail.decoder.weight.as_ref().unwrap(), false));
    }
    if let Context::Mixtape(mixtape) = &head.context {
        named.insert("latent_weight", matrix(&mixtape.latent.weight, true));
        named.insert("latent_bias", vector_gradient(mixtape.latent.bias.as_ref().unwrap(), store));
        named.insert("gate_weight", matrix(&mixtape.features.weight, true));
        named.insert("gate_base", matrix(&mixtape.base.weight, true));
        named.insert("gate_vectors", matrix(&mixtape.vectors, false));
        named.insert("gate_bias", matrix(&mixtape.bias, false));
    }
    named
}

pub fn map_gradients(map: &LogitMap, store: &Gradients) -> Named {
    let list: Vec<(&'static str, &Param<Tensor<1>>)> = match map {
        LogitMap::Gss(map) => vec![("gss_c", &map.center), ("gss_k", &map.slope)],
        LogitMap::Plif(map) => vec![("plif_v", &map.raw_slopes), ("plif_b0", &map.offset)],
        LogitMap::MonotonicNet(map) => vec![
            ("mononet_v", &map.raw_height),
            ("mononet_u", &map.raw_steepness),
            ("mononet_bias", &map.bias),
            ("mononet_offset", &map.offset),
        ],
        _ => vec![],
    };
    list.into_iter().map(|(name, param)| (name, vector_gradient(param, store))).collect()
}

fn vector_gradient(param: &Param<Tensor<1>>, store: &Gradients) -> Option<Vec<f64>> {
    param.val().grad(store).map(values)
}
