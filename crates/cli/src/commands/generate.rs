//! `generate`: text from a saved run's best model.

use std::path::PathBuf;

use awd_lstm::train::RunFolder;
use clap::Args;
use gpt::Transformer;
use highrank::Sampling;
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::print::{is_lost, print_json, print_note};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::data::{TextConfig, UNKNOWN, Vocabulary};
use runs::error::check;
use runs::{Error, Settings, kind_of_run, load_weights};
use serde::Serialize;

/// Options of `generate`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Text to continue; without it a text of words begins with a sentence, one of characters after a blank.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub prompt: String,
    /// Tokens to draw.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub tokens: usize,
    /// Divides the log-probabilities: below 1 the text keeps to what is likely, above 1 it strays.
    #[arg(long, default_value_t = 1.0, value_name = "T")]
    pub temperature: f64,
    /// Draw among the K most likely tokens only.
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw among the fewest most likely tokens only whose probabilities sum to P.
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Generated<'a> {
    prompt: &'a str,
    /// Tokens of the prompt that the vocabulary lacks.
    unknown: Vec<String>,
    seed: u64,
    tokens: Vec<&'a str>,
    text: String,
}

/// Prints text that a saved run's best model draws: word by word as they are drawn, or as one object.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let expected = "finite and above 0 (--top-k 1 takes the most likely token)";
    let good = args.temperature > 0.0 && args.temperature.is_finite();
    check(good, "temperature", args.temperature, expected)?;
    let sampling =
        Sampling::new().with_temperature(args.temperature).with_top_k(args.top_k).with_top_p(args.top_p);
    sampling.validate()?;
    check(args.tokens > 0, "tokens", args.tokens, "at least 1")?;
    let is_transformer = kind_of_run(&args.run)? == Transformer::KIND;
    let device = device::open(device::resolve(args.device))?;
    if is_transformer {
        let run = gpt::RunFolder::open(&args.run)?;
        let config = run.config()?;
        let model = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
        let draws = |prompt: &[u32], rng| model.draws(prompt, &sampling, rng);
        return print_draws(args, &config.text, &run.vocabulary()?, draws);
    }
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let model = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
    let draws = |prompt: &[u32], rng| model.draws(prompt, &sampling, rng);
    print_draws(args, &config.text, &run.vocabulary()?, draws)
}

/// Prints the text that `draws` makes of a prompt.
fn print_draws<I: Iterator<Item = u32>>(
    args: &GenerateArgs,
    text: &TextConfig,
    vocabulary: &Vocabulary,
    draws: impl FnOnce(&[u32], Pcg64Mcg) -> Result<I, Error>,
) -> Result<(), Failure> {
    let (mut prompt, unknown) = text.prompt(&args.prompt, vocabulary);
    if !unknown.is_empty() {
        print_note(unknown_words(&unknown, vocabulary));
    }
    if args.prompt.is_empty() && text.characters {
        // What a line's end is read as.
        prompt.push(vocabulary.id(" ").unwrap_or(0));
    }
    let given = format!("`{}`", args.prompt);
    check(!prompt.is_empty(), "prompt", given, "text with a token of the model")?;
    let draws = draws(&prompt, Pcg64Mcg::seed_from_u64(args.seed))?;
    let words = draws.take(args.tokens).filter_map(|id| vocabulary.word(id));
    if args.json {
        let tokens: Vec<&str> = words.collect();
        let text = text.join(tokens.iter().copied());
        print_json(&Generated { prompt: &args.prompt, unknown, seed: args.seed, text, tokens });
        return Ok(());
    }
    let given = text.tokens(&args.prompt);
    // The last line of the prompt is continued.
    let given = given.iter().take(given.len().saturating_sub(usize::from(!text.characters)));
    stream(text, given.map(String::as_str).chain(words));
    Ok(())
}

/// Prints words as text, each as soon as it is there, until nobody reads them. Line ends after the last word become one.
fn stream<'a>(text: &TextConfig, words: impl Iterator<Item = &'a str>) {
    let mut joiner = text.joiner();
    let mut line_ends = 0;
    for word in words.take_while(|_| !is_lost()) {
        for piece in joiner.piece(word) {
            match piece {
                "\n" => line_ends += 1,
                "" => {}
                _ => print!("{}{piece}", "\n".repeat(std::mem::take(&mut line_ends))),
            }
        }
    }
    println!();
}

/// What becomes of the tokens of a prompt that the vocabulary lacks, as one line.
fn unknown_words(unknown: &[String], vocabulary: &Vocabulary) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for word in unknown {
        if !distinct.contains(&word.as_str()) {
            distinct.push(word);
        }
    }
    let fate = match vocabulary.id(UNKNOWN) {
        Some(_) => format!("read as {UNKNOWN}"),
        None => "passed over".into(),
    };
    format!("not in the vocabulary and {fate}: {}", distinct.join(", "))
}
