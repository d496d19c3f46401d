//! `dialog respond`: answers to the lines of standard input.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use highrank::{BeamSearch, FinishedHypotheses};
use program::device::DeviceChoice;
use program::failure::Failure;
use program::print::{is_lost, print_json, print_note};
use runs::error::check;
use seq2seq::Seq2Seq;
use seq2seq::data::{Contexts, next_line, tokens};
use seq2seq::generate::{Response, beam_search};
use serde::Serialize;

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

/// Options of the search.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Beam search")]
pub struct BeamArgs {
    /// Hypotheses that go on from word to word [default: 10].
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// The most words of a response, its end among them [default: 30].
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,
    /// Responses to each context: the best that are found [default: 5].
    #[arg(long, value_name = "N")]
    pub n_best: Option<usize>,
    /// Order the responses by log-probability / length^A: 0 favours short ones, 1 takes the mean of a word [default: 0].
    #[arg(long, value_name = "A")]
    pub alpha: Option<f64>,
    /// Let finished hypotheses leave the beam instead of keeping their places.
    #[arg(long)]
    pub leave_beam: bool,
}

impl BeamArgs {
    pub fn search(&self) -> Result<BeamSearch, Failure> {
        let mut search = beam_search();
        search.width = self.width.unwrap_or(search.width);
        search.max_length = self.max_length.unwrap_or(search.max_length);
        search.n_best = self.n_best.unwrap_or(search.n_best);
        search.alpha = self.alpha.unwrap_or(search.alpha);
        if self.leave_beam {
            search.finished = FinishedHypotheses::LeaveBeam;
        }
        search.validate()?;
        // A narrower beam cannot find so many.
        check(search.n_best <= search.width, "n_best", search.n_best, "at most the width of the beam")?;
        Ok(search)
    }
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
        saved: &saved,
        search: &search,
        go_on: args.go_on,
        history: Vec::new(),
    };
    let terminal = io::stdin().is_terminal();
    let mut input = io::stdin().lock();
    for number in 1.. {
        if terminal {
            // A prompt that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "> ");
        }
        let Some(line) = read_line(&mut input, number)? else { break };
        let known = tokens(&line);
        if known.is_empty() {
            if terminal {
                print_note("a new conversation");
            }
            conversation.history.clear();
            continue;
        }
        let answers = conversation.answer(number, &line, &known)?;
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
    saved: &'a Saved,
    search: &'a BeamSearch,
    /// Whether the speaker of a line goes on.
    go_on: bool,
    /// The entries so far, as many as the model reads, and whether each is by the one who responds.
    history: Vec<(Vec<u32>, bool)>,
}

impl Conversation<'_> {
    /// Answers a line, which has `tokens`, and takes the line and the best answer to the history. Also says what of the line the
    /// model does not see.
    fn answer<'a>(&mut self, line: usize, said: &'a str, tokens: &[String]) -> Result<Answers<'a>, Failure> {
        let (config, vocabulary) = (&self.saved.config.text, &self.saved.vocabulary);
        self.push(config.entry(said, vocabulary), self.go_on);
        let contexts = Contexts::of_history(&self.history, self.model.window());
        let seen = self.history.len();
        let responses = self.model.respond(&contexts, self.search)?.pop().unwrap_or_default();
        if let Some(best) = responses.first() {
            self.push(config.entry_of(&best.words), true);
        }
        let mut unknown: Vec<String> = Vec::new();
        for token in tokens.iter().take(config.max_words) {
            if vocabulary.id(token).is_none() && !unknown.contains(token) {
                unknown.push(token.clone());
            }
        }
        note(&unknown, tokens.len(), config.max_words).iter().for_each(print_note);
        let answer = |response: &Response| Answer {
            text: text(&response.words, vocabulary),
            log_prob: response.log_prob,
            score: response.score,
            finished: response.finished,
        };
        let responses = responses.iter().map(answer).collect();
        Ok(Answers { line, text: said, unknown, seen, responses })
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

/// The next line of standard input, which has this number, without its end; none after the last.
fn read_line(input: &mut impl BufRead, number: usize) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let line = next_line(input, &mut bytes, "utterance");
    let Some(line) = line.map_err(|error| format!("cannot read standard input: {error}"))? else {
        return Ok(None);
    };
    let text = line.map_err(|fault| format!("standard input, line {number}: {fault}"))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seq2seq::data::MAX_LINE_BYTES;

    #[test]
    fn lines_are_read_without_their_ends_and_checked() {
        let mut input = &b"one\r\n\ntwo"[..];
        let mut next = || read_line(&mut input, 1).unwrap();
        assert_eq!(
            [next(), next(), next(), next()],
            [Some("one".into()), Some("".into()), Some("two".into()), None]
        );
        let long = vec![b'a'; MAX_LINE_BYTES + 1];
        let error = read_line(&mut &long[..], 2).unwrap_err();
        let expected = "standard input, line 2: longer than 4194304 bytes; a line holds one utterance";
        assert_eq!(error.to_string(), expected);
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

    #[test]
    fn the_search_is_the_published_one_unless_options_say_otherwise() {
        let search = BeamArgs::default().search().unwrap();
        assert_eq!((search.width, search.max_length, search.n_best, search.alpha), (10, 30, 5, 0.0));
        assert_eq!(search.finished, FinishedHypotheses::KeepPlace);
        let given = BeamArgs { width: Some(3), max_length: Some(7), n_best: Some(2), ..Default::default() };
        let search = BeamArgs { alpha: Some(0.5), leave_beam: true, ..given }.search().unwrap();
        assert_eq!((search.width, search.max_length, search.n_best, search.alpha), (3, 7, 2, 0.5));
        assert_eq!(search.finished, FinishedHypotheses::LeaveBeam);
    }
}
