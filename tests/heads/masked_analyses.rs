//! Analyses of a head with masked words against those of the same head without these words.

use burn::tensor::{DType, Tensor};
use highrank::OutputHead;
use highrank::analysis::{AgainstTruth, Comparison, LogitRange, PairwiseKl, RowAnalysis, SpectrumBuilder};

use crate::support::{all_heads, cpu, head, mask_by_bias, tensor, values, with_words};

const VOCAB: usize = 19;
const MASKED: [usize; 4] = [0, 7, 8, 18];
const CONTEXTS: usize = 50;

/// Rank, mean divergence, comparison of two sets of contexts as truth and model and as two models, range of the logits.
fn analyses(head: &OutputHead, hidden: [Tensor<2>; 2], targets: &[usize]) -> Vec<f64> {
    let vocab = head.decoder.vocab;
    let [a, b] = hidden.clone().map(|hidden| head.forward(hidden));
    let mut spectrum = SpectrumBuilder::new(vocab);
    head.log_prob_blocks(hidden[0].clone()).for_each(|block| spectrum.add(block).unwrap());
    let spectrum = spectrum.finish().unwrap();
    let mut divergence = PairwiseKl::new(vocab);
    divergence.add(a.clone()).unwrap();
    let mut fit = AgainstTruth::new(vocab);
    fit.add_rows(&values(a.clone()), &values(b.clone())).unwrap();
    let mut comparison = Comparison::new(vocab, 5, vocab);
    comparison.add(a, b, targets).unwrap();
    let mut range = LogitRange::new(1.0);
    head.logit_blocks(hidden[0].clone()).for_each(|block| range.add(block));

    let mut all =
        vec![spectrum.rank() as f64, spectrum.threshold(1.0), divergence.mean_distinct_pairs().unwrap()];
    all.extend([fit.mean_kl().unwrap(), fit.mode_match().unwrap(), comparison.share_better()]);
    all.extend(comparison.mean_nll());
    for token in &comparison.gains {
        all.extend([token.position as f64, token.gain]);
        all.extend(token.top_a.iter().chain(&token.top_b).map(|it| it.log_prob));
    }
    all.extend([range.count, range.below, range.above].map(|count| count as f64));
    all.extend([range.min, range.max]);
    all
}

#[test]
fn masked_words_are_as_if_they_were_not_there() {
    let on = (&cpu(), DType::F64);
    for config in all_heads(VOCAB) {
        let config = config.with_memory_budget(Some(2048));
        let kept: Vec<usize> = (0..VOCAB).filter(|word| !MASKED.contains(word)).collect();
        let words: Vec<i64> = kept.iter().map(|word| *word as i64).collect();
        let full = head(&config, on);
        let without = with_words(&full, &config, &words);
        let masked = mask_by_bias(full, &MASKED);
        let hidden = [3, 4].map(|seed| tensor([CONTEXTS, config.d_hidden], seed, on) * 2.0);
        let places: Vec<usize> = (0..CONTEXTS).map(|context| context * 7 % kept.len()).collect();
        let words: Vec<usize> = places.iter().map(|&place| kept[place]).collect();
        let got = analyses(&masked, hidden.clone(), &words);
        let want = analyses(&without, hidden, &places);
        assert_eq!(got.len(), want.len(), "{config:?}");
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(
                (got - want).abs() <= 1e-10 * want.abs().max(1.0),
                "{i}: {got} against {want}, {config:?}"
            );
        }
    }
}
