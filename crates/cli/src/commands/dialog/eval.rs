//! `dialog eval`: perplexity and BLEU of a saved run's best model.

use std::path::PathBuf;

use clap::Args;
use program::device::DeviceChoice;
use program::failure::Failure;
use program::files::Force;
use program::print::{print_json, print_note};
use program::statistics::decimal;
use runs::error::check;
use runs::files::replace;
use seq2seq::generate::Response;
use seq2seq::train::fingerprint;
use serde::Serialize;

use super::beam::BeamArgs;
use super::held_out::{Evaluation, HeldOut, HeldOutArgs};
use super::saved::{Saved, text};
use crate::training::{TEST, VALID, other_texts};

/// Options of `dialog eval`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct EvalArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The text.
    #[command(flatten)]
    pub held_out: HeldOutArgs,
    /// File to write the responses to, one JSON object a context.
    #[arg(long, value_name = "FILE")]
    pub responses: Option<PathBuf>,
    /// Whether the file is replaced.
    #[command(flatten)]
    pub force: Force,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How responses are found.
    #[command(flatten)]
    pub beam: BeamArgs,
}

/// A line of the file of responses.
#[derive(Serialize)]
struct Line<'a> {
    dialogue: usize,
    turn: usize,
    reference: String,
    responses: Vec<Answer<'a>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    text: String,
    words: &'a [u32],
    log_prob: f64,
}

/// Evaluates a saved run's best model and prints perplexities and BLEU.
///
/// # Errors
/// Bad input: no run, a damaged one, dialogues or references that cannot be read, options out of range.
pub fn run(args: &EvalArgs) -> Result<(), Failure> {
    let search = args.beam.search()?;
    check(args.held_out.contexts != Some(0), "contexts", 0, "at least 1")?;
    args.responses.as_deref().map_or(Ok(()), |path| args.force.check(path))?;
    let saved = Saved::open(&args.run)?;
    let held_out = args.held_out.load(&saved)?;
    let now = fingerprint(&held_out.corpus);
    other_texts(&saved.config.corpus, &now, &[VALID, TEST]).iter().for_each(print_note);
    let model = saved.model(args.device)?;
    let perplexities = held_out.perplexities(&model)?;
    let (responses, seconds) = held_out.respond(&model, &search)?;
    if let Some(path) = &args.responses {
        replace(path, lines(&responses, &held_out)?.as_bytes())?;
    }
    let evaluation = held_out.score(perplexities, &search, (responses.as_slice(), seconds));
    if args.json {
        print_json(&evaluation);
    } else {
        print(&evaluation);
    }
    Ok(())
}

/// The responses to each context, a JSON object a line.
fn lines(found: &[Vec<Response>], held_out: &HeldOut) -> Result<String, Failure> {
    let (mut lines, corpus) = (String::new(), &held_out.corpus);
    for (pair, responses) in held_out.pairs.iter().zip(found) {
        let line = Line {
            dialogue: pair.dialogue,
            turn: pair.turn,
            reference: text(corpus.test().response(*pair), corpus.vocabulary()),
            responses: responses
                .iter()
                .map(|Response { words, log_prob, .. }| Answer {
                    text: text(words, corpus.vocabulary()),
                    words,
                    log_prob: *log_prob,
                })
                .collect(),
        };
        lines += &serde_json::to_string(&line)?;
        lines.push('\n');
    }
    Ok(lines)
}

fn print(evaluation: &Evaluation) {
    let Evaluation { valid_ppl, test_ppl, seconds, scores, .. } = evaluation;
    println!("perplexity valid {}, test {}", decimal(*valid_ppl, 2), decimal(*test_ppl, 2));
    println!(
        "{}, {} contexts in {seconds:.1} s: mean length {:.2}, {} different best responses",
        evaluation.text(),
        scores.contexts,
        scores.mean_length,
        scores.distinct_best,
    );
    print!("{}", scores.table());
}
