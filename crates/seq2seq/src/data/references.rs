//! Test responses with several references.

use std::path::{Path, PathBuf};

use runs::data::Vocabulary;
use serde::Serialize;
use serde_json::Value;

use super::lines::{JsonLines, expect, field};
use super::split::{Pair, Split};
use super::vocabulary::UNK;
use crate::error::{Error, Fault, Result};

/// The references of every pair of a text, the true response first, as words of the vocabulary.
///
/// A file of references has one line a pair, in the order of the pairs; a reference is its tokens, joined by blanks:
///
/// ```json
/// {"dialogue": 0, "turn": 1, "references": ["that ' s right", "yeah"]}
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct References {
    of_pairs: Vec<Vec<Vec<u32>>>,
}

impl References {
    /// The true response alone of every pair.
    pub fn single(split: &Split) -> Self {
        Self { of_pairs: split.pairs().map(|pair| vec![split.response(pair).to_vec()]).collect() }
    }

    /// Reads the references of the pairs of `split`. As in responses, words that the vocabulary lacks become `<unk>`, and only the first
    /// [`max_words`](super::DialogConfig::max_words) count. The first of the file may differ from the response by `<unk>`; here it is the
    /// response.
    ///
    /// # Errors
    /// [`Error::Line`] for a bad line; [`Error::OtherReferences`] if it names another pair than the next one or its first reference is
    /// not that pair's response; [`Error::TooFewReferences`]; [`Error::Base`] if the file cannot be read.
    pub fn read(path: &Path, split: &Split, vocabulary: &Vocabulary) -> Result<Self> {
        let mut lines = JsonLines::open(path)?;
        let mut pairs = split.pairs();
        let mut of_pairs = Vec::with_capacity(split.num_pairs());
        while let Some(line) = lines.read()? {
            let line = Line::new(&line, split, vocabulary).map_err(|fault| lines.fault(fault))?;
            let references = line.fitted(pairs.next(), split).map_err(|fault| Error::OtherReferences {
                path: PathBuf::from(path),
                line: lines.line(),
                fault,
            })?;
            of_pairs.push(references);
        }
        let (found, expected) = (of_pairs.len(), split.num_pairs());
        if found < expected {
            return Err(Error::TooFewReferences { path: PathBuf::from(path), found, expected });
        }
        Ok(Self { of_pairs })
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.of_pairs.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.of_pairs.is_empty()
    }

    /// The references of the pair at a place in the order of the pairs.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn of(&self, index: usize) -> &[Vec<u32>] {
        &self.of_pairs[index]
    }

    /// The references of every pair.
    pub fn iter(&self) -> impl Iterator<Item = &[Vec<u32>]> {
        self.of_pairs.iter().map(Vec::as_slice)
    }
}

/// A line of a file of references, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct ReferencesLine<S> {
    pub dialogue: usize,
    pub turn: usize,
    pub references: Vec<S>,
}

/// A line of a file of references, as words of the vocabulary.
struct Line {
    dialogue: u64,
    turn: u64,
    /// At least one.
    references: Vec<Vec<u32>>,
}

impl Line {
    fn new(line: &Value, split: &Split, vocabulary: &Vocabulary) -> Result<Self, Fault> {
        let number =
            |name| expect(field(line, name)?, Value::as_u64, || format!("`{name}`"), "a number from 0");
        let [dialogue, turn] = [number("dialogue")?, number("turn")?];
        let list = expect(field(line, "references")?, Value::as_array, || "`references`".into(), "a list")?;
        let ids = (1..).zip(list).map(|(reference, value)| {
            let text = expect(value, Value::as_str, || format!("reference {reference}"), "a string")?;
            let words = text.split_whitespace().take(split.config().max_words);
            let ids: Vec<u32> = words.map(|word| vocabulary.id(word).unwrap_or(UNK)).collect();
            if ids.is_empty() { Err(Fault(format!("reference {reference} has no word"))) } else { Ok(ids) }
        });
        let references = ids.collect::<Result<Vec<_>, Fault>>()?;
        if references.is_empty() {
            return Err(Fault("no reference".into()));
        }
        Ok(Self { dialogue, turn, references })
    }

    /// The references, which must be those of `pair`, the text's next. The first is then the response itself.
    fn fitted(self, pair: Option<Pair>, split: &Split) -> Result<Vec<Vec<u32>>, Fault> {
        let Self { dialogue, turn, mut references } = self;
        let Some(pair) = pair else {
            return Err(Fault(format!(
                "one line too many: the test text has {} responses",
                split.num_pairs()
            )));
        };
        if [dialogue, turn] != [pair.dialogue as u64, pair.turn as u64] {
            return Err(Fault(format!(
                "references for turn {turn} of dialogue {dialogue}, but the test text's next response is turn {} of dialogue {}",
                pair.turn, pair.dialogue
            )));
        }
        // A file made with another vocabulary may have `<unk>` elsewhere. What the model should say is the response.
        let same = |(one, other): (&u32, &u32)| one == other || *one == UNK || *other == UNK;
        let response = split.response(pair);
        if references[0].len() != response.len() || !references[0].iter().zip(response).all(same) {
            return Err(Fault(format!(
                "the first reference is not the response of the test text: the file was made for another text or another max_words than {}",
                split.config().max_words
            )));
        }
        references[0] = response.to_vec();
        Ok(references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::split::tests::{split_of, vocabulary_of};

    const WORDS: [&str; 3] = ["a", "b", "'"];

    fn read(text: &str) -> Result<References> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test_refs.jsonl");
        std::fs::write(&path, text).unwrap();
        let split = split_of(&[&["A: a'b", "B: zebra b", "A: a"]], &WORDS);
        References::read(&path, &split, &vocabulary_of(&WORDS))
    }

    const GOOD: [&str; 2] = [
        r#"{"dialogue": 0, "turn": 1, "references": ["a ' b", "b <unk> horse"]}"#,
        r#"{"dialogue": 0, "turn": 2, "references": ["<unk> b"]}"#,
    ];

    #[test]
    fn references_are_ids() {
        let references = read(&GOOD.join("\n")).unwrap();
        assert_eq!((references.len(), references.is_empty()), (2, false));
        assert_eq!(references.of(0), [vec![5, 7, 6], vec![6, UNK, UNK]]);
        assert_eq!(references.iter().last().unwrap(), [vec![UNK, 6]]);
        let split = split_of(&[&["A: a'b", "B: zebra b", "A: a"]], &WORDS);
        let single = References::single(&split);
        assert_eq!(single.iter().collect::<Vec<_>>(), [&references.of(0)[..1], references.of(1)]);
    }

    #[test]
    fn the_first_reference_is_the_response_itself() {
        // The file's vocabulary lacked words that this one has, and had one that this one lacks.
        let first = r#"{"dialogue": 0, "turn": 1, "references": ["a <unk> <unk>", "<unk>"]}"#;
        let second = r#"{"dialogue": 0, "turn": 2, "references": ["zebra <unk>"]}"#;
        let references = read(&[first, second].join("\n")).unwrap();
        assert_eq!(references.of(0), [vec![5, 7, 6], vec![UNK]]);
        assert_eq!(references.of(1), [vec![UNK, 6]]);
    }

    #[test]
    fn references_of_other_responses_are_told_from_bad_lines() {
        let cut = r#"{"dialogue": 0, "turn": 1, "references": ["a '"]}"#;
        for text in [cut.to_string(), GOOD[1].to_string(), [GOOD[0], GOOD[1], GOOD[1]].join("\n")] {
            assert!(matches!(read(&text), Err(Error::OtherReferences { .. })), "{text}");
        }
        assert!(matches!(read("{"), Err(Error::Line { .. })));
        let message = read(cut).unwrap_err().to_string();
        let expected = "the file was made for another text or another max_words than 38";
        assert!(message.ends_with(expected), "{message}");
    }

    #[test]
    fn a_long_reference_is_cut_as_the_response_is() {
        let long = "a ".repeat(50);
        let split = split_of(&[&[&format!("A: {long}"), "B: b"]], &WORDS);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("refs.jsonl");
        std::fs::write(&path, format!(r#"{{"dialogue": 0, "turn": 1, "references": ["{long}"]}}"#)).unwrap();
        let references = References::read(&path, &split, &vocabulary_of(&WORDS)).unwrap();
        assert_eq!(references, References::single(&split));
    }

    #[test]
    fn every_fault_names_its_line() {
        let second = |line: &str| format!("{}\n{line}\n", GOOD[0]);
        let with = |list: &str| second(&format!(r#"{{"dialogue": 0, "turn": 2, "references": {list}}}"#));
        for (text, expected) in [
            (second("7"), "line 2: the line is a number, but must be an object"),
            (second(r#"{"turn": 2}"#), "line 2: the field `dialogue` is missing"),
            (
                second(r#"{"dialogue": 0, "turn": -2}"#),
                "line 2: `turn` is a number, but must be a number from 0",
            ),
            (
                second(GOOD[0]),
                "line 2: references for turn 1 of dialogue 0, but the test text's next response is turn 2 of dialogue 0",
            ),
            (second(r#"{"dialogue": 0, "turn": 2}"#), "line 2: the field `references` is missing"),
            (with("{}"), "`references` is an object, but must be a list"),
            (with("[]"), "line 2: no reference"),
            (with("[1]"), "reference 1 is a number, but must be a string"),
            (with(r#"["x b", " "]"#), "reference 2 has no word"),
            (with(r#"["x a"]"#), "the first reference is not the response of the test text"),
            (with(r#"["x b b"]"#), "the first reference is not the response of the test text"),
            (second(GOOD[1]) + GOOD[1], "line 3: one line too many: the test text has 2 responses"),
            (GOOD[0].into(), "test_refs.jsonl` has references for 1 responses, but the test text has 2"),
            (String::new(), "test_refs.jsonl` has references for 0 responses, but the test text has 2"),
        ] {
            let message = read(&text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
