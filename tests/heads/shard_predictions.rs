//! Predictions of a vocabulary that is shared out over ranks, against those of the whole head.

use burn::tensor::{DType, Tensor};
use highrank::shard::ShardError;
use highrank::{BeamSearch, HeadError, LiveHypotheses, Sampling};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::shard::{RANKS, VOCAB, heads, on_ranks};
use crate::support::*;

#[test]
fn predictions_are_those_of_the_whole() {
    let samplings = [
        Sampling::new(),
        Sampling::new().with_temperature(0.0),
        Sampling::new().with_top_k(Some(4)).with_temperature(0.7),
        Sampling::new().with_top_k(Some(VOCAB + 5)).with_top_p(Some(0.8)),
    ];
    for device in cpus() {
        let on = (&device, DType::F64);
        // With padding the last of four ranks has no word.
        for config in heads().chain(heads().map(|config| config.with_vocab_multiple(16))) {
            let whole = head(&config, on).mask_words(&[2, 9]);
            let state = || tensor::<2>([40, config.d_hidden], 5, on);
            let tops = [1, 4, VOCAB].map(|k| (k, whole.top_k(state(), k)));
            let draws = samplings.each_ref().map(|sampling| drawn(&whole, state(), sampling, 3));
            for ranks in RANKS {
                let what = format!("{config:?}, {ranks} ranks");
                on_ranks(ranks, &whole, |head| {
                    for (k, want) in &tops {
                        let got = head.top_k(state(), *k)?;
                        assert_eq!(integers(got.words), integers(want.words.clone()), "{what}: best {k}");
                        assert_close(&values(got.log_probs), &values(want.log_probs.clone()), 1e-13, &what);
                    }
                    for (sampling, want) in samplings.iter().zip(&draws) {
                        // The first rank's numbers count.
                        let seed = if head.shared.share.group.rank() == 0 { 3 } else { 4 };
                        let got = head.sample::<2, 1>(state(), sampling, &mut Pcg64::seed_from_u64(seed))?;
                        assert_eq!(integers(got), *want, "{what}: {sampling:?}");
                    }
                    Ok(())
                });
            }
        }
    }
}

#[test]
fn a_beam_search_finds_what_that_of_the_whole_finds() {
    let on = (&cpu(), DType::F64);
    let (bos, eos) = (1, 0);
    for config in heads() {
        let whole = head(&config, on).mask_words(&[2]);
        // A state for each word, and what a hypothesis has seen.
        let of_words = tensor::<2>([VOCAB, config.d_hidden], 5, on);
        let step = |live: &LiveHypotheses, seen: Tensor<2>| {
            let seen = seen * 0.5 + of_words.clone().select(0, live.last_words(bos, on.0));
            (seen.clone(), seen)
        };
        let start = || Tensor::<2>::zeros([2, config.d_hidden], (on.0, DType::F64));
        let search = BeamSearch::new(3, 6, eos);
        let want = whole.beam_search(&search, 2, start(), step).unwrap();
        for ranks in RANKS {
            on_ranks(ranks, &whole, |head| {
                let got = head.beam_search(&search, 2, start(), step)?;
                for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                    assert_eq!(got.words, want.words, "{config:?}, {ranks} ranks");
                    assert!((got.log_prob - want.log_prob).abs() < 1e-12, "{config:?}, {ranks} ranks");
                }
                assert_eq!(got.iter().map(Vec::len).sum::<usize>(), want.iter().map(Vec::len).sum::<usize>());
                Ok(())
            });
        }
    }
}

/// Temperatures at which every word but the best is beyond f64, and at which the best one divided by it is.
#[test]
fn draws_at_next_to_no_temperature_are_the_best_words() {
    let on = (&cpu(), DType::F64);
    for config in [softmax(VOCAB), mos(VOCAB)] {
        let whole = head(&config, on);
        let state = || tensor::<2>([40, config.d_hidden], 5, on);
        let want = integers(whole.top_k(state(), 1).words);
        on_ranks(2, &whole, |head| {
            for temperature in [1e-31, 1e-308] {
                let sampling = Sampling::new().with_temperature(temperature);
                let got = head.sample::<2, 1>(state(), &sampling, &mut Pcg64::seed_from_u64(1))?;
                assert_eq!(integers(got), want, "{temperature}, {config:?}");
            }
            Ok(())
        });
    }
}

#[test]
fn a_token_without_numbers_on_one_rank_is_named_by_all() {
    let on = (&cpu(), DType::F64);
    let config = softmax(VOCAB);
    let mut whole = head(&config, on);
    // The last word's logit is −∞, but for the third token, of which it is ∞.
    let state: Tensor<2> = tensor::<2>([4, config.d_hidden], 5, on).abs() + 1.0;
    let signs = Tensor::<2>::from_data([[1.0], [1.0], [-1.0], [1.0]], on);
    let infinite = Tensor::full([1, config.d_hidden], f64::NEG_INFINITY, on);
    whole.decoder.weight = whole
        .decoder
        .weight
        .map(|weight| weight.map(|w| Tensor::cat(vec![w.narrow(0, 0, VOCAB - 1), infinite], 0)));
    let sampling = Sampling::new().with_top_k(Some(3));
    let draw = || (state.clone() * signs.clone(), Pcg64::seed_from_u64(1));
    let (hidden, mut rng) = draw();
    let error = ShardError::from(whole.sample::<2, 1>(hidden, &sampling, &mut rng).unwrap_err());
    assert_eq!(error, ShardError::Head(HeadError::NotANumber { token: 2 }));
    on_ranks(2, &whole, |head| {
        let (hidden, mut rng) = draw();
        assert_eq!(head.top_k(hidden.clone(), 3).unwrap_err(), error);
        assert_eq!(head.sample::<2, 1>(hidden, &sampling, &mut rng).unwrap_err(), error);
        Ok(())
    });
}

/// Words at a temperature are drawn in the vocabulary's order, not in that of their probabilities as of a whole head.
#[test]
fn draws_at_a_temperature_have_its_distribution() {
    const DRAWS: usize = 40_000;
    let on = (&cpu(), DType::F32);
    for config in [softmax(VOCAB), mos(VOCAB)] {
        let whole = head(&config, on).mask_words(&[2]);
        let state = tensor::<2>([1, config.d_hidden], 5, on);
        let weights: Vec<f64> =
            values(whole.forward(state.clone())).iter().map(|log_prob| (log_prob / 0.5).exp()).collect();
        let total: f64 = weights.iter().sum();
        let made = on_ranks(3, &whole, |head| {
            let sampling = Sampling::new().with_temperature(0.5);
            let state = state.clone().repeat_dim(0, DRAWS);
            Ok(integers(head.sample::<2, 1>(state, &sampling, &mut Pcg64::seed_from_u64(9))?))
        });
        assert!(made.iter().all(|of_rank| *of_rank == made[0]));
        for (word, weight) in weights.iter().enumerate() {
            let got = made[0].iter().filter(|drawn| **drawn == word as i64).count() as f64 / DRAWS as f64;
            // Four standard deviations of a frequency are at most 0.01.
            assert!((got - weight / total).abs() < 0.01, "{config:?}: {word}: {got}, {}", weight / total);
            assert!(*weight > 0.0 || got == 0.0, "{config:?}: {word} is masked");
        }
    }
}
