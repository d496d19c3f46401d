//! Two models train at once, each on a thread of its own, while other threads build graphs too. Neither may lose a gradient.
//!
//! Burn's autodiff did lose some before version 0.22 (tracel-ai/burn#5573).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use awd_lstm::regularisation::Penalties;
use awd_lstm::{Dropouts, HeadKind, LanguageModel, ModelConfig, Preset};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use highrank::{HeadConfig, LossOptions, OutputHead};
use runs::optim::NtAsgdConfig;

const VOCAB: usize = 50;
const LENGTH: usize = 5;
const BATCH: usize = 3;
/// Steps of each model, and how often both are trained.
const STEPS: usize = 100;
const ROUNDS: usize = 8;

/// A module whose weights depend on nothing but its shapes: the device's random numbers come in the order that threads ask.
fn with_fixed_weights<M: Module>(module: M) -> M {
    struct Fixed(usize);
    impl ModuleMapper for Fixed {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            let (id, value, mapper) = param.consume();
            let shape = value.shape();
            let numbers = (0..shape.num_elements()).map(|i| ((i + 31 * self.0) * 7919 % 1009) as f32);
            let numbers: Vec<f32> = numbers.map(|x| (x / 504.0 - 1.0) * 0.3).collect();
            let value = Tensor::from_data(TensorData::new(numbers, shape), &value.device());
            Param::from_mapped_value(id, value.require_grad(), mapper)
        }
    }
    module.map(&mut Fixed(0))
}

/// All weights in the module's order, and their number of tensors.
fn weights<M: Module>(module: &M) -> (Vec<f32>, usize) {
    struct Collect(Vec<f32>, usize);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
            self.1 += 1;
        }
    }
    let mut collect = Collect(vec![], 0);
    module.visit(&mut collect);
    (collect.0, collect.1)
}

/// Gradients of all weights of a module.
fn gradients<M: Module>(loss: Tensor<1>, module: &M, tensors: usize, step: usize) -> GradientsParams {
    let gradients = GradientsParams::from_grads(loss.backward(), module);
    assert_eq!(gradients.len(), tensors, "gradients at step {step}");
    gradients
}

/// Words `[LENGTH, BATCH]` of a step.
fn words(step: usize, shift: usize, device: &Device) -> Tensor<2, Int> {
    let ids = (0..LENGTH * BATCH).map(|i| (((i + shift) * 7919 + 31 * step) % VOCAB) as i64);
    Tensor::from_data(TensorData::new(ids.collect::<Vec<_>>(), [LENGTH, BATCH]), device)
}

/// Trains an LSTM language model; its weights.
fn train_language_model(device: &Device) -> Vec<f32> {
    let config = ModelConfig {
        d_embedding: 8,
        lstm_sizes: vec![10, 8],
        components: 3,
        dropouts: Dropouts::NONE,
        ..Preset::Small.model(HeadKind::Mos, VOCAB)
    };
    let mut model: LanguageModel = with_fixed_weights(config.try_init(device).unwrap());
    let (_, tensors) = weights(&model);
    let mut optimiser = NtAsgdConfig::new().init();
    let mut state = model.zero_state(BATCH);
    for step in 0..STEPS {
        let loss = model.loss(
            words(step, 0, device),
            words(step, BATCH, device),
            state,
            Penalties { alpha: 2.0, beta: 1.0, prior_cv: 0.0 },
        );
        state = loss.state.detach();
        let gradients = gradients(loss.total, &model, tensors, step);
        model = optimiser.step(0.5, model, gradients);
    }
    weights(&model).0
}

#[derive(Module, Debug)]
struct Tagger {
    embedding: Embedding,
    encoder: Linear,
    head: OutputHead,
}

/// Trains a head on top of a layer that sees one word; its weights.
fn train_tagger(device: &Device) -> Vec<f32> {
    let mut model = with_fixed_weights(Tagger {
        embedding: EmbeddingConfig::new(VOCAB, 8).init(device),
        encoder: LinearConfig::new(8, 12).init(device),
        head: HeadConfig::mos_plif(12, 8, VOCAB, 3, 20).init(device),
    });
    let (_, tensors) = weights(&model);
    let mut optimiser = AdamConfig::new().init();
    let options = LossOptions::new().with_label_smoothing(0.1).with_z_loss(1e-3);
    for step in 0..STEPS {
        let hidden = model.encoder.forward(model.embedding.forward(words(step, 0, device))).tanh();
        let loss = model.head.loss_with(hidden, words(step, BATCH, device), &options).value;
        let gradients = gradients(loss, &model, tensors, step);
        model = optimiser.step(0.01, model, gradients);
    }
    weights(&model).0
}

/// Builds graphs and differentiates them until told to stop. Leaves are used twice, and intermediate tensors given away.
fn disturb(device: &Device, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let leaf = Tensor::<2>::ones([8, 8], device).require_grad();
        drop((leaf.clone() * leaf.clone()).sum().backward());
        let given_away = leaf.clone().mul_scalar(2.0);
        let both = Tensor::cat(vec![given_away, Tensor::ones([8, 8], device)], 0);
        assert!(leaf.grad(&both.sum().backward()).is_some(), "the gradient of a product is missing");
    }
}

fn check(device: Device) {
    let device = &device.autodiff();
    let alone = [train_language_model(device), train_tagger(device)];
    assert!(alone.iter().flatten().all(|weight| weight.is_finite()));
    for round in 0..ROUNDS {
        let stop = &AtomicBool::new(false);
        let together = thread::scope(|scope| {
            let disturbers = [(); 2].map(|()| scope.spawn(|| disturb(device, stop)));
            let models = [scope.spawn(|| train_language_model(device)), scope.spawn(|| train_tagger(device))];
            let weights = models.map(|model| model.join());
            // Before any panic is passed on: nothing else ends the others.
            stop.store(true, Relaxed);
            for disturber in disturbers {
                disturber.join().expect("all gradients");
            }
            weights.map(|weights| weights.expect("all gradients"))
        });
        for (name, together, alone) in
            [("the language model", &together[0], &alone[0]), ("the tagger", &together[1], &alone[1])]
        {
            let differ = together.iter().zip(alone).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 0, "round {round}: weights of {name} that differ from those it gets alone");
        }
    }
}

#[test]
fn models_that_train_at_once_do_not_disturb_each_other_on_flex() {
    check(Device::flex());
}

#[cfg(feature = "ndarray")]
#[test]
// The backend is deprecated, but its users are still served.
#[allow(deprecated)]
fn models_that_train_at_once_do_not_disturb_each_other_on_ndarray() {
    check(Device::ndarray());
}
