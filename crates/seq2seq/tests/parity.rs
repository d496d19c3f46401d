//! Models, training steps and beam search against PyTorch: see `parity/generate.py`, which made the cases in float64.
#![cfg(feature = "flex")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use awd_lstm::HeadKind;
use awd_lstm::weights::StateDict;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};
use runs::Shards;
use runs::optim::{Adam, adam};
use runs::testing::values;
use seq2seq::data::{Batch, Contexts, Padded};
use seq2seq::generate::beam_search;
use seq2seq::{ModelConfig, Preset, Seq2Seq, weights};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    sizes: Sizes,
    contexts: Vec<Vec<(Vec<i32>, i32)>>,
    responses: Vec<Vec<i32>>,
    nll: Vec<f64>,
    norms: BTreeMap<String, f64>,
    norm: f64,
    clip: f64,
    lr: f64,
    losses: Vec<f64>,
    after: BTreeMap<String, Vec<f64>>,
    beam: Vec<Vec<(Vec<u32>, f64)>>,
}

#[derive(Deserialize)]
struct Sizes {
    vocabulary: usize,
    embedding: usize,
    utterance: usize,
    context: usize,
    decoder: usize,
    components: usize,
}

const HEADS: [HeadKind; 3] = [HeadKind::Softmax, HeadKind::Moc, HeadKind::Mos];

fn path(head: HeadKind, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/parity/{head}.{extension}"))
}

impl Case {
    fn read(head: HeadKind) -> Self {
        serde_json::from_str(&std::fs::read_to_string(path(head, "json")).unwrap()).unwrap()
    }

    fn config(&self, head: HeadKind) -> ModelConfig {
        let Sizes { vocabulary, embedding, utterance, context, decoder, components } = self.sizes;
        ModelConfig {
            d_embedding: embedding,
            d_utterance: utterance,
            d_context: context,
            d_decoder: decoder,
            components,
            dropout: 0.0,
            ..Preset::Small.model(head, vocabulary)
        }
    }

    fn model(&self, head: HeadKind, dtype: DType) -> Seq2Seq {
        weights::read_as(&path(head, "safetensors"), &self.config(head), &Device::flex(), dtype).unwrap()
    }

    /// The contexts, an utterance that several of them share once.
    fn contexts(&self) -> Contexts {
        let mut utterances: Vec<Vec<i32>> = Vec::new();
        let mut row = |utterance: &Vec<i32>| {
            let known = utterances.iter().position(|other| other == utterance);
            known.unwrap_or_else(|| {
                utterances.push(utterance.clone());
                utterances.len() - 1
            }) as i32
        };
        let entries: Vec<Vec<i32>> = self
            .contexts
            .iter()
            .map(|context| context.iter().map(|(words, _)| row(words)).collect())
            .collect();
        let floor: Vec<Vec<i32>> =
            self.contexts.iter().map(|context| context.iter().map(|(_, own)| *own).collect()).collect();
        Contexts {
            utterances: Padded::new(&utterances),
            entries: Padded::new(&entries),
            floor: Padded::new(&floor),
        }
    }

    fn batch(&self) -> Batch {
        let inputs: Vec<&[i32]> = self.responses.iter().map(|ids| &ids[..ids.len() - 1]).collect();
        let targets: Vec<&[i32]> = self.responses.iter().map(|ids| &ids[1..]).collect();
        Batch { contexts: self.contexts(), inputs: Padded::new(&inputs), targets: Padded::new(&targets) }
    }

    /// The loss, and the gradients of its mean over the responses.
    fn gradients(&self, model: &Seq2Seq) -> (f64, GradientsParams) {
        let loss = model.loss(&self.batch());
        let value = values(loss.clone().inner())[0];
        let grads = (loss * (1.0 / self.responses.len() as f64)).backward();
        (value, GradientsParams::from_grads(grads, model))
    }
}

#[track_caller]
fn close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{what}: {got}, but PyTorch has {want}");
}

#[test]
fn the_loss_of_every_token_is_that_of_pytorch() {
    for head in HEADS {
        let case = Case::read(head);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let model = case.model(head, dtype);
            let nll = values(model.nll(&case.batch()));
            assert_eq!(nll.len(), case.nll.len());
            for (token, (&got, &want)) in nll.iter().zip(&case.nll).enumerate() {
                close(got, want, tolerance, &format!("{head} token {token}"));
            }
            let (sum, count) = (case.nll.iter().sum::<f64>(), case.nll.len() as f64);
            close(values(model.loss(&case.batch()))[0], sum, tolerance, "sum");
            let perplexity = (nll.iter().sum::<f64>() / count).exp();
            close(perplexity, (sum / count).exp(), tolerance * 10.0, "perplexity");
        }
    }
}

/// The norms of all gradients in the order of the parameters.
struct Norms<'a> {
    grads: &'a GradientsParams,
    found: Vec<f64>,
}

impl ModuleVisitor for Norms<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let grad = values(self.grads.get::<D>(param.id).expect("every parameter has a gradient"));
        self.found.push(grad.iter().map(|g| g * g).sum::<f64>().sqrt());
    }
}

#[test]
fn the_gradient_of_every_parameter_is_that_of_pytorch() {
    for head in HEADS {
        let case = Case::read(head);
        let model = case.model(head, DType::F64).train();
        let (_, grads) = case.gradients(&model);
        let mut norms = Norms { grads: &grads, found: vec![] };
        model.visit(&mut norms);
        assert_eq!(norms.found.len(), case.norms.len());
        // Names differ, but sorted by size they are the same.
        let mut expected: Vec<f64> = case.norms.values().copied().collect();
        for found in [&mut norms.found, &mut expected] {
            found.sort_by(f64::total_cmp);
        }
        for (got, want) in norms.found.iter().zip(&expected) {
            close(*got, *want, 1e-11, &format!("{head} gradient"));
        }
    }
}

#[test]
fn steps_of_adam_with_clipping_are_those_of_pytorch() {
    for head in HEADS {
        let case = Case::read(head);
        let (mut model, mut optimiser) = (case.model(head, DType::F64).train(), Adam::new(adam()));
        for (number, &want) in case.losses.iter().enumerate() {
            let (loss, grads) = case.gradients(&model);
            let stepped = optimiser.step_clipped(case.lr, model, grads, case.clip, &Shards::default());
            let (next, norm) = stepped.unwrap();
            model = next;
            // Burn's Adam has its factors in float32.
            close(loss, want, 1e-6, &format!("{head} loss {number}"));
            if number == 0 {
                close(values(norm.unwrap())[0], case.norm, 1e-11, "norm");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("after.safetensors");
        weights::write(&model.valid(), &path).unwrap();
        let state = StateDict::read(&path).unwrap();
        assert!(state.tensors().map(|(name, _)| name).eq(case.after.keys().map(String::as_str)));
        for (name, tensor) in state.tensors() {
            for (got, want) in tensor.iter::<f64>().zip(&case.after[name]) {
                close(got, *want, 1e-6, name);
            }
        }
    }
}

#[test]
fn the_five_best_responses_are_those_of_pytorch() {
    for head in HEADS {
        let case = Case::read(head);
        for dtype in [DType::F64, DType::F32] {
            let found = case.model(head, dtype).respond(&case.contexts(), &beam_search()).unwrap();
            assert_eq!(found.len(), case.beam.len());
            for (found, expected) in found.iter().zip(&case.beam) {
                let words: Vec<&[u32]> = found.iter().map(|response| response.words.as_slice()).collect();
                let wanted: Vec<&[u32]> = expected.iter().map(|(words, _)| words.as_slice()).collect();
                assert_eq!(words, wanted, "{head} {dtype:?}");
                for (response, (_, score)) in found.iter().zip(expected) {
                    close(response.log_prob, *score, 1e-5, "score");
                    assert_eq!(response.finished, response.words.len() < 30);
                }
            }
        }
    }
}

#[test]
fn weights_of_another_model_are_refused_with_the_names_of_their_tensors() {
    let case = Case::read(HeadKind::Mos);
    let file = path(HeadKind::Mos, "safetensors");
    let read = |config: &ModelConfig| weights::read(&file, config, &Device::flex()).unwrap_err().to_string();
    let message = read(&ModelConfig { d_context: 6, ..case.config(HeadKind::Mos) });
    assert!(message.contains("context.weight_hh_l0 is [20, 5], but should be [24, 6]"), "{message}");
    assert!(message.contains("start.weight is [8, 5], but should be [8, 6]"), "{message}");
    let message = read(&case.config(HeadKind::Softmax));
    assert!(message.contains("head.latent.bias ([12]) is no tensor of a softmax model"), "{message}");
    let message = read(&case.config(HeadKind::MosPlif));
    assert!(message.contains("head.plif.raw_slopes is missing (it should be [100000])"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}
