use super::*;
use crate::optim::testing::{Pair, grads, pair, values};

/// Squares 1 + 9, 4 + 0, 9 + 16 over two batches.
fn statistics(module: &Pair) -> GradientStatistics {
    let mut statistics = GradientStatistics::new();
    statistics.add(module, &grads(module, [1.0, 2.0], 3.0));
    statistics.add(module, &grads(module, [-3.0, 0.0], -4.0));
    assert_eq!(statistics.batches(), 2);
    statistics
}

#[test]
fn both_forms_by_hand() {
    let module = pair();
    let statistics = statistics(&module);
    let sums = [10.0f64, 4.0, 25.0];
    for form in [DynamicForm::Paper, DynamicForm::Program] {
        let rms = match form {
            DynamicForm::Paper => sums.map(|sum| (sum / 2.0).sqrt()),
            DynamicForm::Program => sums.map(f64::sqrt),
        };
        let scale = match form {
            DynamicForm::Paper => rms.iter().sum::<f64>() / 3.0,
            DynamicForm::Program => (rms[0] + rms[1]) / 2.0 + rms[2],
        };
        assert!((statistics.scale(&module, form) / scale - 1.0).abs() < 1e-6);
        // Large enough that the paper's decay of the bias is cut off at 1.
        let config = DynamicConfig { form, lr: 0.1, eps: 0.5, lambda: 0.8 };
        let update = DynamicUpdate::new(&module, &statistics, &config).unwrap();
        let (origin, gradients) = ([1.0, -2.0, 4.0], [[2.0f32, -1.0, 0.5], [1.0, 1.0, 1.0]]);
        let (mut got, mut want) = (module.clone(), origin);
        for gradient in gradients {
            let [a, b, c] = gradient;
            let grads = grads(&got, [a, b], c);
            got = update.step(got, grads);
            for i in 0..3 {
                let decay = 0.8 * (rms[i] / scale).min(1.0 / 0.8);
                want[i] += decay * (origin[i] - want[i]) - 0.1 * f64::from(gradient[i]) / (rms[i] + 0.5);
            }
            for (got, want) in values(&got).iter().zip(want) {
                assert!((got - want).abs() < 1e-6, "{form}: {got} instead of {want}");
            }
        }
        assert!(got.weight.is_require_grad());
        let decay: Vec<f64> = update.decay(module.bias.id).unwrap().into_data().iter().collect();
        assert!((decay[0] - (0.8 * rms[2] / scale).min(1.0)).abs() < 1e-6);
        assert_eq!(decay[0] == 1.0, form == DynamicForm::Paper);
        assert_eq!(form.name().parse::<DynamicForm>().unwrap(), form);
    }
}

#[test]
fn a_parameter_without_gradient_is_drawn_back_only() {
    let module = pair();
    let statistics = statistics(&module);
    let config = DynamicConfig { form: DynamicForm::Paper, lr: 0.1, eps: 0.5, lambda: 0.1 };
    let update = DynamicUpdate::new(&module, &statistics, &config).unwrap();
    let moved = update.step(module.clone(), grads(&module, [1.0, 1.0], 1.0));
    let back = update.step(moved.clone(), GradientsParams::new());
    for ((back, moved), origin) in values(&back).iter().zip(values(&moved)).zip(values(&module)) {
        assert!((back - origin).abs() < (moved - origin).abs(), "{origin} -> {moved} -> {back}");
    }
}

#[test]
fn settings_out_of_range_and_empty_statistics_are_refused() {
    let module = pair();
    let good = DynamicConfig { form: DynamicForm::Program, lr: 0.1, eps: 0.5, lambda: 0.1 };
    let refused = |statistics: &GradientStatistics, config| {
        DynamicUpdate::new(&module, statistics, &config).err().expect("refused").to_string()
    };
    let statistics = statistics(&module);
    assert!(refused(&statistics, DynamicConfig { lr: 0.0, ..good }).contains("lr is 0"));
    assert!(refused(&statistics, DynamicConfig { eps: f64::NAN, ..good }).contains("eps is NaN"));
    assert!(refused(&statistics, DynamicConfig { lambda: -1.0, ..good }).contains("lambda is -1"));
    assert!(refused(&GradientStatistics::new(), good).contains("batches is 0"));
    let mut flat = GradientStatistics::new();
    flat.add(&module, &GradientsParams::new());
    assert!(refused(&flat, good).contains("RMS is 0"));
}
