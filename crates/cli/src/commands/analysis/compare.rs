//! `compare`: where one run's model beats another's, token by token.

use std::path::PathBuf;

use burn::tensor::Tensor;
use clap::Args;
use highrank::analysis::{Comparison, Prediction, TokenGain};
use program::args::Head;
use program::failure::Failure;
use program::print::{print_json, shown};
use program::statistics::decimal;
use runs::data::Vocabulary;
use runs::error::check;
use serde::Serialize;

use crate::commands::analysis::frame::{Analysis, HeldOutArgs};
use crate::commands::analysis::model::of_words;
use crate::commands::analysis::runs::SavedRun;

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
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// Words of context that are shown in front of a token.
const CONTEXT: usize = 20;

/// The two models' results over the whole text.
#[derive(Debug, Serialize)]
struct Summary {
    a: String,
    head_a: Head,
    ppl_a: f64,
    b: String,
    head_b: Head,
    ppl_b: f64,
    tokens: usize,
    /// Share of tokens that A finds more probable than B does.
    a_better: f64,
}

/// A token with its words.
#[derive(Debug, Serialize)]
struct Token {
    position: usize,
    context: Vec<String>,
    target: String,
    /// `log P_A − log P_B` of it, in nats.
    gain: f64,
    p_a: f64,
    p_b: f64,
    top_a: Vec<WordProbability>,
    top_b: Vec<WordProbability>,
}

/// A word and its probability.
#[derive(Debug, Serialize)]
struct WordProbability {
    word: String,
    p: f64,
}

impl Token {
    /// The token of `gain` in the text of these word ids.
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
            gain: gain.gain,
            p_a: gain.log_prob_a.exp(),
            p_b: gain.log_prob_b.exp(),
            top_a: top(&gain.top_a),
            top_b: top(&gain.top_b),
        }
    }
}

/// Prints the tokens that A predicts better than B by the largest margin, and both models' predictions there.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.runs.len() != 2 {
        let given = args.runs.len();
        return Err(format!("{given} runs given, but compare takes two").into());
    }
    for (name, value) in [("most", args.most), ("top", args.top)] {
        check(value > 0, name, value, "at least 1")?;
    }
    let runs = SavedRun::open_all(&args.runs)?;
    let Analysis { runs, text, device, .. } = &Analysis::open(runs, &args.text, 1, None)?;
    let (a, b) = (&runs[0], &runs[1]);
    let (model_a, model_b) = (a.model(device)?, b.model(device)?);
    let vocab = a.vocabulary.len();
    let mut comparison = Comparison::new(vocab, args.most, args.top);
    let (head_a, head_b) = (model_a.head(), model_b.head());
    // Two kinds of models read stretches of different lengths.
    let rows_b = model_b.windows_unseen(text, device);
    let mut rows_b = rows_b
        .flat_map(|window| of_words(head_b.forward(window.hidden), vocab).iter_dim(0).collect::<Vec<_>>());
    for window in model_a.windows(text, device, "comparing") {
        let rows_a = of_words(head_a.forward(window.hidden), vocab);
        let rows_b = rows_b.by_ref().take(window.targets.len()).collect();
        let [rows_a, rows_b] =
            [rows_a, Tensor::cat(rows_b, 0)].map(|rows| rows.into_data().iter::<f64>().collect::<Vec<_>>());
        comparison.add_rows(&rows_a, &rows_b, &window.targets)?;
    }
    let compared = comparison.finish()?;
    let ids: Vec<usize> = text.ids().iter().map(|&id| id as usize).collect();
    let tokens: Vec<Token> =
        compared.gains.iter().map(|gain| Token::new(gain, &ids, &a.vocabulary)).collect();
    let [ppl_a, ppl_b] = compared.mean_nll.map(f64::exp);
    let summary = Summary {
        a: a.name.clone(),
        head_a: a.head,
        ppl_a,
        b: b.name.clone(),
        head_b: b.head,
        ppl_b,
        tokens: compared.tokens,
        a_better: compared.share_better,
    };
    if args.text.json {
        tokens.iter().for_each(print_json);
        print_json(&summary);
    } else {
        print_text(&summary, &tokens);
    }
    Ok(())
}

fn print_text(summary: &Summary, tokens: &[Token]) {
    let Summary { a, head_a, ppl_a, b, head_b, ppl_b, .. } = summary;
    let (ppl_a, ppl_b) = (decimal(*ppl_a, 2), decimal(*ppl_b, 2));
    let (a, b) = (shown(a), shown(b));
    println!("A: {a} ({head_a}), perplexity {ppl_a}; B: {b} ({head_b}), perplexity {ppl_b}");
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
