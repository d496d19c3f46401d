//! `dialog respond`: answers to the lines of standard input.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use highrank::BeamSearch;
use program::device::DeviceChoice;
use program::failure::Failure;
use program::print::{is_lost, print_json, print_note};
use runs::data::Vocabulary;
use seq2seq::Seq2Seq;
use seq2seq::data::{Contexts, DialogConfig, next_line, tokens};
use seq2seq::generate::Response;
use serde::Serialize;

use super::beam::BeamArgs;
use super::saved::{Saved, text};

/// Options of `dialog respond`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct RespondArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Let the speaker of a line go on, instead of the other one answering.
    #[arg(long)]
    pub go_on: bool,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object a line on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How responses are found.
    #[command(flatten)]
    pub beam: BeamArgs,
}

/// The responses to a line.
#[derive(Debug, Serialize)]
struct Answers<'a> {
    line: usize,
    text: &'a str,
    /// Tokens of the line that the vocabulary lacks.
    unknown: Vec<String>,
    /// Utterances of the conversation so far that the model saw, the line among them.
    seen: usize,
    responses: Vec<Answer>,
}

#[derive(Debug, Serialize)]
struct Answer {
    text: String,
    log_prob: f64,
    score: f64,
    /// Whether it ended before the most words.
    finished: bool,
}

/// Answers line by line until standard input ends.
pub fn run(args: &RespondArgs) -> Result<(), Failure> {
    let search = args.beam.search()?;
    let saved = Saved::open(&args.run)?;
    let model = saved.model(args.device)?;
    let mut conversation = Conversation {
        model: &model,
        vocabulary: &saved.vocabulary,
        config: &saved.config.text,
        search: &search,
        go_on: args.go_on,
        history: Vec::new(),
    };
    let terminal = io::stdin().is_terminal();
    let mut lines = Lines { reader: io::stdin().lock(), line: 0 };
    loop {
        if terminal {
            // A prompt that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "> ");
        }
        let Some(line) = lines.read()? else { break };
        let known = tokens(&line);
        if known.is_empty() {
            if terminal {
                print_note("a new conversation");
            }
            conversation.history.clear();
            continue;
        }
        let (answers, note) = conversation.answer(lines.line, &line, &known)?;
        if let Some(note) = note {
            print_note(note);
        }
        match args.json {
            true => print_json(&answers),
            false => println!("{}", text_of(&answers)),
        }
        if is_lost() {
            break;
        }
    }
    Ok(())
}

/// A conversation between the user and a model.
struct Conversation<'a> {
    model: &'a Seq2Seq,
    vocabulary: &'a Vocabulary,
    config: &'a DialogConfig,
    search: &'a BeamSearch,
    /// Whether the speaker of a line goes on.
    go_on: bool,
    /// The entries so far, as many as the model reads, and whether each is by the one who responds.
    history: Vec<(Vec<u32>, bool)>,
}

impl Conversation<'_> {
    /// Answers a line, which has `tokens`, and takes the line and the best answer to the history. Also says what of the line the
    /// model does not see.
    fn answer<'a>(
        &mut self,
        line: usize,
        said: &'a str,
        tokens: &[String],
    ) -> Result<(Answers<'a>, Option<String>), Failure> {
        let entry = self.config.entry(said, self.vocabulary);
        self.push(entry, self.go_on);
        let window = self.model.window();
        let contexts = Contexts::of_history(&self.history, window);
        let seen = self.history.len();
        let responses = self.model.respond(&contexts, self.search)?.pop().unwrap_or_default();
        if let Some(best) = responses.first() {
            let entry = self.config.entry(&text(&best.words, self.vocabulary), self.vocabulary);
            self.push(entry, true);
        }
        let mut unknown: Vec<String> = Vec::new();
        for token in tokens.iter().take(self.config.max_words) {
            if self.vocabulary.id(token).is_none() && !unknown.contains(token) {
                unknown.push(token.clone());
            }
        }
        let note = note(&unknown, tokens.len(), self.config.max_words);
        let answer = |response: &Response| Answer {
            text: text(&response.words, self.vocabulary),
            log_prob: response.log_prob,
            score: response.score,
            finished: response.finished,
        };
        let responses = responses.iter().map(answer).collect();
        Ok((Answers { line, text: said, unknown, seen, responses }, note))
    }

    /// Adds an entry. What is older than the model's window is forgotten.
    fn push(&mut self, entry: Vec<u32>, own: bool) {
        self.history.push((entry, own));
        let old = self.history.len().saturating_sub(self.model.window());
        self.history.drain(..old);
    }
}

/// What of a line the model does not see, if it does not see all.
fn note(unknown: &[String], words: usize, most: usize) -> Option<String> {
    let unknown = (!unknown.is_empty())
        .then(|| format!("not in the vocabulary and read as <unk>: {}", unknown.join(", ")));
    let cut = (words > most).then(|| format!("only the first {most} of {words} words are read"));
    let parts: Vec<String> = unknown.into_iter().chain(cut).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A line a response, and an empty one.
fn text_of(answers: &Answers) -> String {
    let line = |Answer { text, log_prob, .. }: &Answer| {
        let text = if text.is_empty() { "(nothing)" } else { text };
        format!("{log_prob:>9.3}  {text}\n")
    };
    answers.responses.iter().map(line).collect()
}

/// The lines of standard input.
struct Lines<R> {
    reader: R,
    /// The number of the last line, from 1.
    line: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end; none after the last.
    fn read(&mut self) -> Result<Option<String>, Failure> {
        let mut bytes = Vec::new();
        let line = next_line(&mut self.reader, &mut bytes, "utterance");
        let Some(line) = line.map_err(|error| format!("cannot read standard input: {error}"))? else {
            return Ok(None);
        };
        self.line += 1;
        let text = line.map_err(|fault| format!("standard input, line {}: {fault}", self.line))?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seq2seq::data::MAX_LINE_BYTES;

    #[test]
    fn lines_are_counted_and_checked() {
        let mut lines = Lines { reader: &b"one\r\n\ntwo"[..], line: 0 };
        let mut next = || lines.read().unwrap();
        assert_eq!(
            [next(), next(), next(), next()],
            [Some("one".into()), Some("".into()), Some("two".into()), None]
        );
        let message = |bytes: &[u8]| {
            let mut lines = Lines { reader: bytes, line: 0 };
            lines.read().unwrap();
            lines.read().unwrap_err().to_string()
        };
        assert_eq!(message(b"a\n\xff\n"), "standard input, line 2: not UTF-8 text");
        let long = ["a\n".as_bytes(), &vec![b'a'; MAX_LINE_BYTES + 1]].concat();
        let expected = "standard input, line 2: longer than 4194304 bytes; a line holds one utterance";
        assert_eq!(message(&long), expected);
    }

    #[test]
    fn what_is_not_seen_is_said() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(note(&[], 38, 38), None);
        assert_eq!(
            note(&words(&["jazz", "polka"]), 40, 38).unwrap(),
            "not in the vocabulary and read as <unk>: jazz, polka; only the first 38 of 40 words are read"
        );
    }
}
