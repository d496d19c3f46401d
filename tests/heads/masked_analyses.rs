//! Analyses of a head with masked words against those of the same head without these words.

use burn::module::Param;
use burn::tensor::{DType, Tensor};
use highrank::analysis::{AgainstTruth, Comparison, LogitRange, PairwiseKl, RowAnalysis, SpectrumBuilder};
use highrank::{HeadConfig, OutputHead};

use crate::support::{On, all_heads, cpu, head, tensor, with_words};

const VOCAB: usize = 19;
const MASKED: [usize; 4] = [0, 7, 8, 18];
const CONTEXTS: usize = 50;

/// A head with a bias of −∞ at the masked words, and the same head over the other words alone.
fn heads(config: &HeadConfig, on: On<'_>) -> [OutputHead; 2] {
    let mut masked = head(config, on);
    let kept: Vec<i64> = (0..VOCAB).filter(|word| !MASKED.contains(word)).map(|word| word as i64).collect();
    let without = with_words(&masked, config, &kept);
    let decoder = &mut masked.decoder;
    let bias = decoder.bias.as_ref().unwrap().val();
    let mut values: Vec<f64> = bias.into_data().iter::<f64>().collect();
    MASKED.into_iter().for_each(|word| values[word] = f64::NEG_INFINITY);
    decoder.bias = Some(Param::from_tensor(Tensor::from_data(values.as_slice(), on)));
    [masked, without]
}

/// Rank, mean divergence, comparison of two sets of contexts as truth and model and as two models, range of the logits.
fn analyses(head: &OutputHead, hidden: [Tensor<2>; 2], targets: &[usize]) -> Vec<f64> {
    let vocab = head.decoder.vocab;
    let [a, b] = hidden.clone().map(|hidden| head.forward(hidden));
    let values = |rows: &Tensor<2>| rows.to_data().iter::<f64>().collect::<Vec<_>>();
    let mut spectrum = SpectrumBuilder::new(vocab);
    head.log_prob_blocks(hidden[0].clone()).for_each(|block| spectrum.add(block).unwrap());
    let spectrum = spectrum.finish().unwrap();
    let mut divergence = PairwiseKl::new(vocab);
    divergence.add(a.clone()).unwrap();
    let mut fit = AgainstTruth::new(vocab);
    fit.add_rows(&values(&a), &values(&b)).unwrap();
    let mut comparison = Comparison::new(vocab, 5, vocab);
    comparison.add(a, b, targets).unwrap();
    let mut range = LogitRange::new(1.0);
    head.logit_blocks(hidden[0].clone()).for_each(|block| range.add(block));

    let mut all =
        vec![spectrum.rank() as f64, spectrum.threshold(1.0), divergence.mean_distinct_pairs().unwrap()];
    all.extend([fit.mean_kl().unwrap(), fit.mode_match().unwrap(), comparison.share_better()]);
    all.extend(comparison.mean_nll());
    for token in comparison.gains() {
        all.extend([token.position as f64, token.gain()]);
        all.extend(token.top_a.iter().chain(&token.top_b).map(|it| it.log_prob));
    }
    all.extend([range.count, range.below, range.above].map(|count| count as f64));
    all.extend([range.min, range.max]);
    all
}

#[test]
fn masked_words_are_as_if_they_were_not_there() {
    let device = cpu();
    let on = (&device, DType::F64);
    for config in all_heads(VOCAB) {
        let config = config.with_memory_budget(Some(2048));
        let [masked, without] = heads(&config, on);
        let hidden = [3, 4].map(|seed| tensor([CONTEXTS, config.d_hidden], seed, on) * 2.0);
        let kept: Vec<usize> = (0..VOCAB).filter(|word| !MASKED.contains(word)).collect();
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
