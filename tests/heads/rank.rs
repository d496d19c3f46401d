//! The claim of the papers: which heads are bound by the width of the embedding, and which are not.

use burn::tensor::DType;
use highrank::analysis::{RowAnalysis, SpectrumBuilder};
use highrank::{HeadConfig, LogitMapConfig};

use crate::support::{EMBEDDING, HIDDEN, cpu, head, mixtape, tensor};

const VOCAB: usize = 40;
const CONTEXTS: usize = 90;

/// Rank of the log-probabilities of more contexts than words, in f64.
fn rank(config: HeadConfig) -> usize {
    let on = (&cpu(), DType::F64);
    let hidden = tensor([CONTEXTS, config.d_hidden], 3, on) * 3.0;
    let mut spectrum = SpectrumBuilder::new(VOCAB);
    // A chunk of a few tokens at a time.
    let config = config.with_memory_budget(Some(4096));
    for block in head(&config, on).log_prob_blocks(hidden) {
        spectrum.add(block).unwrap();
    }
    let spectrum = spectrum.finish().unwrap();
    assert_eq!((spectrum.rows, spectrum.columns), (CONTEXTS, VOCAB));
    spectrum.rank(f64::EPSILON)
}

#[test]
fn softmax_and_mixture_of_contexts_are_bound_by_the_embedding() {
    let softmax = HeadConfig::softmax(EMBEDDING, VOCAB);
    let moc = HeadConfig::moc(HIDDEN, EMBEDDING, VOCAB, 4);
    // The d columns of W, the normaliser, and the bias if there is one.
    assert_eq!(rank(softmax.clone()), EMBEDDING + 2);
    assert_eq!(rank(softmax.with_bias(false)), EMBEDDING + 1);
    assert_eq!(rank(moc.clone()), EMBEDDING + 2);
    assert_eq!(rank(moc.with_bias(false)), EMBEDDING + 1);
}

#[test]
fn a_mixtape_is_bound_by_the_embedding_where_all_words_share_their_gate() {
    assert_eq!(rank(mixtape(VOCAB, 0)), EMBEDDING + 2);
    // Each frequent word's column is its own: the shared ones are within the bound.
    let rank = rank(mixtape(VOCAB, VOCAB / 2));
    assert!(rank > VOCAB / 2, "rank {rank}");
}

#[test]
fn mixtures_of_softmaxes_and_bent_logits_are_not() {
    let softmax = HeadConfig::softmax(EMBEDDING, VOCAB);
    let bent = |map| softmax.clone().with_logit_map(map);
    let heads = [
        HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 4),
        bent(LogitMapConfig::Sigsoftmax),
        bent(LogitMapConfig::Plif { knots: 17, bound: 2.0 }),
        bent(LogitMapConfig::MonotonicNet { units: 3 }),
    ];
    for config in heads {
        let rank = rank(config.clone());
        assert!(rank >= 5 * (EMBEDDING + 2), "rank {rank}: {config:?}");
    }
}
