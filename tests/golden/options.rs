//! Losses with options: gradients by every path, the terms of every token, and the statistics.

use burn::tensor::{Int, Tensor, TensorData};
use highrank::{LossOptions, OutputHead, Reduction, TokenStatistics};
use serde::Deserialize;

use crate::backends::Setting;
use crate::case::{Array, Case};
use crate::compare::{Report, Tolerance, largest, values};
use crate::head;

/// Checks a case on a device with autodiff.
pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let Some(head) = head::load(case, on, report) else { return };
    let stated = match Options::deserialize(&case.entry.hyperparameters["options"]) {
        Ok(stated) => stated,
        Err(error) => return report.fail(format!("options: {error}")),
    };
    let counted = case.counted();
    let masked = match case.masked_words() {
        Some(words) => (0..case.array("log_probs").shape[1]).map(|word| words.contains(&word)).collect(),
        None => {
            let bias = &case.array("param.decoder_bias").values;
            bias.iter().map(|bias| *bias == f64::NEG_INFINITY).collect()
        }
    };
    let tolerance = Tolerance::new(&case.entry, on);
    let head = head.at_temperature(stated.temperature);
    let checks = Checks { case, on, head, stated, counted, masked, tolerance };
    checks.log_probs(report);
    checks.gradients(report);
    // Where each operation is compiled for each shape, which takes far longer than running it, what other cases have as their own
    // options is left out.
    if !on.compiles || case.find("teacher_ids").is_some() {
        checks.distributions(report);
    }
    if !on.compiles {
        checks.terms(report);
        checks.values_of_reductions(report);
        checks.composed(report);
    }
}

/// The options of a case that are no tensors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    ignore_index: Option<i64>,
    label_smoothing: f64,
    z_loss: f64,
    temperature: f64,
    reduction: String,
}

impl Options {
    /// The reduction, if the case has one.
    fn reduction(&self) -> Option<Reduction> {
        match self.reduction.as_str() {
            "mean" => Some(Reduction::Mean),
            "sum" => Some(Reduction::Sum),
            "none" => None,
            other => panic!("unknown reduction `{other}`"),
        }
    }
}

/// Which terms of a token's loss are asked for.
#[derive(Clone, Copy, PartialEq)]
struct Terms {
    teacher: bool,
    smoothing: bool,
    z_loss: bool,
}

impl Terms {
    /// All that a case has.
    const ALL: Self = Self { teacher: true, smoothing: true, z_loss: true };

    /// Every subset.
    fn subsets() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self { teacher: bits & 1 > 0, smoothing: bits & 2 > 0, z_loss: bits & 4 > 0 })
    }

    fn name(self) -> String {
        let names = [("teacher", self.teacher), ("smoothing", self.smoothing), ("z-loss", self.z_loss)];
        let used: Vec<&str> = names.iter().filter(|(_, used)| *used).map(|(name, _)| *name).collect();
        format!("token losses [{}]", used.join(", "))
    }
}

struct Checks<'a> {
    case: &'a Case,
    on: &'a Setting,
    /// At the case's temperature.
    head: OutputHead,
    stated: Options,
    /// Tokens that count.
    counted: Vec<usize>,
    /// True for masked words.
    masked: Vec<bool>,
    tolerance: Tolerance<'a>,
}

impl Checks<'_> {
    fn hidden(&self) -> Tensor<2> {
        self.case.hidden(self.on)
    }

    fn targets(&self) -> Tensor<1, Int> {
        self.case.targets(self.on)
    }

    fn tokens(&self) -> usize {
        self.case.array("targets").values.len()
    }

    fn tensor<const D: usize>(&self, values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
        Array { shape: shape.into(), values }.tensor(self.on)
    }

    /// The case's options with some of the terms.
    fn options(&self, terms: Terms) -> LossOptions {
        let mut options = self.shared(terms);
        if let Some(index) = self.stated.ignore_index {
            options = options.with_ignore_index(index);
        }
        if let Some(weights) = self.case.find("token_weights") {
            options = options.with_token_weights(weights.tensor::<1>(self.on));
        }
        if terms.teacher && self.case.find("teacher_ids").is_some() {
            let ids = self.case.ints::<2>("teacher_ids", &self.on.device);
            options = options.with_teacher(ids, self.case.tensor("teacher_probs", self.on));
        }
        options
    }

    /// Those of them that any kind of target takes.
    fn shared(&self, terms: Terms) -> LossOptions {
        LossOptions::new()
            .with_reduction(self.stated.reduction().unwrap_or_default())
            .with_label_smoothing(if terms.smoothing { self.stated.label_smoothing } else { 0.0 })
            .with_z_loss(if terms.z_loss { self.stated.z_loss } else { 0.0 })
    }

    /// Weight of each token, 0 for those that do not count.
    fn weights(&self) -> Vec<f64> {
        let mut weights = vec![0.0; self.tokens()];
        for &token in &self.counted {
            weights[token] = self.case.find("token_weights").map_or(1.0, |weights| weights.values[token]);
        }
        weights
    }

    /// The gradient of the case's loss with respect to each weighted token loss.
    fn cotangent(&self) -> Vec<f64> {
        let factor = match self.stated.reduction() {
            None => return self.case.array("cotangent").values.clone(),
            Some(Reduction::Sum) => 1.0,
            Some(Reduction::Divisor(n)) => n.recip(),
            Some(Reduction::Mean) => 1.0 / self.weights().iter().sum::<f64>(),
        };
        vec![factor; self.tokens()]
    }

    /// Compares a loss and all its gradients.
    fn compare(&self, path: &str, state: &Tensor<2>, loss: Tensor<1>, report: &mut Report) {
        // With cotangents of both signs the sum may be smaller than the rounding of what it is a sum of.
        let losses = &self.case.array("token_loss").values;
        let parts = self.cotangent().into_iter().zip(self.weights()).zip(losses).map(|((c, w), l)| c * w * l);
        let scale = parts.map(|part| part * part).sum::<f64>().sqrt().max(1.0);
        let tolerance = self.tolerance.value("loss") * largest(self.case.array("loss"), scale);
        report.compare_scaled(path, &values(loss.clone()), self.case.array("loss"), tolerance);
        head::gradients(path, self.case, &self.head, state, loss, self.tolerance, report);
    }

    /// The loss itself, reduced and as a sum of token losses, with statistics and without.
    fn gradients(&self, report: &mut Report) {
        for statistics in [true, false] {
            let with = if statistics { "with" } else { "without" };
            let state = self.hidden();
            let options = self.options(Terms::ALL).with_statistics(statistics);
            let made = self.head.loss_with(state.clone(), self.targets(), &options);
            if self.stated.reduction().is_some() {
                self.compare(&format!("reduced loss {with} statistics"), &state, made.value, report);
            }
            match made.statistics {
                Some(made) if statistics => self.statistics(made, report),
                None if !statistics => {}
                _ => report.fail(format!("{with} statistics: the loss says otherwise")),
            }

            let state = self.hidden();
            let made = self.head.loss_with(state.clone(), self.targets(), &options.with_per_token(true));
            let losses = made.per_token.expect("values of tokens are asked for");
            let path = format!("token losses {with} statistics");
            self.compare_tokens(&path, losses.clone(), Terms::ALL, report);
            let cotangent = self.tensor(self.cotangent(), [self.tokens()]);
            self.compare(&path, &state, (losses * cotangent).sum(), report);
            if let Some(made) = made.statistics {
                self.statistics(made, report);
            }
        }
    }

    /// Compares weighted losses of all tokens, 0 for those that do not count, with those of some terms.
    fn compare_tokens(&self, path: &str, got: Tensor<1>, terms: Terms, report: &mut Report) {
        let (want, used) = self.token_losses(terms);
        let tolerance = used.iter().map(|name| self.tolerance.value(name)).fold(0.0, f64::max);
        let got = values(got);
        for (token, got) in got.iter().enumerate() {
            if !self.counted.contains(&token) && *got != 0.0 {
                report.fail(format!("{path}: {got:e} of token {token}, which does not count"));
            }
        }
        let want: Vec<f64> = want.iter().zip(self.weights()).map(|(loss, weight)| loss * weight).collect();
        report.compare(path, &got, &want, tolerance);
    }

    /// Losses of all tokens made of some terms, and the names of the terms.
    fn token_losses(&self, terms: Terms) -> (Vec<f64>, Vec<&'static str>) {
        if terms == Terms::ALL {
            return (self.case.array("token_loss").values.clone(), vec!["token_loss"]);
        }
        let teacher = terms.teacher && self.case.find("teacher_term").is_some();
        let base = if teacher { "teacher_term" } else { "nll" };
        let (mut losses, mut used) = (self.case.array(base).values.clone(), vec![base]);
        let mut add = |name: &'static str, keep: f64, factor: f64| {
            let term = &self.case.array(name).values;
            losses.iter_mut().zip(term).for_each(|(loss, term)| *loss = keep * *loss + factor * term);
            used.push(name);
        };
        let Options { label_smoothing: epsilon, z_loss: lambda, .. } = self.stated;
        if terms.smoothing && epsilon > 0.0 {
            add("smooth_term", 1.0 - epsilon, epsilon);
        }
        if terms.z_loss && lambda > 0.0 {
            // That of an adaptive softmax depends on what its tokens are scored against.
            let name = match (teacher, terms.smoothing && epsilon > 0.0) {
                (false, false) => "z_term_words",
                (true, false) => "z_term_teacher",
                (false, true) => "z_term_smooth",
                (true, true) => "z_term",
            };
            add(if self.case.find(name).is_some() { name } else { "z_term" }, 1.0, lambda);
        }
        (losses, used)
    }

    /// Token losses of every subset of the terms.
    fn terms(&self, report: &mut Report) {
        let has = Terms {
            teacher: self.case.find("teacher_ids").is_some(),
            smoothing: self.stated.label_smoothing > 0.0,
            z_loss: self.stated.z_loss > 0.0,
        };
        let is_new = |terms: &Terms| {
            (has.teacher || !terms.teacher)
                && (has.smoothing || !terms.smoothing)
                && (has.z_loss || !terms.z_loss)
        };
        for terms in Terms::subsets().filter(is_new) {
            let options = self.options(terms).with_per_token(true);
            let made = self.head.loss_with(self.hidden(), self.targets(), &options);
            let losses = made.per_token.expect("values of tokens are asked for");
            self.compare_tokens(&terms.name(), losses, terms, report);
        }
    }

    /// Sum and mean, whatever the case asks for, alone and beside the values of tokens.
    fn values_of_reductions(&self, report: &mut Report) {
        let (losses, _) = self.token_losses(Terms::ALL);
        let weights = self.weights();
        let parts: Vec<f64> = losses.iter().zip(&weights).map(|(loss, weight)| loss * weight).collect();
        let [sum, total] = [parts.iter().sum(), weights.iter().sum::<f64>()];
        let tolerance = self.tolerance.value("token_loss").max(self.tolerance.value("loss"));
        for (path, reduction, want) in [("sum", Reduction::Sum, sum), ("mean", Reduction::Mean, sum / total)]
        {
            for per_token in [false, true] {
                let options = self.options(Terms::ALL).with_reduction(reduction).with_per_token(per_token);
                let got = values(self.head.loss_with(self.hidden(), self.targets(), &options).value);
                match want.is_nan() {
                    // A mean over nothing.
                    true if got[0].is_nan() => {}
                    _ => report.compare(path, &got, &[want], tolerance),
                }
            }
        }
    }

    /// All of the statistics, where the tokens count; 0 elsewhere.
    fn statistics(&self, made: TokenStatistics<1>, report: &mut Report) {
        let flags = made.counted.int().into_data().iter::<i64>().map(|flag| flag as f64).collect::<Vec<_>>();
        report.compare("counted", &flags, self.case.array("counted"), 0.0);
        let mut compare = |name: &str, got: Vec<f64>, want: &[f64], tolerance: f64| {
            let outside = |token: &usize| !self.counted.contains(token) && got[*token] != 0.0;
            if let Some(token) = (0..got.len()).find(outside) {
                report.fail(format!("{name}: {} of token {token}, which does not count", got[token]));
            }
            let of_counted =
                |values: &[f64]| self.counted.iter().map(|token| values[*token]).collect::<Vec<_>>();
            report.compare(name, &of_counted(&got), &of_counted(want), tolerance);
        };
        let value = |name: &str| self.tolerance.value(name);
        for (name, got) in [("nll", made.nll), ("entropy", made.entropy), ("max_log_prob", made.max_log_prob)]
        {
            compare(name, values(got), self.case.array(name), value(name));
        }
        // A tie within rounding may go either way.
        let rounding = 8.0 * f64::from(f32::EPSILON) * self.case.entry.max_abs_logit.max(1.0);
        if self.case.entry.argmax_margin.is_none_or(|margin| margin > rounding) {
            let words: Vec<f64> = made.argmax.into_data().iter::<i64>().map(|word| word as f64).collect();
            compare("argmax", words, self.case.array("argmax"), 0.0);
        }
        if let Some((want, tolerance)) = self.z_terms() {
            compare("z_term", values(made.z_term), &want, tolerance);
        }
    }

    /// `z_n`, as stored or of what is stored, and its tolerance. It is not defined with a temperature.
    fn z_terms(&self) -> Option<(Vec<f64>, f64)> {
        let value = |name: &str| self.tolerance.value(name);
        if let Some(terms) = self.case.find("z_term") {
            return Some((terms.values.clone(), value("z_term")));
        }
        let lse = self.case.find("mid.lse").filter(|_| self.stated.temperature == 1.0)?;
        let tokens = self.tokens();
        let prior = self.case.find("mid.log_prior").filter(|prior| prior.shape == lse.shape);
        let prior = prior.map_or(vec![0.0; lse.values.len()], |prior| prior.values.clone());
        let parts: Vec<f64> =
            lse.values.iter().zip(prior).map(|(lse, prior)| prior.exp() * lse * lse).collect();
        let terms = parts.chunks(parts.len() / tokens).map(|parts| parts.iter().sum()).collect();
        Some((terms, 2.0 * value("mid.lse") + value("mid.log_prior")))
    }

    fn log_probs(&self, report: &mut Report) {
        if self.counted.is_empty() {
            return;
        }
        let rows = self.case.rows_that_count(self.on);
        let got = values(self.head.forward(self.hidden().select(0, rows)));
        let reference = self.case.array("log_probs");
        let want: Vec<f64> = self.counted.iter().flat_map(|token| reference.row(*token).values).collect();
        report.compare("log_probs", &got, &want, self.tolerance.composed("log_probs"));
    }

    /// The distribution that each token is scored against but for smoothing, `[N, V]`; NaN where it does not count.
    fn dense_targets(&self) -> Vec<f64> {
        let vocab = self.masked.len();
        let mut rows = vec![f64::NAN; self.tokens() * vocab];
        for &token in &self.counted {
            let row = &mut rows[token * vocab..(token + 1) * vocab];
            row.fill(0.0);
            let (Some(ids), Some(probs)) = (self.case.find("teacher_ids"), self.case.find("teacher_probs"))
            else {
                row[self.case.array("targets").values[token] as usize] = 1.0;
                continue;
            };
            let ids: Vec<usize> = ids.row(token).values.iter().map(|id| *id as usize).collect();
            let probs = probs.row(token).values;
            ids.iter().zip(&probs).for_each(|(id, prob)| row[*id] = *prob);
            let others: Vec<usize> =
                (0..vocab).filter(|word| !self.masked[*word] && !ids.contains(word)).collect();
            let left = 1.0 - probs.iter().sum::<f64>();
            others.iter().for_each(|word| row[*word] = left / others.len() as f64);
        }
        rows
    }

    /// The same loss against full distributions. Tokens that do not count have the weight 0.
    fn distributions(&self, report: &mut Report) {
        let shape = [self.tokens(), self.masked.len()];
        let rows = self.tensor(self.dense_targets(), shape);
        let weights = self.tensor(self.weights(), [self.tokens()]);
        let per_token = self.stated.reduction().is_none();
        let options = self.shared(Terms::ALL).with_token_weights(weights).with_distributions(rows);
        let state = self.hidden();
        let made = self.head.loss_with(state.clone(), self.targets(), &options.with_per_token(per_token));
        let loss = match made.per_token {
            Some(losses) => (losses * self.tensor(self.cotangent(), [self.tokens()])).sum(),
            None => made.value,
        };
        self.compare("loss against distributions", &state, loss, report);
    }

    /// The loss composed of log-probabilities, differentiated by Burn; a z-loss is not a function of them.
    fn composed(&self, report: &mut Report) {
        if self.stated.z_loss > 0.0 || self.counted.is_empty() {
            return;
        }
        let (count, vocab) = (self.counted.len(), self.masked.len());
        let left = self.masked.iter().filter(|masked| !**masked).count() as f64;
        let epsilon = self.stated.label_smoothing;
        let (dense, cotangent, weights) = (self.dense_targets(), self.cotangent(), self.weights());
        let mut factors = Vec::with_capacity(count * vocab);
        for &token in &self.counted {
            let row = &dense[token * vocab..(token + 1) * vocab];
            factors.extend(row.iter().zip(&self.masked).map(|(q, masked)| match masked {
                true => 0.0,
                false => cotangent[token] * weights[token] * ((1.0 - epsilon) * q + epsilon / left),
            }));
        }
        let masked = self.masked.repeat(count);
        let masked = Tensor::from_data(TensorData::new(masked, [count, vocab]), &self.on.device);
        let state = self.hidden();
        let rows = self.case.rows_that_count(self.on);
        let log_probs = self.head.forward(state.clone().select(0, rows)).mask_fill(masked, 0.0);
        let loss = -(log_probs * self.tensor(factors, [count, vocab])).sum();
        self.compare("composed loss", &state, loss, report);
    }
}
