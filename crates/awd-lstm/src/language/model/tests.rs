use super::*;
use std::collections::HashMap;

fn language() -> Language {
    Language::new(LanguageConfig::default()).unwrap()
}

fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// A context drawn by walking a short text.
fn some_context(language: &Language, seed: u64) -> Context {
    let text = language.generate(5 + seed as usize % 40, &mut rng(seed));
    language.contexts(&text).last().unwrap()
}

#[test]
fn every_distribution_sums_to_one_and_leaves_no_word_out() {
    let language = language();
    let mut contexts: Vec<Context> = (0..50).map(|seed| some_context(&language, seed)).collect();
    contexts.push(language.start());
    for context in contexts {
        let log_probs = language.log_probs(context);
        let sum: f64 = log_probs.iter().map(|log_prob| log_prob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!(log_probs.iter().all(|log_prob| log_prob.is_finite()));
    }
}

#[test]
fn the_seed_fixes_language_and_text() {
    let (one, two) = (language(), language());
    assert_eq!(one.generate(500, &mut rng(3)), two.generate(500, &mut rng(3)));
    assert_ne!(one.generate(500, &mut rng(3)), two.generate(500, &mut rng(4)));
    let after = |language: &Language| language.log_probs(language.contexts(&[4, 99, 100]).last().unwrap());
    assert_eq!(after(&one), after(&two));
    let other = Language::new(LanguageConfig { seed: 2, ..LanguageConfig::default() }).unwrap();
    assert_ne!(one.generate(500, &mut rng(3)), other.generate(500, &mut rng(3)));
}

#[test]
fn words_are_drawn_as_their_probabilities_say() {
    let language = language();
    let draws = 200_000;
    for seed in [1, 2, 5] {
        let context = some_context(&language, seed);
        let mut counts = vec![0usize; language.config.vocab];
        let mut rng = rng(seed + 100);
        for _ in 0..draws {
            counts[language.draw(context, &mut rng) as usize] += 1;
        }
        // Pearson's statistic over the words that are expected at least five times.
        let (mut statistic, mut cells) = (0.0, 0);
        for (word, &count) in counts.iter().enumerate() {
            let expected = draws as f64 * language.prob(context, word as u32);
            if expected >= 5.0 {
                statistic += (count as f64 - expected).powi(2) / expected;
                cells += 1;
            }
        }
        // Mean `cells`, standard deviation √(2·cells).
        let bound = cells as f64 + 5.0 * (2.0 * cells as f64).sqrt();
        assert!(statistic < bound, "{statistic} over {cells} cells");
    }
}

#[test]
fn generated_text_costs_what_the_distribution_says() {
    let language = language();
    let text = language.generate(60_000, &mut rng(8));
    // The mean entropy of the contexts met is the expected mean nll of the words drawn in them.
    let contexts: Vec<Context> = language.contexts(&text).take(text.len() - 1).collect();
    let entropies: Vec<f64> = contexts
        .iter()
        .step_by(20)
        .map(|&context| {
            (0..language.config.vocab as u32).map(|w| language.prob(context, w)).map(|p| -p * p.ln()).sum()
        })
        .collect();
    let entropy = entropies.iter().sum::<f64>() / entropies.len() as f64;
    let nll = language.mean_nll(&text);
    assert!((nll - entropy).abs() < 0.03, "{nll} against {entropy}");
}

#[test]
fn the_context_is_read_off_the_history() {
    let language = language();
    let opened = language.advance(language.start(), 7);
    assert_eq!(opened.topic, Some(6));
    // A later topic word does not change the topic; the end of the sentence does.
    let later = language.advance(language.advance(opened, 200), 3);
    assert_eq!(later, Context { topic: Some(6), last: 3, previous: 200 });
    let ended = language.advance(later, EOS_ID);
    assert_eq!(ended.topic, None);
    let walked: Vec<Context> = language.contexts(&[7, 200, 3, 0]).collect();
    assert_eq!(walked, [opened, language.advance(opened, 200), later, ended]);
}

#[test]
fn sentences_have_the_length_asked_for() {
    let language = language();
    let text = language.generate(200_000, &mut rng(5));
    let sentences = text.iter().filter(|&&word| word == EOS_ID).count();
    let length = text.len() as f64 / sentences as f64 - 1.0;
    // `<eos>` is also a rare word of the background, hence a little less than asked for.
    assert!((17.0..21.0).contains(&length), "{length}");
}

#[test]
fn word_frequencies_look_like_zipfs() {
    let language = language();
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for word in language.generate(300_000, &mut rng(6)) {
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<f64> = counts.into_values().map(|count| count as f64).collect();
    counts.sort_by(|a, b| b.total_cmp(a));
    assert!(counts.len() > 950, "{} words occur", counts.len());
    // Slope of log frequency over log rank, least squares from rank 5 to 500.
    let points: Vec<(f64, f64)> = (5..500).map(|rank| ((rank as f64).ln(), counts[rank - 1].ln())).collect();
    let n = points.len() as f64;
    let (sx, sy) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let covariance: f64 = points.iter().map(|(x, y)| (x - sx / n) * (y - sy / n)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - sx / n).powi(2)).sum();
    let slope = covariance / variance;
    assert!((-1.4..-0.6).contains(&slope), "slope {slope}");
}

/// What is left of a matrix's squared norm when as many rows as `ranks` say, chosen greedily, are projected
/// out (pivoted Gram-Schmidt), as shares of the whole.
fn residuals(mut rows: Vec<Vec<f64>>, ranks: &[usize]) -> Vec<f64> {
    let norm = |row: &Vec<f64>| row.iter().map(|x| x * x).sum::<f64>();
    let total: f64 = rows.iter().map(norm).sum();
    let mut shares = Vec::new();
    for rank in 1..=ranks[ranks.len() - 1] {
        let pivot = (0..rows.len()).max_by(|&a, &b| norm(&rows[a]).total_cmp(&norm(&rows[b]))).unwrap();
        let length = norm(&rows[pivot]).sqrt();
        let direction: Vec<f64> = rows[pivot].iter().map(|x| x / length).collect();
        for row in &mut rows {
            let along: f64 = row.iter().zip(&direction).map(|(x, d)| x * d).sum();
            row.iter_mut().zip(&direction).for_each(|(x, d)| *x -= along * d);
        }
        if ranks.contains(&rank) {
            shares.push(rows.iter().map(norm).sum::<f64>() / total);
        }
    }
    shares
}

#[test]
fn the_log_probability_matrix_has_a_high_rank() {
    let language = language();
    let rows: Vec<Vec<f64>> = (0..400)
        .map(|seed| {
            // The mean over words is what a normalisation constant can give: not counted.
            let log_probs = language.log_probs(some_context(&language, seed));
            let mean = log_probs.iter().sum::<f64>() / log_probs.len() as f64;
            log_probs.into_iter().map(|log_prob| log_prob - mean).collect()
        })
        .collect();
    let shares = residuals(rows, &[16, 32, 72, 150]);
    // Far above the dimension of a small softmax: a fifth of the variation lies outside of 32 contexts. As many
    // as there are tables (24 + 24 + 24) do not exhaust it either, since a logarithm of sums is no sum.
    assert!(shares[0] > 0.3 && shares[1] > 0.2, "{shares:?}");
    assert!(shares[2] > 1e-3 && shares[3] > 1e-5, "{shares:?}");
}

#[test]
fn sizes_out_of_range_are_refused() {
    let good = LanguageConfig::default();
    let bad = [
        LanguageConfig { vocab: 30, ..good.clone() },
        LanguageConfig { topics: 0, ..good.clone() },
        LanguageConfig { classes: 0, ..good.clone() },
        LanguageConfig { favourites: 0, ..good.clone() },
        LanguageConfig { mean_length: 1.0, ..good.clone() },
        LanguageConfig { mean_length: f64::NAN, ..good.clone() },
        LanguageConfig { background: 0.0, ..good.clone() },
        LanguageConfig { background: 1.0, ..good.clone() },
    ];
    for config in bad {
        assert!(Language::new(config.clone()).is_err(), "{config:?}");
    }
}

#[test]
fn words_have_names() {
    let language = language();
    let vocabulary = language.vocabulary();
    assert_eq!(vocabulary.len(), 1000);
    assert_eq!(vocabulary.word(EOS_ID), Some(EOS));
    assert_eq!(vocabulary.word(1), Some("topic0"));
    assert_eq!(vocabulary.word(25), Some("word0"));
}
