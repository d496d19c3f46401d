//! `finetune`: training continued with averaged weights.

use std::path::PathBuf;

use awd_lstm::ModelConfig;
use awd_lstm::train::{AwdLstm, RunConfig, RunFolder};
use clap::Args;
use program::args::{RecordArgs, ReduceArgs, TokenArgs};
use program::device::{self, DeviceChoice, DeviceName};
use program::failure::Failure;
use program::files::text_folder;
use program::ranks::{agree, load_in_turn};
use runs::Versions;
use runs::ranks::Ranks;

use crate::args::Overrides;
use crate::training::{Folder, Job, Output, absolute, finetuning, require_training};

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
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda [default: the run's].
    #[arg(long)]
    pub device: Option<DeviceChoice>,
    /// How often it is saved, and written about.
    #[command(flatten)]
    pub record: RecordArgs,
    /// How several processes work together.
    #[command(flatten)]
    pub reduce: ReduceArgs,
    /// One JSON object a validation, and one at the end, on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Where the encoded text is kept.
    #[command(flatten)]
    pub tokens: TokenArgs,
    /// Settings that replace the run's. The learning rate is the preset's for finetuning if none is given, and does not
    /// decay unless it is told to. The model's sizes must stay.
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Continues training a run's best model in a run of its own, with averaged weights from the first step.
///
/// `program` is the name that a run which is stopped is continued with. Nothing is written before all input is found to be good.
pub fn run(args: &FinetuneArgs, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
    let output = Output::new(format!("{program} train"), args.json, &args.record, ranks, false)?;
    let ranks = agree(ranks, args.reduce.apply_to(ranks).map_err(Failure::from))?;
    let (config, folder) = agree(&ranks, settings(args))?;
    let tokens = args.tokens.or(config.tokens.as_ref());
    let corpus = load_in_turn(&ranks, || tokens.load(&config.data, &config.text, false))?;
    agree(&ranks, config.corpus.check(&corpus).map_err(Failure::from))?;
    let vocab_parallel = args.reduce.vocab_parallel;
    let job = Job { config: &config, text: &corpus, output: &output, ranks: &ranks, vocab_parallel };
    job.train_and_print(folder)
}

/// All of the new run's settings, and its folder.
fn settings(args: &FinetuneArgs) -> Result<(RunConfig, Folder<AwdLstm>), Failure> {
    if args.overrides.given.has_section("text") {
        return Err("train --from keeps how the run's text is read: leave --set text.… out".into());
    }
    let origin = RunFolder::open(&args.run)?;
    let config = origin.config()?;
    require_training(&args.run, &config.corpus)?;
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
    let device: DeviceName = match args.device {
        Some(choice) => device::resolve(choice),
        None => config.device.parse()?,
    };
    let data = text_folder(args.data.as_deref(), &config.data)?;
    let tokens = args.tokens.or(config.tokens.as_ref());
    let name =
        absolute(&args.run).file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    let folder = Folder::new(args.out.as_deref(), || format!("{name}-finetuned"))?;
    let config = RunConfig {
        versions: Versions::current(),
        device: device.to_string(),
        data: absolute(data),
        finetunes: Some(absolute(&args.run)),
        tokens: tokens.remembered(),
        model,
        train: procedure,
        extensions: vec![],
        ..config
    };
    Ok((config, folder))
}
