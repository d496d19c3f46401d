//! Dialogues as they are in files.

use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::lines::{JsonLines, expect, field, parse};
use super::tokens::has_token;
use crate::error::{Error, Fault, Result};

/// One utterance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Who speaks.
    pub speaker: String,
    /// What is said.
    pub text: String,
}

impl Serialize for Turn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [&self.speaker, &self.text].serialize(serializer)
    }
}

/// A dialogue of two speakers: at least two turns, each with a word.
///
/// One speaker may have several turns in a row, or all of them. Serialises as a line of a [data file](super).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dialogue {
    topic: String,
    turns: Vec<Turn>,
}

impl Dialogue {
    /// A dialogue of some turns.
    ///
    /// # Errors
    /// If there are fewer turns than two, one without a speaker or a word, or more speakers than two.
    pub fn new(topic: impl Into<String>, turns: Vec<Turn>) -> Result<Self, Fault> {
        if turns.len() < 2 {
            return Err(Fault(format!("too few turns: {}; a dialogue has at least 2", turns.len())));
        }
        let mut known: Vec<&str> = Vec::with_capacity(2);
        for (turn, Turn { speaker, text }) in (1..).zip(&turns) {
            if speaker.trim().is_empty() {
                return Err(Fault(format!("turn {turn} has no speaker")));
            }
            if !has_token(text) {
                return Err(Fault(format!("turn {turn} has no word")));
            }
            if !known.contains(&speaker.as_str()) {
                if let [first, second] = known[..] {
                    let [third, first, second] = [speaker.as_str(), first, second].map(shortened);
                    return Err(Fault(format!(
                        "turn {turn} is by a third speaker, `{third}`; a dialogue has two, here `{first}` and `{second}`"
                    )));
                }
                known.push(speaker);
            }
        }
        Ok(Self { topic: topic.into(), turns })
    }

    /// Reads a line of a data file.
    ///
    /// ```
    /// use seq2seq::data::Dialogue;
    ///
    /// let dialogue = Dialogue::parse(r#"{"topic": "MUSIC", "turns": [["A", "hi"], ["B", "hello"]]}"#).unwrap();
    /// assert_eq!(dialogue.turns()[1].text, "hello");
    /// let fault = Dialogue::parse(r#"{"turns": [["A", "hi"], ["B", 7]]}"#).unwrap_err();
    /// assert_eq!(fault.to_string(), "the text of turn 2 is a number, but must be a string");
    /// ```
    ///
    /// # Errors
    /// The line's first fault.
    pub fn parse(line: &str) -> Result<Self, Fault> {
        Self::from_json(&parse(line)?)
    }

    fn from_json(line: &Value) -> Result<Self, Fault> {
        let list = expect(field(line, "turns")?, Value::as_array, || "`turns`".into(), "a list")?;
        let topic = match line.get("topic") {
            Some(topic) => expect(topic, Value::as_str, || "`topic`".into(), "a string")?,
            None => "",
        };
        let turns = (1..).zip(list).map(|(turn, pair)| {
            let pair = expect(pair, Value::as_array, || format!("turn {turn}"), "a pair: [speaker, text]")?;
            let [speaker, text] = pair.as_slice() else {
                let length = pair.len();
                return Err(Fault(format!(
                    "turn {turn} has length {length}, but must be a pair: [speaker, text]"
                )));
            };
            let string = |value, what| {
                expect(value, Value::as_str, || format!("the {what} of turn {turn}"), "a string")
                    .map(String::from)
            };
            Ok(Turn { speaker: string(speaker, "speaker")?, text: string(text, "text")? })
        });
        Self::new(topic, turns.collect::<Result<_, Fault>>()?)
    }

    /// What it is about; empty if the file does not say.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The utterances.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }
}

/// The dialogues of a file. One at a time is in memory; nothing follows an error.
///
/// # Errors
/// [`Error::MissingFile`] if there is no such file, [`Error::Base`] if it cannot be opened. The items are an [`Error::Line`] for a bad
/// line, [`Error::Base`] if the file cannot be read on, and [`Error::EmptyFile`] if it has no dialogue.
pub fn dialogues(path: &Path) -> Result<impl Iterator<Item = Result<Dialogue>>> {
    if !path.exists() || path.is_dir() {
        return Err(Error::MissingFile { path: path.to_path_buf() });
    }
    let (mut lines, path) = (JsonLines::open(path)?, path.to_path_buf());
    let (mut empty, mut failed) = (true, false);
    Ok(std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let next = match lines.read() {
            Ok(Some(value)) => Dialogue::from_json(&value).map_err(|fault| lines.fault(fault)),
            Ok(None) if empty => Err(Error::EmptyFile { path: path.clone() }),
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        (empty, failed) = (false, next.is_err());
        Some(next)
    }))
}

/// A name for a message: on one line, and not too long.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 20;
    let escaped = name.escape_debug().take(LONGEST + 1).collect::<String>();
    match escaped.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &escaped[..end]),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_dialogue_is_read_back() {
        let line = r#"{"topic":"a \"b\"","turns":[["A","hi\nthere"],["A","é"],["B","…"]]}"#;
        let dialogue = Dialogue::parse(line).unwrap();
        assert_eq!(dialogue.topic(), "a \"b\"");
        assert_eq!(serde_json::to_string(&dialogue).unwrap(), line);
        let reordered = r#"{"acts": [1], "turns": [["x", "1"], ["y", "2"]]}"#;
        assert_eq!(Dialogue::parse(reordered).unwrap().topic(), "");
    }

    #[test]
    fn every_fault_has_its_message() {
        for (line, expected) in [
            ("hello", "not JSON, at column 1: expected value"),
            ("[]", "the line is a list, but must be an object"),
            ("{}", "the field `turns` is missing"),
            (r#"{"topic": "X"}"#, "the field `turns` is missing"),
            (r#"{"turns": null}"#, "`turns` is null, but must be a list"),
            (
                r#"{"turns": [["A", "a"], ["B", "b"]], "topic": 7}"#,
                "`topic` is a number, but must be a string",
            ),
            (r#"{"turns": []}"#, "too few turns: 0; a dialogue has at least 2"),
            (r#"{"turns": [["A", "a"]]}"#, "too few turns: 1; a dialogue has at least 2"),
            (r#"{"turns": ["A"]}"#, "turn 1 is a string, but must be a pair: [speaker, text]"),
            (r#"{"turns": [["A", "a"], ["B"]]}"#, "turn 2 has length 1, but must be a pair: [speaker, text]"),
            (r#"{"turns": [["A", "a", "x"]]}"#, "turn 1 has length 3, but must be a pair: [speaker, text]"),
            (
                r#"{"turns": [["A", "a"], [true, "b"]]}"#,
                "the speaker of turn 2 is a truth value, but must be a string",
            ),
            (r#"{"turns": [["A", {}]]}"#, "the text of turn 1 is an object, but must be a string"),
            (r#"{"turns": [["A", "a"], [" ", "b"]]}"#, "turn 2 has no speaker"),
            (r#"{"turns": [["A", "a"], ["B", " \n "]]}"#, "turn 2 has no word"),
            (
                r#"{"turns": [["A", "a"], ["B", "b"], ["A", "c"], ["C\n", "d"]]}"#,
                "turn 4 is by a third speaker, `C\\n`; a dialogue has two, here `A` and `B`",
            ),
        ] {
            let message = Dialogue::parse(line).unwrap_err().to_string();
            assert_eq!(message, expected, "{line}");
        }
        assert_eq!(shortened(&"é".repeat(20)), "é".repeat(20));
        assert_eq!(shortened(&"é".repeat(21)), "é".repeat(20) + "…");
    }

    #[test]
    fn a_file_ends_with_its_first_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            dialogues(&path).unwrap().collect::<Vec<_>>()
        };
        let good = "{\"turns\": [[\"A\", \"a\"], [\"B\", \"b\"]]}\n";
        assert_eq!(read(&good.repeat(3)).into_iter().filter(Result::is_ok).count(), 3);
        let items = read(&format!("{good}\n{{}}\n{good}"));
        assert_eq!(items.len(), 2);
        let message = items[1].as_ref().unwrap_err().to_string();
        assert!(message.ends_with("test.jsonl`, line 3: the field `turns` is missing"), "{message}");
        for empty in ["", "\n\n", "\u{feff}"] {
            let items = read(empty);
            assert!(matches!(items[..], [Err(Error::EmptyFile { .. })]), "{items:?}");
        }
        let missing = dialogues(&folder.path().join("train.jsonl")).err().unwrap();
        assert!(matches!(missing, Error::MissingFile { .. }));
        // A folder in the place of the file.
        assert!(dialogues(folder.path()).map_or(true, |mut items| items.next().unwrap().is_err()));
    }
}
