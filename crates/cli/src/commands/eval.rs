//! `eval`: perplexities of a saved run's best model.

use std::path::PathBuf;

use awd_lstm::data::{Batches, Corpus};
use awd_lstm::train::{RunFolder, load_weights, mean_nll};
use clap::Args;
use serde::Serialize;

use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use crate::print::{bits_text, print_json, with_bits};

/// Options of `eval`.
#[derive(Debug, Clone, Args)]
pub struct EvalArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Folder with valid.txt and test.txt [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Perplexities {
    valid_ppl: f64,
    test_ppl: f64,
}

/// Evaluates a saved run's best model and prints the perplexities.
///
/// # Errors
/// Bad input: no run, a damaged one, text that the model's vocabulary does not cover.
pub fn run(args: &EvalArgs) -> Result<(), Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let data = args.data.as_ref().unwrap_or(&config.data);
    let corpus = Corpus::load_held_out(data, run.vocabulary()?, &config.text)?;
    let device = device::open(device::resolve(args.device))?;
    let valid = Batches::new("the validation text", corpus.valid(), config.train.eval_batch, 2)?;
    let test = Batches::new("the test text", corpus.test(), config.train.test_batch, 2)?;
    let model = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
    let perplexity = |batches: &Batches| {
        let ppl = mean_nll(&model, batches).exp();
        if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
    };
    let perplexities = Perplexities { valid_ppl: perplexity(&valid)?, test_ppl: perplexity(&test)? };
    let Perplexities { valid_ppl, test_ppl } = perplexities;
    let characters = config.text.characters;
    if args.json {
        let bits = [("valid_bpc", valid_ppl), ("test_bpc", test_ppl)];
        print_json(&with_bits(&perplexities, characters, &bits));
    } else {
        let bits = bits_text(characters, &[("valid", valid_ppl), ("test", test_ppl)]);
        println!("perplexity valid {valid_ppl:.2}, test {test_ppl:.2}{bits}");
    }
    Ok(())
}
