//! How text becomes tokens.

/// The tokens of a text, as in the data of Zhao et al. (arXiv 1703.10960): in lower case, runs of word characters (letters,
/// digits, `_`) and runs of other characters that are not blank.
///
/// `um-hum` is read as `uh-huh` first. Published training and test transcripts of Switchboard differ in how they spell that
/// sound.
///
/// ```
/// use seq2seq::data::tokens;
///
/// assert_eq!(tokens("That's  um-hum right?!"), ["that", "'", "s", "uh", "-", "huh", "right", "?!"]);
/// ```
pub fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for_each_token(text, |token| tokens.push(token.to_string()));
    tokens
}

/// Hands the [`tokens`] of a text to `each`.
pub fn for_each_token(text: &str, mut each: impl FnMut(&str)) {
    let text = text.to_lowercase().replace("um-hum", "uh-huh");
    let (mut start, mut before) = (0, Class::Blank);
    for (at, char) in text.char_indices() {
        let class = Class::of(char);
        if class != before {
            if before != Class::Blank {
                each(&text[start..at]);
            }
            (start, before) = (at, class);
        }
    }
    if before != Class::Blank {
        each(&text[start..]);
    }
}

/// Whether a text has a token.
pub(super) fn has_token(text: &str) -> bool {
    text.chars().any(|char| Class::of(char) != Class::Blank)
}

/// The kinds of characters: a token is a longest run of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Blank,
    Word,
    Other,
}

impl Class {
    fn of(char: char) -> Self {
        if char.is_alphanumeric() || char == '_' {
            Self::Word
        // Separators of files and records are blanks to Python's patterns, in which the tokens were first defined.
        } else if char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char) {
            Self::Blank
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_word_characters_and_runs_of_others() {
        for (text, expected) in [
            ("", &[][..]),
            (" \t\u{a0}\u{1c}\u{2003}", &[]),
            ("that's uh-huh", &["that", "'", "s", "uh", "-", "huh"]),
            ("<s> a_b 3x", &["<", "s", ">", "a_b", "3x"]),
            ("ÉTÉ… naïve", &["été", "…", "naïve"]),
            ("a--b ---", &["a", "--", "b", "---"]),
            ("UM-HUM um-hums", &["uh", "-", "huh", "uh", "-", "huhs"]),
            ("日本 ², ½", &["日本", "²", ",", "½"]),
        ] {
            assert_eq!(tokens(text), expected, "{text:?}");
            assert_eq!(has_token(text), !expected.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn tokens_joined_by_blanks_are_the_same_tokens() {
        for text in ["Well, i don't -- you know -- um-hum!", "a.b.c", "ﬁne ǅ İ"] {
            let once = tokens(text);
            assert_eq!(tokens(&once.join(" ")), once);
        }
    }
}
