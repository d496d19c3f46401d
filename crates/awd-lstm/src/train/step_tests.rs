use std::sync::Mutex;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Int};

use super::*;
use crate::config::{Dropouts, HeadKind, ModelConfig, Preset};
use crate::lstm::LstmState;
use crate::testing::{gradients_of, weights};
use runs::distance;
use runs::ranks::threads as each;
use runs::testing::alone;

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
fn all(pass: &Pass, model: &LanguageModel) -> Vec<f64> {
    let mut values = gradients_of(model, &pass.grads).concat();
    let losses = pass.losses.clone().into_array();
    assert!(losses.iter().all(|loss| !loss.is_autodiff()));
    let [nll, total, ar, tar, _] = losses.map(|loss| loss.into_scalar::<f64>());
    assert!((total - nll - ar - tar).abs() < 1e-5 && ar > 0.0 && tar > 0.0, "{total} = {nll} + {ar} + {tar}");
    values.extend([nll, total, ar, tar]);
    values.extend(of_state(&pass.state));
    values
}

fn of_state(state: &LmState) -> Vec<f64> {
    let tensors = state.layers.iter().flat_map(|layer| [&layer.hidden, &layer.cell]);
    tensors.flat_map(|tensor| tensor.to_data().iter::<f64>().collect::<Vec<_>>()).collect()
}

/// Asserts that all values agree, to a relative tolerance above 1 and an absolute one below.
fn close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < tolerance * want.abs().max(1.0), "{what}: {got} {want}");
    }
}

/// Gives the output layer a matrix of its own.
fn untie(model: &mut LanguageModel) {
    let matrix = model.embedding.val().inner() * 0.5;
    model.decoder = Some(Param::from_tensor(Tensor::from_inner(matrix)));
}

/// Tied and not, with dropped words and words that come several times.
#[test]
fn gradients_are_those_of_the_loss() {
    alone(module_path!(), "gradients_are_those_of_the_loss", || {
        for tied in [true, false] {
            let dropouts = Dropouts { embedding: 0.3, input: 0.2, ..Dropouts::NONE };
            let mut model = model(dropouts);
            if !tied {
                untie(&mut model);
            }
            training().seed(3);
            let pass = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
            training().seed(3);
            let Window { tokens, targets } = window();
            let (loss, state) = model.loss(tokens, targets, state(&model), config(None).penalties());
            let grads = GradientsParams::from_grads(loss.total.clone().backward(), &model);
            let want = Pass { losses: loss.inner(), state: state.detach(), grads };
            close(&format!("tied {tied}"), &all(&pass, &model), &all(&want, &model), 1e-6);
        }
    });
}

#[test]
fn a_frozen_embedding_has_no_gradient() {
    let mut model = model(Dropouts::NONE);
    model.embedding = model.embedding.set_require_grad(false);
    let Pass { grads, .. } = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    assert!(grads.get::<2>(model.embedding.id).is_none());
    assert!(grads.get::<2>(model.lstms[0].w_ih.id).is_some());
}

#[test]
fn slices_add_up_to_the_whole_batch() {
    let model = model(Dropouts::NONE);
    let whole = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    let want = all(&whole, &model);
    assert!(want.iter().any(|value| value.abs() > 0.1));
    for slice in 1..7 {
        let sliced = in_slices(&model, &window(), &state(&model), &config(None), 0..7, slice);
        close(&format!("slices of {slice}"), &all(&sliced, &model), &want, 2e-6);
    }
}

#[test]
fn a_step_in_slices_makes_the_same_weights() {
    let start = model(Dropouts::NONE);
    let stepped = |small_batch| {
        let (model, state) = (start.clone(), state(&start));
        let mut optimiser = NtAsgd::new(1.2e-6);
        step(model, &mut optimiser, window(), state, &config(small_batch), 2.0).0
    };
    let whole = stepped(None);
    assert_eq!(weights(&stepped(Some(7)).valid()), weights(&whole.valid()));
    for slice in [1, 3, 4] {
        let worst = distance(&stepped(Some(slice)), &whole);
        assert!(worst < 2e-6, "slices of {slice}: {worst}");
    }
}

#[test]
fn the_norm_is_that_of_the_gradients_before_clipping() {
    let model = model(Dropouts::NONE);
    let Pass { grads, .. } = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    let want: f64 = global_norm(&model, &grads).unwrap().into_scalar();
    for small_batch in [None, Some(3)] {
        let mut optimiser = NtAsgd::new(1.2e-6);
        let config = TrainConfig { clip: want / 3.0, ..config(small_batch) };
        let (_, stepped) = step(model.clone(), &mut optimiser, window(), state(&model), &config, 2.0);
        let norm: f64 = stepped.gradient_norm.unwrap().into_scalar();
        assert!(want > 0.01 && (norm - want).abs() < 1e-5 * want, "{norm} {want}");
    }
}

/// All of them, and a head with latent contexts.
const ALL: Dropouts =
    Dropouts { output: 0.4, hidden: 0.2, input: 0.3, latent: 0.3, embedding: 0.2, weight: 0.5 };

#[test]
fn slices_have_the_masks_of_the_whole_batch() {
    alone(module_path!(), "slices_have_the_masks_of_the_whole_batch", || {
        let model = model(ALL);
        let seeded = |seed, slice| {
            training().seed(seed);
            all(&own_gradients(&model, window(), state(&model), &config(slice), &Ranks::alone()), &model)
        };
        let want = seeded(5, None);
        for slice in 1..7 {
            close(&format!("slices of {slice}"), &seeded(5, Some(slice)), &want, 2e-6);
        }
        let other = seeded(6, Some(3));
        assert_eq!(other.len(), want.len());
        assert!(
            other.iter().zip(&want).any(|(other, want)| (other - want).abs() > 1e-2 * want.abs().max(1.0))
        );
    });
}

#[test]
fn parts_of_the_columns_add_up_to_the_whole_batch() {
    alone(module_path!(), "parts_of_the_columns_add_up_to_the_whole_batch", || {
        let model = model(ALL);
        // Three parts, of 3, 2 and 2 columns, one of them in slices.
        training().seed(5);
        let whole =
            all(&own_gradients(&model, window(), state(&model), &config(Some(3)), &Ranks::alone()), &model);
        let mut sum = vec![0.0; whole.len()];
        let mut states = vec![];
        for (part, small_batch) in [(0..3, None), (3..5, Some(1)), (5..7, None)] {
            training().seed(5);
            let own = state(&model).columns(part.start, part.len());
            let config = config(None);
            let pass = in_slices(&model, &window(), &own, &config, part, small_batch.unwrap_or(7));
            sum.iter_mut().zip(all(&pass, &model)).for_each(|(sum, part)| *sum += part);
            states.push(pass.state);
        }
        // States are no sums.
        let values = of_state(&LmState::join(states));
        let sums = whole.len() - values.len();
        close("parts", &[&sum[..sums], &values].concat(), &whole, 2e-6);
    });
}

#[test]
fn ranks_make_the_bits_of_as_many_slices() {
    let mut models: Vec<LanguageModel> = [HeadKind::Softmax, HeadKind::Mos, HeadKind::Doc, HeadKind::Mixtape]
        .map(|head| ModelConfig::tiny(head, 20).try_init(&training()).unwrap())
        .into();
    models.push(model(Dropouts::NONE));
    untie(&mut models[4]);
    for (index, model) in models.into_iter().enumerate() {
        let shared = Mutex::new(model.clone());
        // Parts of 4 and 3 columns; of 3, 2 and 2.
        for size in [2, 3] {
            let slices = config(Some(7usize.div_ceil(size)));
            let pass = own_gradients(&model, window(), state(&model), &slices, &Ranks::alone());
            let want = gradients_of(&model, &pass.grads).concat();
            assert!(want.iter().any(|value| value.abs() > 1e-3));
            let sums = each(size, |ranks| {
                let model = shared.lock().unwrap().clone();
                let part = ranks.part(7);
                let own = state(&model).columns(part.start, part.len());
                let pass = own_gradients(&model, window(), own, &config(None), &ranks);
                let grads = ranks.sum_gradients(&model, pass.grads).unwrap();
                gradients_of(&model, &grads).concat()
            });
            assert!(sums.iter().all(|sums| *sums == want), "model {index}, {size} ranks");
        }
    }
}

#[test]
fn the_norm_of_the_projections_is_a_part_of_the_whole() {
    let model = model(Dropouts::NONE);
    let Pass { mut grads, .. } = pass(&model, window(), state(&model), model.draw_masks(7), &config(None));
    let square = |norm: Option<Tensor<1>>| norm.unwrap().into_scalar::<f64>().powi(2);
    let all = square(global_norm(&model, &grads));
    /// Takes the gradients of a part away.
    struct Remove<'a>(&'a mut GradientsParams);
    impl ModuleVisitor for Remove<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.remove::<D>(param.id).unwrap();
        }
    }
    model.head.context.visit(&mut Remove(&mut grads));
    let want = all - square(global_norm(&model, &grads));
    let mut optimiser = NtAsgd::new(1.2e-6);
    let (_, stepped) = step(model.clone(), &mut optimiser, window(), state(&model), &config(None), 2.0);
    let got = square(stepped.latent_norm);
    assert!(want > 1e-3 * all && (got - want).abs() < 1e-4 * want, "{got} {want} of {all}");
}
