//! `train`: a model on text, saved as a run.

mod dry_run;
mod parts;

use std::path::{Path, PathBuf};

use awd_lstm::train::{Extended, Extension, Fingerprint, RunConfig, RunFolder, Versions};
use awd_lstm::{Error, HeadKind, ModelConfig};
use clap::Args;

use crate::args::{Overrides, TimeLimit, TrainingArgs};
use crate::device;
use crate::failure::Failure;
use crate::print::print_note;
use crate::training::{Folder, Job, Output, absolute, fresh_folder};

/// Options of `train`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files: a folder
    /// train may be larger than memory.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["resume", "config"])]
    pub data: Option<PathBuf>,
    /// Continue the run in this folder. Settings need not be given again, and must not be others, but for these: --epochs,
    /// --max-time and --patience extend the run, even a finished one, to a new total.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "config", "dry_run"])]
    pub resume: Option<PathBuf>,
    /// With --resume and --device: continue on another device than the run's. What it computes differs by rounding and in
    /// its random numbers; config.json records the change.
    #[arg(long, requires = "device")]
    pub change_device: bool,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Print what the run would be and need, write nothing: parameters, steps and, estimated from some real steps, time
    /// and memory.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object a validation, and one at the end or of the dry run, on standard output, and nothing else there.
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
        let of_file = self.training.config.as_ref().and_then(|file| file.head);
        self.head.or(of_file).unwrap_or(HeadKind::Mos)
    }

    /// The folder of the text.
    fn data(&self) -> Result<&Path, Failure> {
        let of_file = self.training.config.as_ref().and_then(|file| file.data.as_ref());
        let data = self.data.as_ref().or(of_file).map(PathBuf::as_path);
        data.ok_or_else(|| "train needs --data DIR, or `data` in the file of --config".into())
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
    let output = Output::new(program, args.json, &args.training.record)?;
    match &args.resume {
        Some(path) => resume(args, path, output),
        None => start(args, output),
    }
}

fn start(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    if args.change_device {
        return Err("--change-device continues a run elsewhere: it needs --resume RUN".into());
    }
    let train = args.training.procedure()?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    args.model(1)?;
    if let Some(out) = args.out.as_ref().filter(|out| RunFolder::exists(out)) {
        return Err(Error::RunExists { path: out.clone() }.into());
    }
    let (data, text) = (args.data()?, args.training.text());
    let tokens = &args.training.tokens;
    let corpus = if args.dry_run { tokens.look(data, &text)? } else { tokens.load(data, &text)? };
    let (preset, head) = (args.training.preset(), args.head());
    let out = args.out.clone().unwrap_or_else(|| fresh_folder(&format!("{preset}-{head}-{}", train.seed)));
    let config = RunConfig {
        versions: Versions::current(),
        preset: preset.to_string(),
        device: device::resolve(args.training.device()).to_string(),
        data: absolute(data),
        corpus: Fingerprint::of(&corpus),
        finetunes: None,
        text,
        model: args.model(corpus.vocabulary().len())?,
        train,
        extensions: vec![],
    };
    match args.dry_run {
        true => dry_run::run(&config, &corpus, &output),
        false => Job { folder: Folder::New(out), config, corpus, output }.train_and_print(),
    }
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
    args.training.text.apply_to(&mut now.text);
    // These may be others.
    let overrides =
        Overrides { epochs: None, max_time: None, patience: None, ..args.training.overrides.clone() };
    overrides.apply_to_model(&mut now.model);
    overrides.apply_to_procedure(&mut now.train)?;
    config.check(&now)?;
    let change = extension(args, &config)?;
    let data = args.data.as_ref().unwrap_or(&config.data);
    let corpus = args.training.tokens.load(data, &config.text)?;
    config.corpus.check(&corpus)?;
    let config = extend(&run, &config, &change)?;
    Job { folder: Folder::Old(run), config, corpus, output }.train_and_print()
}

/// What is to be changed of the run.
fn extension(args: &TrainArgs, config: &RunConfig) -> Result<Extension, Failure> {
    let Overrides { epochs, max_time, patience, .. } = args.training.overrides;
    let device = args.training.device.map(device::resolve).map(|name| name.to_string());
    if let Some(now) = device.as_ref().filter(|now| **now != config.device && !args.change_device) {
        let before = &config.device;
        return Err(format!(
            "cannot resume: device is \"{now}\" now, but \"{before}\" in the run; leave it out, or add \
             --change-device to continue there with other rounding and random numbers"
        )
        .into());
    }
    Ok(Extension { epochs, max_minutes: max_time.map(TimeLimit::minutes), patience, device })
}

/// Changes the run, if anything is to be changed, and says so.
fn extend(run: &RunFolder, before: &RunConfig, change: &Extension) -> Result<RunConfig, Failure> {
    // Before anything is written: the device may be missing.
    device::open(change.device.as_ref().unwrap_or(&before.device).parse()?)?;
    let after = run.extend(change)?;
    for Extended { setting, from, to, .. } in &after.extensions[before.extensions.len()..] {
        print_note(format_args!("extended: {setting} is {to} now, {from} before"));
    }
    Ok(after)
}
