//! Dynamic evaluation: gradient statistics, and a trajectory of updates in the paper's form.

use burn::module::ParamId;
use burn::optim::GradientsParams;
use runs::optim::{DynamicConfig, DynamicForm, DynamicUpdate, GradientStatistics};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};
use crate::optimiser::Regression;

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let tolerance = |quantity: &str| Tolerance::new(&case.entry, on).value(quantity);
    let mut model = Regression::start(case, on);
    let parameters = [("weight", model.weight.id), ("bias", model.bias.id)];

    let mut statistics = GradientStatistics::new();
    for batch in 0..case.number("train_batches") as usize {
        let mut grads = GradientsParams::new();
        let of = |name: &str| case.array(&format!("train_grad.{name}")).row(batch);
        grads.register(model.weight.id, of("weight").tensor::<2>(on).inner());
        grads.register(model.bias.id, of("bias").tensor::<1>(on).inner());
        statistics.add(&model, &grads);
    }
    let scale = statistics.scale(&model, DynamicForm::Paper);
    report.compare("mean_rms", &[scale], case.array("mean_rms"), 4.0 * tolerance("mean_rms"));
    let config = DynamicConfig {
        form: DynamicForm::Paper,
        lr: case.number("lr"),
        eps: case.number("eps"),
        lambda: case.number("lambda"),
    };
    let update = DynamicUpdate::new(&model, &statistics, &config).unwrap();
    for (name, id) in parameters {
        let mut compare = |quantity: &str, got: Vec<f64>| {
            let name = format!("{quantity}.{name}");
            report.compare(&name, &got, case.array(&name), 4.0 * tolerance(&name));
        };
        let rms = |id: ParamId| values(statistics.rms(DynamicForm::Paper, id).unwrap());
        compare("ms", values(statistics.sum(id).unwrap() / statistics.batches() as f64));
        compare("rms_norm", rms(id).iter().map(|rms| rms / scale).collect());
        compare("decay", values(update.decay(id).unwrap()));
    }
    // Somewhere the decay is cut off.
    let decays = parameters.map(|(_, id)| values(update.decay(id).unwrap()));
    if !decays.iter().flatten().any(|&decay| decay == 1.0) {
        report.fail("no decay was cut off at 1".into());
    }

    // Errors of a step carry over to all later ones.
    let tolerance = 20.0 * tolerance("theta.bias");
    for step in 0..case.number("steps") as usize {
        let loss = model.loss(case, step, on);
        let mut compare = |name: &str, got: &[f64]| {
            let want = case.array(name).row(step);
            report.compare(&format!("step {}: {name}", step + 1), got, &want, tolerance);
        };
        compare("loss", &values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        compare("grad.weight", &values(grads.get::<2>(model.weight.id).unwrap()));
        compare("grad.bias", &values(grads.get::<1>(model.bias.id).unwrap()));
        model = update.step(model, grads);
        compare("theta.weight", &values(model.weight.val()));
        compare("theta.bias", &values(model.bias.val()));
    }
}
