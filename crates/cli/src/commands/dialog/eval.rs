//! `dialog eval`: perplexity and BLEU of a saved run's best model.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use highrank::BeamSearch;
use program::device::DeviceChoice;
use program::failure::Failure;
use program::files::{Force, refuse_file, text_folder};
use program::print::{print_json, print_note};
use program::progress::{ShareBar, Working};
use program::statistics::decimal;
use runs::error::check;
use runs::files::replace;
use seq2seq::data::{Contexts, Corpus, Pair, References};
use seq2seq::generate::{CONTEXTS_AT_ONCE, Response};
use seq2seq::metrics::{BleuForm, BleuMean, BleuScores, mean_length};
use seq2seq::train::{fingerprint, mean_nll};
use seq2seq::{Error, Seq2Seq};
use serde::Serialize;

use super::respond::BeamArgs;
use super::saved::{Saved, text};
use crate::training::{TEST, VALID, note_other_texts};

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
    /// File with several references for each test response [default: test_refs.jsonl of the data folder, if it is there and fits the text].
    #[arg(long, value_name = "FILE")]
    pub refs: Option<PathBuf>,
    /// Form of BLEU: four_orders, short_weights or repository_2017. Figures of different forms must not be compared.
    #[arg(long, value_name = "FORM", default_value_t)]
    pub bleu: BleuForm,
    /// Respond to so many test contexts only, at equal distances.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub contexts: Option<usize>,
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

/// Perplexities, a search for responses, how long it took, and how good they are.
#[derive(Serialize)]
struct Evaluation {
    valid_ppl: f64,
    test_ppl: f64,
    width: usize,
    max_length: usize,
    n_best: usize,
    /// The responses are in order of log-probability / length^alpha.
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
pub fn run(args: &EvalArgs) -> Result<(), Failure> {
    let search = args.beam.search()?;
    check(args.contexts != Some(0), "contexts", 0, "at least 1")?;
    args.responses.as_deref().map_or(Ok(()), |path| args.force.check(path))?;
    let saved = Saved::open(&args.run)?;
    let held_out = HeldOut::load(args, &saved)?;
    let model = saved.model(args.device)?;
    note_other_texts(&saved.config.corpus, &fingerprint(&held_out.corpus), &[VALID, TEST]);
    let [valid_ppl, test_ppl] = held_out.perplexities(&model)?;
    let started = Instant::now();
    let responses = held_out.respond(&model, &search)?;
    let seconds = started.elapsed().as_secs_f64();
    if let Some(path) = &args.responses {
        replace(path, held_out.lines(&responses)?.as_bytes())?;
    }
    let evaluation = Evaluation {
        valid_ppl,
        test_ppl,
        width: search.width,
        max_length: search.max_length,
        n_best: search.n_best,
        alpha: search.alpha,
        seconds,
        scores: held_out.scores(args.bleu, &responses),
    };
    match args.json {
        true => print_json(&evaluation),
        false => evaluation.print(),
    }
    Ok(())
}

/// The held-out text with the test contexts that are responded to.
struct HeldOut {
    corpus: Corpus,
    /// The contexts with their true responses.
    pairs: Vec<Pair>,
    /// Their places among all pairs of the test text.
    places: Vec<usize>,
    references: References,
    /// Whether there are references besides the true responses.
    several: bool,
}

impl HeldOut {
    /// Reads the text as a run has read it.
    fn load(args: &EvalArgs, saved: &Saved) -> Result<Self, Failure> {
        let data = text_folder(args.data.as_deref(), &saved.config.data)?;
        refuse_file(data)?;
        let corpus = Corpus::load_held_out(data, saved.vocabulary.clone(), &saved.config.text)?;
        let test = corpus.test();
        let read = |path: &Path| References::read(path, test, corpus.vocabulary());
        let beside = data.join("test_refs.jsonl");
        let found = match &args.refs {
            Some(path) => Some(read(path)?),
            None if beside.exists() => fitting(read(&beside))?,
            None => None,
        };
        let (several, references) = (found.is_some(), found.unwrap_or_else(|| References::single(test)));
        let places = spread(test.num_pairs(), args.contexts);
        let all: Vec<Pair> = test.pairs().collect();
        let pairs = places.iter().map(|&place| all[place]).collect();
        Ok(Self { corpus, references, several, places, pairs })
    }

    /// The perplexities of a model, of the validation and of the test text.
    fn perplexities(&self, model: &Seq2Seq) -> Result<[f64; 2], Failure> {
        let of = |split, what| {
            let _scoring = Working::new(format!("scoring {what}"));
            let ppl = mean_nll(model, split).exp();
            if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
        };
        Ok([of(self.corpus.valid(), VALID)?, of(self.corpus.test(), TEST)?])
    }

    /// The responses of a model to each context, best first. A bar shows how far it is.
    fn respond(&self, model: &Seq2Seq, search: &BeamSearch) -> Result<Vec<Vec<Response>>, Failure> {
        let bar = ShareBar::new("generating responses");
        let mut responses = Vec::with_capacity(self.pairs.len());
        for pairs in self.pairs.chunks(CONTEXTS_AT_ONCE) {
            let contexts = Contexts::new(self.corpus.test(), pairs, model.window());
            responses.extend(model.respond(&contexts, search)?);
            bar.set(responses.len() as f64 / self.pairs.len() as f64);
        }
        Ok(responses)
    }

    /// How good the responses to each context are.
    fn scores(&self, form: BleuForm, responses: &[Vec<Response>]) -> Scores {
        let words =
            responses.iter().map(|found| found.iter().map(|response| response.words.as_slice()).collect());
        let references = self.places.iter().map(|&place| self.references.of(place));
        Scores::new(form, self.several, words.zip(references))
    }

    /// The responses to each context, a JSON object a line.
    fn lines(&self, found: &[Vec<Response>]) -> Result<String, Failure> {
        let (mut lines, corpus) = (String::new(), &self.corpus);
        for (pair, responses) in self.pairs.iter().zip(found) {
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
}

impl Evaluation {
    fn print(&self) {
        let Self { valid_ppl, test_ppl, width, max_length, n_best, alpha, seconds, scores } = self;
        println!("perplexity valid {}, test {}", decimal(*valid_ppl, 2), decimal(*test_ppl, 2));
        let by_length = match *alpha > 0.0 {
            true => format!(", in order of log-probability / length^{alpha}"),
            false => String::new(),
        };
        println!(
            "{n_best} best of a beam of {width}, at most {max_length} words{by_length}, {} contexts in {seconds:.1} s: mean length {:.2}, \
             {} different best responses",
            scores.contexts, scores.mean_length, scores.distinct_best,
        );
        print!("{}", scores.table());
    }
}

/// How good responses are, as means over contexts.
#[derive(Debug, Serialize)]
struct Scores {
    contexts: usize,
    /// Mean number of words of a response.
    mean_length: f64,
    /// Number of different best responses.
    distinct_best: usize,
    bleu: BleuForm,
    /// Against the true response alone.
    single: BleuScores,
    /// Against several references, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    references: Option<BleuScores>,
    /// Mean number of these references.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_references: Option<f64>,
}

impl Scores {
    /// The scores of the responses to each context. A context's references begin with the true response; `several` says whether
    /// there are others.
    fn new<'a>(
        form: BleuForm,
        several: bool,
        of_contexts: impl IntoIterator<Item = (Vec<&'a [u32]>, &'a [Vec<u32>])>,
    ) -> Self {
        let (mut single, mut all) = (BleuMean::new(form), BleuMean::new(form));
        let (mut words, mut references, mut best) = (Vec::new(), 0, HashSet::new());
        for (responses, of_context) in of_contexts {
            single.add(&responses, &of_context[..1]);
            if several {
                all.add(&responses, of_context);
            }
            references += of_context.len();
            best.extend(responses.first().copied());
            words.extend(responses);
        }
        let contexts = single.contexts();
        Self {
            contexts,
            mean_length: mean_length(words).unwrap_or_default(),
            distinct_best: best.len(),
            bleu: form,
            single: single.scores().unwrap_or_default(),
            references: all.scores(),
            mean_references: several.then(|| references as f64 / contexts.max(1) as f64),
        }
    }

    /// A table with a line for each kind of references.
    fn table(&self) -> String {
        let title = format!("BLEU ({})", self.bleu);
        let mut table = line(&title, &std::array::from_fn(|order| format!("BLEU-{} p / r", order + 1)));
        table += &line("true response", &cells(&self.single));
        if let (Some(scores), Some(references)) = (&self.references, self.mean_references) {
            table += &line(&format!("{references:.1} references"), &cells(scores));
        }
        table
    }
}

fn line(title: &str, cells: &[String; 4]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>14}")).collect();
    format!("{title:<22}{cells}\n")
}

/// Precision and recall of every order, such as `.072 / .276`.
fn cells(scores: &BleuScores) -> [String; 4] {
    std::array::from_fn(|order| {
        format!("{} / {}", digits(scores.precision[order]), digits(scores.recall[order]))
    })
}

/// Three digits after the point, and none before it below 1.
fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    text.strip_prefix('0').unwrap_or(&text).to_string()
}

/// What was read of a file that nobody asked for. If it is of other responses, a line says that it is left out.
fn fitting(read: Result<References, Error>) -> Result<Option<References>, Failure> {
    match read {
        Ok(references) => Ok(Some(references)),
        Err(error @ (Error::OtherReferences { .. } | Error::TooFewReferences { .. })) => {
            print_note(format_args!(
                "note: the true responses are the only references, unless --refs FILE names others: {error}"
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// At most so many of `count` places, at equal distances.
fn spread(count: usize, most: Option<usize>) -> Vec<usize> {
    let most = most.unwrap_or(count).min(count);
    (0..most).map(|place| (place as u128 * count as u128 / most as u128) as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_contexts_are_spread_over_all() {
        assert_eq!(spread(5, None), [0, 1, 2, 3, 4]);
        assert_eq!(spread(10, Some(3)), [0, 3, 6]);
        assert_eq!(spread(10, Some(6)), [0, 1, 3, 5, 6, 8]);
        assert_eq!(spread(3, Some(9)), [0, 1, 2]);
        assert!(spread(0, Some(2)).is_empty());
    }

    #[test]
    fn both_tables_are_means_over_contexts() {
        let references = [vec![vec![7, 8, 9], vec![5]], vec![vec![6]]];
        let responses: [&[&[u32]]; 2] = [&[&[5], &[7, 8, 9]], &[&[5], &[5, 5]]];
        let of_contexts = || responses.iter().map(|of| of.to_vec()).zip(references.iter().map(Vec::as_slice));
        let scores = Scores::new(BleuForm::FourOrders, true, of_contexts());
        assert_eq!((scores.contexts, scores.distinct_best), (2, 1));
        assert_eq!((scores.mean_length, scores.mean_references), (7.0 / 4.0, Some(1.5)));
        // One of two responses is the true one in the first context, none in the second.
        assert!((scores.single.precision[0] - 1.0 / 3.0).abs() < 1e-12, "{scores:?}");
        assert!((scores.single.recall[0] - 2.0 / 3.0).abs() < 1e-12, "{scores:?}");
        // Of two references both are found: 4/3 for three words, 1 for a single one.
        let all = scores.references.unwrap();
        assert!((all.recall[0] - (4.0 / 3.0 + 1.0) / 4.0).abs() < 1e-12, "{scores:?}");
        assert_eq!(all.precision[0], all.recall[0]);
        let lines: Vec<String> = scores.table().lines().map(String::from).collect();
        assert!(
            lines[0].starts_with("BLEU (four_orders)") && lines[0].ends_with("BLEU-4 p / r"),
            "{lines:?}"
        );
        assert!(lines[1].contains(".333 / .667") && lines[2].starts_with("1.5 references"), "{lines:?}");

        let scores = Scores::new(BleuForm::FourOrders, false, of_contexts());
        assert_eq!((scores.references, scores.table().lines().count()), (None, 2));
        assert_eq!(digits(4.0 / 3.0), "1.333");
    }
}
