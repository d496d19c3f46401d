//! Log-probabilities of given words, entropy, a divisor, distillation, and losses of preferences and policies. Their manifest says
//! what each tensor may be off by.

mod distillation;
mod divisor;
mod policy;
mod words;

use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use highrank::{LogProbOptions, OutputHead, TokenLogProbs};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, largest, values};
use crate::head;

pub use distillation::check as check_distillation;
pub use divisor::check as check_divisor;
pub use policy::check as check_policy;
pub use words::check as check_words;

/// The target, or the word, that counts for nothing; some cases of a divisor have another.
const IGNORED: i64 = -100;

/// A case, and the head that it is of at its temperature.
struct Checks<'a> {
    case: &'a Case,
    on: &'a Setting,
    head: OutputHead,
    /// Tokens that count.
    counted: Vec<usize>,
}

impl<'a> Checks<'a> {
    /// Reports a head that is not known.
    fn new(case: &'a Case, on: &'a Setting, report: &mut Report) -> Option<Self> {
        let temperature = case.entry.hyperparameters["options"]["temperature"].as_f64();
        let head = head::load(case, on, report)?.at_temperature(temperature.unwrap_or(1.0));
        Some(Self { case, on, head, counted: case.counted() })
    }

    /// `N`.
    fn tokens(&self) -> usize {
        self.case.array("counted").len()
    }

    /// Whether each place is true in an array of 0 and 1.
    fn flags<const D: usize>(&self, array: &str, shape: [usize; D]) -> Tensor<D, Bool> {
        let flags: Vec<bool> = self.case.array(array).values.iter().map(|flag| *flag == 1.0).collect();
        Tensor::from_data(TensorData::new(flags, shape), &self.on.device)
    }

    /// What a tensor may be off by, over the magnitude of its reference.
    fn tolerance(&self, name: &str) -> f64 {
        let stated = self.case.entry.tolerance.as_ref().expect("a tolerance in the manifest");
        let (usual, of) = match self.on.dtype {
            DType::F64 => (stated.f64, &stated.f64_of),
            _ => (stated.f32, &stated.f32_of),
        };
        of.get(name).copied().unwrap_or(usual)
    }

    /// Compares a tensor with the one of that name.
    fn compare<const D: usize>(&self, path: &str, name: &str, got: Tensor<D>, report: &mut Report) {
        self.compare_values(path, name, &values(got), self.case.array(name), report);
    }

    /// Compares with a reference whose tolerance goes by a name.
    fn compare_values(&self, path: &str, name: &str, got: &[f64], want: &[f64], report: &mut Report) {
        let least = match name {
            "grad.plif_b0" | "grad.mononet_offset" => 1.0,
            _ if self.on.dtype != DType::F64 && !name.starts_with("grad.") => 0.1,
            _ => 0.01,
        };
        let tolerance = self.tolerance(name) * largest(want, least);
        report.compare_scaled(&format!("{path}: {name}"), got, want, tolerance);
    }

    /// Compares a result that has a row for each token, 0 for those that do not count.
    fn compare_tokens<const D: usize>(&self, path: &str, name: &str, got: Tensor<D>, report: &mut Report) {
        self.compare_tokens_with(path, name, got, self.case.array(name), report);
    }

    /// The same with another reference.
    fn compare_tokens_with<const D: usize>(
        &self,
        path: &str,
        name: &str,
        got: Tensor<D>,
        want: &[f64],
        report: &mut Report,
    ) {
        let got = values(got);
        let width = got.len() / self.tokens();
        for token in (0..self.tokens()).filter(|token| !self.counted.contains(token)) {
            if let Some(x) = got[token * width..(token + 1) * width].iter().find(|x| **x != 0.0) {
                report.fail(format!("{path}: {name} is {x:e} of token {token}, which does not count"));
            }
        }
        self.compare_values(path, name, &got, want, report);
    }

    /// Compares a loss and all its gradients.
    fn compare_loss(&self, path: &str, hidden: &Tensor<2>, loss: Tensor<1>, report: &mut Report) {
        self.compare(path, "loss", loss.clone(), report);
        head::each_gradient(path, self.case, &self.head, hidden, loss, report, |name, got, want, report| {
            self.compare_values(path, name, got, want, report);
        });
    }

    /// Log-probabilities of all words, 0 where a token does not count, under the name that they have.
    fn compare_log_probs(&self, head: &OutputHead, hidden: Tensor<2>, name: &str, report: &mut Report) {
        if let Some(want) = self.case.find(name).filter(|_| !self.counted.is_empty()) {
            let got = self.spread(head.forward(hidden.select(0, self.case.rows_that_count(self.on))));
            // Products of Burn's own may be among the operations.
            if !self.on.rounds_products {
                self.compare_values("forward", name, &values(got), want, report);
            }
        }
    }

    /// Log-probabilities `[N, m]` of words, and the entropy of each token, `[N]`.
    fn fused(
        &self,
        hidden: Tensor<2>,
        words: Tensor<2, Int>,
        entropy: bool,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let options = LogProbOptions { ignored: vec![IGNORED], entropy };
        let TokenLogProbs { log_probs, entropy } = self.head.token_log_probs(hidden, words, &options);
        (log_probs, entropy.map(|entropy| entropy.squeeze_dim(1)))
    }

    /// Log-probabilities `[N, m]` of words, and the entropy of each token, composed of the log-probabilities of all words; 0 where the
    /// token does not count. Burn differentiates them.
    fn composed(&self, hidden: Tensor<2>, words: Tensor<2, Int>) -> (Tensor<2>, Tensor<1>) {
        let rows = self.case.rows_that_count(self.on);
        let all = self.head.forward(hidden.select(0, rows.clone()));
        let words = words.select(0, rows);
        let ignored = words.clone().equal_elem(IGNORED);
        let asked = all.clone().gather(1, words.mask_fill(ignored.clone(), 0)).mask_fill(ignored, 0.0);
        let masked = all.clone().is_inf();
        let finite = all.mask_fill(masked.clone(), 0.0);
        let entropy = -(finite.clone().exp() * finite).mask_fill(masked, 0.0).sum_dim(1);
        (self.spread(asked), self.spread(entropy).squeeze_dim(1))
    }

    /// Rows of tokens that count, with rows of 0 for the others.
    fn spread(&self, rows: Tensor<2>) -> Tensor<2> {
        let [count, width] = rows.dims();
        let zeros = rows.zeros_like().detach().slice([0..1, 0..width]);
        let mut places = vec![count as i64; self.tokens()];
        self.counted.iter().enumerate().for_each(|(row, token)| places[*token] = row as i64);
        let places = Tensor::<1, Int>::from_data(places.as_slice(), &self.on.device);
        Tensor::cat(vec![rows, zeros], 0).select(0, places)
    }
}
