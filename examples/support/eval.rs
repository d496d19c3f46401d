//! `ptb_mos eval`.

use awd_lstm::LmBackend;
use awd_lstm::data::{Batches, Corpus};
use awd_lstm::train::{RunConfig, RunFolder, load_weights, mean_nll};
use burn::tensor::backend::AutodiffBackend;
use serde::Serialize;

use crate::args::EvalArgs;
use crate::device::{Task, on_device};
use crate::exit::Failure;
use crate::progress::{bits_text, print_json, with_bits};

/// Evaluates a saved run's best model and prints the perplexities.
///
/// # Errors
/// Bad input: no run, a damaged one, text that the model's vocabulary does not cover.
pub fn run(args: &EvalArgs) -> Result<(), Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let data = args.data.as_ref().unwrap_or(&config.data);
    let corpus = Corpus::load_held_out(data, run.vocabulary()?, &config.text)?;
    let characters = config.text.characters;
    let perplexities = on_device(args.device, EvalTask { run, config, corpus })?;
    let Perplexities { valid_ppl, test_ppl } = perplexities;
    if args.json {
        print_json(&with_bits(
            &perplexities,
            characters,
            &[("valid_bpc", valid_ppl), ("test_bpc", test_ppl)],
        ));
    } else {
        let bits = bits_text(characters, &[("valid", valid_ppl), ("test", test_ppl)]);
        println!("perplexity valid {valid_ppl:.2}, test {test_ppl:.2}{bits}");
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Perplexities {
    valid_ppl: f64,
    test_ppl: f64,
}

struct EvalTask {
    run: RunFolder,
    config: RunConfig,
    corpus: Corpus,
}

impl Task for EvalTask {
    type Output = Perplexities;

    fn run<B>(self, device: B::Device) -> Result<Perplexities, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { run, config, corpus } = self;
        let valid = Batches::new("the validation text", corpus.valid(), config.train.eval_batch, 2)?;
        let test = Batches::new("the test text", corpus.test(), config.train.test_batch, 2)?;
        let model = config.model.try_init::<B::InnerBackend>(&device)?;
        let model = load_weights(model, &run.best_weights()?)?;
        let perplexity = |batches: &Batches| {
            let ppl = mean_nll(&model, batches, &device).exp();
            if ppl.is_finite() { Ok(ppl) } else { Err("the perplexity is not finite") }
        };
        Ok(Perplexities { valid_ppl: perplexity(&valid)?, test_ppl: perplexity(&test)? })
    }
}
