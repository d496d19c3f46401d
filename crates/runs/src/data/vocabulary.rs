//! The two-way map between words and their ids.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The word that ends every line.
pub const EOS: &str = "<eos>";

/// The word that stands for every word that a vocabulary lacks.
pub const UNKNOWN: &str = "<unk>";

/// Words and their ids, numbered from 0 in order of first appearance.
///
/// Serialises as the plain list of words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Vocabulary {
    words: Vec<String>,
    ids: HashMap<String, u32>,
}

impl Vocabulary {
    /// An empty vocabulary.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of `word`, which is given the next free one if it is new.
    pub fn insert(&mut self, word: &str) -> u32 {
        if let Some(&id) = self.ids.get(word) {
            return id;
        }
        let id = self.words.len() as u32;
        self.words.push(word.to_string());
        self.ids.insert(word.to_string(), id);
        id
    }

    /// The id of `word`, if it is known.
    pub fn id(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// The word with the id `id`, if there is one.
    pub fn word(&self, id: u32) -> Option<&str> {
        self.words.get(id as usize).map(String::as_str)
    }

    /// All words, in the order of their ids.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there is no word yet.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Writes the words to `path`, one a line, in the order of their ids.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut text = self.words.join("\n");
        text.push('\n');
        std::fs::write(path, text).map_err(Error::io("write", path))
    }

    /// Reads what [`save`](Self::save) wrote. Lines may end as on Windows, and a byte-order mark may stand before them.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Damaged`] if it is no list of distinct words.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut vocabulary = Self::new();
        let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        for (index, line) in lines.filter(|_| !text.is_empty()).enumerate() {
            // A carriage return ends the line, unless it is all of it: then it is a token of a text of characters.
            let word = line.strip_suffix('\r').filter(|word| !word.is_empty()).unwrap_or(line);
            // In a text of characters, the blank is a token.
            let blank = word.chars().count() == 1;
            if word.is_empty() || (word.contains(char::is_whitespace) && !blank) {
                return Err(Error::damaged(path, format!("line {} is not one word", index + 1)));
            }
            if vocabulary.insert(word) as usize != index {
                return Err(Error::damaged(path, format!("line {} repeats the word `{word}`", index + 1)));
            }
        }
        if vocabulary.is_empty() {
            return Err(Error::damaged(path, "it holds no word"));
        }
        Ok(vocabulary)
    }
}

impl From<Vec<String>> for Vocabulary {
    fn from(words: Vec<String>) -> Self {
        let ids = words.iter().enumerate().map(|(id, word)| (word.clone(), id as u32)).collect();
        Self { words, ids }
    }
}

impl From<Vocabulary> for Vec<String> {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.words
    }
}

/// Checks tokens that a model of `vocab` words is to continue.
///
/// # Errors
/// [`Error::InvalidSetting`] if there is none, or one is outside of the vocabulary.
pub fn check_prompt(prompt: &[u32], vocab: usize) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::invalid("prompt", "empty", "at least one token"));
    }
    match prompt.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => Err(Error::invalid("prompt", format!("token {id}"), "tokens of the model's vocabulary")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_words_by_first_appearance() {
        let mut vocabulary = Vocabulary::new();
        let ids: Vec<u32> = ["b", "a", "b", "c"].iter().map(|w| vocabulary.insert(w)).collect();
        assert_eq!(ids, [0, 1, 0, 2]);
        assert_eq!(vocabulary.len(), 3);
        assert_eq!(vocabulary.word(1), Some("a"));
        assert_eq!(vocabulary.word(3), None);
        assert_eq!(vocabulary.id("c"), Some(2));
        assert_eq!(vocabulary.id("d"), None);
    }

    #[test]
    fn survives_both_of_its_formats() {
        let vocabulary = Vocabulary::from(vec!["<eos>".to_string(), "né".into(), "x".into()]);
        let json = serde_json::to_string(&vocabulary).unwrap();
        assert_eq!(json, r#"["<eos>","né","x"]"#);
        assert_eq!(serde_json::from_str::<Vocabulary>(&json).unwrap(), vocabulary);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocab.txt");
        vocabulary.save(&path).unwrap();
        assert_eq!(Vocabulary::load(&path).unwrap(), vocabulary);
        let characters = ["a", " ", "\r", "\t", "\u{b}", "\u{85}", "\u{2028}", "b"].map(String::from);
        let characters = Vocabulary::from(characters.to_vec());
        characters.save(&path).unwrap();
        assert_eq!(Vocabulary::load(&path).unwrap(), characters);
        let windows = std::fs::read_to_string(&path).unwrap().replace('\n', "\r\n");
        std::fs::write(&path, windows).unwrap();
        assert_eq!(Vocabulary::load(&path).unwrap(), characters);
        std::fs::write(&path, "\u{feff}the\r\ncat\r\n").unwrap();
        assert_eq!(Vocabulary::load(&path).unwrap().words(), ["the", "cat"]);
    }

    #[test]
    fn refuses_a_damaged_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocab.txt");
        for (text, reason) in [
            ("a\nb\na\n", "line 3 repeats"),
            ("a\n\n", "line 2 is not one"),
            ("a b\n", "line 1 is not one"),
            ("", "no word"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = Vocabulary::load(&path).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
    }
}
