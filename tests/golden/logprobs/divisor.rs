//! Cross-entropies summed over the tokens that count, over a given divisor.

use highrank::{LossOptions, Reduction};

use super::Checks;
use crate::backends::Setting;
use crate::case::Case;
use crate::compare::Report;

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(checks) = Checks::new(case, on, report) else { return };
    checks.compare_log_probs(&checks.head, case.hidden(on), "log_probs", report);
    let number = |name: &str| case.number(&format!("options.{name}"));
    let divisor = number("divisor");
    let mut options = LossOptions::new()
        .with_ignore_index(number("ignore_index") as i64)
        .with_label_smoothing(number("label_smoothing"))
        .with_z_loss(number("z_loss"))
        .with_reduction(Reduction::Divisor(divisor));
    if let Some(weights) = case.find("token_weights") {
        options = options.with_token_weights(weights.tensor::<1>(on));
    }
    let targets = || case.targets(on);

    let hidden = case.hidden(on);
    let made = checks.head.loss_with(hidden.clone(), targets(), &options.clone().with_statistics(true));
    checks.compare_loss("reduced loss", &hidden, made.value, report);
    let statistics = made.statistics.expect("they were asked for");
    checks.compare_tokens("statistics", "nll", statistics.nll, report);
    checks.compare_tokens("statistics", "z_term", statistics.z_term, report);

    let hidden = case.hidden(on);
    let made = checks.head.loss_with(hidden.clone(), targets(), &options.with_per_token(true));
    checks.compare("beside token losses", "loss", made.value, report);
    let losses = made.per_token.expect("values of tokens are asked for");
    let mut weighted = case.array("token_loss").values.clone();
    if let Some(weights) = case.find("token_weights") {
        weighted.iter_mut().zip(weights.iter()).for_each(|(loss, weight)| *loss *= weight);
    }
    checks.compare_tokens_with("token losses", "token_loss", losses.clone(), &weighted, report);
    checks.compare_loss("token losses", &hidden, losses.sum() * divisor.recip(), report);
}
