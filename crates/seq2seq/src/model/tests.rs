use awd_lstm::HeadKind;
use awd_lstm::weights::StateDict;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::testing::values;

use super::*;
use crate::config::{ModelConfig, Preset};
use crate::data::{BOS, EOS};
use crate::generate::beam_search;
use crate::testing::with_fixed_weights;

const VOCAB: usize = 30;

fn config(head: HeadKind) -> ModelConfig {
    ModelConfig {
        d_embedding: 5,
        d_utterance: 4,
        d_context: 6,
        d_decoder: 8,
        components: 3,
        knots: 20,
        window: 3,
        dropout: 0.0,
        init: 0.5,
        ..Preset::Small.model(head, VOCAB)
    }
}

fn model(head: HeadKind) -> Seq2Seq {
    let mut model = with_fixed_weights(config(head).try_init(&Device::flex()).unwrap(), 0.7);
    let [vocab, width] = model.embedding.dims();
    let zero = Tensor::zeros([1, width], &Device::flex());
    model.embedding = model.embedding.map(|weight| weight.slice_assign([0..1, 0..width], zero));
    assert_eq!(vocab, VOCAB);
    model
}

/// A context: rows of utterances, and the speakers' bits.
type Context = (Vec<usize>, Vec<i32>);

fn utterances(count: usize) -> Vec<Vec<i32>> {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    (0..count)
        .map(|_| {
            let words = (0..rng.random_range(1..12)).map(|_| rng.random_range(5..VOCAB as i32));
            [BOS as i32].into_iter().chain(words).chain([EOS as i32]).collect()
        })
        .collect()
}

fn contexts_of(utterances: &[Vec<i32>], contexts: &[Context]) -> Contexts {
    let entries: Vec<Vec<i32>> =
        contexts.iter().map(|(rows, _)| rows.iter().map(|&row| row as i32).collect()).collect();
    let floor: Vec<&[i32]> = contexts.iter().map(|(_, floor)| floor.as_slice()).collect();
    Contexts {
        utterances: Padded::new(utterances),
        entries: Padded::new(&entries),
        floor: Padded::new(&floor),
    }
}

fn batch_of(utterances: &[Vec<i32>], contexts: &[Context], responses: &[usize]) -> Batch {
    let part = |cut: fn(&[i32]) -> &[i32]| {
        Padded::new(&responses.iter().map(|&row| cut(&utterances[row])).collect::<Vec<_>>())
    };
    Batch {
        contexts: contexts_of(utterances, contexts),
        inputs: part(|ids| &ids[..ids.len() - 1]),
        targets: part(|ids| &ids[1..]),
    }
}

fn example() -> (Vec<Vec<i32>>, Vec<Context>, Vec<usize>) {
    let contexts = vec![
        (vec![0], vec![0]),
        (vec![0, 1, 2], vec![0, 1, 0]),
        (vec![3, 3], vec![1, 1]),
        (vec![2, 4, 0], vec![0; 3]),
    ];
    (utterances(6), contexts, vec![1, 3, 5, 0])
}

#[track_caller]
fn near(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} {b}");
    }
}

/// An LSTM step by step, in Burn's own operations.
fn steps(lstm: &Lstm, inputs: Tensor<2>, mut hidden: Tensor<2>, mut cell: Tensor<2>) -> Vec<Tensor<2>> {
    let size = lstm.d_hidden();
    let sigmoid = burn::tensor::activation::sigmoid::<2>;
    let mut outputs = vec![];
    for step in 0..inputs.dims()[0] {
        let gates = inputs.clone().narrow(0, step, 1).matmul(lstm.w_ih.val().transpose())
            + lstm.b_ih.val().unsqueeze()
            + hidden.clone().matmul(lstm.w_hh.val().transpose())
            + lstm.b_hh.val().unsqueeze();
        let gate = |at| gates.clone().narrow(1, at * size, size);
        cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * gate(2).tanh();
        hidden = sigmoid(gate(3)) * cell.clone().tanh();
        outputs.push(hidden.clone());
    }
    outputs
}

/// The losses of one pair by the formulas: nothing is batched, padded or shared.
fn composed(model: &Seq2Seq, utterances: &[Vec<i32>], context: &Context, response: &[i32]) -> Vec<f64> {
    let device = model.device();
    let embed = |ids: &[i32]| {
        let ids = Tensor::<1, Int>::from_ints(ids, &device);
        model.embedding.val().select(0, ids)
    };
    let zero = |lstm: &Lstm| Tensor::<2>::zeros([1, lstm.d_hidden()], &device);
    let last = |lstm: &Lstm, x| steps(lstm, x, zero(lstm), zero(lstm)).pop().unwrap();
    let entries = context.0.iter().zip(&context.1).map(|(&row, &own)| {
        let mut ids = utterances[row].clone();
        let forward = last(&model.forward, embed(&ids));
        ids.reverse();
        let backward = last(&model.backward, embed(&ids));
        let bit = Tensor::<2>::from_floats([[1.0 - own as f32, own as f32]], &device);
        Tensor::cat(vec![forward, backward, bit], 1)
    });
    let state = last(&model.context, Tensor::cat(entries.collect(), 0));
    let start = state.matmul(model.start.weight.val()) + model.start.bias.as_ref().unwrap().val().unsqueeze();
    let hidden = steps(&model.decoder, embed(&response[..response.len() - 1]), start.clone(), start);
    let log_probs = values(model.head.forward(Tensor::cat(hidden, 0)));
    response[1..].iter().enumerate().map(|(at, &word)| -log_probs[at * VOCAB + word as usize]).collect()
}

#[test]
fn the_loss_is_that_of_the_formulas_with_every_head() {
    let (utterances, contexts, responses) = example();
    let batch = batch_of(&utterances, &contexts, &responses);
    for &head in HeadKind::ALL.iter().filter(|head| config(**head).validate().is_ok()) {
        let model = model(head);
        let expected: Vec<f64> = contexts
            .iter()
            .zip(&responses)
            .flat_map(|(context, &response)| composed(&model, &utterances, context, &utterances[response]))
            .collect();
        near(&values(model.nll(&batch)), &expected, 2e-5);
        near(&values(model.loss(&batch)), &[expected.iter().sum()], 2e-5);
    }
}

#[test]
fn a_pair_has_the_same_loss_in_any_company() {
    let (utterances, contexts, responses) = example();
    let model = model(HeadKind::Mos);
    let together = values(model.nll(&batch_of(&utterances, &contexts, &responses)));
    let one_by_one: Vec<f64> = contexts
        .iter()
        .zip(&responses)
        .flat_map(|(context, &response)| {
            // More padding than the batch needs, and utterances that no context has.
            let mut batch = batch_of(&utterances, std::slice::from_ref(context), &[response]);
            for padded in [&mut batch.contexts.utterances, &mut batch.inputs] {
                let rows: Vec<Vec<i32>> = (0..padded.rows()).map(|row| padded.row(row).to_vec()).collect();
                let width = padded.width + 3;
                let filled = rows.iter().flat_map(|row| {
                    let padding = std::iter::repeat_n(7, width - row.len());
                    row.iter().copied().chain(padding)
                });
                *padded = Padded { values: filled.collect(), lengths: padded.lengths.clone(), width };
            }
            values(model.nll(&batch))
        })
        .collect();
    near(&together, &one_by_one, 1e-5);
}

#[test]
fn the_number_of_parameters_is_that_of_the_configuration() {
    for &head in HeadKind::ALL.iter().filter(|head| config(**head).validate().is_ok()) {
        assert_eq!(model(head).num_params(), config(head).num_params(), "{head}");
    }
}

#[test]
fn weights_begin_uniform_and_biases_at_zero_but_for_forget_gates() {
    // Wide enough that every matrix has hundreds of values, whose extremes come near the bounds whatever is drawn.
    let wide = ModelConfig {
        vocab: 300,
        d_embedding: 30,
        d_utterance: 20,
        d_context: 30,
        d_decoder: 40,
        components: 10,
        ..config(HeadKind::Mos)
    };
    let model = wide.try_init(&Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    crate::weights::write(&model, &path).unwrap();
    for (name, tensor) in StateDict::read(&path).unwrap().tensors() {
        let all: Vec<f64> = tensor.iter::<f64>().collect();
        let of = |pick: fn(f64, f64) -> f64| all.iter().copied().reduce(pick).unwrap();
        let (min, max) = (of(f64::min), of(f64::max));
        if name.contains("bias_ih") {
            assert_eq!((min, max), (0.0, 1.0), "{name}");
        } else if name.contains("bias") {
            assert_eq!((min, max), (0.0, 0.0), "{name}");
        } else {
            assert!(min >= -0.5 && max <= 0.5 && min < -0.3 && max > 0.3, "{name}: {min} to {max}");
        }
    }
    let gates = values(model.decoder.b_ih.val());
    assert_eq!(gates.iter().position(|&bias| bias == 1.0), Some(40));
    assert_eq!(gates.iter().filter(|&&bias| bias == 1.0).count(), 40);
    assert!(values(model.embedding.val())[..30].iter().all(|&value| value == 0.0));
}

#[test]
fn every_parameter_learns_but_the_embedding_of_padding() {
    let (utterances, contexts, responses) = example();
    let batch = batch_of(&utterances, &contexts, &responses);
    for head in [HeadKind::Softmax, HeadKind::MosPlif, HeadKind::Gss] {
        let model = model(head).train();
        let grads = burn::optim::GradientsParams::from_grads(model.loss(&batch).backward(), &model);
        let padding = grads.get::<2>(model.embedding.id).unwrap().narrow(0, 0, 1);
        assert!(values(padding).iter().all(|&value| value == 0.0));
        let mut learned = Learned(&grads, 0);
        model.visit(&mut learned);
        assert!(learned.1 > 20);
    }
}

struct Learned<'a>(&'a burn::optim::GradientsParams, usize);

impl ModuleVisitor for Learned<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let grad = values(self.0.get::<D>(param.id).expect("a gradient"));
        // A PLIF's offset shifts all logits alike, which a softmax does not see.
        assert!(grad.iter().any(|&value| value != 0.0) || grad.len() == 1);
        self.1 += 1;
    }
}

#[test]
fn each_dropout_acts_at_its_own_place_and_in_training_alone() {
    let (utterances, contexts, responses) = example();
    let batch = batch_of(&utterances, &contexts, &responses);
    // Whether what follows the dropout of words, of u_j and of the decoder's output is random. Each follows those before it as well.
    let random = |model: &Seq2Seq| {
        let words: Vec<i32> = (5..VOCAB as i32).collect();
        let step = || {
            let state = model.decoder.zero_state(words.len());
            values(model.step(model.indices(words.clone()), state).0)
        };
        let start = || values(model.encode(&batch.contexts).hidden);
        let loss = || values(model.nll(&batch));
        [step() != step(), start() != start(), loss() != loss()]
    };
    let mut plain = Seq2Seq { dropout: 0.5, ..model(HeadKind::Softmax) };
    let start = plain.encode(&batch.contexts);
    assert_eq!(values(start.hidden), values(start.cell));
    assert_eq!(random(&plain), [false; 3]);
    let training = plain.clone().train();
    assert_eq!(random(&training), [true; 3]);
    assert_eq!(random(&training.valid()), [false; 3]);
    // No word is seen: biases still make u_j.
    plain.embedding = plain.embedding.map(|weight| weight * 0.0);
    assert_eq!(random(&plain.clone().train()), [false, true, true]);
    // Nor is the context.
    plain.start.weight = plain.start.weight.map(|weight| weight * 0.0);
    assert_eq!(random(&plain.train()), [false, false, true]);
}

#[test]
fn a_beam_of_one_is_greedy_and_contexts_do_not_disturb_each_other() {
    let (utterances, contexts, _) = example();
    for head in [HeadKind::Softmax, HeadKind::Mos] {
        let mut model = model(head);
        model.embedding = model.embedding.map(|weight| weight * 4.0);
        // So that some responses end.
        let bias = (0..VOCAB).map(|word| if word == EOS as usize { 1.5 } else { 0.0 }).collect::<Vec<f32>>();
        let bias = Tensor::from_floats(bias.as_slice(), &Device::flex());
        model.head.decoder.bias = model.head.decoder.bias.map(|old| old.map(|old| old + bias));
        let all = contexts_of(&utterances, &contexts);
        let one = beam_search().with_n_best(1);
        let one = highrank::BeamSearch { width: 1, ..one };
        let best: Vec<Vec<u32>> =
            model.respond(&all, &one).unwrap().into_iter().map(|mut found| found.remove(0).words).collect();
        assert_eq!(best, model.greedy(&all, 30).unwrap(), "{head}");
        let likeliest = highrank::Sampling::new().with_temperature(0.0);
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        assert_eq!(best, model.sample(&all, 30, &likeliest, rng).unwrap(), "{head}");
        let together = model.respond(&all, &beam_search()).unwrap();
        for (context, found) in contexts.iter().zip(&together) {
            let alone = contexts_of(&utterances, std::slice::from_ref(context));
            let alone = model.respond(&alone, &beam_search()).unwrap().remove(0);
            assert_eq!(found.len(), 5);
            for (a, b) in found.iter().zip(&alone) {
                assert_eq!((&a.words, a.finished), (&b.words, b.finished));
                assert!((a.log_prob - b.log_prob).abs() < 1e-4);
                assert!(a.words.iter().all(|word| ![0, 2, 3, 4].contains(word)));
            }
        }
        // The score of a response is what the model says of it.
        let found = together[1].iter().find(|response| response.finished).expect("one of five ends");
        let ids = [BOS].into_iter().chain(found.words.iter().copied()).chain([EOS]);
        let response: Vec<i32> = ids.map(|id| id as i32).collect();
        let nll: f64 = composed(&model, &utterances, &contexts[1], &response).iter().sum();
        assert!((nll + found.log_prob).abs() < 1e-4, "{nll} {}", found.log_prob);
    }
}

#[test]
fn responses_are_drawn_by_the_seed_without_special_words() {
    let (utterances, contexts, _) = example();
    let (model, all) = (model(HeadKind::Mos), contexts_of(&utterances, &contexts));
    let draw =
        |seed, sampling| model.sample(&all, 12, &sampling, &mut Pcg64Mcg::seed_from_u64(seed)).unwrap();
    let sampling = highrank::Sampling::new;
    assert_eq!(draw(1, sampling()), draw(1, sampling()));
    assert_ne!(draw(1, sampling()), draw(2, sampling()));
    for seed in 0..20 {
        let drawn = draw(seed, sampling());
        assert!(drawn.iter().all(|words| words.len() <= 12));
        assert!(drawn.iter().flatten().all(|word| ![0, 2, 3, 4].contains(word)));
    }
    assert_eq!(draw(1, sampling().with_top_k(Some(1))), model.greedy(&all, 12).unwrap());
    let wrong = model.sample(&all, 2, &sampling().with_top_p(Some(2.0)), &mut Pcg64Mcg::seed_from_u64(1));
    assert!(wrong.unwrap_err().to_string().contains("top_p"));
    let wrong = highrank::BeamSearch { width: 0, ..beam_search() };
    assert!(model.respond(&all, &wrong).unwrap_err().to_string().contains("width"));
}

#[test]
fn a_model_keeps_its_float_type() {
    let (utterances, contexts, responses) = example();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = model(HeadKind::MosPlif);
    crate::weights::write(&model, &path).unwrap();
    let wide =
        crate::weights::read_as(&path, &config(HeadKind::MosPlif), &Device::flex(), DType::F64).unwrap();
    let batch = batch_of(&utterances, &contexts, &responses);
    assert_eq!(wide.loss(&batch).dtype(), DType::F64);
    near(&values(wide.nll(&batch)), &values(model.nll(&batch)), 1e-4);
}
