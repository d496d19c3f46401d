//! Whole training steps on a whole model: every backend must go the same way.

use awd_lstm::data::Window;
use awd_lstm::weights::StateDict;
use awd_lstm::{Dropouts, HeadKind, ModelConfig, Preset, TrainConfig, train};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use runs::optim::NtAsgd;

use crate::backends::{ndarray, settings};
use crate::compare::values;

const STEPS: usize = 3;
const WORDS: usize = 60;
const LENGTH: usize = 6;
const BATCH: usize = 4;

/// The loss of each step, and every weight after the last, with its average.
struct Course {
    losses: Vec<f64>,
    weights: Vec<f64>,
}

fn model_config(head: HeadKind) -> ModelConfig {
    ModelConfig {
        d_embedding: 10,
        lstm_sizes: if head.is_mixture() { vec![14, 12] } else { vec![14, 10] },
        components: 3,
        knots: 50,
        plif_bound: 2.0,
        // Random numbers differ from backend to backend.
        dropouts: Dropouts::NONE,
        ..Preset::Small.model(head, WORDS)
    }
}

/// Steps on texts of their own each, from given weights, averaged from the second on.
fn course(config: &ModelConfig, start: &StateDict, device: Device, dtype: DType) -> Course {
    let device = device.autodiff();
    let train_config = TrainConfig { clip: 0.1, ..Preset::Small.train() };
    let mut model = start.model_of_dtype(config, &device, dtype).unwrap();
    let mut optimiser = NtAsgd::new(1e-3);
    let mut state = model.zero_state(BATCH);
    let mut losses = vec![];
    for step in 0..STEPS {
        let words = |shift: usize| -> Tensor<2, Int> {
            let ids = (0..LENGTH * BATCH).map(|i| (((i + shift) * 7919 + 31 * step) % WORDS) as i64);
            Tensor::from_data(TensorData::new(ids.collect::<Vec<_>>(), [LENGTH, BATCH]), &device)
        };
        let window = Window { tokens: words(0), targets: words(BATCH) };
        let (next, stepped) = train::step(model, &mut optimiser, window, state, &train_config, 5.0);
        losses.extend(values(stepped.losses.nll));
        (model, state) = (next, stepped.state);
        if step == 0 {
            optimiser.start_averaging();
        }
    }
    let mut weights = vec![];
    for model in [&model, &optimiser.averaged(&model)] {
        let state = StateDict::of_model(model);
        state.tensors().for_each(|(_, data)| weights.extend(data.iter::<f64>()));
    }
    Course { losses, weights }
}

#[test]
fn training_goes_the_same_way_on_every_backend() {
    let mut failures = vec![];
    for &head in HeadKind::ALL {
        let config = model_config(head);
        let start = StateDict::of_model(&config.try_init(&ndarray()).unwrap());
        let want = course(&config, &start, ndarray(), DType::F64);
        assert!(want.losses.iter().all(|loss| *loss > 1.0), "{:?}", want.losses);
        for on in settings() {
            let got = course(&config, &start, on.device, on.dtype);
            let tolerance = if on.dtype == DType::F64 { 1e-10 } else { 2e-4 };
            for (what, got, want) in
                [("loss", &got.losses, &want.losses), ("weight", &got.weights, &want.weights)]
            {
                assert_eq!(got.len(), want.len());
                let pairs = got.iter().zip(want).map(|(got, want)| (got - want).abs());
                let worst = pairs.fold(0.0, f64::max);
                if worst > tolerance || got.iter().any(|x| x.is_nan()) {
                    failures.push(format!("{head} on {}: a {what} is off by {worst:e}", on.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
