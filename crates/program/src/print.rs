//! Results on standard output: JSON lines, and bits per character beside perplexities. Lines about the work on standard error.
//!
//! `print!` and `println!` are the macros below in all programs. The standard ones panic when a reader closes the pipe.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use console::Term;
use serde::Serialize;

/// Prints on standard output, as [`print_out`](crate::print::print_out) does.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::print::print_out(&format!($($text)*)) };
}

/// Prints a line on standard output, as [`print_out`](crate::print::print_out) does.
#[macro_export]
macro_rules! println {
    () => { $crate::print::print_out("\n") };
    ($($text:tt)*) => { $crate::print::print_out(&(format!($($text)*) + "\n")) };
}

/// Why standard output takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Its reader has seen enough.
    Closed,
    /// It could not be written, such as to a full disk.
    Failed,
}

static LOST: OnceLock<Lost> = OnceLock::new();

/// Writes `text` to standard output, at once.
///
/// A lost output does not stop the work: files are still written. If the reader went away, nothing is said; any other fault is one
/// line on standard error, and the exit status tells of it. Further text is then passed over.
pub fn print_out(text: &str) {
    if !is_lost() {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.unwrap_or_else(|error| note_lost(&error));
    }
}

/// Takes note of a write to standard output that failed.
fn note_lost(error: &io::Error) {
    let lost = if error.kind() == ErrorKind::BrokenPipe { Lost::Closed } else { Lost::Failed };
    if LOST.set(lost).is_ok() && lost == Lost::Failed {
        print_note(format_args!("error: cannot write to standard output: {error}"));
    }
}

/// Whether standard output takes no more, so that a command which does nothing but print may end.
pub fn is_lost() -> bool {
    LOST.get().is_some()
}

/// Whether text could not be written although somebody wanted it.
pub fn has_failed() -> bool {
    LOST.get() == Some(&Lost::Failed)
}

/// Metrics with bits per character beside them.
#[derive(Debug, Serialize)]
pub struct WithBits<'a, T> {
    #[serde(flatten)]
    metrics: &'a T,
    #[serde(flatten)]
    bits: BTreeMap<&'static str, f64>,
}

/// Metrics with bits per character under the given names for some perplexities, if tokens are `characters`.
pub fn with_bits<'a, T>(metrics: &'a T, characters: bool, ppls: &[(&'static str, f64)]) -> WithBits<'a, T> {
    let bits = ppls.iter().filter(|_| characters).map(|&(name, ppl)| (name, ppl.log2())).collect();
    WithBits { metrics, bits }
}

/// Bits per character as the end of a line about perplexities, if tokens are `characters`.
pub fn bits_text(characters: bool, ppls: &[(&str, f64)]) -> String {
    if !characters {
        return String::new();
    }
    let bits: Vec<String> = ppls.iter().map(|(name, ppl)| format!("{name} {:.4}", ppl.log2())).collect();
    format!(", bits per character {}", bits.join(", "))
}

/// The words of a text in lines of at most `columns` characters, unless a word is longer.
pub fn wrapped(text: &str, columns: usize) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let fits = width + 1 + length <= columns;
        if width > 0 {
            lines.push(if fits { ' ' } else { '\n' });
        }
        width = if width > 0 && fits { width + 1 + length } else { length };
        lines.push_str(word);
    }
    lines
}

/// A line with its control characters, which names of folders may have, as they are written in programs.
pub fn shown(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for letter in line.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// How many columns standard output has, if it is a terminal.
pub fn terminal_columns() -> Option<usize> {
    let terminal = Term::stdout();
    terminal.is_term().then(|| usize::from(terminal.size().1))
}

/// Prints `value` as one line of JSON on standard output, at once.
pub fn print_json(value: &impl Serialize) {
    let line = serde_json::to_string(value).expect("metrics are plain numbers and names");
    println!("{line}");
}

/// Prints one line on standard error, at once: other processes write there too, and `mpirun` passes on what it has read.
pub fn print_note(line: impl Display) {
    // A terminal that was closed is no reason to stop before work is saved.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(shown("a\u{1b}[31m b\tc ä"), "a\\u{1b}[31m b\\tc ä");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("a bc def  ghij", 6), "a bc\ndef\nghij");
        assert_eq!(wrapped("a bc def", 8), "a bc def");
        assert_eq!(wrapped("abcdef g", 3), "abcdef\ng");
        assert_eq!(wrapped("", 3), "");
    }
}
