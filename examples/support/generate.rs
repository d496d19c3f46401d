//! `ptb_mos generate`.

use std::path::PathBuf;

use awd_lstm::data::Vocabulary;
use awd_lstm::train::{RunConfig, RunFolder, load_weights};
use awd_lstm::{Error, LmBackend};
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use highrank::Sampling;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::device::{DeviceName, Task, on_device};
use crate::exit::Failure;
use crate::progress::print_json;

/// Options of `generate`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Text to go on from; without it a text of words begins with a sentence.
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
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

impl GenerateArgs {
    fn sampling(&self) -> Result<Sampling, Error> {
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            let expected = "finite and above 0 (--top-k 1 takes the most likely token)";
            return Err(Error::invalid("temperature", self.temperature, expected));
        }
        let sampling =
            Sampling::new().with_temperature(self.temperature).with_top_k(self.top_k).with_top_p(self.top_p);
        sampling.validate()?;
        Ok(sampling)
    }
}

#[derive(Debug, Serialize)]
struct Generated<'a> {
    prompt: &'a str,
    /// Tokens of the prompt that the vocabulary lacks.
    unknown: Vec<String>,
    seed: u64,
    tokens: Vec<&'a str>,
    /// The tokens as text.
    text: String,
}

/// Prints text that a saved run's best model draws.
///
/// # Errors
/// Bad input: no run, a damaged one, options out of range, a prompt without a known token.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let sampling = args.sampling()?;
    if args.tokens == 0 {
        return Err(Error::invalid("tokens", args.tokens, "at least 1").into());
    }
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let vocabulary = run.vocabulary()?;
    let text = config.text.clone();
    let (prompt, unknown) = text.prompt(&args.prompt, &vocabulary);
    if !unknown.is_empty() {
        eprintln!("{}", unknown_words(&unknown, &vocabulary));
    }
    if prompt.is_empty() {
        return Err(
            Error::invalid("prompt", format!("`{}`", args.prompt), "text with a token of the model").into()
        );
    }
    let ids = on_device(args.device, GenerateTask { args, run, config, prompt, sampling })?;
    let tokens: Vec<&str> = ids.iter().filter_map(|&id| vocabulary.word(id)).collect();
    let generated = Generated {
        prompt: &args.prompt,
        unknown,
        seed: args.seed,
        text: text.join(tokens.iter().copied()),
        tokens,
    };
    if args.json {
        print_json(&generated);
    } else {
        let given = text.tokens(&args.prompt);
        // The last line of the prompt goes on.
        let given = given.iter().take(given.len().saturating_sub(usize::from(!text.characters)));
        let all = text.join(given.map(String::as_str).chain(generated.tokens.iter().copied()));
        println!("{}", all.trim_end_matches('\n'));
    }
    Ok(())
}

/// What becomes of the tokens of a prompt that the vocabulary lacks, as one line.
fn unknown_words(unknown: &[String], vocabulary: &Vocabulary) -> String {
    use awd_lstm::data::UNKNOWN;
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

struct GenerateTask<'a> {
    args: &'a GenerateArgs,
    run: RunFolder,
    config: RunConfig,
    prompt: Vec<u32>,
    sampling: Sampling,
}

impl Task for GenerateTask<'_> {
    type Output = Vec<u32>;

    fn run<B>(self, device: B::Device) -> Result<Vec<u32>, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let model = self.config.model.try_init::<B::InnerBackend>(&device)?;
        let model = load_weights(model, &self.run.best_weights()?)?;
        let mut rng = Pcg64Mcg::seed_from_u64(self.args.seed);
        Ok(model.generate(&self.prompt, self.args.tokens, &self.sampling, &mut rng)?)
    }
}
