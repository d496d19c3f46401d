//! `ptb_mos compare`: where one run's model beats another's, token by token.

use std::path::PathBuf;

use awd_lstm::data::Vocabulary;
use awd_lstm::{HeadKind, LmBackend};
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use highrank::analysis::{Comparison, Prediction, TokenGain};
use serde::Serialize;

use super::runs::SavedRun;
use super::text::Text;
use super::{HeldOutArgs, html, output_folder};
use crate::device::{Task, on_device};
use crate::exit::Failure;
use crate::progress::print_json;

/// Words of context that are shown in front of a token.
const CONTEXT: usize = 20;

/// Options of `compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// Folders of the two runs: first A, then B.
    #[arg(long = "run", value_name = "RUN", required = true, num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// How many tokens are shown: those where A gains most over B.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub most: usize,
    /// How many of each model's most probable words are shown.
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub top: usize,
    /// Folder for the same as one page, compare.html.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// What the two models come to over the whole text.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Name of run A.
    pub a: String,
    /// Its head.
    pub head_a: HeadKind,
    /// Its perplexity.
    pub ppl_a: f64,
    /// Name of run B.
    pub b: String,
    /// Its head.
    pub head_b: HeadKind,
    /// Its perplexity.
    pub ppl_b: f64,
    /// Tokens compared.
    pub tokens: usize,
    /// Share of tokens that A finds more probable than B does.
    pub a_better: f64,
}

/// A token with its words.
#[derive(Debug, Clone, Serialize)]
pub struct Token {
    /// Place in the text.
    pub position: usize,
    /// The words before it.
    pub context: Vec<String>,
    /// The word that came.
    pub target: String,
    /// `log P_A − log P_B` of it, in nats.
    pub gain: f64,
    /// Its probability under A.
    pub p_a: f64,
    /// Its probability under B.
    pub p_b: f64,
    /// A's most probable words.
    pub top_a: Vec<WordProbability>,
    /// B's most probable words.
    pub top_b: Vec<WordProbability>,
}

/// A word and its probability.
#[derive(Debug, Clone, Serialize)]
pub struct WordProbability {
    /// The word.
    pub word: String,
    /// Its probability.
    pub p: f64,
}

impl Token {
    fn new(gain: &TokenGain, ids: &[usize], vocabulary: &Vocabulary) -> Self {
        let word = |id: usize| vocabulary.words()[id].clone();
        let top = |predictions: &[Prediction]| {
            let named = predictions.iter();
            named.map(|it| WordProbability { word: word(it.word), p: it.log_prob.exp() }).collect()
        };
        // The word at `position` is the last of the context, the target comes after it.
        let seen = &ids[..=gain.position];
        Self {
            position: gain.position,
            context: seen[seen.len().saturating_sub(CONTEXT)..].iter().map(|&id| word(id)).collect(),
            target: word(gain.target),
            gain: gain.gain(),
            p_a: gain.log_prob_a.exp(),
            p_b: gain.log_prob_b.exp(),
            top_a: top(&gain.top_a),
            top_b: top(&gain.top_b),
        }
    }
}

/// Prints the tokens that A predicts better than B by the largest margin, and both models' predictions there.
///
/// # Errors
/// Bad input: not two runs, a damaged one, different vocabularies, text that is too short or not covered.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.runs.len() != 2 {
        let given = args.runs.len();
        return Err(format!("{given} runs given, but compare takes two: --run A --run B").into());
    }
    for (name, value) in [("most", args.most), ("top", args.top)] {
        if value == 0 {
            return Err(awd_lstm::Error::invalid(name, value, "at least 1").into());
        }
    }
    let runs = SavedRun::open_all(&args.runs)?;
    SavedRun::same_vocabulary(&runs)?;
    let text = Text::load(&args.text, &runs, 1)?;
    if let Some(out) = &args.out {
        output_folder(out)?;
    }
    let (summary, tokens) = on_device(args.text.device, CompareTask { args, runs, text })?;
    if let Some(out) = &args.out {
        html::write(&out.join("compare.html"), &summary, &tokens)?;
    }
    if args.text.json {
        tokens.iter().for_each(print_json);
        print_json(&summary);
    } else {
        print_text(&summary, &tokens);
    }
    Ok(())
}

struct CompareTask<'a> {
    args: &'a CompareArgs,
    runs: Vec<SavedRun>,
    text: Text,
}

impl Task for CompareTask<'_> {
    type Output = (Summary, Vec<Token>);

    fn run<B>(self, device: B::Device) -> Result<Self::Output, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { args, runs, text } = self;
        let [a, b] = runs.as_slice() else { unreachable!("two runs were checked") };
        let (model_a, model_b) = (a.model::<B::InnerBackend>(&device)?, b.model::<B::InnerBackend>(&device)?);
        let mut comparison = Comparison::new(a.vocabulary.len(), args.most, args.top);
        let windows_a = text.windows(&model_a, &device, "comparing");
        let windows_b = text.windows_unseen(&model_b, &device);
        for (window_a, window_b) in windows_a.zip(windows_b) {
            let rows_a = model_a.head().log_probs(window_a.hidden);
            let rows_b = model_b.head().log_probs(window_b.hidden);
            comparison.add(rows_a, rows_b, &window_a.targets)?;
        }
        let ids = text.ids::<B::InnerBackend>(&device);
        let tokens = comparison.gains().iter().map(|gain| Token::new(gain, &ids, &a.vocabulary)).collect();
        let [ppl_a, ppl_b] = comparison.mean_nll().map(f64::exp);
        let summary = Summary {
            a: a.name.clone(),
            head_a: a.config.model.head,
            ppl_a,
            b: b.name.clone(),
            head_b: b.config.model.head,
            ppl_b,
            tokens: comparison.tokens(),
            a_better: comparison.share_better(),
        };
        Ok((summary, tokens))
    }
}

fn print_text(summary: &Summary, tokens: &[Token]) {
    let Summary { a, head_a, ppl_a, b, head_b, ppl_b, .. } = summary;
    println!("A: {a} ({head_a}), perplexity {ppl_a:.2}; B: {b} ({head_b}), perplexity {ppl_b:.2}");
    println!("A is better at {:.1} % of {} tokens", 100.0 * summary.a_better, summary.tokens);
    for (rank, token) in tokens.iter().enumerate() {
        println!("\n{}. token {}: {} [{}]", rank + 1, token.position, token.context.join(" "), token.target);
        println!(
            "   P({}): A {:.5}, B {:.5}, gain {:.2} nats",
            token.target, token.p_a, token.p_b, token.gain
        );
        for (name, top) in [("A", &token.top_a), ("B", &token.top_b)] {
            let words = top.iter().map(|it| format!("{} {:.3}", it.word, it.p));
            println!("   {name}: {}", words.collect::<Vec<_>>().join(", "));
        }
    }
}
