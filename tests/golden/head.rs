//! Output heads: log-probabilities, nll, loss and every gradient, by the fused and by the composed path.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Gradients, Tensor};
use highrank::context::{Context, ContextConfig, MixtapeConfig};
use highrank::logit_map::LogitMap;
use highrank::{AdaptiveConfig, HeadConfig, LogitMapConfig, LossOptions, OutputHead};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, largest, values};

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(head) = load(case, on, report) else { return };
    let tolerance = Tolerance::new(&case.entry, on);
    let (hidden, targets) = (|| case.hidden(on), || case.targets(on));
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
    let all = case.names_after("grad.").map(|name| case.array(&format!("grad.{name}")));
    let scale = all.fold(1.0, |max, gradient| largest(gradient, max));
    each_gradient(path, case, head, hidden, loss, report, |name, got, want, report| {
        report.compare_scaled(&format!("{path}: {name}"), got, want, tolerance.gradient() * scale);
    });
}

/// Has each gradient of a loss compared with the reference, by its name there, and reports those that are missing or not exactly 0
/// where they must be.
pub fn each_gradient(
    path: &str,
    case: &Case,
    head: &OutputHead,
    hidden: &Tensor<2>,
    loss: Tensor<1>,
    report: &mut Report,
    compare: impl Fn(&str, &[f64], &[f64], &mut Report),
) {
    let store = loss.backward();
    let mut got = parameter_gradients(parameters(&mut head.clone()), &store);
    got.insert("hidden".into(), hidden.grad(&store).map(values));
    for name in case.names_after("grad.") {
        let full = format!("grad.{name}");
        let label = format!("{path}: {full}");
        match got.remove(name) {
            Some(Some(got)) => {
                exact_zeros(&label, &got, &case.without_gradient(name), report);
                compare(&full, &got, case.array(&full), report);
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

/// The logit map of a case by its name; `None` if that is not known.
pub fn map_config(case: &Case, name: &str) -> Option<LogitMapConfig> {
    let size = |name: &str| case.array(name).shape[0];
    Some(match name {
        "softmax" => LogitMapConfig::Identity,
        "sigsoftmax" => LogitMapConfig::Sigsoftmax,
        "gss" => LogitMapConfig::Gss,
        "soft_cap" => LogitMapConfig::SoftCap { cap: case.number("soft_cap.c") },
        "plif" => LogitMapConfig::Plif { knots: size("param.plif_v"), bound: case.number("plif.t") },
        "mononet" => LogitMapConfig::MonotonicNet { units: size("param.mononet_v") },
        _ => return None,
    })
}

fn make(case: &Case, on: &Setting) -> Option<OutputHead> {
    let shape = &case.array("param.decoder_weight").shape;
    let (vocab, d) = (shape[0], shape[1]);
    let hidden = case.array("hidden").shape[1];
    let components = case.find("param.prior_weight").map_or(1, |prior| prior.shape[0]);
    // Width and components of each layer.
    let layers: Vec<(usize, usize)> = (0..)
        .map_while(|layer| case.find(&format!("param.latent_weight_{layer}")))
        .map(|weight| (weight.shape[1], weight.shape[0] / d))
        .collect();
    let config = match case.entry.head.as_deref()? {
        "moc" => HeadConfig::moc(hidden, d, vocab, components),
        "mos" => HeadConfig::mos(hidden, d, vocab, components),
        "mos_plif" => HeadConfig::mos(hidden, d, vocab, components).with_logit_map(map_config(case, "plif")?),
        "adaptive" => adaptive(HeadConfig::softmax(d, words(case)), case),
        "adaptive_mos" => adaptive(HeadConfig::mos(hidden, d, words(case), components), case),
        "doc" => HeadConfig::direct_output_connection(&layers, d, vocab),
        "doc_plif" => {
            HeadConfig::direct_output_connection(&layers, d, vocab).with_logit_map(map_config(case, "plif")?)
        }
        "mixtape" => {
            let [rows, d_gate] = case.array("param.gate_vectors").shape[..] else { return None };
            let context = ContextConfig::Mixtape(MixtapeConfig::new(rows - 1, d_gate));
            HeadConfig::mixtape(hidden, d, vocab).with_context(context)
        }
        other => HeadConfig::softmax(d, vocab).with_logit_map(map_config(case, other)?),
    };
    let config = match case.entry.hyperparameters.get("activation") {
        Some(name) => {
            let name = name.as_str().expect("an activation by name");
            config.with_activation(name.parse().expect("an activation"))
        }
        None => config,
    };
    let mut head = config.init(&on.device);
    load_parameters(parameters(&mut head), case, on);
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
    let clusters = AdaptiveConfig { cutoffs: cutoffs.collect(), division: case.number("division") };
    config.with_adaptive(clusters).with_masked_words(case.masked_words().unwrap_or_default())
}

/// A parameter as the reference has it.
pub enum Parameter<'a> {
    Vector(&'a mut Param<Tensor<1>>),
    Matrix(&'a mut Param<Tensor<2>>),
    /// That of a linear layer.
    Transposed(&'a mut Param<Tensor<2>>),
}

/// Parameters by the names of the reference.
type Named<'a> = Vec<(String, Parameter<'a>)>;

fn parameters(head: &mut OutputHead) -> Named<'_> {
    use Parameter::*;
    let OutputHead { decoder, context, clusters, logit_map, .. } = head;
    let mut named = map_parameters(logit_map);
    let mut add = |name: &str, parameter| named.push((name.to_string(), parameter));
    add("decoder_weight", Matrix(decoder.weight.as_mut().unwrap()));
    add("decoder_bias", Vector(decoder.bias.as_mut().unwrap()));
    match context {
        Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) => {
            add("prior_weight", Transposed(&mut mixture.prior.weight));
            add("latent_weight", Transposed(&mut mixture.latent.weight));
            add("latent_bias", Vector(mixture.latent.bias.as_mut().unwrap()));
        }
        Context::Mixtape(mixtape) => {
            add("latent_weight", Transposed(&mut mixtape.latent.weight));
            add("latent_bias", Vector(mixtape.latent.bias.as_mut().unwrap()));
            add("gate_weight", Transposed(&mut mixtape.features.weight));
            add("gate_base", Transposed(&mut mixtape.base.weight));
            add("gate_vectors", Matrix(&mut mixtape.vectors));
            add("gate_bias", Matrix(&mut mixtape.bias));
        }
        // Lowest layer first.
        Context::DirectOutputConnection(connection) => {
            add("prior_weight", Transposed(&mut connection.prior.weight));
            for (layer, latent) in connection.latents.iter_mut().enumerate() {
                add(&format!("latent_weight_{layer}"), Transposed(&mut latent.weight));
                add(&format!("latent_bias_{layer}"), Vector(latent.bias.as_mut().unwrap()));
            }
        }
        _ => {}
    }
    for (cluster, tail) in clusters.iter_mut().flat_map(|clusters| &mut clusters.tails).enumerate() {
        add(&format!("tail_{cluster}_projection"), Transposed(&mut tail.projection));
        add(&format!("tail_{cluster}_weight"), Matrix(tail.decoder.weight.as_mut().unwrap()));
    }
    named
}

/// Those of a logit map.
pub fn map_parameters(map: &mut LogitMap) -> Named<'_> {
    let list: Vec<(&str, &mut Param<Tensor<1>>)> = match map {
        LogitMap::Gss(map) => vec![("gss_c", &mut map.center), ("gss_k", &mut map.slope)],
        LogitMap::Plif(map) => vec![("plif_v", &mut map.raw_slopes), ("plif_b0", &mut map.offset)],
        LogitMap::MonotonicNet(map) => vec![
            ("mononet_v", &mut map.raw_height),
            ("mononet_u", &mut map.raw_steepness),
            ("mononet_bias", &mut map.bias),
            ("mononet_offset", &mut map.offset),
        ],
        _ => vec![],
    };
    list.into_iter().map(|(name, param)| (name.to_string(), Parameter::Vector(param))).collect()
}

/// Gives parameters the case's values.
pub fn load_parameters(parameters: Named<'_>, case: &Case, on: &Setting) {
    for (name, parameter) in parameters {
        let name = format!("param.{name}");
        match parameter {
            Parameter::Vector(param) => *param = Param::from_tensor(case.tensor(&name, on)),
            Parameter::Matrix(param) => *param = Param::from_tensor(case.tensor(&name, on)),
            Parameter::Transposed(param) => {
                *param = Param::from_tensor(case.tensor::<2>(&name, on).transpose());
            }
        }
    }
}

/// The gradient of each parameter, if it has one.
pub fn parameter_gradients(parameters: Named<'_>, store: &Gradients) -> BTreeMap<String, Option<Vec<f64>>> {
    let of = |parameter| match parameter {
        Parameter::Vector(param) => param.val().grad(store).map(values),
        Parameter::Matrix(param) => param.val().grad(store).map(values),
        Parameter::Transposed(param) => param.val().grad(store).map(|grad| values(grad.transpose())),
    };
    parameters.into_iter().map(|(name, parameter)| (name, of(parameter))).collect()
}
