//! How text becomes tokens and tokens become text.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::vocabulary::{EOS, UNKNOWN, Vocabulary};
use crate::error::{Error, Result};

/// How a text is cut into tokens, and which tokens a vocabulary keeps.
///
/// ```
/// use runs::data::TextConfig;
///
/// assert_eq!(TextConfig::default().tokens("The cat\nsat"), ["The", "cat", "<eos>", "sat", "<eos>"]);
/// let text = TextConfig { characters: true, lower_case: true, ..TextConfig::default() };
/// assert_eq!(text.tokens("A b\n"), ["a", " ", "b"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextConfig {
    /// Characters instead of words. There is no end of line then: a line end is read as a blank, except at the end of a file.
    pub characters: bool,
    /// Whether text is read in lower case.
    pub lower_case: bool,
    /// The largest vocabulary. It keeps [`EOS`], [`UNKNOWN`] and the most frequent tokens of the training text; all others are
    /// read as [`UNKNOWN`]. `None` keeps every token of the three texts.
    pub vocab_size: Option<usize>,
}

impl TextConfig {
    /// Checks the size of the vocabulary.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if it has no room for a word besides [`EOS`] and [`UNKNOWN`].
    pub fn validate(&self) -> Result<()> {
        match self.vocab_size {
            Some(size) if size < 3 => Err(Error::invalid("vocab_size", size, "at least 3")),
            _ => Ok(()),
        }
    }

    /// The tokens of a text: its words with [`EOS`] after every line, or its characters.
    pub fn tokens(&self, text: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate() {
            self.line(line, index == 0, &mut |token| {
                tokens.push(token.to_string());
                Ok(())
            })
            .expect("collecting cannot fail");
        }
        tokens
    }

    /// Hands the tokens of one line to `each`, after the token that separates it from the line before.
    fn line(&self, line: &str, first: bool, each: &mut impl FnMut(&str) -> Result<()>) -> Result<()> {
        let lower;
        let line = match self.lower_case {
            true => {
                lower = line.to_lowercase();
                &lower
            }
            false => line,
        };
        if self.characters {
            if !first {
                each(" ")?;
            }
            let mut bytes = [0; 4];
            return line.chars().try_for_each(|c| each(c.encode_utf8(&mut bytes)));
        }
        line.split_whitespace().try_for_each(&mut *each)?;
        each(EOS)
    }

    /// Hands the tokens of a file to `each`, with the number of their line from 1. One line at a time is in memory.
    ///
    /// # Errors
    /// [`Error::NotUtf8`], [`Error::EmptyFile`], [`Error::Io`], or what `each` says.
    pub(super) fn for_each(
        &self,
        path: &Path,
        mut each: impl FnMut(&str, usize) -> Result<()>,
    ) -> Result<()> {
        let file = File::open(path).map_err(Error::io("read", path))?;
        let mut reader = BufReader::with_capacity(BLOCK_BYTES, file);
        let (mut bytes, mut number, mut empty) = (Vec::new(), 0, true);
        loop {
            bytes.clear();
            if reader.read_until(b'\n', &mut bytes).map_err(Error::io("read", path))? == 0 {
                break;
            }
            number += 1;
            let line = std::str::from_utf8(&bytes)
                .map_err(|_| Error::NotUtf8 { path: path.to_path_buf(), line: number })?;
            // Byte-order marks are no part of the first word, even behind blanks.
            let is_mark = |c: char| c == '\u{feff}' || (!self.characters && c.is_whitespace());
            let line = if number == 1 { line.trim_start_matches(is_mark) } else { line };
            let line = match line.strip_suffix('\n') {
                Some(line) => line.strip_suffix('\r').unwrap_or(line),
                None => line,
            };
            empty = empty && line.trim().is_empty();
            self.line(line, number == 1, &mut |token| each(token, number))?;
        }
        if empty { Err(Error::EmptyFile { path: path.to_path_buf() }) } else { Ok(()) }
    }

    /// Tokens as text: words with blanks between them and a line end for [`EOS`], or characters as they are.
    pub fn join<'a>(&self, tokens: impl IntoIterator<Item = &'a str>) -> String {
        let mut joiner = self.joiner();
        tokens.into_iter().flat_map(|token| joiner.piece(token)).collect()
    }

    /// Makes text of tokens one by one: as [`join`](Self::join), from the start of a text.
    pub fn joiner(&self) -> Joiner {
        Joiner { characters: self.characters, within_line: false }
    }

    /// The ids of a prompt's tokens, and the tokens that the vocabulary lacks.
    ///
    /// Unknown tokens are read as [`UNKNOWN`] if the vocabulary has it, and skipped otherwise. A prompt of words follows an
    /// [`EOS`], so it starts a sentence, and no [`EOS`] is added at its end.
    pub fn prompt(&self, text: &str, vocabulary: &Vocabulary) -> (Vec<u32>, Vec<String>) {
        let mut tokens = self.tokens(text);
        if !self.characters {
            tokens.pop();
            tokens.insert(0, EOS.into());
        }
        let (mut ids, mut unknown) = (Vec::new(), Vec::new());
        for token in tokens {
            match vocabulary.id(&token) {
                Some(id) => ids.push(id),
                None if token == EOS => {}
                None => {
                    ids.extend(vocabulary.id(UNKNOWN));
                    unknown.push(token);
                }
            }
        }
        (ids, unknown)
    }
}

/// Makes text of tokens one by one. Made by [`TextConfig::joiner`].
#[derive(Debug, Clone)]
pub struct Joiner {
    characters: bool,
    /// Whether the line has a word already.
    within_line: bool,
}

impl Joiner {
    /// What the next token adds to the text: what separates it from the token before, and itself.
    pub fn piece<'a>(&mut self, token: &'a str) -> [&'a str; 2] {
        if self.characters {
            return ["", token];
        }
        let separator = if self.within_line && token != EOS { " " } else { "" };
        self.within_line = token != EOS;
        [separator, if token == EOS { "\n" } else { token }]
    }
}

/// Number of bytes in one read from or write to the disk.
pub(super) const BLOCK_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: TextConfig = TextConfig { characters: false, lower_case: false, vocab_size: None };
    const CHARACTERS: TextConfig = TextConfig { characters: true, ..WORDS };

    fn tokens_of_file(config: &TextConfig, path: &Path) -> Vec<String> {
        let mut tokens = Vec::new();
        let each = |token: &str, _| {
            tokens.push(token.to_string());
            Ok(())
        };
        config.for_each(path, each).unwrap();
        tokens
    }

    #[test]
    fn a_file_has_the_tokens_of_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        for text in ["a b\n\n c\td\n", "a", "A b\r\nB\r\n", " x ", "é ÄÖ\nß", "a\n\n\nb", "a\rb\r\r\nc\r"]
        {
            std::fs::write(&path, text).unwrap();
            for config in [WORDS, CHARACTERS, TextConfig { lower_case: true, ..WORDS }] {
                assert_eq!(tokens_of_file(&config, &path), config.tokens(text), "{text:?}, {config:?}");
            }
        }
    }

    #[test]
    fn byte_order_marks_are_no_part_of_the_first_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        for (marks, text) in [(1, "a b"), (2, "a b"), (2, " a")] {
            std::fs::write(&path, "\u{feff}".repeat(marks) + text).unwrap();
            for config in [WORDS, CHARACTERS] {
                assert_eq!(tokens_of_file(&config, &path), config.tokens(text), "{text:?}, {config:?}");
            }
        }
        std::fs::write(&path, " \u{feff} a\nb").unwrap();
        assert_eq!(tokens_of_file(&WORDS, &path), WORDS.tokens("a\nb"));
    }

    #[test]
    fn characters_have_blanks_for_line_ends() {
        assert_eq!(CHARACTERS.tokens("ab c\nd\n").concat(), "ab c d");
        assert_eq!(TextConfig { lower_case: true, ..CHARACTERS }.tokens("Ab"), ["a", "b"]);
    }

    #[test]
    fn joined_tokens_are_text_again() {
        for text in ["the cat\nsat on\n", "one"] {
            let tokens = WORDS.tokens(text);
            assert_eq!(WORDS.join(tokens.iter().map(String::as_str)).trim_end(), text.trim_end());
        }
        let tokens = CHARACTERS.tokens("no blanks added");
        assert_eq!(CHARACTERS.join(tokens.iter().map(String::as_str)), "no blanks added");
    }

    #[test]
    fn a_prompt_starts_a_sentence_and_reads_what_it_can() {
        let words = |list: &[&str]| Vocabulary::from(list.iter().map(|w| w.to_string()).collect::<Vec<_>>());
        let full = words(&["<eos>", "<unk>", "a", "b"]);
        assert_eq!(WORDS.prompt("a zebra b", &full), (vec![0, 2, 1, 3], vec!["zebra".to_string()]));
        assert_eq!(WORDS.prompt("a\nb", &full).0, [0, 2, 0, 3]);
        assert_eq!(WORDS.prompt("", &full).0, [0]);
        let plain = words(&["a", "b"]);
        assert_eq!(WORDS.prompt("a zebra b", &plain), (vec![0, 1], vec!["zebra".to_string()]));
        assert_eq!(CHARACTERS.prompt("ab!", &plain), (vec![0, 1], vec!["!".to_string()]));
    }

    #[test]
    fn a_vocabulary_has_room_for_a_word() {
        assert!(TextConfig { vocab_size: Some(3), ..WORDS }.validate().is_ok());
        let message = TextConfig { vocab_size: Some(2), ..WORDS }.validate().unwrap_err().to_string();
        assert!(message.contains("vocab_size is 2"), "{message}");
    }
}
