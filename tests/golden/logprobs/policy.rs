//! Losses of preferences and policies.

use burn::tensor::{Bool, Tensor};
use highrank::policy::{
    Aggregation, DpoOptions, GrpoOptions, KtoOptions, OrpoOptions, Pairs, dpo_loss, grpo_loss, kto_loss,
    orpo_loss, sequence_sum,
};

use super::{Checks, IGNORED};
use crate::backends::Setting;
use crate::case::{Array, Case};
use crate::compare::Report;

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(checks) = Checks::new(case, on, report) else { return };
    let sequences = Sequences::of(&checks);
    let words = || case.targets(on).unsqueeze_dim::<2>(1);
    let hidden = case.hidden(on);
    let (log_probs, entropy) = checks.fused(hidden.clone(), words(), case.find("entropy").is_some());
    sequences.check("fused", &hidden, log_probs, entropy, report);
    if !on.compiles {
        let hidden = case.hidden(on);
        let (log_probs, entropy) = checks.composed(hidden.clone(), words());
        sequences.check("composed", &hidden, log_probs, Some(entropy), report);
    }
}

/// The tokens as B sequences of L.
struct Sequences<'a> {
    checks: &'a Checks<'a>,
    case: &'a Case,
    /// `[B, L]`
    shape: [usize; 2],
    /// Tokens that count.
    mask: Tensor<2, Bool>,
}

impl<'a> Sequences<'a> {
    fn of(checks: &'a Checks<'a>) -> Self {
        let shape = ["sequences", "length"].map(|name| checks.case.number(name) as usize);
        let targets = checks.case.targets(checks.on).reshape(shape);
        Self { checks, case: checks.case, shape, mask: targets.not_equal_elem(IGNORED) }
    }

    /// An input of all tokens.
    fn given(&self, name: &str) -> Tensor<2> {
        self.case.tensor::<1>(name, self.checks.on).reshape(self.shape)
    }

    fn option(&self, name: &str) -> f64 {
        self.case.number(&format!("options.{name}"))
    }

    fn pairs(&self) -> Pairs {
        let [chosen, rejected] =
            ["chosen", "rejected"].map(|name| self.case.ints::<1>(name, &self.checks.on.device));
        Pairs { chosen, rejected }
    }

    /// Compares everything that is made of log-probabilities, which came by some path.
    fn check(
        &self,
        path: &str,
        hidden: &Tensor<2>,
        log_probs: Tensor<2>,
        entropy: Option<Tensor<1>>,
        report: &mut Report,
    ) {
        self.checks.compare_tokens(path, "token_log_probs", log_probs.clone(), report);
        let log_probs = log_probs.reshape(self.shape);
        let sums = sequence_sum(log_probs.clone(), self.mask.clone());
        self.checks.compare(path, "sequence_log_probs", sums, report);
        let loss = match self.case.entry.hyperparameters["options"]["loss"].as_str() {
            Some("dpo") => self.dpo(path, log_probs, report),
            Some("orpo") => self.orpo(path, log_probs, report),
            Some("kto") => self.kto(path, log_probs, report),
            Some("grpo") => self.grpo(path, log_probs, entropy, report),
            other => return report.fail(format!("unknown loss {other:?}")),
        };
        self.checks.compare_loss(path, hidden, loss, report);
    }

    fn dpo(&self, path: &str, log_probs: Tensor<2>, report: &mut Report) -> Tensor<1> {
        let options =
            DpoOptions { beta: self.option("beta"), label_smoothing: self.option("label_smoothing") };
        let reference = self.given("ref_log_probs");
        let made = dpo_loss(log_probs, reference, self.mask.clone(), &self.pairs(), &options);
        self.checks.compare(path, "rewards", made.rewards, report);
        self.checks.compare(path, "pair_loss", made.per_pair, report);
        made.value
    }

    fn orpo(&self, path: &str, log_probs: Tensor<2>, report: &mut Report) -> Tensor<1> {
        let options =
            OrpoOptions { odds_weight: self.option("odds_weight"), nll_weight: self.option("nll_weight") };
        let made = orpo_loss(log_probs, self.mask.clone(), &self.pairs(), &options);
        self.checks.compare(path, "log_odds", made.log_odds, report);
        self.checks.compare(path, "pair_loss", made.per_pair, report);
        self.checks.compare(path, "chosen_nll", made.chosen_nll, report);
        made.value
    }

    fn kto(&self, path: &str, log_probs: Tensor<2>, report: &mut Report) -> Tensor<1> {
        let beta = self.option("beta");
        let point = Array { shape: vec![1], values: vec![self.option("reference_point")] };
        let options = KtoOptions {
            beta,
            desirable_weight: self.option("desirable_weight"),
            undesirable_weight: self.option("undesirable_weight"),
            reference_point: Some(point.tensor(self.checks.on)),
        };
        let desirable = self.checks.flags("desirable", [self.shape[0]]);
        let reference = self.given("ref_log_probs");
        let made = kto_loss(log_probs, reference, self.mask.clone(), desirable, &options);
        self.checks.compare(path, "log_ratios", made.rewards / beta, report);
        self.checks.compare(path, "sequence_loss", made.per_sequence, report);
        made.value
    }

    fn grpo(
        &self,
        path: &str,
        log_probs: Tensor<2>,
        entropy: Option<Tensor<1>>,
        report: &mut Report,
    ) -> Tensor<1> {
        let aggregation = match self.case.entry.hyperparameters["options"]["aggregation"].as_str() {
            Some("token_mean") => Aggregation::TokenMean,
            Some("sequence_mean") => Aggregation::SequenceMean,
            _ => Aggregation::Divisor(self.option("divisor")),
        };
        let mut options = GrpoOptions {
            clip_low: self.option("clip_low"),
            clip_high: self.option("clip_high"),
            aggregation,
            ..Default::default()
        };
        if self.case.find("kl_term").is_some() {
            options.kl_penalty = Some((self.option("kl_weight"), self.given("ref_log_probs")));
        }
        if let Some(entropy) = entropy.filter(|_| self.case.find("entropy").is_some()) {
            self.checks.compare_tokens(path, "entropy", entropy.clone(), report);
            options.entropy_bonus = Some((self.option("entropy_weight"), entropy.reshape(self.shape)));
        }
        let [old, advantages] = ["old_log_probs", "advantages"].map(|name| self.given(name));
        let made = grpo_loss(log_probs, old, advantages, self.mask.clone(), &options);
        self.checks.compare_tokens(path, "policy_term", made.policy_term, report);
        if let Some(term) = made.kl_term {
            self.checks.compare_tokens(path, "kl_term", term, report);
        }
        self.checks.compare_tokens(path, "token_loss", made.per_token, report);
        let clipped =
            made.clipped.int().into_data().iter::<i64>().map(|flag| flag as f64).collect::<Vec<_>>();
        report.compare(&format!("{path}: clipped"), &clipped, self.case.array("clipped"), 0.0);
        made.value
    }
}
