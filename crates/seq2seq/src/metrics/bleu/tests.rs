use super::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Many pairs of sentences of 0 to 14 tokens, over few or many words.
fn for_each_pair(check: impl Fn(&[u32], &[u32], BleuForm)) {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    for case in 0..600 {
        let words = [2, 4, 12][case % 3];
        let mut sentence =
            || -> Vec<u32> { (0..rng.random_range(0..15)).map(|_| rng.random_range(0..words)).collect() };
        let (hypothesis, reference) = (sentence(), sentence());
        for &form in BleuForm::ALL {
            check(&hypothesis, &reference, form);
        }
    }
}

#[track_caller]
fn assert_close(one: [f64; ORDERS], other: [f64; ORDERS]) {
    for (one, other) in one.into_iter().zip(other) {
        assert!((one - other).abs() < 1e-12, "{one} {other}");
    }
}

#[test]
fn bleu_lies_between_0_and_four_thirds() {
    for_each_pair(|hypothesis, reference, form| {
        let common = hypothesis.iter().any(|token| reference.contains(token));
        for (order, bleu) in sentence_bleu(hypothesis, reference, form).into_iter().enumerate() {
            assert!((0.0..=4.0 / 3.0 + 1e-12).contains(&bleu), "{bleu}");
            // No common word is 0, and nothing else but the failure of a single word in 2017.
            let fails = form == BleuForm::Repository2017 && hypothesis.len() == 1 && order > 0;
            assert_eq!(bleu > 0.0, common && !fails, "{hypothesis:?} {reference:?} {form} {order}");
        }
    });
}

#[test]
fn a_sentence_has_the_highest_bleu_with_itself() {
    // q_1 to q_4 where every precision is 1.
    let q = [4.0 / 3.0, 10.0 / 9.0, 28.0 / 27.0, 82.0 / 81.0_f64];
    let highest: [f64; ORDERS] =
        std::array::from_fn(|n| q[..=n].iter().product::<f64>().powf(1.0 / (n + 1) as f64));
    for_each_pair(|sentence, other, form| {
        let with_itself = sentence_bleu(sentence, sentence, form);
        if sentence.len() >= LONGEST {
            assert_close(with_itself, highest);
        }
        for (with_itself, with_other) in with_itself.into_iter().zip(sentence_bleu(sentence, other, form)) {
            assert!(with_itself >= with_other - 1e-12);
        }
    });
    assert_eq!(sentence_bleu(&["yeah"], &["yeah"], BleuForm::FourOrders)[0], 1.0);
}

#[test]
fn sentences_of_one_length_may_change_sides() {
    for_each_pair(|one, other, form| {
        let length = one.len().min(other.len());
        let (one, other) = (&one[..length], &other[..length]);
        assert_close(sentence_bleu(one, other, form), sentence_bleu(other, one, form));
    });
}

#[test]
fn tokens_are_opaque() {
    for_each_pair(|hypothesis, reference, form| {
        let named =
            |tokens: &[u32]| tokens.iter().map(|token| format!("w{}", 99 - token)).collect::<Vec<_>>();
        let (one, other) = (named(hypothesis), named(reference));
        assert_close(sentence_bleu(&one, &other, form), sentence_bleu(hypothesis, reference, form));
        // Backwards, n-grams match where they did.
        let backwards = |tokens: &[u32]| tokens.iter().rev().copied().collect::<Vec<_>>();
        let (one, other) = (backwards(hypothesis), backwards(reference));
        assert_close(sentence_bleu(&one, &other, form), sentence_bleu(hypothesis, reference, form));
    });
}

#[test]
fn a_longer_reference_without_new_matches_costs() {
    for_each_pair(|hypothesis, reference, form| {
        let longer: Vec<u32> = reference.iter().copied().chain([77; 3]).collect();
        let before = sentence_bleu(hypothesis, reference, form);
        let after = sentence_bleu(hypothesis, &longer, form);
        for (before, after) in before.into_iter().zip(after) {
            let costs = longer.len() > hypothesis.len() && before > 0.0;
            assert!(if costs { after < before } else { after == before });
        }
    });
}

#[test]
fn forms_agree_where_they_must() {
    for_each_pair(|hypothesis, reference, _| {
        let [main, short, old] = [BleuForm::FourOrders, BleuForm::ShortWeights, BleuForm::Repository2017]
            .map(|form| sentence_bleu(hypothesis, reference, form));
        assert!((main[3] - short[3]).abs() < 1e-12);
        // Where no order is empty, the rule for empty orders does not matter.
        let matched = reference.windows(4).any(|gram| hypothesis.windows(4).any(|other| other == gram));
        if matched {
            assert_close(short, old);
        }
    });
}

#[test]
fn forms_have_names() {
    for form in BleuForm::ALL {
        assert_eq!(form.to_string().parse::<BleuForm>().unwrap(), *form);
        assert_eq!(serde_json::to_string(form).unwrap(), format!("\"{form}\""));
    }
    let message = "exact".parse::<BleuForm>().unwrap_err().to_string();
    assert_eq!(message, "unknown form of BLEU `exact`; known: four_orders, short_weights, repository_2017");
}
