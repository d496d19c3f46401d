//! The lowest perplexity that a model of the language can have.

use serde::{Deserialize, Serialize};

use super::language::{Context, Language};
use crate::data::Dialogue;

/// The negative log-likelihood of responses under the language itself, and their tokens.
///
/// Utterances are told apart by their words and `</s>`, so the log-likelihoods of an answer's tokens add up to that of the
/// answer. As in any score, the last utterance of a dialogue is no response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// Responses.
    pub responses: f64,
    /// Their tokens, with `</s>`.
    pub tokens: f64,
    /// Their negative log-likelihood in nats.
    pub nll: f64,
}

impl Floor {
    /// `exp(nll / tokens)`, the perplexity a token; 1 without tokens.
    pub fn perplexity(&self) -> f64 {
        if self.tokens > 0.0 { (self.nll / self.tokens).exp() } else { 1.0 }
    }
}

impl Language {
    /// What a dialogue has on average, exactly: its perplexity is that of an infinitely long text under the language itself.
    /// A model can only beat it by luck, on a finite text.
    ///
    /// It follows the probability of every context, turn by turn.
    pub fn floor(&self) -> Floor {
        let config = self.config();
        let classes = config.classes;
        let lengths = (config.max_turns - config.min_turns + 1) as f64;
        let mut floor = Floor::default();
        // The probability of every last class, and of every pair of one and the class before it.
        let mut contexts = vec![(Context::Beginning, 1.0)];
        for turn in 1..config.max_turns {
            // The probability that the dialogue goes on after this turn, so that it has a response.
            let longer = (config.max_turns - turn.max(config.min_turns - 1)) as f64 / lengths;
            let mut reached = vec![0.0; (classes + 1) * classes];
            for &(context, probability) in &contexts {
                let law = self.law(context);
                floor.responses += longer * probability;
                floor.nll += longer * probability * law.entropy();
                for &(number, part) in law.parts() {
                    floor.tokens += longer * probability * part * self.tokens(number) as f64;
                    if let Context::After { last, earlier, .. } = self.after(context, number, false) {
                        reached[earlier.unwrap_or(classes) * classes + last] += probability * part;
                    }
                }
            }
            contexts = (0..)
                .zip(reached)
                .filter(|(_, probability)| *probability > 0.0)
                .flat_map(|(place, probability): (usize, f64)| {
                    let earlier = Some(place / classes).filter(|&class| class < classes);
                    [(true, config.goes_on), (false, 1.0 - config.goes_on)].map(|(own, part)| {
                        (Context::After { last: place % classes, own, earlier }, probability * part)
                    })
                })
                .collect();
        }
        floor
    }

    /// What some dialogues have in sum. `None` if an utterance, or an answer at its place, is not of the language.
    pub fn floor_of<'a>(&self, dialogues: impl IntoIterator<Item = &'a Dialogue>) -> Option<Floor> {
        let mut floor = Floor::default();
        for dialogue in dialogues {
            let turns = dialogue.turns();
            for turn in 1..turns.len() {
                let law = self.law(self.context(turns, turn)?);
                let number = self.number(&turns[turn - 1].text)?;
                let probability = law.prob(number);
                if probability <= 0.0 {
                    return None;
                }
                floor.responses += 1.0;
                floor.tokens += self.tokens(number) as f64;
                floor.nll -= probability.ln();
            }
        }
        Some(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Turn;
    use crate::synthetic::LanguageConfig;

    /// The floor and that of drawn dialogues agree within five standard errors of the latter.
    fn check(config: LanguageConfig, count: usize) {
        let language = Language::new(config).unwrap();
        let floor = language.floor();
        let drawn: Vec<Floor> = language
            .dialogues(count, 3)
            .iter()
            .map(|dialogue| language.floor_of([dialogue]).unwrap())
            .collect();
        let estimate = |value: &dyn Fn(&Floor) -> f64| {
            let mean = drawn.iter().map(value).sum::<f64>() / count as f64;
            let variance =
                drawn.iter().map(|floor| (value(floor) - mean).powi(2)).sum::<f64>() / count as f64;
            (mean, (variance / count as f64).sqrt())
        };
        let values = |floor: &Floor| [floor.responses, floor.tokens, floor.nll];
        for (place, expected) in values(&floor).into_iter().enumerate() {
            let (mean, error) = estimate(&|floor| values(floor)[place]);
            assert!((mean - expected).abs() <= 5.0 * error + 1e-9 * expected, "{mean} {error} {expected}");
        }
        // Of the ratio, to first order.
        let ratio = floor.nll / floor.tokens;
        let (mean, error) = estimate(&|of| (of.nll - ratio * of.tokens) / floor.tokens);
        assert!(mean.abs() <= 5.0 * error && error < 0.01 * ratio, "{mean} {error} {ratio}");
    }

    #[test]
    fn the_floor_is_that_of_many_dialogues() {
        check(LanguageConfig::default(), 3000);
        let odd = LanguageConfig {
            classes: 3,
            utterances: 7,
            answers: 7,
            earlier_answers: 1,
            earlier: 0.7,
            goes_on: 0.9,
            min_turns: 2,
            max_turns: 4,
            seed: 9,
            ..LanguageConfig::default()
        };
        check(odd.clone(), 6000);
        check(LanguageConfig { goes_on: 0.0, earlier: 0.0, min_turns: 4, ..odd.clone() }, 6000);
        check(LanguageConfig { goes_on: 1.0, max_turns: 2, ..odd }, 6000);
    }

    #[test]
    fn a_dialogue_without_choice_has_perplexity_1() {
        let one = LanguageConfig {
            utterances: 1,
            classes: 1,
            answers: 1,
            earlier_answers: 1,
            min_turns: 5,
            max_turns: 5,
            ..LanguageConfig::default()
        };
        let language = Language::new(one).unwrap();
        let floor = language.floor();
        assert!((floor.perplexity() - 1.0).abs() < 1e-12);
        assert!((floor.responses - 4.0).abs() < 1e-12);
        assert_eq!(Floor::default().perplexity(), 1.0);
    }

    #[test]
    fn foreign_dialogues_have_no_floor() {
        let language = Language::new(LanguageConfig::default()).unwrap();
        let good = language.dialogues(1, 1).remove(0);
        assert!(language.floor_of([&good]).is_some());
        let with = |text: &str| {
            let mut turns: Vec<Turn> = good.turns().to_vec();
            turns[2].text = text.into();
            Dialogue::new("", turns).unwrap()
        };
        assert_eq!(language.floor_of([&good, &with("hello")]), None);
        let answers = language.answers(&good, 3).unwrap();
        let wrong = |text: &&String| answers.iter().all(|answer| answer.text != **text);
        let wrong = language.utterances().iter().find(wrong).unwrap();
        assert_eq!(language.floor_of([&with(wrong)]), None);
    }
}
