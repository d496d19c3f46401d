//! `ptb_mos train`.

use std::path::PathBuf;

use awd_lstm::data::Corpus;
use awd_lstm::train::{RunConfig, RunFolder, Trainer, Versions};
use awd_lstm::{Error, LmBackend, ModelConfig, TrainConfig};
use burn::tensor::backend::AutodiffBackend;

use crate::args::TrainArgs;
use crate::device::{Task, on_device};
use crate::exit::Failure;
use crate::progress::{Progress, print_json};

/// Trains as the arguments say and saves the run.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TrainArgs) -> Result<(), Failure> {
    let config = args.config()?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    args.model(1)?;
    if let Some(out) = args.out.as_ref().filter(|out| RunFolder::exists(out)) {
        return Err(Error::RunExists { path: out.clone() }.into());
    }
    let corpus = Corpus::load(&args.data)?;
    let model = args.model(corpus.vocabulary().len())?;
    on_device(args.device, TrainTask { args, model, config, corpus })
}

struct TrainTask<'a> {
    args: &'a TrainArgs,
    model: ModelConfig,
    config: TrainConfig,
    corpus: Corpus,
}

impl Task for TrainTask<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> Result<(), Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { args, model, config, corpus } = self;
        let mut trainer = Trainer::<B>::new(&model, &config, &corpus, &device)?;
        let out = args.out.clone().unwrap_or_else(|| fresh_folder(args, config.seed));
        let data = std::fs::canonicalize(&args.data).unwrap_or_else(|_| args.data.clone());
        let parameters = model.num_params();
        let run_config = RunConfig {
            versions: Versions::current(),
            preset: args.preset.to_string(),
            device: args.device.to_string(),
            data,
            model,
            train: config,
        };
        let run = RunFolder::create(&out, &run_config, corpus.vocabulary())?;
        eprintln!(
            "{} with {parameters} parameters, {} words, {} training tokens, run folder {}",
            args.head,
            corpus.vocabulary().len(),
            corpus.train().len(),
            out.display()
        );
        let mut progress = Progress::new(args.json);
        let result = trainer.fit(Some(&run), &mut progress);
        progress.finish();
        let last = result?;
        if args.json {
            print_json(&last);
        } else {
            println!(
                "best epoch {}: perplexity valid {:.2}, test {:.2}",
                last.best_epoch, last.valid_ppl, last.test_ppl
            );
        }
        Ok(())
    }
}

/// A folder under `runs/` that holds no run yet, named after what is trained.
fn fresh_folder(args: &TrainArgs, seed: u64) -> PathBuf {
    let name = format!("{}-{}-{seed}", args.preset, args.head);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone())
        .chain(numbered)
        .map(|name| PathBuf::from("runs").join(name))
        .find(|path| !path.exists())
        .expect("there is no end of numbers")
}
