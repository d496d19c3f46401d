//! The language: its tables, its exact next-word distribution, and text drawn from it.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::config::LanguageConfig;
use super::sampling::{Table, zipf};
use runs::data::{Corpus, EOS, Vocabulary};
use runs::error::Result;

/// An artificial language with a known next-word distribution.
///
/// A sentence is opened by a word that announces its topic `t`. With `u` the last word, `v` the word before
/// it, `c(·)` a word's class, and all tables fixed by the seed, any later word follows
///
/// ```text
/// P(w | t, u, v) = e·[w = <eos>] + (1 − e)·( λ₁ A_t(w) + λ₂ B_c(u)(w) + λ₃ D_c(v)(w) + β G(w) )
/// ```
///
/// where `A`, `B` and `D` put Zipf's law over a few favourite words of the topic or class, `G` is Zipf's law
/// over the vocabulary, `β` the background, and the shares `λ` (which sum to `1 − β`) depend on `c(u)`. The word after
/// `<eos>` follows a law `Z` over the topics: `P(w) = (1 − β) Z(w) + β G(w)`. Every word stands for a topic, so every
/// text has a probability. All logarithms are finite.
#[derive(Debug, Clone)]
pub struct Language {
    config: LanguageConfig,
    /// Law of the word that opens a sentence.
    opening: Table,
    /// Law of the whole language.
    background: Table,
    by_topic: Vec<Table>,
    by_last: Vec<Table>,
    by_previous: Vec<Table>,
    /// Shares of topic, last word and previous word, by the class of the last word.
    shares: Vec<[f64; 3]>,
    class_of: Vec<usize>,
    topic_of: Vec<usize>,
}

/// The part of the history that the next word depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    /// The sentence's topic; `None` before the word that announces it.
    topic: Option<usize>,
    last: u32,
    previous: u32,
}

/// The id of `<eos>`.
const EOS_ID: u32 = 0;
/// Added to the rank in Zipf's law over the whole vocabulary, as in Mandelbrot's form of the law.
const BACKGROUND_OFFSET: f64 = 2.7;

impl Language {
    /// Draws the tables of a language.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`](runs::error::Error::InvalidSetting) if the configuration is out of range.
    pub fn new(config: LanguageConfig) -> Result<Self> {
        config.validate()?;
        let LanguageConfig { vocab, topics, classes, favourites, background, .. } = config;
        let mut rng = Pcg64Mcg::seed_from_u64(config.seed);
        let first_body = 1 + topics;

        let mut opening = vec![0.0; vocab];
        // A flat Zipf law: every topic occurs often enough to be learned.
        for (word, weight) in (1..=topics).zip(zipf(topics, topics as f64 / 2.0)) {
            opening[word] = weight;
        }

        let mut weights = vec![0.0; vocab];
        let mut order: Vec<usize> = (0..vocab).collect();
        order.shuffle(&mut rng);
        for (&word, weight) in order.iter().zip(zipf(vocab, BACKGROUND_OFFSET)) {
            weights[word] = weight;
        }
        let background_law = Table::new(weights);

        let mut tables = |count: usize| -> Vec<Table> {
            (0..count).map(|_| favourite_words(&background_law, first_body, favourites, &mut rng)).collect()
        };
        let (by_topic, by_last, by_previous) = (tables(topics), tables(classes), tables(classes));

        let shares = (0..classes)
            .map(|_| {
                // Uneven, and different from class to class: how much a topic shows depends on the word.
                let raw: [f64; 3] = std::array::from_fn(|_| rng.random_range(0.15..1.0));
                let total: f64 = raw.iter().sum();
                raw.map(|share| (1.0 - background) * share / total)
            })
            .collect();
        let mut class_of: Vec<usize> = (0..vocab).map(|word| word % classes).collect();
        class_of.shuffle(&mut rng);
        let topic_of = (0..vocab).map(|word| (word + topics - 1) % topics).collect();

        Ok(Self {
            config,
            opening: Table::new(opening),
            background: background_law,
            by_topic,
            by_last,
            by_previous,
            shares,
            class_of,
            topic_of,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &LanguageConfig {
        &self.config
    }

    /// Names for the words: `<eos>`, `topic0`, `topic1`, …, `word0`, `word1`, …
    pub fn vocabulary(&self) -> Vocabulary {
        let topics = self.config.topics;
        let mut words = vec![EOS.to_string()];
        words.extend((0..topics).map(|topic| format!("topic{topic}")));
        words.extend((0..self.config.vocab - topics - 1).map(|word| format!("word{word}")));
        Vocabulary::from(words)
    }

    /// The context at the start of a text.
    pub fn start(&self) -> Context {
        Context { topic: None, last: EOS_ID, previous: EOS_ID }
    }

    /// The context after one more word.
    ///
    /// # Panics
    /// If `word` is not in the vocabulary.
    pub fn advance(&self, context: Context, word: u32) -> Context {
        let topic = match context.topic {
            _ if word == EOS_ID => None,
            None => Some(self.topic_of[word as usize]),
            known => known,
        };
        Context { topic, last: word, previous: context.last }
    }

    /// `P(word | context)`.
    pub fn prob(&self, context: Context, word: u32) -> f64 {
        let at = word as usize;
        let background = self.config.background * self.background.probs[at];
        let Some(topic) = context.topic else {
            return (1.0 - self.config.background) * self.opening.probs[at] + background;
        };
        let (last, previous) = self.classes(context);
        let [by_topic, by_last, by_previous] = self.shares[last];
        let end = self.end();
        let body = by_topic * self.by_topic[topic].probs[at]
            + by_last * self.by_last[last].probs[at]
            + by_previous * self.by_previous[previous].probs[at]
            + background;
        let eos = if word == EOS_ID { end } else { 0.0 };
        eos + (1.0 - end) * body
    }

    /// `log P(w | context)` of every word `w`, in nats.
    pub fn log_probs(&self, context: Context) -> Vec<f64> {
        (0..self.config.vocab as u32).map(|word| self.prob(context, word).ln()).collect()
    }

    /// One word drawn in `context`.
    pub fn draw<R: Rng + ?Sized>(&self, context: Context, rng: &mut R) -> u32 {
        let Some(topic) = context.topic else {
            let background = rng.random_bool(self.config.background);
            return (if background { &self.background } else { &self.opening }).draw(rng) as u32;
        };
        if rng.random_bool(self.end()) {
            return EOS_ID;
        }
        let (last, previous) = self.classes(context);
        let [by_topic, by_last, by_previous] = self.shares[last];
        let part = rng.random::<f64>();
        let table = if part < by_topic {
            &self.by_topic[topic]
        } else if part < by_topic + by_last {
            &self.by_last[last]
        } else if part < by_topic + by_last + by_previous {
            &self.by_previous[previous]
        } else {
            &self.background
        };
        table.draw(rng) as u32
    }

    /// A training text of 100,000 tokens, a validation text of 20,000 and a test text of 10,000; always the same ones.
    ///
    /// # Errors
    /// None of a language that could be made.
    pub fn corpus(&self) -> Result<Corpus> {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let [train, valid, test] = [100_000, 20_000, 10_000].map(|tokens| self.generate(tokens, &mut rng));
        Corpus::from_ids(self.vocabulary(), train, valid, test)
    }

    /// A text of `tokens` words from the start of a sentence, `<eos>` included.
    pub fn generate<R: Rng + ?Sized>(&self, tokens: usize, rng: &mut R) -> Vec<u32> {
        let mut context = self.start();
        (0..tokens)
            .map(|_| {
                let word = self.draw(context, rng);
                context = self.advance(context, word);
                word
            })
            .collect()
    }

    /// Mean negative log-likelihood of all words of a text but the first under the language itself, in nats. A model can
    /// only beat it by luck. The text begins at the start of a sentence.
    ///
    /// Its exponential is the language's perplexity on that text. The first word is left out because a model reads it
    /// before its first prediction.
    ///
    /// # Panics
    /// If the text has fewer than two words.
    pub fn mean_nll(&self, text: &[u32]) -> f64 {
        assert!(text.len() > 1, "a text of {} words has nothing to predict", text.len());
        let nll = |(context, &word): (Context, &u32)| -self.prob(context, word).ln();
        self.contexts(text).zip(&text[1..]).map(nll).sum::<f64>() / (text.len() - 1) as f64
    }

    /// The context after each word of a text, in order.
    pub fn contexts<'a>(&'a self, text: &'a [u32]) -> impl Iterator<Item = Context> + 'a {
        text.iter().scan(self.start(), |context, &word| {
            *context = self.advance(*context, word);
            Some(*context)
        })
    }

    /// Probability that a sentence ends at a word that could end it.
    fn end(&self) -> f64 {
        // After the announcing word, the number of further words is geometric with mean `1/e − 1`.
        1.0 / self.config.mean_length
    }

    fn classes(&self, context: Context) -> (usize, usize) {
        (self.class_of[context.last as usize], self.class_of[context.previous as usize])
    }
}

/// Zipf's law over a few words from `first` on. Common words become favourites of more topics and classes.
fn favourite_words<R: Rng>(law: &Table, first: usize, count: usize, rng: &mut R) -> Table {
    let vocab = law.probs.len();
    // Draws without replacement, weighted by the square root of the frequency: the smallest of exponential variates
    // at those rates (Efraimidis and Spirakis).
    let mut keys: Vec<(f64, usize)> = (first..vocab)
        .map(|word| (-rng.random::<f64>().max(f64::MIN_POSITIVE).ln() / law.probs[word].sqrt(), word))
        .collect();
    keys.sort_by(|a, b| a.0.total_cmp(&b.0));
    keys.truncate(count);
    keys.shuffle(rng);
    let mut weights = vec![0.0; vocab];
    for ((_, word), weight) in keys.into_iter().zip(zipf(count, 0.0)) {
        weights[word] = weight;
    }
    Table::new(weights)
}

#[cfg(test)]
mod tests;
