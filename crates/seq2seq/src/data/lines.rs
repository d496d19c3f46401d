//! Files with one JSON value a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use runs::files;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Fault, Result};

/// The most bytes of a line: 4 MiB, some hundred times the longest dialogue of Switchboard. It bounds the memory of reading.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// The next line of a text, with its end; `None` after the last. `content` is what a line holds, as a [`Fault`] says it.
///
/// - bytes: where the line is kept
///
/// # Errors
/// If the text cannot be read. A [`Fault`] if the line is longer than [`MAX_LINE_BYTES`] or not UTF-8.
pub fn next_line<'a>(
    reader: &mut impl BufRead,
    bytes: &'a mut Vec<u8>,
    content: &str,
) -> io::Result<Option<Result<&'a str, Fault>>> {
    bytes.clear();
    if reader.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', bytes)? == 0 {
        return Ok(None);
    }
    Ok(Some(match std::str::from_utf8(bytes) {
        _ if bytes.len() > MAX_LINE_BYTES => {
            Err(Fault(format!("longer than {MAX_LINE_BYTES} bytes; a line holds one {content}")))
        }
        Ok(line) => Ok(line),
        Err(_) => Err(Fault("not UTF-8 text".into())),
    }))
}

/// The values of a file, one a line. Blank lines are left out. One line at a time is in memory.
pub(super) struct JsonLines {
    path: PathBuf,
    reader: BufReader<File>,
    bytes: Vec<u8>,
    line: usize,
}

impl JsonLines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(runs::Error::io("read", path))?;
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Self { path: path.to_path_buf(), reader, bytes: Vec::new(), line: 0 })
    }

    /// The number of the line read last, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// An error of the line read last.
    pub(super) fn fault(&self, fault: Fault) -> Error {
        Error::Line { path: self.path.clone(), line: self.line, fault }
    }

    /// Reads up to the next line that is not blank; `None` at the end of the file.
    pub(super) fn read(&mut self) -> Result<Option<Value>> {
        loop {
            let line = next_line(&mut self.reader, &mut self.bytes, "JSON object");
            let Some(line) = line.map_err(runs::Error::io("read", &self.path))? else { return Ok(None) };
            self.line += 1;
            let text = match line {
                Ok(text) => text,
                Err(fault) => return Err(self.fault(fault)),
            };
            let text = if self.line == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
            let text = text.trim_end();
            if !text.is_empty() {
                return parse(text).map(Some).map_err(|fault| self.fault(fault));
            }
        }
    }
}

/// The JSON value of a line.
pub(super) fn parse(line: &str) -> Result<Value, Fault> {
    serde_json::from_str(line).map_err(|error| {
        // The parser's place counts lines of the string, of which there is one.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = error.to_string();
        let reason = reason.strip_suffix(&place).unwrap_or(&reason);
        Fault(format!("not JSON, at column {}: {reason}", error.column().max(1)))
    })
}

/// Writes a JSON value a line, in the place of a file that may be there.
pub(crate) fn write_lines(path: &Path, lines: impl IntoIterator<Item: Serialize>) -> runs::error::Result<()> {
    let mut bytes = Vec::new();
    for line in lines {
        let written = serde_json::to_writer(&mut bytes, &line);
        written.map_err(|error| runs::Error::io("write", path)(error.into()))?;
        bytes.push(b'\n');
    }
    files::replace(path, &bytes)
}

/// The type of a value, with an article.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// `part` of a value, or an error that names its `place`.
pub(super) fn expect<'a, T>(
    value: &'a Value,
    part: impl FnOnce(&'a Value) -> Option<T>,
    place: impl FnOnce() -> String,
    expected: &str,
) -> Result<T, Fault> {
    part(value).ok_or_else(|| Fault(format!("{} is {}, but must be {expected}", place(), kind(value))))
}

/// A field of the object that is a whole line.
pub(super) fn field<'a>(line: &'a Value, field: &str) -> Result<&'a Value, Fault> {
    let object = expect(line, Value::as_object, || "the line".into(), "an object")?;
    object.get(field).ok_or_else(|| Fault(format!("the field `{field}` is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values and the number of the last line, or the first error.
    fn read(bytes: &[u8]) -> Result<(Vec<i64>, usize)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let mut lines = JsonLines::open(&path).unwrap();
        let mut values = vec![];
        while let Some(value) = lines.read()? {
            values.push(value.as_i64().unwrap());
        }
        Ok((values, lines.line))
    }

    #[test]
    fn blank_lines_marks_and_line_ends_do_not_matter() {
        let good = |bytes: &[u8]| read(bytes).unwrap();
        assert_eq!(good(b""), (vec![], 0));
        assert_eq!(good(b"\n \n"), (vec![], 2));
        assert_eq!(good(b"1\n2"), (vec![1, 2], 2));
        assert_eq!(good("\u{feff}1\r\n\r\n 2 \r\n".as_bytes()), (vec![1, 2], 3));
    }

    #[test]
    fn the_first_bad_line_is_named() {
        for (bytes, expected) in [
            (&b"1\n\n{\"a\"\n2\n"[..], "line 3: not JSON, at column 4: EOF while parsing an object"),
            (b"1\n2 3\n", "line 2: not JSON, at column 3: trailing characters"),
            (b"1\n\"\\ud800\"\n", "line 2: not JSON"),
            (b"1\nNaN\n", "line 2: not JSON"),
            (b"\xff\xfe1\n", "line 1: not UTF-8 text"),
            (b"1\n\"\xc3\"\n", "line 2: not UTF-8 text"),
        ] {
            let message = read(bytes).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("lines.jsonl`, line"), "{message}");
        }
        let deep = read("[".repeat(100_000).as_bytes());
        assert!(deep.unwrap_err().to_string().contains("recursion limit"));
    }

    #[test]
    fn a_line_is_at_most_four_mebibytes() {
        let mut longest = vec![b' '; MAX_LINE_BYTES];
        longest[0] = b'7';
        longest[MAX_LINE_BYTES - 1] = b'\n';
        longest.extend(b"8\n");
        assert_eq!(read(&longest).unwrap().0, [7, 8]);
        longest.insert(1, b' ');
        let message = read(&longest).unwrap_err().to_string();
        assert!(
            message.ends_with("line 1: longer than 4194304 bytes; a line holds one JSON object"),
            "{message}"
        );
    }
}
