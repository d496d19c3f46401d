//! `dialog eval`: perplexity and BLEU of a saved run's best model.

use std::path::{Path, PathBuf};

use awd_lstm::error::check;
use awd_lstm::files::replace;
use clap::Args;
use seq2seq::data::{Corpus, Pair, References};
use seq2seq::generate::Response;
use seq2seq::metrics::BleuForm;
use seq2seq::train::mean_nll;
use serde::Serialize;

use super::beam::{BeamArgs, Found, respond};
use super::saved::{Saved, text};
use super::scores::Scores;
use crate::device::DeviceChoice;
use crate::failure::Failure;
use crate::print::print_json;

/// Options of `dialog eval`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct EvalArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Folder with valid.jsonl and test.jsonl [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// File with several references for each test response [default: test_refs.jsonl of the data folder, if it is there].
    #[arg(long, value_name = "FILE")]
    pub refs: Option<PathBuf>,
    /// Form of BLEU: four_orders, short_weights or repository_2017. Figures of different forms must not be compared.
    #[arg(long, value_name = "FORM", default_value_t)]
    pub bleu: BleuForm,
    /// Respond to so many test contexts only, at equal distances.
    #[arg(long, value_name = "N")]
    pub contexts: Option<usize>,
    /// File to write the responses to, one JSON object a context.
    #[arg(long, value_name = "FILE")]
    pub responses: Option<PathBuf>,
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

#[derive(Debug, Serialize)]
struct Evaluation {
    valid_ppl: f64,
    test_ppl: f64,
    width: usize,
    max_length: usize,
    n_best: usize,
    alpha: f64,
    /// Time of the search for responses.
    seconds: f64,
    #[serde(flatten)]
    scores: Scores,
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
    check(args.contexts != Some(0), "contexts", 0, "at least 1")?;
    if let Some(path) = args.responses.as_ref().filter(|path| !folder_of(path).is_dir()) {
        // Before the work, not after it.
        return Err(format!("cannot write `{}`: its folder does not exist", path.display()).into());
    }
    let saved = Saved::open(&args.run)?;
    let data = args.data.as_ref().unwrap_or(&saved.config.data);
    let corpus = Corpus::load_held_out(data, saved.vocabulary.clone(), &saved.config.text)?;
    let test = corpus.test();
    let beside = Some(data.join("test_refs.jsonl")).filter(|path| path.exists());
    let several = args.refs.clone().or(beside);
    let references = match &several {
        Some(path) => References::read(path, test, corpus.vocabulary())?,
        None => References::single(test),
    };
    let model = saved.model(args.device)?;
    let perplexity = |split| {
        let ppl = mean_nll(&model, split).exp();
        if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
    };
    let (valid_ppl, test_ppl) = (perplexity(corpus.valid())?, perplexity(test)?);
    let chosen = spread(test.num_pairs(), args.contexts);
    let all: Vec<Pair> = test.pairs().collect();
    let pairs: Vec<Pair> = chosen.iter().map(|&index| all[index]).collect();
    let found = respond(&model, test, &pairs, &search, "responses")?;
    let of_contexts = found.words().zip(chosen.iter().map(|&index| references.of(index)));
    let scores = Scores::new(args.bleu, several.is_some(), of_contexts);
    if let Some(path) = &args.responses {
        replace(path, lines(&found, &pairs, &corpus)?.as_bytes())?;
    }
    let evaluation = Evaluation {
        valid_ppl,
        test_ppl,
        width: search.width,
        max_length: search.max_length,
        n_best: search.n_best,
        alpha: search.alpha,
        seconds: found.seconds,
        scores,
    };
    if args.json {
        print_json(&evaluation);
    } else {
        print(&evaluation);
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// At most so many of `count` places, at equal distances.
fn spread(count: usize, most: Option<usize>) -> Vec<usize> {
    let most = most.unwrap_or(count).min(count);
    (0..count).step_by((count / most.max(1)).max(1)).take(most).collect()
}

/// The responses to each context, a JSON object a line.
fn lines(found: &Found, pairs: &[Pair], corpus: &Corpus) -> Result<String, Failure> {
    let mut lines = String::new();
    for (pair, responses) in pairs.iter().zip(&found.responses) {
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
    let Evaluation { valid_ppl, test_ppl, width, max_length, n_best, alpha, seconds, scores } = evaluation;
    println!("perplexity valid {valid_ppl:.2}, test {test_ppl:.2}");
    println!(
        "{n_best} best of a beam of {width}, at most {max_length} words{}, {} contexts in {seconds:.1} s: mean length \
         {:.2}, {} different best responses",
        if *alpha > 0.0 { format!(", in order of log-probability / length^{alpha}") } else { String::new() },
        scores.contexts,
        scores.mean_length,
        scores.distinct_best,
    );
    print!("{}", scores.table());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_contexts_are_spread_over_all() {
        assert_eq!(spread(5, None), [0, 1, 2, 3, 4]);
        assert_eq!(spread(10, Some(3)), [0, 3, 6]);
        assert_eq!(spread(3, Some(9)), [0, 1, 2]);
        assert!(spread(0, Some(2)).is_empty());
    }
}
