//! The responses of several models to the same contexts.

use std::fmt::Write as _;

use super::answers::Responses;
use crate::commands::dialog::held_out::{HeldOut, spread};
use crate::commands::dialog::saved::text;

/// The responses of a model with a name.
pub struct Voice<'a> {
    /// The model's name.
    pub name: String,
    /// Its responses to every context.
    pub responses: &'a Responses,
}

/// At most `count` contexts at equal distances, each with its last `window` entries, the true response and the responses of every
/// model.
pub fn text_of(held_out: &HeldOut, voices: &[Voice], window: usize, count: usize) -> String {
    let (test, vocabulary) = (held_out.corpus.test(), held_out.corpus.vocabulary());
    let names = voices.iter().map(|voice| voice.name.as_str()).chain([TRUE_RESPONSE]);
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let mut lines = String::new();
    for place in spread(held_out.pairs.len(), Some(count)) {
        let pair = held_out.pairs[place];
        let _ = writeln!(lines, "dialogue {}, turn {}", pair.dialogue + 1, pair.turn);
        for turn in test.context(pair, window) {
            let entry = test.entry(pair.dialogue, turn);
            let (speaker, words) = match turn {
                0 => ("", "(the dialogue begins)".to_string()),
                _ if test.is_own(pair, turn) => ("same", text(&entry[1..entry.len() - 1], vocabulary)),
                _ => ("other", text(&entry[1..entry.len() - 1], vocabulary)),
            };
            let _ = writeln!(lines, "  {speaker:<5} {words}");
        }
        let mut line = |name: &str, text: &str| {
            let _ = writeln!(lines, "  {name:<width$}  {text}");
        };
        line(TRUE_RESPONSE, &text(test.response(pair), vocabulary));
        for Voice { name, responses } in voices {
            let of_context = responses.words[place].iter().map(|words| match text(words, vocabulary) {
                empty if empty.is_empty() => "(nothing)".to_string(),
                text => text,
            });
            line(name, &of_context.collect::<Vec<_>>().join(" | "));
        }
        lines.push('\n');
    }
    lines
}

const TRUE_RESPONSE: &str = "true response";
