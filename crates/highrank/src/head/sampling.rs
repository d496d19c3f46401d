//! Drawing a word from log-probabilities: temperature, top-k, top-p.

use std::ops::Bound;

use burn::config::Config;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::select::{self, Number};
use crate::error::{HeadError, at_least_one, in_range, not_negative};
use crate::likelihood::draw_in_order;
use crate::ops::{Drawn, LogProbs};

/// How to draw a word from a distribution.
///
/// Applied in this order: temperature, top-k, top-p (nucleus sampling, Holtzman et al., ICLR 2020); what remains is
/// renormalised. Of equally probable words the lowest counts as more probable. A masked word, of log-probability −∞, is
/// never drawn.
///
/// The cost is linear in the size of the vocabulary, since no option sorts it. A temperature of 0 is an argmax.
///
/// ```
/// use highrank::Sampling;
///
/// let sampling = Sampling::new().with_temperature(0.8).with_top_k(Some(40)).with_top_p(Some(0.95));
/// assert!(sampling.validate().is_ok());
/// assert!(sampling.with_temperature(-1.0).validate().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the log-probabilities; 0 takes the most probable word.
    pub temperature: f64,
    /// Keeps the `k` most probable words.
    pub top_k: Option<usize>,
    /// Keeps the fewest most probable words whose probabilities sum to at least `p`.
    pub top_p: Option<f64>,
}

impl Config for Sampling {}

impl Default for Sampling {
    /// The distribution itself: temperature 1, no truncation.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None }
    }
}

impl Sampling {
    /// The distribution itself: temperature 1, no truncation.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        with_temperature(temperature: f64),
        with_top_k(top_k: Option<usize>),
        with_top_p(top_p: Option<f64>),
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// [`HeadError::Range`] with the option, its value and the allowed range.
    pub fn validate(&self) -> Result<(), HeadError> {
        not_negative("temperature", self.temperature)?;
        at_least_one("top_k", self.top_k.unwrap_or(1))?;
        let above_0 = (Bound::Excluded(0.0), Bound::Included(1.0));
        in_range("top_p", self.top_p.unwrap_or(1.0), "a number in (0, 1]", above_0)
    }

    /// Whether words are drawn from the distribution itself.
    pub(crate) fn is_neutral(&self) -> bool {
        self.temperature == 1.0 && self.top_k.is_none() && self.top_p.is_none_or(|p| p == 1.0)
    }

    /// Whether nothing is drawn at random.
    fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// How many of the most probable words are drawn from, if not all.
    pub(crate) fn most(&self) -> Option<usize> {
        if self.is_greedy() { Some(1) } else { self.top_k }
    }

    /// A random number for each token; a greedy choice takes none, and gets zeros.
    pub(crate) fn numbers(&self, tokens: usize, rng: &mut impl Rng) -> Vec<f64> {
        if self.is_greedy() { vec![0.0; tokens] } else { numbers(tokens, rng) }
    }

    /// The word of a token that a random number in `[0, 1)` stands for, which a [greedy](Self::is_greedy) choice does not read.
    pub(crate) fn draw(
        &self,
        log_probs: LogProbs<'_>,
        token: usize,
        number: f64,
    ) -> Result<usize, HeadError> {
        match log_probs {
            LogProbs::F32(row) => self.draw_of(row, token, number),
            LogProbs::F64(row) => self.draw_of(row, token, number),
        }
    }

    /// The words of tokens, each from a list of words with their log-probabilities, by [`draw`](Self::draw)'s rules.
    pub(crate) fn draw_of_lists(
        &self,
        lists: Vec<Vec<(f64, usize)>>,
        numbers: &[f64],
    ) -> Result<Vec<usize>, HeadError> {
        let drawn = lists.into_iter().zip(numbers).enumerate().map(|(token, (mut list, number))| {
            // In the order of the vocabulary: of equals the lowest counts as more probable.
            list.sort_unstable_by_key(|(_, word)| *word);
            let (log_probs, words): (Vec<f64>, Vec<usize>) = list.into_iter().unzip();
            Ok(words[self.draw(LogProbs::F64(&log_probs), token, *number)?])
        });
        drawn.collect()
    }

    fn draw_of<T: Number>(&self, log_probs: &[T], token: usize, number: f64) -> Result<usize, HeadError> {
        if self.is_neutral() {
            let log_probs: Vec<f64> = log_probs.iter().map(|x| (*x).into()).collect();
            return word_of(draw_in_order(&log_probs, number), token);
        }
        let best = argmax(log_probs, token)?;
        if self.is_greedy() {
            return Ok(best);
        }
        let mut candidates = match self.top_k {
            Some(k) => self.candidates(select::best(log_probs, k).unwrap_or_default(), log_probs, best),
            None => self.candidates(0..log_probs.len(), log_probs, best),
        };
        let total = |candidates: &[Candidate]| candidates.iter().map(|c| c.weight).sum::<f64>();
        if let Some(p) = self.top_p.filter(|p| *p < 1.0) {
            let enough = p * total(&candidates) * (1.0 - SUM_ROUNDING);
            let last = first_above(&mut candidates, enough);
            candidates.truncate(last + 1);
        }
        let target = number * total(&candidates);
        let drawn = first_above(&mut candidates, target);
        Ok(candidates[drawn].word)
    }

    /// Those of the words that can be drawn.
    fn candidates<T: Number>(
        &self,
        words: impl IntoIterator<Item = usize>,
        log_probs: &[T],
        best: usize,
    ) -> Vec<Candidate> {
        let best: f64 = log_probs[best].into();
        words
            .into_iter()
            .map(|word| {
                let log_prob: f64 = log_probs[word].into();
                Candidate { word, log_prob, weight: ((log_prob - best) / self.temperature).exp() }
            })
            .filter(|candidate| candidate.weight > 0.0)
            .collect()
    }
}

/// What two sums of the same probabilities may differ by, relative to the sum.
const SUM_ROUNDING: f64 = 1e-12;

/// A word that can be drawn.
struct Candidate {
    word: usize,
    log_prob: f64,
    /// Proportional to the probability it is drawn with.
    weight: f64,
}

/// Where, in order of probability, the sum of the weights first exceeds `target`: the index of that candidate, which the
/// more probable ones precede and all others follow. The last if no sum exceeds it.
///
/// Halves the range in question instead of sorting it: linear in the number of candidates.
fn first_above(candidates: &mut [Candidate], target: f64) -> usize {
    let (mut start, mut end, mut before) = (0, candidates.len(), 0.0);
    while end - start > 1 {
        let half = (end - start) / 2;
        candidates[start..end].select_nth_unstable_by(half, |a, b| {
            select::best_first((a.log_prob, a.word), (b.log_prob, b.word))
        });
        let sum = candidates[start..start + half].iter().map(|candidate| candidate.weight).sum::<f64>();
        if before + sum > target {
            end = start + half;
        } else {
            before += sum;
            start += half;
        }
    }
    start
}

/// The most probable word, of equal ones the lowest.
fn argmax<T: Number>(log_probs: &[T], token: usize) -> Result<usize, HeadError> {
    let best = select::best(log_probs, 1).ok_or(HeadError::NotANumber { token })?[0];
    match log_probs[best].into() {
        f64::INFINITY => Err(HeadError::NotANumber { token }),
        f64::NEG_INFINITY => Err(HeadError::AllMasked { token }),
        _ => Ok(best),
    }
}

/// Numbers in `[0, 1)`.
pub(crate) fn numbers(count: usize, rng: &mut impl Rng) -> Vec<f64> {
    (0..count).map(|_| rng.random()).collect()
}

/// What has been drawn for a token.
pub(crate) fn word_of(drawn: Drawn, token: usize) -> Result<usize, HeadError> {
    match drawn {
        Drawn::Word(word) => Ok(word),
        Drawn::NotANumber => Err(HeadError::NotANumber { token }),
        Drawn::AllMasked => Err(HeadError::AllMasked { token }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    /// As a head draws: one number, or none if the choice is greedy.
    fn draw(
        sampling: &Sampling,
        log_probs: &[f64],
        token: usize,
        rng: &mut impl Rng,
    ) -> Result<usize, HeadError> {
        sampling.draw(LogProbs::F64(log_probs), token, sampling.numbers(1, rng)[0])
    }

    fn frequencies(sampling: &Sampling, probs: &[f64]) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(7);
        let log_probs: Vec<f64> = probs.iter().map(|p| p.ln()).collect();
        let mut counts = vec![0.0; probs.len()];
        for _ in 0..20_000 {
            counts[draw(sampling, &log_probs, 0, &mut rng).unwrap()] += 1.0 / 20_000.0;
        }
        counts
    }

    fn assert_close(got: &[f64], want: &[f64]) {
        // Four standard deviations of a frequency of 20,000 draws are at most 0.0142.
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 0.015), "{got:?} against {want:?}");
    }

    #[test]
    fn neutral_options_draw_the_distribution_and_no_masked_word() {
        let probs = [0.0, 0.5, 0.0, 0.0, 0.3, 0.2, 0.0];
        let got = frequencies(&Sampling::default(), &probs);
        assert_close(&got, &probs);
        assert!(probs.iter().zip(&got).all(|(p, got)| *p > 0.0 || *got == 0.0), "{got:?}");
    }

    /// By a full sort and sums in order, the definition.
    fn draw_by_sorting(sampling: &Sampling, log_probs: &[f64], rng: &mut Pcg64) -> usize {
        let mut order: Vec<usize> = (0..log_probs.len()).collect();
        order.sort_by(|&a, &b| log_probs[b].total_cmp(&log_probs[a]));
        if sampling.temperature == 0.0 {
            return order[0];
        }
        order.truncate(sampling.top_k.unwrap_or(order.len()));
        let weight = |word: &usize| ((log_probs[*word] - log_probs[order[0]]) / sampling.temperature).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        if let Some(p) = sampling.top_p {
            let enough = p * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let last = weights.iter().position(|weight| {
                sum += weight;
                sum >= enough
            });
            weights.truncate(last.map_or(weights.len(), |last| last + 1));
        }
        let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        order[drawn.unwrap()]
    }

    #[test]
    fn selection_draws_the_same_words_as_a_full_sort() {
        let mut numbers = Pcg64::seed_from_u64(1);
        let (mut ours, mut theirs) = (Pcg64::seed_from_u64(2), Pcg64::seed_from_u64(2));
        for i in 0..2000 {
            let words = 1 + i % 97;
            // Some are equal, and some are masked.
            let mut log_probs: Vec<f64> =
                (0..words).map(|_| -f64::from(numbers.random_range(0..60)) / 7.0).collect();
            (1..words).step_by(5).for_each(|word| log_probs[word] = f64::NEG_INFINITY);
            let sampling = Sampling::new()
                .with_temperature([0.3, 1.0, 1.7, 0.0][i % 4])
                .with_top_k([None, Some(1), Some(7), Some(1000)][i / 4 % 4])
                .with_top_p([None, Some(0.9), Some(0.31)][i % 3]);
            if !sampling.is_neutral() {
                let got = draw(&sampling, &log_probs, 0, &mut ours).unwrap();
                let want = draw_by_sorting(&sampling, &log_probs, &mut theirs);
                assert_eq!(got, want, "{sampling:?} of {log_probs:?}");
            }
        }
        assert_eq!(ours, theirs);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_no_random_number() {
        let mut rng = Pcg64::seed_from_u64(5);
        let greedy = Sampling::new().with_temperature(0.0).with_top_p(Some(0.2));
        assert_eq!(draw(&greedy, &[-3.0, -1.0, -2.0, -1.0], 0, &mut rng).unwrap(), 1);
        assert_eq!(draw(&greedy, &[f64::NEG_INFINITY, -9.0], 0, &mut rng).unwrap(), 1);
        assert_eq!(rng, Pcg64::seed_from_u64(5));
    }

    #[test]
    fn top_p_keeps_no_word_beyond_a_sum_of_exactly_p() {
        let one = frequencies(&Sampling::new().with_top_p(Some(0.5)), &[0.1, 0.5, 0.15, 0.25]);
        assert_close(&one, &[0.0, 1.0, 0.0, 0.0]);
        let three = frequencies(&Sampling::new().with_top_p(Some(0.75)), &[0.25; 4]);
        assert_close(&three, &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
    }

    #[test]
    fn rows_without_a_word_to_draw_are_refused() {
        let mut rng = Pcg64::seed_from_u64(1);
        // Every kind of option that draws.
        for sampling in [
            Sampling::new(),
            Sampling::new().with_temperature(0.0),
            Sampling::new().with_temperature(1.5),
            Sampling::new().with_top_k(Some(5)),
            Sampling::new().with_top_p(Some(0.99)),
            Sampling::new().with_temperature(1e-3).with_top_k(Some(900)).with_top_p(Some(0.5)),
        ] {
            for wrong in [f64::NAN, f64::INFINITY] {
                for at in 0..3 {
                    let mut row = [-1.0, f64::NEG_INFINITY, -2.0];
                    row[at] = wrong;
                    let error = draw(&sampling, &row, 8, &mut rng).unwrap_err();
                    assert_eq!(error, HeadError::NotANumber { token: 8 }, "{sampling:?}");
                }
            }
            let error = draw(&sampling, &[f64::NEG_INFINITY; 3], 9, &mut rng).unwrap_err();
            assert_eq!(error, HeadError::AllMasked { token: 9 }, "{sampling:?}");
        }
    }

    #[test]
    fn ranges_are_checked() {
        for wrong in [
            Sampling::new().with_temperature(f64::NAN),
            Sampling::new().with_top_k(Some(0)),
            Sampling::new().with_top_p(Some(0.0)),
            Sampling::new().with_top_p(Some(1.1)),
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
