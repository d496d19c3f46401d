//! `finetune`: training continued with averaged weights.

use std::path::PathBuf;

use awd_lstm::data::Corpus;
use awd_lstm::train::{RunConfig, RunFolder, Versions};
use awd_lstm::{Error, Preset};
use clap::Args;

use crate::device::{self, DeviceChoice, DeviceName};
use crate::failure::Failure;
use crate::training::{Folder, Job, Output, fresh_folder};

/// Options of `finetune`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct FinetuneArgs {
    /// Folder of the run whose best model to start from.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Folder to write the new run to [default: a new one under runs/].
    #[arg(long, value_name = "NEW")]
    pub out: Option<PathBuf>,
    /// Folder with the same text [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Learning rate [default: the preset's for finetuning].
    #[arg(long)]
    pub lr: Option<f64>,
    /// Passes over the training text at most [default: the run's].
    #[arg(long)]
    pub epochs: Option<usize>,
    /// Seed of everything random [default: the run's].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda [default: the run's].
    #[arg(long)]
    pub device: Option<DeviceChoice>,
    /// Save the run inside of epochs too, every so many minutes.
    #[arg(long, value_name = "MIN", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    /// One JSON object an epoch on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Continues training a run's best model in a run of its own, with averaged weights from the first step.
///
/// `program` is the name that a run which is stopped is continued with.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &FinetuneArgs, program: &'static str) -> Result<(), Failure> {
    let output = Output::new(program, args.json, args.checkpoint_every)?;
    let origin = RunFolder::open(&args.run)?;
    let config = origin.config()?;
    origin.best_weights()?;
    let mut procedure = config.train.clone();
    let preset: Option<Preset> = config.preset.parse().ok();
    procedure.lr = args.lr.or(preset.map(Preset::finetune_lr)).unwrap_or(procedure.lr);
    procedure.epochs = args.epochs.unwrap_or(procedure.epochs);
    procedure.seed = args.seed.unwrap_or(procedure.seed);
    procedure.average_from_start = true;
    procedure.validate()?;
    let device: DeviceName = match args.device {
        Some(choice) => device::resolve(choice),
        None => config.device.parse()?,
    };
    let data = args.data.as_ref().unwrap_or(&config.data);
    let corpus = Corpus::load(data, &config.text)?;
    config.corpus.check(&corpus)?;
    let absolute = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let name =
        absolute(&args.run).file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    let out = args.out.clone().unwrap_or_else(|| fresh_folder(&format!("{name}-finetuned")));
    if RunFolder::exists(&out) {
        return Err(Error::RunExists { path: out }.into());
    }
    let config = RunConfig {
        versions: Versions::current(),
        device: device.to_string(),
        data: absolute(data),
        finetunes: Some(absolute(&args.run)),
        train: procedure,
        ..config
    };
    Job { folder: Folder::New(out), config, corpus, output }.train_and_print()
}
