//! Rows with masked words against the same rows without these words: the same numbers to the last bit.

use super::rows::MASKED;
use super::{AgainstTruth, Comparison, PairwiseKl, Prediction, RowAnalysis, Spectrum, SpectrumBuilder};

const WORDS: usize = 23;
const OUT: [usize; 4] = [0, 7, 8, 22];

/// The words that are not masked.
fn kept() -> impl Iterator<Item = usize> {
    (0..WORDS).filter(|word| !OUT.contains(word))
}

/// Log-probabilities of `count` contexts over the words that are not masked, then the same with the others at −∞.
fn rows(count: usize, seed: usize) -> [Vec<f64>; 2] {
    let words = kept().count();
    let mut without = vec![];
    for context in 0..count {
        let logit =
            |word: usize| 4.0 * (((context * words + word + seed) * 7919 % 1009) as f64 / 504.0 - 1.0);
        let logits: Vec<f64> = (0..words).map(logit).collect();
        let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        without.extend(logits.iter().map(|logit| logit - log_sum));
    }
    let mut with = vec![MASKED; count * WORDS];
    for (with, without) in with.chunks_mut(WORDS).zip(without.chunks(words)) {
        kept().zip(without).for_each(|(word, log_prob)| with[word] = *log_prob);
    }
    [without, with]
}

/// Feeds rows in blocks of 7.
fn feed<A: RowAnalysis>(mut analysis: A, values: &[f64]) -> A {
    let columns = analysis.columns();
    values.chunks(7 * columns).for_each(|block| analysis.add_rows(block).unwrap());
    analysis
}

/// Fewer contexts than words that are not masked, fewer than all words, more than that.
#[test]
fn a_spectrum_is_that_of_the_words_that_are_not_masked() {
    let whole = |values: &[f64], columns| Spectrum::of(values, columns).unwrap();
    let streamed = |values: &[f64], columns| feed(SpectrumBuilder::new(columns), values).finish().unwrap();
    let words = kept().count();
    for count in [6, 21, 90] {
        let [without, with] = rows(count, 3);
        for spectrum in [whole as fn(&[f64], usize) -> Spectrum, streamed] {
            let (got, want) = (spectrum(&with, WORDS), spectrum(&without, words));
            assert_eq!((got.rows, got.columns), (count, words));
            assert_eq!(got.singular_values, want.singular_values);
            assert_eq!(
                (got.rank(f64::EPSILON), got.threshold(1.0)),
                (want.rank(f64::EPSILON), want.threshold(1.0))
            );
            let rank = got.rank(f64::EPSILON);
            assert!(rank > count.min(words) / 2, "{rank} of {count} contexts");
        }
    }
}

#[test]
fn divergences_are_those_of_the_words_that_are_not_masked() {
    let [without, with] = rows(30, 5);
    let words = kept().count();
    let mean = |values: &[f64], columns| feed(PairwiseKl::new(columns), values).finish().unwrap();
    assert!(mean(&with, WORDS) > 1.0);
    assert_eq!(mean(&with, WORDS), mean(&without, words));

    let [other_without, other_with] = rows(30, 8);
    let fit = |truth: &[f64], model: &[f64], columns| {
        let mut fit = AgainstTruth::new(columns);
        fit.add_rows(truth, model).unwrap();
        fit.finish().unwrap()
    };
    assert!(fit(&with, &other_with, WORDS).mean_kl.is_finite());
    assert_eq!(fit(&with, &other_with, WORDS), fit(&without, &other_without, words));
}

#[test]
fn models_are_compared_on_the_words_that_are_not_masked() {
    let ([a, masked_a], [b, masked_b]) = (rows(30, 5), rows(30, 8));
    let words: Vec<usize> = kept().collect();
    let targets: Vec<usize> = (0..30).map(|context| context * 5 % words.len()).collect();
    // More predictions than there are words.
    let mut without = Comparison::new(words.len(), 10, 50);
    without.add_rows(&a, &b, &targets).unwrap();
    let mut with = Comparison::new(WORDS, 10, 50);
    let masked_targets: Vec<usize> = targets.iter().map(|&target| words[target]).collect();
    with.add_rows(&masked_a, &masked_b, &masked_targets).unwrap();

    let [with, without] = [with, without].map(|comparison| comparison.finish().unwrap());
    assert_eq!((with.mean_nll, with.share_better), (without.mean_nll, without.share_better));
    let renumbered = |top: &[Prediction]| -> Vec<Prediction> {
        top.iter().map(|it| Prediction { word: words[it.word], ..*it }).collect()
    };
    for (got, want) in with.gains.iter().zip(&without.gains) {
        assert_eq!((got.position, got.gain, got.target), (want.position, want.gain, words[want.target]));
        assert_eq!((&got.top_a, &got.top_b), (&renumbered(&want.top_a), &renumbered(&want.top_b)));
        assert_eq!(got.top_a.len(), words.len());
    }
}
