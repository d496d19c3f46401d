//! Comparison with reference values and its tolerances.

use burn::tensor::DType;
pub use runs::testing::values;

use crate::backends::Setting;
use crate::case::Entry;

/// What an implementation in the given precision may be off by.
///
/// Errors are over `max(1, largest magnitude)` of the reference. In f32 the manifest says what the same formulas gave in
/// one float32 program; another order of operations rounds differently, so a multiple of that and of the rounding unit is
/// allowed. A rounding error of a logit of size m moves a log-probability by `m` units.
#[derive(Clone, Copy)]
pub struct Tolerance<'a> {
    entry: &'a Entry,
    on: &'a Setting,
}

impl<'a> Tolerance<'a> {
    pub fn new(entry: &'a Entry, on: &'a Setting) -> Self {
        Self { entry, on }
    }

    /// For values that grow with the logits, such as log-probabilities.
    pub fn value(&self, quantity: &str) -> f64 {
        match self.on.dtype {
            DType::F64 => 2e-13 + 4.0 * f64::EPSILON * self.entry.max_abs_logit.sqrt(),
            _ => 8.0 * (self.deviation(quantity) + f32::EPSILON as f64),
        }
    }

    /// As [`value`](Self::value), where the backend's own products are among the operations: on CUDA they read TF32 where
    /// that is faster.
    pub fn composed(&self, quantity: &str) -> f64 {
        match self.on.rounds_products {
            true => 2f64.powi(-9) * self.entry.max_abs_logit.max(1.0),
            false => self.value(quantity),
        }
    }

    /// For gradients, which stay of order 1 while the logits' rounding errors grow.
    pub fn gradient(&self) -> f64 {
        let logit = self.entry.max_abs_logit.max(1.0);
        match self.on.dtype {
            DType::F64 => 1e-12 + 16.0 * f64::EPSILON * logit,
            _ => {
                let rounding = f32::EPSILON as f64 * logit;
                let usual = 8.0 * (self.deviation("grad") + f32::EPSILON as f64) + 2.0 * rounding;
                // A logit nearer to a knot than its rounding error may fall on the other piece.
                match self.entry.knot_margin {
                    Some(margin) if margin > 0.0 && margin * self.piece_width() < 4.0 * rounding => {
                        usual + 1e-3
                    }
                    _ => usual,
                }
            }
        }
    }

    fn deviation(&self, quantity: &str) -> f64 {
        self.entry.float32_deviation.get(quantity).copied().unwrap_or(f32::EPSILON as f64)
    }

    fn piece_width(&self) -> f64 {
        let plif = &self.entry.hyperparameters["plif"];
        let number = |key: &str| plif[key].as_f64().unwrap_or(1.0);
        2.0 * number("t") / number("pieces")
    }
}

/// Mismatches of one case, gathered so that a failure names them all.
pub struct Report {
    context: String,
    pub failures: Vec<String>,
    pub compared: usize,
}

impl Report {
    pub fn new(context: impl Into<String>) -> Self {
        Self { context: context.into(), failures: vec![], compared: 0 }
    }

    /// Compares element by element; errors are over `max(1, largest reference)`.
    pub fn compare(&mut self, name: &str, got: &[f64], want: &[f64], tolerance: f64) {
        let scale = largest(want, 1.0);
        self.compare_scaled(name, got, want, tolerance * scale);
    }

    /// Compares element by element with an absolute tolerance. −∞ must meet −∞.
    pub fn compare_scaled(&mut self, name: &str, got: &[f64], want: &[f64], tolerance: f64) {
        self.compared += 1;
        if got.len() != want.len() {
            self.fail(format!("{name} has {} elements, expected {}", got.len(), want.len()));
            return;
        }
        let error = |(got, want): (&f64, &f64)| if got == want { 0.0 } else { (got - want).abs() };
        let errors = got.iter().zip(want).map(error);
        let worst = errors.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((i, error)) = worst
            && (error.is_nan() || error > tolerance)
        {
            let (got, want) = (got[i], want[i]);
            self.fail(format!("{name}[{i}] is {got:e}, expected {want:e}: off by {error:e} > {tolerance:e}"));
        }
    }

    pub fn fail(&mut self, message: String) {
        self.failures.push(format!("{}: {message}", self.context));
    }
}

/// Prints what each report came to, and fails with all mismatches.
#[track_caller]
pub fn assert_agree(what: &str, reports: impl IntoIterator<Item = Report>) {
    let (mut failures, mut compared) = (vec![], 0);
    for report in reports {
        // A check that is stopped tells how far it was.
        println!("{}: {} tensors, {} mismatches", report.context, report.compared, report.failures.len());
        compared += report.compared;
        failures.extend(report.failures);
    }
    println!("{what} checked, {compared} tensors compared");
    assert!(failures.is_empty(), "{} mismatches:\n{}", failures.len(), failures.join("\n"));
}

/// The largest magnitude of finite numbers, but at least `least`.
pub fn largest(numbers: &[f64], least: f64) -> f64 {
    numbers.iter().filter(|x| x.is_finite()).fold(least, |max, x| max.max(x.abs()))
}
