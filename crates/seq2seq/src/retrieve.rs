//! More references for test responses: what was answered in similar training contexts.
//!
//! The text that a response is scored against is one of many right ones. Where nobody wrote down others, the responses of the
//! training pairs whose contexts are most similar stand in for them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use runs::data::Vocabulary;
use runs::error::check;

use crate::data::{
    BOD, DialogConfig, Dialogue, Pair, ReferencesLine, Split, build_vocabulary, dialogues, write_lines,
};
use crate::error::Result;

/// How many references are looked for, and in what of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrievalConfig {
    /// Entries of a context that are compared: the last ones before the response.
    pub window: usize,
    /// The most references of a response besides itself.
    pub extra: usize,
}

impl Default for RetrievalConfig {
    /// Nine entries, as many as the published model of Zhao et al. (arXiv 1703.10960) reads, and five references.
    fn default() -> Self {
        Self { window: 9, extra: 5 }
    }
}

/// The dialogues of a file and what each is about.
struct TopicalSplit {
    split: Split,
    topics: Vec<String>,
}

impl TopicalSplit {
    fn new(dialogues: &[Dialogue], vocabulary: &Vocabulary, config: &DialogConfig) -> Self {
        let topics = dialogues.iter().map(|dialogue| dialogue.topic().to_string()).collect();
        Self { split: Split::new(dialogues, vocabulary, config), topics }
    }

    fn topic(&self, pair: Pair) -> &str {
        &self.topics[pair.dialogue]
    }

    /// How often each word occurs in the context of a pair, special tokens apart.
    fn counts(&self, pair: Pair, window: usize) -> BTreeMap<u32, f64> {
        let mut counts = BTreeMap::new();
        for turn in self.split.context(pair, window) {
            for &word in self.split.entry(pair.dialogue, turn).iter().filter(|&&word| word > BOD) {
                *counts.entry(word).or_default() += 1.0;
            }
        }
        counts
    }
}

/// The training pairs whose responses are references of every pair of `test`, most similar first.
fn retrieve(train: &TopicalSplit, test: &TopicalSplit, config: RetrievalConfig) -> Vec<Vec<Pair>> {
    let RetrievalConfig { window, extra } = config;
    let counts: Vec<(Pair, BTreeMap<u32, f64>)> =
        train.split.pairs().map(|pair| (pair, train.counts(pair, window))).collect();
    let mut frequency = HashMap::<u32, f64>::new();
    for word in counts.iter().flat_map(|(_, counts)| counts.keys()) {
        *frequency.entry(*word).or_default() += 1.0;
    }
    // A word of no training context weighs nothing: it has nothing to match.
    let weight = |word: u32| frequency.get(&word).map_or(0.0, |df| (counts.len() as f64 / df).ln());
    let mut of_topic = HashMap::<&str, Vec<(Pair, Vec<(u32, f64)>)>>::new();
    for (pair, counts) in &counts {
        of_topic.entry(train.topic(*pair)).or_default().push((*pair, unit_vector(counts, weight)));
    }
    // The context that is compared, word by word: reading from a table is much faster than from a map.
    let words = frequency.keys().map(|&word| word as usize + 1).max().unwrap_or(0);
    let mut context = vec![0.0; words];
    let found = test.split.pairs().map(|pair| {
        let vector = unit_vector(&test.counts(pair, window), weight);
        // Words of no training context have no place, and no weight.
        let vector: Vec<(u32, f64)> =
            vector.into_iter().filter(|(word, _)| (*word as usize) < words).collect();
        vector.iter().for_each(|&(word, value)| context[word as usize] = value);
        let candidates = of_topic.get(test.topic(pair)).map_or(&[][..], Vec::as_slice);
        let cosine = |vector: &[(u32, f64)]| -> f64 {
            // An empty sum would be -0, which comes before 0.
            vector.iter().fold(0.0, |sum, &(word, value)| sum + value * context[word as usize])
        };
        let mut ranked: Vec<(f64, Pair)> =
            candidates.iter().map(|(candidate, vector)| (cosine(vector), *candidate)).collect();
        // The sort is stable: ties stay in order of the text.
        ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
        let mut seen = vec![test.split.response(pair)];
        let mut found = vec![];
        for (_, candidate) in ranked {
            let response = train.split.response(candidate);
            if !seen.contains(&response) {
                seen.push(response);
                found.push(candidate);
            }
            if found.len() == extra {
                break;
            }
        }
        vector.iter().for_each(|&(word, _)| context[word as usize] = 0.0);
        found
    });
    found.collect()
}

/// The weighted counts, scaled to length 1; all 0 if no word weighs anything.
fn unit_vector(counts: &BTreeMap<u32, f64>, weight: impl Fn(u32) -> f64) -> Vec<(u32, f64)> {
    let mut vector: Vec<(u32, f64)> =
        counts.iter().map(|(&word, count)| (word, count * weight(word))).collect();
    let length = vector.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|(_, value)| *value /= length);
    }
    vector
}

/// Reads `train.jsonl` and `test.jsonl` of a [data folder](crate::data), finds references for all test pairs and writes them to
/// `path`, the true response first, as [`References::read`](crate::data::References::read) takes them. Returns the number of
/// references, the true ones included.
///
/// A context is the vector of its words' frequencies, each times `ln(N / df)`, with N training pairs of which df have the word in
/// their contexts. The references are the responses to the training contexts of the same topic with the highest cosine, of equal
/// ones the first, that differ from the true one and from each other. There may be fewer than asked for.
///
/// # Errors
/// As [`dialogues`] and [`DialogConfig::validate`], and [`InvalidSetting`](runs::Error::InvalidSetting) if a number of `config` is 0;
/// [`Io`](runs::Error::Io) if the file cannot be written. The file is then as before.
pub fn write_references(
    folder: &Path,
    path: &Path,
    dialog: &DialogConfig,
    config: RetrievalConfig,
) -> Result<usize> {
    dialog.validate()?;
    check(config.window > 0, "window", config.window, "at least 1")?;
    check(config.extra > 0, "extra", config.extra, "at least 1")?;
    let read = |name: &str| -> Result<Vec<Dialogue>> {
        dialogues(&crate::data::split_file(folder, name)?)?.collect()
    };
    let (train, test) = (read("train")?, read("test")?);
    let vocabulary = build_vocabulary(train.iter().cloned().map(Ok), dialog.vocab_size)?;
    let [train, test] = [train, test].map(|text| TopicalSplit::new(&text, &vocabulary, dialog));
    let found = retrieve(&train, &test, config);
    let words = |ids: &[u32]| {
        let words =
            ids.iter().map(|&id| vocabulary.word(id).expect("the text was encoded by this vocabulary"));
        words.collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<ReferencesLine<String>> = test
        .split
        .pairs()
        .zip(&found)
        .map(|(pair, found)| {
            let others = found.iter().map(|&other| train.split.response(other));
            let references = std::iter::once(test.split.response(pair)).chain(others).map(words).collect();
            ReferencesLine { dialogue: pair.dialogue, turn: pair.turn, references }
        })
        .collect();
    write_lines(path, &lines)?;
    Ok(lines.iter().map(|line| line.references.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Corpus, References, Turn};
    use crate::synthetic::{Language, LanguageConfig, Sizes};

    fn dialogue(topic: &str, texts: &[&str]) -> Dialogue {
        let turn = |text: &&str| Turn { speaker: "A".into(), text: text.to_string() };
        Dialogue::new(topic, texts.iter().map(turn).collect()).unwrap()
    }

    /// Dialogues about X, each of a context, the response to it and an end.
    fn about_x(pairs: &[(&str, &str)]) -> Vec<Dialogue> {
        pairs.iter().map(|&(context, response)| dialogue("X", &[context, response, "end"])).collect()
    }

    /// What is retrieved for the last pair of a dialogue about X.
    fn retrieved(train: &[Dialogue], test: &[&str], extra: usize) -> Vec<(usize, usize)> {
        let config = DialogConfig::default();
        let vocabulary = build_vocabulary(train.iter().cloned().map(Ok), 100).unwrap();
        let train = TopicalSplit::new(train, &vocabulary, &config);
        let test = TopicalSplit::new(&[dialogue("X", test)], &vocabulary, &config);
        let found = retrieve(&train, &test, RetrievalConfig { window: 9, extra });
        found.last().unwrap().iter().map(|pair| (pair.dialogue, pair.turn)).collect()
    }

    #[test]
    fn the_most_similar_contexts_of_the_topic_come_first() {
        let mut train = about_x(&[("cats purr", "one"), ("dogs bark", "two"), ("dogs bark loudly", "three")]);
        train.push(dialogue("Y", &["dogs bark", "four", "end"]));
        // The first pair of every dialogue has an empty context, whose similarity is 0.
        assert_eq!(retrieved(&train, &["dogs bark", "x", "end"], 2), [(1, 2), (2, 2)]);
        assert_eq!(retrieved(&train, &["dogs bark loudly", "x", "end"], 2), [(2, 2), (1, 2)]);
        assert_eq!(retrieved(&train, &["a cat", "x", "end"], 2), [(0, 1), (0, 2)]);
        // There are six pairs about X.
        assert_eq!(retrieved(&train, &["dogs", "x", "end"], 100).len(), 6);
        assert_eq!(retrieved(&[dialogue("Z", &["dogs", "bark"])], &["dogs", "x", "end"], 3), []);
    }

    #[test]
    fn references_are_distinct_and_not_the_response() {
        let train =
            about_x(&[("dogs bark", "yes"), ("dogs bark", "no"), ("dogs bark", "no"), ("dogs", "maybe")]);
        assert_eq!(retrieved(&train, &["dogs bark", "yes", "end"], 2), [(1, 2), (3, 2)]);
    }

    #[test]
    fn rare_words_weigh_more() {
        // Hand-made: "rare" is in one context of eight, "common" in three.
        let train =
            about_x(&[("common word", "one"), ("rare word", "two"), ("common", "three"), ("common", "four")]);
        assert_eq!(retrieved(&train, &["common rare", "x", "end"], 1), [(1, 2)]);
    }

    #[test]
    fn written_references_are_read_back() {
        let language = Language::new(LanguageConfig::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        language.write_corpus(folder.path(), Sizes { train: 30, valid: 1, test: 4 }, 1).unwrap();
        let path = folder.path().join("retrieved.jsonl");
        let dialog = DialogConfig { vocab_size: 40, ..DialogConfig::default() };
        let config = RetrievalConfig { extra: 3, ..RetrievalConfig::default() };
        let count = write_references(folder.path(), &path, &dialog, config).unwrap();
        let corpus = Corpus::load(folder.path(), &dialog).unwrap();
        let references = References::read(&path, corpus.test(), corpus.vocabulary()).unwrap();
        assert_eq!(references.len(), corpus.test().num_pairs());
        assert_eq!(count, 4 * references.len());
        assert!(references.iter().all(|references| references.len() == 4));
        let config = RetrievalConfig { extra: 0, ..config };
        let before = std::fs::read(&path).unwrap();
        let message = write_references(folder.path(), &path, &dialog, config).unwrap_err().to_string();
        assert_eq!(message, "extra is 0, but must be at least 1");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
