//! Precision and recall of BLEU over hypotheses and references.

use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::bleu::{BleuForm, Grams, ORDERS};

/// Precision and recall of BLEU-1 to BLEU-4, of one context or as a mean over contexts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BleuScores {
    /// Precision of BLEU-1 to BLEU-4.
    pub precision: [f64; ORDERS],
    /// Recall of BLEU-1 to BLEU-4.
    pub recall: [f64; ORDERS],
}

impl BleuScores {
    /// The scores of N hypotheses for one context with M references. With `d` the BLEU of a pair:
    ///
    /// ```text
    /// precision = 1/N Σ_i max_j d(h_i, r_j)        recall = 1/M Σ_j max_i d(h_i, r_j)
    /// ```
    ///
    /// With one reference, precision is the mean and recall the maximum over the hypotheses. `None` without hypotheses or without
    /// references, where neither is defined.
    pub fn of_context<T: Eq + Hash, H: AsRef<[T]>, R: AsRef<[T]>>(
        hypotheses: &[H],
        references: &[R],
        form: BleuForm,
    ) -> Option<Self> {
        if hypotheses.is_empty() || references.is_empty() {
            return None;
        }
        let references: Vec<Grams<T>> = references.iter().map(|tokens| Grams::new(tokens.as_ref())).collect();
        let mut best_of_reference = vec![[0.0; ORDERS]; references.len()];
        let mut precision = [0.0; ORDERS];
        for hypothesis in hypotheses {
            let hypothesis = Grams::new(hypothesis.as_ref());
            let mut best = [0.0; ORDERS];
            for (reference, best_of_reference) in references.iter().zip(&mut best_of_reference) {
                let bleu = hypothesis.bleu(reference, form);
                raise(&mut best, &bleu);
                raise(best_of_reference, &bleu);
            }
            add(&mut precision, &best);
        }
        let mut recall = [0.0; ORDERS];
        best_of_reference.iter().for_each(|best| add(&mut recall, best));
        Some(Self {
            precision: precision.map(|sum| sum / hypotheses.len() as f64),
            recall: recall.map(|sum| sum / references.len() as f64),
        })
    }
}

fn raise(best: &mut [f64; ORDERS], values: &[f64; ORDERS]) {
    best.iter_mut().zip(values).for_each(|(best, value)| *best = best.max(*value));
}

fn add(sums: &mut [f64; ORDERS], values: &[f64; ORDERS]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// The mean of scores over contexts, gathered one by one.
///
/// ```
/// use seq2seq::metrics::{BleuForm, BleuMean};
///
/// let mut mean = BleuMean::new(BleuForm::FourOrders);
/// mean.add(&[["yes"], ["no"]], &[["yes"]]);
/// let scores = mean.scores().unwrap();
/// assert_eq!((scores.precision[0], scores.recall[0]), (0.5, 1.0));
/// ```
#[derive(Debug, Clone)]
pub struct BleuMean {
    form: BleuForm,
    contexts: usize,
    sums: BleuScores,
}

impl BleuMean {
    /// No context yet.
    pub fn new(form: BleuForm) -> Self {
        Self { form, contexts: 0, sums: BleuScores::default() }
    }

    /// Adds a context. One without hypotheses counts as 0, one without references is left out.
    pub fn add<T: Eq + Hash, H: AsRef<[T]>, R: AsRef<[T]>>(&mut self, hypotheses: &[H], references: &[R]) {
        if references.is_empty() {
            return;
        }
        let scores = BleuScores::of_context(hypotheses, references, self.form).unwrap_or_default();
        add(&mut self.sums.precision, &scores.precision);
        add(&mut self.sums.recall, &scores.recall);
        self.contexts += 1;
    }

    /// Number of contexts.
    pub fn contexts(&self) -> usize {
        self.contexts
    }

    /// The mean of the scores; `None` without contexts.
    pub fn scores(&self) -> Option<BleuScores> {
        let mean = |sums: [f64; ORDERS]| sums.map(|sum| sum / self.contexts as f64);
        let BleuScores { precision, recall } = self.sums;
        (self.contexts > 0).then(|| BleuScores { precision: mean(precision), recall: mean(recall) })
    }
}

/// Mean number of tokens of a response; `None` without responses.
pub fn mean_length<T, H: AsRef<[T]>>(responses: impl IntoIterator<Item = H>) -> Option<f64> {
    let (mut count, mut tokens) = (0, 0);
    for response in responses {
        count += 1;
        tokens += response.as_ref().len();
    }
    (count > 0).then(|| tokens as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::sentence_bleu;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    type Sentences = Vec<Vec<u32>>;

    /// Many cases of a few short sentences over few tokens, which often match.
    fn for_each_case(check: impl Fn(&mut Pcg64Mcg, Sentences, Sentences, BleuForm)) {
        let mut rng = Pcg64Mcg::seed_from_u64(11);
        for _ in 0..200 {
            let mut sentences = || -> Sentences {
                let count = rng.random_range(1..6);
                (0..count)
                    .map(|_| (0..rng.random_range(0..9)).map(|_| rng.random_range(0..6)).collect())
                    .collect()
            };
            let (hypotheses, references) = (sentences(), sentences());
            for &form in BleuForm::ALL {
                check(&mut rng, hypotheses.clone(), references.clone(), form);
            }
        }
    }

    fn of(hypotheses: &Sentences, references: &Sentences, form: BleuForm) -> BleuScores {
        BleuScores::of_context(hypotheses, references, form).unwrap()
    }

    #[track_caller]
    fn assert_close(one: BleuScores, other: BleuScores) {
        let values = |scores: BleuScores| scores.precision.into_iter().chain(scores.recall);
        for (one, other) in values(one).zip(values(other)) {
            assert!((one - other).abs() < 1e-12, "{one} {other}");
        }
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        for_each_case(|_, hypotheses, references, form| {
            let d = |h: &Vec<u32>, r: &Vec<u32>, n: usize| sentence_bleu(h, r, form)[n];
            let mut expected = BleuScores::default();
            for n in 0..ORDERS {
                for h in &hypotheses {
                    expected.precision[n] += references.iter().map(|r| d(h, r, n)).fold(0.0, f64::max);
                }
                for r in &references {
                    expected.recall[n] += hypotheses.iter().map(|h| d(h, r, n)).fold(0.0, f64::max);
                }
                expected.precision[n] /= hypotheses.len() as f64;
                expected.recall[n] /= references.len() as f64;
            }
            assert_close(of(&hypotheses, &references, form), expected);
        });
    }

    #[test]
    fn the_order_of_hypotheses_and_references_does_not_matter() {
        for_each_case(|rng, mut hypotheses, mut references, form| {
            let before = of(&hypotheses, &references, form);
            hypotheses.shuffle(rng);
            references.shuffle(rng);
            assert_close(of(&hypotheses, &references, form), before);
        });
    }

    #[test]
    fn another_reference_raises_precision_and_another_hypothesis_recall() {
        for_each_case(|_, mut hypotheses, mut references, form| {
            let before = of(&hypotheses, &references, form);
            let (hypothesis, reference) = (hypotheses[0].clone(), references[0].clone());
            references.push(hypothesis);
            let more = of(&hypotheses, &references, form);
            assert!(more.precision.iter().zip(before.precision).all(|(more, before)| *more >= before));
            references.pop();
            hypotheses.push(reference);
            let more = of(&hypotheses, &references, form);
            assert!(more.recall.iter().zip(before.recall).all(|(more, before)| *more >= before));
        });
    }

    #[test]
    fn with_one_reference_precision_is_at_most_recall() {
        for_each_case(|_, hypotheses, references, form| {
            let scores = of(&hypotheses, &references[..1].to_vec(), form);
            for (precision, recall) in scores.precision.iter().zip(scores.recall) {
                assert!(*precision <= recall + 1e-12);
            }
        });
    }

    #[test]
    fn means_are_over_the_contexts_with_references() {
        let none: [[u32; 1]; 0] = [];
        assert_eq!(BleuScores::of_context::<u32, _, _>(&none, &[[1]], BleuForm::FourOrders), None);
        assert_eq!(BleuScores::of_context::<u32, _, _>(&[[1]], &none, BleuForm::FourOrders), None);
        let mut mean = BleuMean::new(BleuForm::FourOrders);
        assert_eq!(mean.scores(), None);
        mean.add(&[[1]], &[[1]]);
        mean.add(&[[1]], &none);
        assert_eq!((mean.contexts(), mean.scores().unwrap().recall[0]), (1, 1.0));
        mean.add(&none, &[[1]]);
        assert_eq!((mean.contexts(), mean.scores().unwrap().precision[0]), (2, 0.5));
        assert_eq!(mean_length([vec![1, 2], vec![], vec![3]]), Some(1.0));
        assert_eq!(mean_length::<u32, Vec<u32>>([]), None);
    }
}
