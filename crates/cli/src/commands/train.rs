//! `train`: a model on text, saved as a run.

mod dry_run;

use std::path::{Path, PathBuf};

use awd_lstm::train::{AwdLstm, RunConfig, RunFolder};
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};
use clap::Args;
use program::args::ReduceArgs;
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::files::{last_part, text_folder};
use program::ranks::{agree, load_in_turn, refuse};
use runs::data::Fingerprint;
use runs::ranks::Ranks;
use runs::{Error, Extension, Versions};

use crate::args::{Overrides, TrainingArgs, note_unused};
use crate::training::{
    Folder, Job, Output, absolute, check_preset, check_run, device_of, extend, finetuning, lock,
    require_training,
};

/// Options of `train`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files: a folder
    /// train may be larger than memory.
    #[arg(hide = true, long, value_name = "DIR", required_unless_present_any = ["resume", "from", "config"])]
    pub data: Option<PathBuf>,
    /// Continue the run in this folder. Settings need not be given again, and must not be others, but for these: --epochs,
    /// --max-time and --patience extend the run, even a finished one, to a new total.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "config", "dry_run"])]
    pub resume: Option<PathBuf>,
    /// Start from the best model of this run, with its text and sizes, and average the weights from the first step. The learning rate is
    /// the preset's for finetuning if none is given, and does not decay unless it is told to.
    #[arg(long, value_name = "RUN", conflicts_with_all = [
        "resume", "change_device", "config", "dry_run", "head", "preset", "vocab_size", "characters", "lower_case",
    ])]
    pub from: Option<PathBuf>,
    /// With --resume and --device: continue on another device than the run's. What it computes differs by rounding and in
    /// its random numbers; config.json records the change.
    #[arg(hide = true, long, requires_all = ["device", "resume"])]
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
    /// Output layer: softmax, moc, mos, doc, mixtape, sigsoftmax, gss, plif, mos-plif or adaptive [default: mos].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// How several processes work together.
    #[command(flatten)]
    pub reduce: ReduceArgs,
    /// What is trained and how.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub overrides: Overrides,
}

impl TrainArgs {
    fn head(&self) -> HeadKind {
        let of_file = self.training.config.as_ref().and_then(|file| file.head);
        self.head.or(of_file).unwrap_or(HeadKind::Mos)
    }

    /// The model for a vocabulary of `vocab` words: the preset's with the overrides, checked.
    fn model(&self, vocab: usize) -> Result<ModelConfig, Error> {
        let model = self.training.model(self.head(), vocab, &self.overrides);
        model.validate()?;
        Ok(model)
    }
}

/// Trains as the arguments say and saves the run, continues one, or starts from one. Several processes train it together.
///
/// `program` is the name that a run which is stopped is continued with. Nothing is written before all input is found to be good.
pub fn run(args: &TrainArgs, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
    let (command, record) = (format!("{program} train"), &args.training.record);
    let output = Output::new(command, args.json, record, ranks, args.dry_run)?;
    let ranks = &agree(ranks, args.reduce.apply_to(ranks).map_err(Failure::from))?;
    match (&args.resume, &args.from) {
        (Some(path), _) => resume(args, path, &output, ranks),
        (None, Some(path)) => finetune(args, path, &output, ranks),
        (None, None) => start(args, &output, ranks),
    }
}

fn start(args: &TrainArgs, output: &Output, ranks: &Ranks) -> Result<(), Failure> {
    let (train, data, folder) = agree(ranks, check(args))?;
    if args.dry_run {
        refuse(ranks, "train --dry-run")?;
    }
    let (text, tokens) = (args.training.text(&args.overrides), &args.training.tokens);
    let corpus = load_in_turn(ranks, || tokens.load(data, &text, args.dry_run))?;
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.training.preset().to_string(),
        device: device::resolve(args.training.device()).to_string(),
        data: absolute(data),
        corpus: Fingerprint::of(&corpus),
        finetunes: None,
        tokens: tokens.remembered(),
        text,
        model: agree(ranks, args.model(corpus.vocabulary().len()).map_err(Failure::from))?,
        train,
        extensions: vec![],
    };
    let vocab_parallel = args.reduce.vocab_parallel;
    agree(ranks, check_run(&config, &corpus, vocab_parallel))?;
    if ranks.is_first() {
        note_unused(&args.overrides.given, args.head());
    }
    if args.dry_run {
        return dry_run::run(&config, &corpus, args.json);
    }
    Job { config: &config, text: &corpus, output, ranks, vocab_parallel }.train_and_print(folder)
}

/// Checks what can be checked before the text is read: the procedure, the text's folder, and the folder to write to.
fn check(args: &TrainArgs) -> Result<(TrainConfig, &Path, Folder<AwdLstm>), Failure> {
    let train = args.training.procedure(&args.overrides)?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    args.model(args.training.model(args.head(), 1, &args.overrides).least_vocab())?;
    let name = || format!("{}-{}-{}", args.training.preset(), args.head(), train.seed);
    let folder = Folder::new(args.out.as_deref(), name)?;
    Ok((train, args.training.data(args.data.as_deref(), "train")?, folder))
}

/// Continues training the best model of the run in `path` in a run of its own, with averaged weights from the first step.
fn finetune(args: &TrainArgs, path: &Path, output: &Output, ranks: &Ranks) -> Result<(), Failure> {
    let (config, folder) = agree(ranks, settings(args, path))?;
    let tokens = args.training.tokens.or(config.tokens.as_ref());
    let corpus = load_in_turn(ranks, || tokens.load(&config.data, &config.text, false))?;
    let same = config.corpus.check(&corpus).map_err(Failure::from);
    let vocab_parallel = args.reduce.vocab_parallel;
    agree(ranks, same.and_then(|()| check_run(&config, &corpus, vocab_parallel)))?;
    if ranks.is_first() {
        note_unused(&args.overrides.given, config.model.head);
    }
    Job { config: &config, text: &corpus, output, ranks, vocab_parallel }.train_and_print(folder)
}

/// All settings of a run that starts from the one in `path`, and its folder.
fn settings(args: &TrainArgs, path: &Path) -> Result<(RunConfig, Folder<AwdLstm>), Failure> {
    if args.overrides.given.has_section("text") {
        return Err("train --from keeps how the run's text is read: leave --set text.… out".into());
    }
    let origin = RunFolder::open(path)?;
    let config = origin.config()?;
    require_training(path, &config.corpus)?;
    origin.best_weights()?;
    let model = args.overrides.model(config.model.clone());
    model.validate()?;
    let weights = |model: &ModelConfig| ModelConfig {
        dropouts: config.model.dropouts,
        precision: config.model.precision,
        ..model.clone()
    };
    if weights(&model) != config.model {
        return Err("train --from keeps the sizes of the run's model: leave --d-embedding, --lstm, --layers, --last-lstm, \
                    --components, --lower-components, --cutoffs, --frequent, --d-gate, --knots, --plif-bound and --untied out, \
                    and of --set model.… all but dropouts and precision"
            .into());
    }
    let procedure = finetuning(&config.preset, &config.train, &args.overrides)?;
    let device: DeviceName = match args.training.device {
        Some(choice) => device::resolve(choice),
        None => config.device.parse()?,
    };
    let data = text_folder(args.data.as_deref(), &config.data)?;
    let tokens = args.training.tokens.or(config.tokens.as_ref());
    let name = last_part(&absolute(path));
    let folder = Folder::new(args.out.as_deref(), || format!("{name}-finetuned"))?;
    let config = RunConfig {
        versions: Versions::current(),
        device: device.to_string(),
        data: absolute(data),
        finetunes: Some(absolute(path)),
        tokens: tokens.remembered(),
        model,
        train: procedure,
        extensions: vec![],
        ..config
    };
    Ok((config, folder))
}

fn resume(args: &TrainArgs, path: &Path, output: &Output, ranks: &Ranks) -> Result<(), Failure> {
    let run = lock(path, ranks)?;
    let (config, change) = agree(ranks, checked(args, &run))?;
    let data = || text_folder(args.data.as_deref(), &config.data);
    let tokens = args.training.tokens.or(config.tokens.as_ref());
    let corpus = load_in_turn(ranks, || tokens.load(data()?, &config.text, false))?;
    let same = config.corpus.check(&corpus).map_err(Failure::from);
    let run = agree(ranks, same.and_then(|()| extend(&run, &config, &change, ranks)))?;
    let config = agree(ranks, run.config().map_err(Failure::from))?;
    let vocab_parallel = args.reduce.vocab_parallel;
    Job { config: &config, text: &corpus, output, ranks, vocab_parallel }.train_and_print(Folder::Old(run))
}

/// The configuration of a run, which the arguments must not change, and what is to be changed of it.
fn checked(args: &TrainArgs, run: &RunFolder) -> Result<(RunConfig, Extension), Failure> {
    let config = run.config()?;
    require_training(run.path(), &config.corpus)?;
    let mut now = config.clone();
    check_preset(args.training.preset, &config.preset)?;
    if let Some(head) = args.head {
        now.model.head = head;
    }
    args.training.text.apply_to(&mut now.text);
    let given = args.overrides.given.without(&["train.epochs", "train.max_minutes", "train.patience"]);
    let overrides = Overrides { given, ..args.overrides.clone() };
    now.text = overrides.given.apply("text", &now.text);
    now.model = overrides.model(now.model);
    now.train = overrides.procedure(now.train)?;
    config.check(&now)?;
    let given = &args.overrides.given;
    let limits = [
        ("train.max_minutes", config.train.max_minutes.is_some()),
        ("train.patience", config.train.patience.is_some()),
    ];
    if let Some((place, _)) = limits.into_iter().find(|(place, has)| *has && given.is_null(place)) {
        return Err(format!("{place} cannot be taken back from a run: give a number").into());
    }
    let change = Extension {
        epochs: given.value("train.epochs"),
        max_minutes: given.value("train.max_minutes"),
        patience: given.value("train.patience"),
        device: device_of(args.training.device, args.change_device, &config.device)?,
    };
    Ok((config, change))
}
