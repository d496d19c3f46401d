//! Log-probabilities of given words, and entropies.

use burn::tensor::{Int, Tensor};

use super::Checks;
use crate::backends::Setting;
use crate::case::Case;
use crate::compare::Report;

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(checks) = Checks::new(case, on, report) else { return };
    checks.compare_log_probs(&checks.head, case.hidden(on), "log_probs", report);
    let hidden = case.hidden(on);
    let (log_probs, entropy) =
        checks.fused(hidden.clone(), words(&checks), case.find("entropy_upstream").is_some());
    compare(&checks, "fused", &hidden, log_probs, entropy, report);
    if !on.compiles {
        let hidden = case.hidden(on);
        let (log_probs, entropy) = checks.composed(hidden.clone(), words(&checks));
        compare(&checks, "composed", &hidden, log_probs, Some(entropy), report);
    }
}

/// The words of each token, `[N, m]`: those of the case, or the first of all where it has none.
fn words(checks: &Checks<'_>) -> Tensor<2, Int> {
    match checks.case.find("words") {
        Some(_) => checks.case.ints("words", &checks.on.device),
        None => Tensor::zeros([checks.tokens(), 1], &checks.on.device),
    }
}

/// Compares results that came by some path, and the gradients of the case's loss.
fn compare(
    checks: &Checks<'_>,
    path: &str,
    hidden: &Tensor<2>,
    log_probs: Tensor<2>,
    entropy: Option<Tensor<1>>,
    report: &mut Report,
) {
    let Checks { case, on, .. } = checks;
    let mut terms = vec![];
    if case.find("word_log_probs").is_some() {
        checks.compare_tokens(path, "word_log_probs", log_probs.clone(), report);
    }
    if case.find("upstream").is_some() {
        // 0 times the −∞ of a masked word counts for nothing.
        let masked = log_probs.clone().is_inf();
        terms.push((log_probs.mask_fill(masked, 0.0) * case.tensor::<2>("upstream", on)).sum());
    }
    if let Some(entropy) = entropy.filter(|_| case.find("entropy_upstream").is_some()) {
        checks.compare_tokens(path, "entropy", entropy.clone(), report);
        terms.push((entropy * case.tensor::<1>("entropy_upstream", on)).sum());
    }
    let loss = terms.into_iter().reduce(|sum, term| sum + term).expect("a loss");
    checks.compare_loss(path, hidden, loss, report);
}
