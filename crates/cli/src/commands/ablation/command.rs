//! The command itself: one run after the other, and what there is of table and picture after each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use awd_lstm::data::Corpus;
use awd_lstm::train::{RunConfig, RunFolder};
use awd_lstm::{HeadKind, ModelConfig};
use clap::Args;

use crate::args::{DistinctList, TrainingArgs};
use crate::commands::ablation::outcome::Outcome;
use crate::commands::ablation::plan::Plan;
use crate::commands::ablation::report;
use crate::failure::Failure;
use crate::interrupt::Interrupted;
use crate::print::print_json;
use crate::training::{Folder, Job, Output};

/// Options of `ablation`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct AblationArgs {
    /// Folder with train.txt, valid.txt and test.txt.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Output layers, separated by commas.
    #[arg(long, default_value = "softmax,moc,mos,sigsoftmax,plif,mos-plif")]
    pub heads: DistinctList<HeadKind>,
    /// Seeds, separated by commas. Every head is trained with each.
    #[arg(long, default_value = "28")]
    pub seeds: DistinctList<u64>,
    /// Parameters of every model, about [default: those of the preset's Mixture of Softmaxes].
    #[arg(long, value_name = "N")]
    pub parameters: Option<usize>,
    /// Folder to write runs, table and picture to. A second call continues what is there.
    #[arg(long, value_name = "DIR", default_value = "runs/ablation")]
    pub out: PathBuf,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// What is trained and how.
    #[command(flatten)]
    pub training: TrainingArgs,
}

/// Trains all heads with all seeds, or what is left of that, and writes table and picture.
///
/// # Errors
/// Bad input, a budget that a head cannot meet, or what goes wrong in training.
pub fn run(args: &AblationArgs, program: &'static str) -> Result<(), Failure> {
    let output = Output::new(program, false, args.training.checkpoint_every)?;
    let corpus = Corpus::load(&args.data, &args.training.text())?;
    let plan = Plan {
        training: &args.training,
        data: &args.data,
        heads: &args.heads.0,
        seeds: &args.seeds.0,
        parameters: args.parameters,
    };
    let configs = plan.configs(&corpus)?;
    let path = |config: &RunConfig| args.out.join(format!("{}-{}", config.model.head, config.train.seed));
    // Runs of other settings are found before any time is spent.
    for config in &configs {
        Outcome::of_run(&path(config), config)?;
    }
    for (head, model) in heads(&configs) {
        eprintln!(
            "{head}: {} parameters, embedding {}, LSTM {:?}",
            model.num_params(),
            model.d_embedding,
            model.lstm_sizes
        );
    }
    let mut outcomes = vec![];
    let count = configs.len();
    for (number, config) in configs.into_iter().enumerate() {
        let (head, seed) = (config.model.head, config.train.seed);
        let path = path(&config);
        eprintln!("run {} of {count}: {head}, seed {seed}", number + 1);
        let outcome = match Outcome::of_run(&path, &config)? {
            Some(outcome) => outcome,
            None => train(&path, config, &corpus, &output)?,
        };
        if args.json {
            print_json(&outcome);
        }
        outcomes.push(outcome);
        report::save(&outcomes, &args.out)?;
    }
    if !args.json {
        print!("{}", report::table(&outcomes));
    }
    Ok(())
}

/// Every head once, with its model.
fn heads(configs: &[RunConfig]) -> Vec<(HeadKind, &ModelConfig)> {
    let mut seen = BTreeSet::new();
    let models = configs.iter().map(|config| (config.model.head, &config.model));
    models.filter(|(head, _)| seen.insert(head.name())).collect()
}

/// Trains a run to its end, from where it is.
fn train(path: &Path, config: RunConfig, corpus: &Corpus, output: &Output) -> Result<Outcome, Failure> {
    let folder = match path.join("config.json").exists() {
        true => Folder::Old(RunFolder::resume(path)?),
        false => Folder::New(path.to_path_buf()),
    };
    let job = Job { folder, config: config.clone(), corpus: corpus.clone(), output: output.clone() };
    job.train().map_err(|error| match error.is::<Interrupted>() {
        true => output.interrupt.end("stopped and saved; the same command goes on from here".into()).into(),
        false => error,
    })?;
    let outcome = Outcome::of_run(path, &config)?;
    outcome.ok_or_else(|| format!("`{}` ended without a result", path.display()).into())
}
