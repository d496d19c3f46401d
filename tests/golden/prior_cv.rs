//! Losses with a penalty on the variation of the priors: the loss, the squared coefficient of variation, and every gradient.

use burn::tensor::Tensor;
use highrank::{LossOptions, Reduction};
use serde::Deserialize;

use crate::backends::Setting;
use crate::case::{Array, Case};
use crate::compare::{Report, Tolerance, values};
use crate::head;
use crate::priors::priors;

/// The options of a case that are no tensors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    ignore_index: Option<i64>,
    prior_cv: f64,
    reduction: String,
}

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(head) = head::load(case, on, report) else { return };
    let Options { ignore_index, prior_cv, reduction } =
        match Options::deserialize(&case.entry.hyperparameters["options"]) {
            Ok(stated) => stated,
            Err(error) => return report.fail(format!("options: {error}")),
        };
    let is_sum = reduction == "sum";
    let reduction = if is_sum { Reduction::Sum } else { Reduction::Mean };
    let mut options = LossOptions::new().with_reduction(reduction);
    if let Some(index) = ignore_index {
        options = options.with_ignore_index(index);
    }
    if let Some(weights) = case.find("token_weights") {
        options = options.with_token_weights(weights.tensor::<1>(on));
    }
    let (hidden, targets) = (|| case.hidden(on), || case.targets(on));
    let tolerance = Tolerance::new(&case.entry, on);

    let state = hidden();
    let made = head.loss_with(state.clone(), targets(), &options.clone().with_prior_cv(prior_cv));
    report.compare("loss", &values(made.value.clone()), case.array("loss"), tolerance.value("loss"));
    match made.prior_cv {
        Some(squared) => report.compare("cv2", &values(squared), case.array("cv2"), tolerance.value("cv2")),
        None => report.fail("the loss says nothing of the priors".into()),
    }
    head::gradients("loss with penalty", case, &head, &state, made.value, tolerance, report);

    // Without the penalty, the loss is less by just that.
    let plain = values(head.loss_with(hidden(), targets(), &options).value);
    let counted = &case.array("counted").values;
    let weights = match case.find("token_weights") {
        Some(weights) => weights.values.clone(),
        None => vec![1.0; counted.len()],
    };
    let total: f64 = counted.iter().zip(&weights).map(|(counted, weight)| counted * weight).sum();
    let penalty = prior_cv * case.array("cv2").values[0] * if is_sum { total } else { 1.0 };
    let want = [case.array("loss")[0] - penalty];
    report.compare("loss without penalty", &plain, &want, 2.0 * tolerance.value("loss"));

    // The same by Burn's own derivative, from the log-probabilities and the layer of the priors.
    if !on.compiles && ignore_index.is_none() {
        let state = hidden();
        let [tokens, _] = state.dims();
        let words = targets().reshape([tokens, 1]);
        let nll: Tensor<1> = head.forward(state.clone()).gather(1, words).neg().squeeze_dim(1);
        let weights: Tensor<1> = Array { shape: vec![tokens], values: weights }.tensor(on);
        let prior = priors(&head, state.clone());
        let [_, components] = prior.dims();
        let used = (prior * weights.clone().reshape([tokens, 1])).sum_dim(0).reshape([components]);
        let mean = used.clone().mean();
        let off = used - mean.clone();
        let squared = (off.clone() * off).mean() / (mean.clone() * mean);
        let total = weights.clone().sum();
        let mut loss = (nll * weights).sum() + squared * total.clone() * prior_cv;
        if !is_sum {
            loss = loss / total;
        }
        head::gradients("composed loss", case, &head, &state, loss, tolerance, report);
    }
}
