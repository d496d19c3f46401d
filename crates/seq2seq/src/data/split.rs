//! Dialogues as token ids, and their pairs of context and response.

use std::ops::Range;
use std::path::Path;

use runs::data::Vocabulary;
use runs::error::check;
use serde::{Deserialize, Serialize};

use super::dialogue::{Dialogue, dialogues};
use super::tokens::for_each_token;
use super::vocabulary::{BOD, BOS, EOS, SPECIAL, UNK};
use crate::error::Result;

/// Which words of a dialogue a model sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DialogConfig {
    /// The largest vocabulary, with the five [special tokens](SPECIAL).
    pub vocab_size: usize,
    /// Words of an utterance that are kept: the first ones.
    pub max_words: usize,
}

impl Default for DialogConfig {
    /// The sizes of Zhao et al. (arXiv 1703.10960): 10,000 tokens besides `<pad>` and `<unk>`, and entries of 40.
    fn default() -> Self {
        Self { vocab_size: 10_002, max_words: 38 }
    }
}

impl DialogConfig {
    /// Checks both sizes.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) for a vocabulary without room for a word, or utterances without words.
    pub fn validate(&self) -> runs::error::Result<()> {
        check(self.vocab_size > SPECIAL.len(), "vocab_size", self.vocab_size, "at least 6")?;
        check(self.max_words > 0, "max_words", self.max_words, "at least 1")
    }

    /// The entry of an utterance: `<s> w₁ … </s>`, with at most [`max_words`](Self::max_words) words, `<unk>` for those that the
    /// vocabulary lacks.
    pub fn entry(&self, text: &str, vocabulary: &Vocabulary) -> Vec<u32> {
        let mut ids = Vec::new();
        self.push_entry(text, vocabulary, &mut ids);
        ids
    }

    /// The same of words by their numbers, as a model gives them: there `<unk>` is one word.
    pub fn entry_of(&self, words: &[u32]) -> Vec<u32> {
        let words = words.iter().take(self.max_words).copied();
        [BOS].into_iter().chain(words).chain([EOS]).collect()
    }

    fn push_entry(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        ids.push(BOS);
        let mut room = self.max_words;
        for_each_token(text, |token| {
            if room > 0 {
                room -= 1;
                ids.push(vocabulary.id(token).unwrap_or(UNK));
            }
        });
        ids.push(EOS);
    }
}

/// One context and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The dialogue, counted from 0.
    pub dialogue: usize,
    /// The entry that is the response, from 1. The context are the entries before it.
    pub turn: usize,
}

/// Consecutive pairs of one dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first pair.
    pub first: Pair,
    /// Their number.
    pub length: usize,
}

impl Run {
    /// The pairs.
    pub fn pairs(self) -> impl Iterator<Item = Pair> {
        let Pair { dialogue, turn } = self.first;
        (turn..turn + self.length).map(move |turn| Pair { dialogue, turn })
    }
}

/// The dialogues of one file as token ids, four bytes a token.
#[derive(Debug, Clone)]
pub struct Split {
    config: DialogConfig,
    /// All entries, one after the other.
    ids: Vec<u32>,
    /// Where every entry begins in `ids`, and the end.
    starts: Vec<usize>,
    /// Whether the speaker of every entry is that of the dialogue's first utterance; `None` for the entry that begins it.
    speakers: Vec<Option<bool>>,
    /// The first entry of every dialogue, and the end.
    dialogues: Vec<usize>,
}

impl Split {
    /// Reads a [data file](super). One line at a time is in memory.
    ///
    /// # Errors
    /// As [`dialogues`].
    pub fn read(path: &Path, vocabulary: &Vocabulary, config: &DialogConfig) -> Result<Self> {
        let mut split = Self::new(std::iter::empty(), vocabulary, config);
        for dialogue in dialogues(path)? {
            split.push(&dialogue?, vocabulary);
        }
        Ok(split)
    }

    /// Encodes dialogues in memory.
    pub fn new<'a>(
        dialogues: impl IntoIterator<Item = &'a Dialogue>,
        vocabulary: &Vocabulary,
        config: &DialogConfig,
    ) -> Self {
        let mut split = Self {
            config: config.clone(),
            ids: Vec::new(),
            starts: vec![0],
            speakers: Vec::new(),
            dialogues: vec![0],
        };
        dialogues.into_iter().for_each(|dialogue| split.push(dialogue, vocabulary));
        split
    }

    fn push(&mut self, dialogue: &Dialogue, vocabulary: &Vocabulary) {
        let Self { config, ids, starts, speakers, dialogues } = self;
        ids.extend([BOS, BOD, EOS]);
        starts.push(ids.len());
        speakers.push(None);
        // A dialogue has a turn: its constructor sees to that.
        let first = dialogue.turns().first().map(|turn| &turn.speaker);
        for turn in dialogue.turns() {
            config.push_entry(&turn.text, vocabulary, ids);
            starts.push(ids.len());
            speakers.push(Some(Some(&turn.speaker) == first));
        }
        dialogues.push(speakers.len());
    }

    /// How the dialogues were encoded.
    pub fn config(&self) -> &DialogConfig {
        &self.config
    }

    /// Number of dialogues.
    pub fn len(&self) -> usize {
        self.dialogues.len() - 1
    }

    /// Whether there is no dialogue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of utterances of a dialogue, n. It has n + 1 entries.
    ///
    /// # Panics
    /// If there is no such dialogue.
    pub fn utterances(&self, dialogue: usize) -> usize {
        self.dialogues[dialogue + 1] - self.dialogues[dialogue] - 1
    }

    /// The entry `turn` of a dialogue, with its `<s>` and `</s>`.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn entry(&self, dialogue: usize, turn: usize) -> &[u32] {
        let entry = self.index(dialogue, turn);
        &self.ids[self.starts[entry]..self.starts[entry + 1]]
    }

    fn index(&self, dialogue: usize, turn: usize) -> usize {
        assert!(turn <= self.utterances(dialogue), "dialogue {dialogue} has no entry {turn}");
        self.dialogues[dialogue] + turn
    }

    /// The words of a pair's response as the model sees them: without `<s>` and `</s>`.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn response(&self, pair: Pair) -> &[u32] {
        let entry = self.entry(pair.dialogue, pair.turn);
        &entry[1..entry.len() - 1]
    }

    /// The entries of a pair's context, oldest first: at most `window`, the last ones before the response.
    pub fn context(&self, pair: Pair, window: usize) -> Range<usize> {
        pair.turn.saturating_sub(window)..pair.turn
    }

    /// Whether the speaker of the entry `turn` of the context is the one who responds in `pair`. The entry that begins a dialogue
    /// is nobody's.
    ///
    /// # Panics
    /// If there is no such entry or pair.
    pub fn is_own(&self, pair: Pair, turn: usize) -> bool {
        self.speakers[self.index(pair.dialogue, turn)] == self.speakers[self.index(pair.dialogue, pair.turn)]
    }

    /// All pairs in order.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> + '_ {
        (0..self.len())
            .flat_map(|dialogue| (1..self.utterances(dialogue)).map(move |turn| Pair { dialogue, turn }))
    }

    /// Number of pairs.
    pub fn num_pairs(&self) -> usize {
        // Of n + 1 entries, n − 1 are responses.
        self.speakers.len() - 2 * self.len()
    }

    /// Number of tokens of all responses, with `</s>` and without `<s>`: those that a perplexity counts.
    pub fn response_tokens(&self) -> usize {
        self.pairs().map(|pair| self.response(pair).len() + 1).sum()
    }

    /// The pairs of every dialogue, cut into runs of `length`; the last of a dialogue may be shorter.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn runs(&self, length: usize) -> impl Iterator<Item = Run> + '_ {
        assert!(length > 0, "a run has at least 1 pair");
        (0..self.len()).flat_map(move |dialogue| {
            let end = self.utterances(dialogue);
            (1..end)
                .step_by(length)
                .map(move |turn| Run { first: Pair { dialogue, turn }, length: length.min(end - turn) })
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Dialogues whose turns are `A: text`.
    pub fn split_of(dialogues: &[&[&str]], vocabulary: &[&str]) -> Split {
        let turn = |turn: &&str| {
            let (speaker, text) = turn.split_once(": ").unwrap();
            crate::data::Turn { speaker: speaker.into(), text: text.into() }
        };
        let dialogue = |turns: &&[&str]| Dialogue::new("", turns.iter().map(turn).collect()).unwrap();
        let dialogues: Vec<Dialogue> = dialogues.iter().map(dialogue).collect();
        Split::new(&dialogues, &vocabulary_of(vocabulary), &DialogConfig::default())
    }

    pub fn vocabulary_of(words: &[&str]) -> Vocabulary {
        SPECIAL.iter().chain(words).map(|word| word.to_string()).collect::<Vec<_>>().into()
    }

    #[test]
    fn entries_are_marked_and_cut() {
        let vocabulary = vocabulary_of(&["a", "b"]);
        let config = DialogConfig { max_words: 3, ..DialogConfig::default() };
        assert_eq!(config.entry("a x b a", &vocabulary), [BOS, 5, UNK, 6, EOS]);
        assert_eq!(config.entry("", &vocabulary), [BOS, EOS]);
        assert_eq!(config.entry_of(&[5, UNK, 6]), [BOS, 5, UNK, 6, EOS]);
        assert_eq!(DialogConfig::default().entry_of(&[5; 50]), [[BOS].as_slice(), &[5; 38], &[EOS]].concat());
        let long = "a ".repeat(50);
        assert_eq!(DialogConfig::default().entry(&long, &vocabulary).len(), 40);
    }

    #[test]
    fn the_last_utterance_is_no_response() {
        let split = split_of(&[&["A: a", "B: b", "B: c"], &["x: a", "x: b"]], &["a", "b", "c"]);
        assert_eq!((split.len(), split.utterances(0), split.utterances(1)), (2, 3, 2));
        let pairs: Vec<(usize, usize)> = split.pairs().map(|pair| (pair.dialogue, pair.turn)).collect();
        assert_eq!(pairs, [(0, 1), (0, 2), (1, 1)]);
        assert_eq!((split.num_pairs(), split.response_tokens()), (3, 6));
        assert_eq!(split.entry(0, 0), [BOS, BOD, EOS]);
        assert_eq!(split.entry(0, 3), [BOS, 7, EOS]);
        assert_eq!(split.response(Pair { dialogue: 0, turn: 2 }), [6]);
    }

    #[test]
    fn the_floor_is_that_of_the_responder() {
        let split = split_of(&[&["B: a", "A: a", "A: a", "B: a", "B: a"]], &["a"]);
        let own = |turn| -> Vec<bool> {
            let pair = Pair { dialogue: 0, turn };
            split.context(pair, 3).map(|entry| split.is_own(pair, entry)).collect()
        };
        assert_eq!(own(1), [false]);
        assert_eq!(own(2), [false, false]);
        assert_eq!(own(3), [false, false, true]);
        assert_eq!(own(4), [true, false, false]);
    }

    #[test]
    fn runs_are_the_pairs_in_order() {
        let turns = |count: usize| (0..count).map(|_| "A: a").collect::<Vec<_>>();
        let dialogues = [2, 3, 7, 8, 14].map(turns);
        let split = split_of(&dialogues.each_ref().map(Vec::as_slice), &["a"]);
        for length in [1, 2, 6, 13, 100] {
            let runs: Vec<Run> = split.runs(length).collect();
            assert!(runs.iter().all(|run| (1..=length).contains(&run.length)));
            let pairs: Vec<Pair> = runs.iter().flat_map(|run| run.pairs()).collect();
            assert_eq!(pairs, split.pairs().collect::<Vec<_>>());
            assert_eq!(pairs.len(), split.num_pairs());
        }
        assert_eq!(split.runs(6).count(), 1 + 1 + 1 + 2 + 3);
    }

    #[test]
    fn sizes_are_checked() {
        let message = |config: DialogConfig| config.validate().unwrap_err().to_string();
        DialogConfig::default().validate().unwrap();
        let good = DialogConfig::default;
        assert_eq!(
            message(DialogConfig { vocab_size: 5, ..good() }),
            "vocab_size is 5, but must be at least 6"
        );
        assert_eq!(
            message(DialogConfig { max_words: 0, ..good() }),
            "max_words is 0, but must be at least 1"
        );
    }
}
