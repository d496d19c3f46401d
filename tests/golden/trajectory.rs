//! Whole training steps under given dropout masks, against PyTorch: a folder of `NAME.safetensors` (a state dict before the first
//! step) and `NAME.json`, as `trajectory/generate.py` says.

use std::collections::BTreeMap;

use awd_lstm::data::Window;
use awd_lstm::dropout::{LayerMasks, Masks};
use awd_lstm::weights::{Noted, StateDict};
use awd_lstm::{Dropouts, HeadKind, ModelConfig, Preset, TrainConfig, train};
use burn::tensor::{DType, Int, Tensor, TensorData};
use runs::optim::NtAsgd;
use serde::Deserialize;

use crate::backends::{Setting, settings};
use crate::case::{Array, home};
use crate::compare::{Report, assert_agree, values};
use crate::model::with_references;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    model: Sizes,
    train: Procedure,
    steps: Vec<Step>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    head: HeadKind,
    vocab: usize,
    d_embedding: usize,
    lstm_sizes: Vec<usize>,
    components: usize,
    #[serde(default)]
    lower_components: Vec<usize>,
    tied: bool,
    dropouts: Dropouts,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Procedure {
    lr: f64,
    bptt: usize,
    clip: f64,
    weight_decay: f64,
    alpha: f64,
    beta: f64,
    #[serde(default)]
    prior_cv: f64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    tokens: Vec<Vec<i64>>,
    targets: Vec<Vec<i64>>,
    kept: Kept,
    nll: f64,
    ar: f64,
    tar: f64,
    #[serde(default)]
    prior_cv: f64,
    norm: f64,
    /// h and c of every layer.
    state: Vec<[Vec<f64>; 2]>,
    weights: BTreeMap<String, Vec<f64>>,
    average: Option<BTreeMap<String, Vec<f64>>>,
}

/// 1 where something is kept, 0 where it is dropped.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    words: Vec<u8>,
    input: Vec<Vec<u8>>,
    weights: Vec<Vec<Vec<u8>>>,
    outputs: Vec<Vec<Vec<u8>>>,
    latent: Option<Vec<Vec<u8>>>,
}

/// A model with three steps of its training.
struct Trajectory {
    name: String,
    start: StateDict,
    reference: Reference,
}

fn read() -> Vec<Trajectory> {
    let models = with_references(&home().join("golden/trajectory"));
    models.into_iter().map(|(name, start, reference)| Trajectory { name, start, reference }).collect()
}

impl Reference {
    fn train_config(&self) -> TrainConfig {
        let Procedure { lr, bptt, clip, weight_decay, alpha, beta, prior_cv } = self.train;
        TrainConfig { lr, bptt, clip, weight_decay, alpha, beta, prior_cv, ..Preset::Small.train() }
    }

    fn masks(&self, kept: &Kept, on: &Setting) -> Masks {
        let p = &self.model.dropouts;
        let rows = |rows: &Vec<Vec<u8>>, p: f64| {
            let shape = [rows.len(), rows[0].len()];
            mask(rows.concat(), p, on).reshape(shape)
        };
        let last = kept.outputs.len() - 1;
        let layers = kept.weights.iter().zip(&kept.outputs).enumerate();
        let layers = layers.map(|(n, (weights, output))| LayerMasks {
            weights: Some(rows(weights, p.weight)),
            output: Some(rows(output, if n == last { p.output } else { p.hidden })),
        });
        Masks {
            words: Some(mask(kept.words.clone(), p.embedding, on)),
            input: Some(rows(&kept.input, p.input)),
            layers: layers.collect(),
            latent: kept.latent.as_ref().map(|latent| rows(latent, p.latent)),
        }
    }
}

fn mask(kept: Vec<u8>, p: f64, on: &Setting) -> Tensor<1> {
    let values: Vec<f64> = kept.iter().map(|&kept| f64::from(kept) / (1.0 - p)).collect();
    Array { shape: vec![values.len()], values }.tensor(on)
}

impl Trajectory {
    /// Goes the steps on a plain device, with autodiff on it.
    fn check(&self, on: &Setting) -> Report {
        let mut report = Report::new(format!("trajectory {} on {}", self.name, on.name));
        let (reference, config) = (&self.reference, self.reference.train_config());
        let Sizes { head, vocab, d_embedding, components, tied, dropouts, .. } = reference.model;
        let sizes = self.start.model_config(&Noted { head: Some(head), ..Noted::default() }).unwrap();
        let sizes = ModelConfig { dropouts, ..sizes };
        let told = (sizes.vocab, sizes.d_embedding, sizes.components, sizes.tied);
        if told != (vocab, d_embedding, components, tied)
            || sizes.lstm_sizes != reference.model.lstm_sizes
            || sizes.lower_components != reference.model.lower_components
        {
            report.fail(format!("its shapes suggest {sizes:?}"));
        }

        let mut model = self.start.model_of_dtype(&sizes, &on.autodiff().device, on.dtype).unwrap();
        let mut optimiser = NtAsgd::new(config.weight_decay);
        let mut state = model.zero_state(reference.steps[0].tokens[0].len());
        for (n, step) in reference.steps.iter().enumerate() {
            let ids = |rows: &[Vec<i64>]| -> Tensor<2, Int> {
                let shape = [rows.len(), rows[0].len()];
                Tensor::from_data(TensorData::new(rows.concat(), shape), &on.autodiff().device)
            };
            let window = Window { tokens: ids(&step.tokens), targets: ids(&step.targets) };
            let lr = config.lr * step.tokens.len() as f64 / config.bptt as f64;
            let masks = reference.masks(&step.kept, on);
            let (next, stepped) = train::step_by(model, &mut optimiser, window, state, masks, &config, lr);

            let compare = |report: &mut Report, name: &str, got: Vec<f64>, want: &[f64]| {
                let tolerance = if on.dtype == DType::F64 { 1e-12 } else { 2e-4 };
                report.compare(&format!("{name} of step {n}"), &got, want, tolerance);
            };
            let loss = step.nll + step.ar + step.tar + step.prior_cv;
            let norm = stepped.gradient_norm.expect("parameters have gradients");
            for (name, got, want) in [
                ("nll", stepped.losses.nll, step.nll),
                ("ar", stepped.losses.ar, step.ar),
                ("tar", stepped.losses.tar, step.tar),
                ("prior_cv", stepped.losses.prior_cv, step.prior_cv),
                ("loss", stepped.losses.total, loss),
                ("norm", norm, step.norm),
            ] {
                compare(&mut report, name, values(got), &[want]);
            }
            for (l, (got, [h, c])) in stepped.state.layers.iter().zip(&step.state).enumerate() {
                compare(&mut report, &format!("h of layer {l}"), values(got.hidden.clone()), h);
                compare(&mut report, &format!("c of layer {l}"), values(got.cell.clone()), c);
            }
            let averaged = optimiser.averaged(&next);
            for (what, model, want) in
                [("", &next, Some(&step.weights)), ("average of ", &averaged, step.average.as_ref())]
            {
                let Some(want) = want else { continue };
                let state = StateDict::of_model(model);
                let got: BTreeMap<&str, &TensorData> = state.tensors().collect();
                for (name, want) in want {
                    let got = got[name.as_str()].iter::<f64>().collect();
                    compare(&mut report, &format!("{what}{name}"), got, want);
                }
            }
            (model, state) = (next, stepped.state);
            if n == 0 {
                optimiser.start_averaging();
            }
        }
        report
    }
}

#[test]
fn training_steps_go_the_way_of_the_reference() {
    let trajectories = read();
    let names: Vec<&str> = trajectories.iter().map(|trajectory| trajectory.name.as_str()).collect();
    assert_eq!(names, ["doc", "mos", "softmax", "softmax_untied"]);
    let checked = trajectories.iter().flat_map(|trajectory| settings().map(|on| trajectory.check(&on)));
    assert_agree("trajectories", checked);
}

/// One element of any mask moves some of the values.
#[test]
fn a_wrong_mask_or_setting_of_a_trajectory_is_reported() {
    type Change = fn(&mut Reference);
    let changes: [(&str, Change); 13] = [
        ("a word", |r| {
            let word = r.steps[0].tokens[0][0] as usize;
            flip(&mut r.steps[0].kept.words, word);
        }),
        ("the input", |r| flip(&mut r.steps[1].kept.input[1], 0)),
        ("the weights of layer 0", |r| flip(&mut r.steps[0].kept.weights[0][0], 1)),
        ("the weights of layer 1", |r| flip(&mut r.steps[2].kept.weights[1][3], 2)),
        ("the hidden output", |r| flip(&mut r.steps[0].kept.outputs[0][0], 3)),
        ("the last output", |r| flip(&mut r.steps[0].kept.outputs[1][1], 0)),
        ("the latent contexts", |r| flip(&mut r.steps[2].kept.latent.as_mut().unwrap()[0], 2)),
        ("alpha", |r| r.train.alpha *= 1.01),
        ("beta", |r| r.train.beta *= 1.01),
        ("prior_cv", |r| r.train.prior_cv *= 1.01),
        ("clip", |r| r.train.clip *= 1.01),
        ("weight decay", |r| r.train.weight_decay *= 1.01),
        ("bptt", |r| r.train.bptt += 1),
    ];
    // Rounding hides a change of 1 % in f32.
    let Some(on) = settings().find(|on| on.dtype == DType::F64) else { return };
    for (what, change) in changes {
        let mut of_mixture = read().remove(0);
        change(&mut of_mixture.reference);
        assert!(!of_mixture.check(&on).failures.is_empty(), "{what} changes nothing");
    }
}

fn flip(kept: &mut [u8], at: usize) {
    kept[at] = 1 - kept[at];
}
