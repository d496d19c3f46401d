//! NT-ASGD: trajectories of a softmax regression, and the non-monotone trigger by itself.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, activation};
use runs::optim::{NonMonotone, NtAsgd, clip_global_norm, global_norm};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance, values};

/// Softmax regression.
#[derive(Module, Debug)]
pub struct Regression {
    pub weight: Param<Tensor<2>>,
    pub bias: Param<Tensor<1>>,
}

impl Regression {
    /// The model that a case starts from.
    pub fn start(case: &Case, on: &Setting) -> Self {
        Self {
            weight: Param::from_tensor(case.tensor("theta0.weight", on)),
            bias: Param::from_tensor(case.tensor("theta0.bias", on)),
        }
    }

    /// The mean cross-entropy of batch `step`.
    pub fn loss(&self, case: &Case, step: usize, on: &Setting) -> Tensor<1> {
        let x = case.array("x").row(step).tensor::<2>(on);
        let words: Vec<i64> = case.array("y").row(step).values.iter().map(|&word| word as i64).collect();
        let y = Tensor::<1, Int>::from_data(words.as_slice(), &on.device);
        // Not by a product of matrices, which may read TF32 on CUDA where the tuner finds that faster.
        let products = x.unsqueeze_dim::<3>(1) * self.weight.val().unsqueeze();
        let logits = products.sum_dim(2).squeeze_dim(2) + self.bias.val().unsqueeze();
        let picked = activation::log_softmax(logits, 1).gather(1, y.reshape([words.len(), 1]));
        picked.mean().neg()
    }
}

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    // Errors of a step carry over to all later ones; these trajectories do not amplify them much.
    let tolerance = 60.0 * Tolerance::new(&case.entry, on).value("theta.weight");
    let mut model = Regression::start(case, on);
    let mut optimiser = NtAsgd::new(case.number("weight_decay"));
    let mut rule = NonMonotone::new(case.number("nonmono") as usize);
    let (every, steps) = (case.number("eval_every") as usize, case.number("steps") as usize);

    for step in 0..steps {
        let loss = model.loss(case, step, on);
        let mut compare = |name: &str, got: &[f64]| {
            let want = case.array(name).row(step);
            report.compare(&format!("step {}: {name}", step + 1), got, &want, tolerance);
        };
        compare("loss", &values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        compare("grad.weight", &values(grads.get::<2>(model.weight.id).unwrap()));
        compare("grad.bias", &values(grads.get::<1>(model.bias.id).unwrap()));
        compare("grad_norm", &values(global_norm(&model, &grads).expect("a norm")));
        let (grads, _) = clip_global_norm(&model, grads, case.number("clip"));
        model = optimiser.step(case.array("lr").values[step], model, grads);
        compare("theta.weight", &values(model.weight.val()));
        compare("theta.bias", &values(model.bias.val()));
        let averaged = optimiser.averaged(&model);
        compare("avg_textbook.weight", &values(averaged.weight.val()));
        compare("avg_textbook.bias", &values(averaged.bias.val()));

        if (step + 1) % every == 0 && !optimiser.is_averaging() {
            let evaluation = step / every;
            if rule.observe(case.array("val_losses").values[evaluation]) {
                optimiser.start_averaging();
                let want = (case.array("trigger_eval").values[0], case.array("trigger_step").values[0]);
                if want != (evaluation as f64, (step + 1) as f64) {
                    report.fail(format!(
                        "triggered at evaluation {evaluation}, step {}: expected {want:?}",
                        step + 1
                    ));
                }
            }
        }
    }
    if !optimiser.is_averaging() {
        report.fail("averaging was never triggered".into());
    }
}

/// Rows of validation losses and when they trigger; −1 is never.
pub fn check_triggers(case: &Case, report: &mut Report) {
    let rows = case.array("losses").shape[0];
    for r in 0..rows {
        let length = case.array("length").values[r] as usize;
        let mut rule = NonMonotone::new(case.array("nonmono").values[r] as usize);
        let losses = &case.array("losses").row(r).values[..length];
        let got = losses.iter().position(|&loss| rule.observe(loss)).map_or(-1.0, |e| e as f64);
        report.compare(&format!("row {r}"), &[got], &case.array("trigger_eval")[r..=r], 0.0);
    }
}
