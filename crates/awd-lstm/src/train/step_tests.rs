use burn::module::{Module, ModuleVisitor, Param};
use burn::store::{ModuleSnapshot, bridge};
use burn::tensor::{Device, Int};

use super::*;
use crate::config::{Dropouts, HeadKind, ModelConfig, Preset};
use crate::optim::NtAsgdConfig;
use crate::testing::alone;

fn training() -> Device {
    Device::flex().autodiff()
}

fn model(dropouts: Dropouts) -> LanguageModel {
    let config = ModelConfig {
        d_embedding: 6,
        lstm_sizes: vec![9, 7],
        components: 3,
        dropouts,
        ..ModelConfig::tiny(HeadKind::Mos, 20)
    };
    training().seed(5);
    config.try_init(&training()).unwrap()
}

/// 7 columns, and slices of any number of them.
fn config(small_batch: Option<usize>) -> TrainConfig {
    TrainConfig { small_batch, batch: 7, ..Preset::Small.train() }
}

fn window() -> Window {
    let words = |shift: i64| {
        let ids: Vec<i64> = (0..4 * 7).map(|n| (n * 7 + shift * 3 + n * n % 11) % 20).collect();
        Tensor::<1, Int>::from_data(ids.as_slice(), &training()).reshape([4, 7])
    };
    Window { tokens: words(0), targets: words(1) }
}

/// A state that differs from column to column.
fn state(model: &LanguageModel) -> LmState {
    let fill = |tensor: Tensor<2>| {
        let [rows, width] = tensor.dims();
        Tensor::arange(0..(rows * width) as i64, &tensor.device()).float().reshape([rows, width]).sin()
    };
    let zero = model.zero_state(7);
    let layers = zero.layers.into_iter();
    let layers = layers.map(|layer| LstmState { hidden: fill(layer.hidden), cell: fill(layer.cell) * 0.5 });
    LmState { layers: layers.collect() }
}

/// Gradients of all parameters, the losses and their parts, the states.
fn all(stepped: &Stepped, grads: &GradientsParams, model: &LanguageModel) -> Vec<f64> {
    struct Read<'a>(&'a GradientsParams, Vec<f64>);
    impl ModuleVisitor for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let grad = self.0.get::<D>(param.id).expect("every parameter has a gradient");
            self.1.extend(grad.into_data().iter::<f64>());
        }
    }
    let mut read = Read(grads, vec![]);
    model.visit(&mut read);
    let Stepped { nll, total, ar, tar, .. } = stepped;
    let [nll, total, ar, tar] =
        [nll, total, ar, tar].map(|loss| loss.to_data().iter::<f64>().next().unwrap());
    assert!((total - nll - ar - tar).abs() < 1e-5 && ar > 0.0 && tar > 0.0, "{total} = {nll} + {ar} + {tar}");
    read.1.extend([nll, total, ar, tar]);
    for layer in &stepped.state.layers {
        read.1.extend(layer.hidden.to_data().iter::<f64>().chain(layer.cell.to_data().iter::<f64>()));
    }
    read.1
}

/// Tied and not, with dropped words and words that come several times.
#[test]
fn gradients_are_those_of_the_loss() {
    alone(module_path!(), "gradients_are_those_of_the_loss", || {
        for tied in [true, false] {
            let dropouts = Dropouts { embedding: 0.3, input: 0.2, ..Dropouts::NONE };
            let mut model = model(dropouts);
            if !tied {
                let matrix = model.embedding.val().inner() * 0.5;
                model.decoder = Some(Param::from_tensor(Tensor::from_inner(matrix)));
            }
            training().seed(3);
            let (stepped, grads) = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
            let got = all(&stepped, &grads, &model);
            training().seed(3);
            let (Window { tokens, targets }, TrainConfig { alpha, beta, .. }) = (window(), config(None));
            let loss = model.loss(tokens, targets, state(&model), alpha, beta);
            let stepped = Stepped {
                nll: loss.nll.inner(),
                total: loss.total.clone().inner(),
                ar: loss.ar.inner(),
                tar: loss.tar.inner(),
                gradient_norm: None,
                state: loss.state.detach(),
            };
            let grads = GradientsParams::from_grads(loss.total.backward(), &model);
            let want = all(&stepped, &grads, &model);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "tied {tied}: {got} {want}");
            }
        }
    });
}

#[test]
fn a_frozen_embedding_has_no_gradient() {
    let mut model = model(Dropouts::NONE);
    model.embedding = model.embedding.set_require_grad(false);
    let (_, grads) = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    assert!(grads.get::<2>(model.embedding.id).is_none());
    assert!(grads.get::<2>(model.lstms[0].w_ih.id).is_some());
}

#[test]
fn slices_add_up_to_the_whole_batch() {
    let model = model(Dropouts::NONE);
    let (whole, grads) = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    assert!(!whole.nll.is_autodiff() && !whole.total.is_autodiff());
    let want = all(&whole, &grads, &model);
    assert!(want.iter().any(|value| value.abs() > 0.1));
    for slice in 1..7 {
        let (sliced, grads) = sliced_pass(&model, window(), state(&model), &config(None), slice);
        assert!(!sliced.nll.is_autodiff() && !sliced.total.is_autodiff());
        let got = all(&sliced, &grads, &model);
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 2e-6 * want.abs().max(1.0), "slices of {slice}: {got} {want}");
        }
    }
}

#[test]
fn a_step_in_slices_makes_the_same_weights() {
    let start = model(Dropouts::NONE);
    let weights = |small_batch| {
        let (model, state) = (start.clone(), state(&start));
        let mut optimiser = NtAsgdConfig::new().init();
        let (model, _) = step(model, &mut optimiser, window(), state, &config(small_batch), 2.0);
        let tensors = model.valid().collect(None, None, false);
        let values =
            tensors.iter().flat_map(|tensor| bridge::to_data(tensor).unwrap().try_to_vec::<f32>().unwrap());
        values.collect::<Vec<f32>>()
    };
    let whole = weights(None);
    assert_eq!(weights(Some(7)), whole);
    for slice in [1, 3, 4] {
        let worst = weights(Some(slice)).iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-6, "slices of {slice}: {worst}");
    }
}

#[test]
fn the_norm_is_that_of_the_gradients_before_clipping() {
    let model = model(Dropouts::NONE);
    let (_, grads) = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    let want: f64 = crate::optim::global_norm(&model, &grads).unwrap().into_scalar();
    for small_batch in [None, Some(3)] {
        let mut optimiser = NtAsgdConfig::new().init();
        let config = TrainConfig { clip: want / 3.0, ..config(small_batch) };
        let (_, stepped) = step(model.clone(), &mut optimiser, window(), state(&model), &config, 2.0);
        let norm: f64 = stepped.gradient_norm.unwrap().into_scalar();
        assert!(want > 0.01 && (norm - want).abs() < 1e-5 * want, "{norm} {want}");
    }
}

#[test]
fn every_slice_draws_masks_of_its_own() {
    // Columns that are the same, and a mask that is the same for all columns of a slice: word dropout.
    let dropouts = Dropouts { embedding: 0.5, ..Dropouts::NONE };
    let model = model(dropouts);
    let ids = Tensor::<2, Int>::from_ints([[1, 1], [2, 2], [3, 3], [4, 4]], &training());
    let same = Window { tokens: ids.clone(), targets: ids };
    let differs = |slice| {
        (0..20).any(|seed| {
            training().seed(seed);
            let config = TrainConfig { batch: 2, ..config(None) };
            let (stepped, _) = sliced_pass(&model, same.clone(), model.zero_state(2), &config, slice);
            let hidden: Vec<f64> = stepped.state.layers[0].hidden.to_data().iter().collect();
            hidden[..9].iter().zip(&hidden[9..]).any(|(a, b)| (a - b).abs() > 1e-6)
        })
    };
    assert!(!differs(2));
    assert!(differs(1));
}
