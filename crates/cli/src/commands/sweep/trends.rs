//! Which settings the trials of a random search depend on.

use awd_lstm::HeadKind;
use runs::text::comma_list;

use crate::commands::sweep::cells::{self, Cell};
use crate::commands::sweep::grid::{Axis, number};
use crate::statistics::rank_correlation;

/// Nothing is said of fewer trials.
const FEWEST: usize = 6;

/// A line for every head: Spearman's rank correlation between the numbers that were drawn for a setting and the validation perplexity
/// that trials are chosen by, the strongest first. Below 0, larger numbers are better.
pub fn lines(trials: &[Cell], axes: &[Axis]) -> String {
    let mut heads: Vec<HeadKind> = vec![];
    for cell in trials {
        if !heads.contains(&cell.head()) {
            heads.push(cell.head());
        }
    }
    heads.into_iter().filter_map(|head| line(trials, axes, head)).collect()
}

fn line(trials: &[Cell], axes: &[Axis], head: HeadKind) -> Option<String> {
    let of_head: Vec<(&Cell, f64)> = trials
        .iter()
        .filter(|cell| cell.head() == head)
        .filter_map(|cell| Some((cell, cell.mean(cells::chosen_by)?)))
        .collect();
    let count = of_head.len();
    if count < FEWEST {
        return None;
    }
    let correlation = |flag: &str| {
        let pair = |(cell, ppl): &(&Cell, f64)| Some((number(cell.first().setting(flag)?)?, *ppl));
        let pairs: Option<Vec<(f64, f64)>> = of_head.iter().map(pair).collect();
        rank_correlation(&pairs?)
    };
    let said = |axis: &Axis| Some((cells::symbol(&axis.flag).to_string(), correlation(&axis.flag)?));
    let mut found: Vec<(String, f64)> = axes.iter().filter_map(said).collect();
    if found.is_empty() {
        return None;
    }
    found.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    // The normal approximation of its distribution without any dependence.
    let chance = 1.96 / (count as f64 - 1.0).sqrt();
    let found = comma_list(found.into_iter().map(|(flag, correlation)| format!("{flag} {correlation:+.2}")));
    Some(format!(
        "\nRank correlation with the validation perplexity, {count} trials of {head} (by chance within ±{chance:.2} in 19 of 20 \
         cases): {found}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::outcome::Outcome;
    use crate::commands::sweep::results;
    use crate::commands::sweep::table::tests::outcome;

    #[test]
    fn settings_are_in_the_order_of_their_strength() {
        let trial = |index: usize| {
            // The perplexity falls with the rate and has nothing to do with the clipping.
            let (lr, clip) = (index.to_string(), [1, 3, 2, 2, 3, 1][index % 6].to_string());
            let settings = [("clip", clip.as_str()), ("lr", &lr), ("lstm", "9,8")];
            let drawn = outcome(HeadKind::Mos, &settings, 1, 50.0 - index as f64);
            Outcome { trial: Some(index), ..drawn }
        };
        let trials: Vec<Outcome> = (0..6).map(trial).collect();
        let said = |outcomes: &[Outcome]| {
            let axes = results::axes(outcomes.iter().flat_map(|outcome| &outcome.settings));
            lines(&Cell::all(outcomes), &axes)
        };
        let text = said(&trials);
        assert!(text.contains("6 trials of mos (by chance within ±0.88"), "{text}");
        assert!(text.ends_with(": learning rate -1.00, clip +0.00\n"), "{text}");
        // Too few, and a head that has none of them.
        assert_eq!(said(&trials[..5]), "");
        let alone: Vec<Outcome> = (0..6).map(|seed| outcome(HeadKind::Softmax, &[], seed, 10.0)).collect();
        assert_eq!(said(&alone), "");
    }
}
