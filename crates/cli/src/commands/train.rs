//! `train`: a model on text, saved as a run.

use std::path::{Path, PathBuf};

use awd_lstm::data::Corpus;
use awd_lstm::train::{Fingerprint, RunConfig, RunFolder, Versions};
use awd_lstm::{Error, HeadKind, ModelConfig};
use clap::Args;

use crate::args::TrainingArgs;
use crate::device;
use crate::failure::Failure;
use crate::training::{Folder, Job, Output, fresh_folder};

/// Options of `train`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files: a folder
    /// train may be larger than memory.
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub data: Option<PathBuf>,
    /// Continue the run in this folder. Settings need not be given again, and must not be others.
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// One JSON object an epoch on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif [default: mos].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// What is trained and how.
    #[command(flatten)]
    pub training: TrainingArgs,
}

impl TrainArgs {
    /// The output layer.
    fn head(&self) -> HeadKind {
        self.head.unwrap_or(HeadKind::Mos)
    }

    /// The model for a vocabulary of `vocab` words: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`ModelConfig::validate`] says.
    fn model(&self, vocab: usize) -> Result<ModelConfig, Error> {
        let model = self.training.model(self.head(), vocab);
        model.validate()?;
        Ok(model)
    }
}

/// Trains as the arguments say and saves the run, or continues one.
///
/// `program` is the name that a run which is stopped is continued with.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TrainArgs, program: &'static str) -> Result<(), Failure> {
    let output = Output::new(program, args.json, args.training.checkpoint_every)?;
    match &args.resume {
        Some(path) => resume(args, path, output),
        None => start(args, output),
    }
}

fn start(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    let train = args.training.procedure()?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    args.model(1)?;
    if let Some(out) = args.out.as_ref().filter(|out| RunFolder::exists(out)) {
        return Err(Error::RunExists { path: out.clone() }.into());
    }
    let Some(data) = &args.data else { return Err("train needs --data DIR or --resume RUN".into()) };
    let text = args.training.text();
    let corpus = Corpus::load(data, &text)?;
    let (preset, head) = (args.training.preset(), args.head());
    let out = args.out.clone().unwrap_or_else(|| fresh_folder(&format!("{preset}-{head}-{}", train.seed)));
    let config = RunConfig {
        versions: Versions::current(),
        preset: preset.to_string(),
        device: device::resolve(args.training.device()).to_string(),
        data: std::fs::canonicalize(data).unwrap_or_else(|_| data.clone()),
        corpus: Fingerprint::of(&corpus),
        finetunes: None,
        text,
        model: args.model(corpus.vocabulary().len())?,
        train,
    };
    Job { folder: Folder::New(out), config, corpus, output }.train_and_print()
}

fn resume(args: &TrainArgs, path: &Path, output: Output) -> Result<(), Failure> {
    let run = RunFolder::resume(path)?;
    let config = run.config()?;
    let mut now = config.clone();
    if let Some(preset) = args.training.preset.filter(|preset| preset.name() != config.preset) {
        let (setting, before, now) = ("preset".to_string(), config.preset.clone(), preset.to_string());
        return Err(Error::ConfigChanged { setting, before, now }.into());
    }
    if let Some(head) = args.head {
        now.model.head = head;
    }
    if let Some(choice) = args.training.device {
        now.device = device::resolve(choice).to_string();
    }
    args.training.text.apply_to(&mut now.text);
    args.training.overrides.apply_to_model(&mut now.model);
    args.training.overrides.apply_to_procedure(&mut now.train);
    config.check(&now)?;
    let corpus = Corpus::load(args.data.as_ref().unwrap_or(&config.data), &config.text)?;
    config.corpus.check(&corpus)?;
    Job { folder: Folder::Old(run), config, corpus, output }.train_and_print()
}
