//! The language: its utterances, its right answers, and dialogues drawn from it.

use std::collections::HashMap;

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::data::Vocabulary;
use runs::error::Result;
use runs::mix_seed;

use super::config::LanguageConfig;
use super::law::Law;
use super::words::word;
use crate::data::{Dialogue, SPECIAL, Turn};

/// A language of dialogues with a known distribution of responses.
///
/// It has finitely many utterances, each of a class c. The first of a dialogue follows a law `S`. Any later one depends on
/// the last utterance `u`, the one before it `v`, and `own`, whether the speaker of `u` goes on:
///
/// ```text
/// P(r | u, v, own) = (1 − λ) A_{c(u), own}(r) + λ B_{c(v)}(r)
/// ```
///
/// It follows `A` alone where there is no `v`. `S` is Zipf's law over all utterances, `A` and `B` over a few of them; the seed
/// fixes which. The answers of positive probability are the *right answers* to a context. Who speaks is drawn first, and told
/// to a model.
///
/// The logarithm of a sum is not a sum of parts that depend on `u`, `v` and `own` alone, so the matrix of log-probabilities
/// over contexts and answers has a high rank.
#[derive(Debug, Clone)]
pub struct Language {
    config: LanguageConfig,
    utterances: Vec<String>,
    numbers: HashMap<String, usize>,
    class_of: Vec<usize>,
    first: Law,
    /// A, by class and by whether the speaker goes on.
    to_last: Vec<[Law; 2]>,
    /// B, by class.
    to_earlier: Vec<Law>,
}

/// A right answer to a context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer<'a> {
    /// Its words, joined by blanks.
    pub text: &'a str,
    /// The probability of the answer.
    pub probability: f64,
}

/// The names of the speakers.
const SPEAKERS: [&str; 2] = ["A", "B"];

impl Language {
    /// Draws the utterances and laws of a language.
    ///
    /// # Errors
    /// Those of [`LanguageConfig::validate`].
    pub fn new(config: LanguageConfig) -> Result<Self> {
        config.validate()?;
        let mut rng = Pcg64Mcg::seed_from_u64(config.seed);
        let law_of_words = Law::zipf(0..config.words);
        let (mut utterances, mut numbers) = (Vec::new(), HashMap::new());
        while utterances.len() < config.utterances {
            let length = rng.random_range(1..=config.max_words);
            let words: Vec<String> = (0..length).map(|_| word(law_of_words.draw(&mut rng))).collect();
            let text = words.join(" ");
            if numbers.contains_key(&text) {
                continue;
            }
            numbers.insert(text.clone(), utterances.len());
            utterances.push(text);
        }
        let mut class_of: Vec<usize> = (0..utterances.len()).map(|number| number % config.classes).collect();
        class_of.shuffle(&mut rng);
        let mut some = |count: usize| Law::zipf(rand::seq::index::sample(&mut rng, config.utterances, count));
        let first = some(config.utterances);
        let to_last = (0..config.classes).map(|_| [some(config.answers), some(config.answers)]).collect();
        let to_earlier = (0..config.classes).map(|_| some(config.earlier_answers)).collect();
        Ok(Self { config, utterances, numbers, class_of, first, to_last, to_earlier })
    }

    /// The special tokens and all words.
    pub fn vocabulary(&self) -> Vocabulary {
        let words = (0..self.config.words).map(word);
        SPECIAL.map(String::from).into_iter().chain(words).collect::<Vec<_>>().into()
    }

    /// The right answers at a turn of a dialogue, most probable first: what may be said after the turns before it, by the one who
    /// speaks then. Turns are counted from 1, as in [`Pair`](crate::data::Pair).
    ///
    /// `None` if there is no such turn, or one of the two before it is not of the language.
    pub fn answers(&self, dialogue: &Dialogue, turn: usize) -> Option<Vec<Answer<'_>>> {
        let turns = dialogue.turns();
        let at = turn.checked_sub(1).filter(|&at| at < turns.len())?;
        let class = |turn: &Turn| self.numbers.get(&turn.text).map(|&number| self.class_of[number]);
        // Of the last utterance and of the one before it.
        let classes: Vec<usize> = turns[..at].iter().rev().take(2).map(class).collect::<Option<_>>()?;
        let last = classes.first().map(|&class| (class, turns[at - 1].speaker == turns[at].speaker));
        let law = self.law(last, classes.get(1).copied());
        let answer =
            |&(number, probability): &(usize, f64)| Answer { text: &self.utterances[number], probability };
        Some(law.parts.iter().map(answer).collect())
    }

    /// Draws a dialogue.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> Dialogue {
        let count = rng.random_range(self.config.min_turns..=self.config.max_turns);
        let (mut turns, mut speaker): (Vec<Turn>, _) = (Vec::new(), 0);
        let (mut last, mut earlier): (Option<(usize, bool)>, _) = (None, None);
        while turns.len() < count {
            if let Some((_, false)) = last {
                speaker = 1 - speaker;
            }
            let number = self.law(last, earlier).draw(rng);
            turns.push(Turn { speaker: SPEAKERS[speaker].into(), text: self.utterances[number].clone() });
            earlier = last.map(|(class, _)| class);
            last = Some((self.class_of[number], rng.random_bool(self.config.goes_on)));
        }
        Dialogue::new("GENERATED", turns).expect("two speakers, and a word in each of at least two turns")
    }

    /// `count` dialogues. Each depends on the seed and its place alone.
    pub fn dialogues(&self, count: usize, seed: u64) -> Vec<Dialogue> {
        let at = |place: usize| Pcg64Mcg::seed_from_u64(mix_seed(self.config.seed, seed, place as u64));
        (0..count).map(|place| self.draw(&mut at(place))).collect()
    }

    /// The law of the next utterance, given the class of the last one with whether its speaker goes on, and the class of the one
    /// before it, if there are any.
    fn law(&self, last: Option<(usize, bool)>, earlier: Option<usize>) -> Law {
        let Some((last, own)) = last else { return self.first.clone() };
        let to_last = &self.to_last[last][usize::from(own)];
        match earlier {
            Some(earlier) => to_last.mixed(&self.to_earlier[earlier], self.config.earlier),
            None => to_last.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
