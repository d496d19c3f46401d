//! A student head and a teacher head.

use highrank::{Divergence, LossOptions};

use super::{Checks, IGNORED};
use crate::backends::Setting;
use crate::case::Case;
use crate::compare::Report;
use crate::head;

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(checks) = Checks::new(case, on, report) else { return };
    let name = case.entry.hyperparameters["teacher"]["head"].as_str().unwrap_or("none");
    let Some(teacher) = head::load(&case.part("teacher.", name), on, report) else { return };
    let teacher = teacher.at_temperature(case.number("options.temperature"));
    let of_teacher = || case.tensor::<2>("teacher.hidden", on);
    checks.compare_log_probs(&checks.head, case.hidden(on), "log_probs", report);
    checks.compare_log_probs(&teacher, of_teacher(), "teacher_log_probs", report);

    let divergence = match case.entry.hyperparameters["options"]["divergence"].as_str() {
        Some("forward_kl") => Divergence::ForwardKl,
        Some("reverse_kl") => Divergence::ReverseKl,
        Some("jsd") => Divergence::JensenShannon { beta: case.number("options.beta") },
        Some("total_variation") => Divergence::TotalVariation,
        other => return report.fail(format!("unknown divergence {other:?}")),
    };
    let options = LossOptions::new()
        .with_ignore_index(IGNORED)
        .with_distillation(teacher.distribution(of_teacher()), divergence);
    let targets = || case.targets(on);
    let count = checks.counted.len();
    let upstream = case.find("upstream").map(|upstream| upstream.tensor::<1>(on));

    let hidden = case.hidden(on);
    let made = checks.head.loss_with(hidden.clone(), targets(), &options.clone().with_per_token(true));
    let losses = made.per_token.expect("values of tokens are asked for");
    checks.compare_tokens("token losses", "divergence", losses.clone(), report);
    let weighted = match &upstream {
        Some(upstream) => losses * upstream.clone(),
        None => losses * (count as f64).recip(),
    };
    checks.compare_loss("token losses", &hidden, weighted.sum(), report);
    if upstream.is_some() {
        return;
    }

    let hidden = case.hidden(on);
    let made = checks.head.loss_with(hidden.clone(), targets(), &options);
    checks.compare_loss("reduced loss", &hidden, made.value, report);
}
