//! `dialog train`: a model on dialogues, saved as a run.

use std::path::{Path, PathBuf};

use awd_lstm::HeadKind;
use burn::tensor::Device;
use clap::Args;
use program::args::{Given, RecordArgs, ReduceArgs};
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::files::{refuse_file, text_folder};
use program::print::print_note;
use program::progress::Working;
use program::ranks::agree;
use runs::data::Vocabulary;
use runs::ranks::Ranks;
use runs::{Extension, Versions};
use seq2seq::data::{Corpus, DialogConfig};
use seq2seq::train::{DialogTask, Dialogues, RunConfig, RunFolder, check_corpus, fingerprint};
use seq2seq::{ModelConfig, Preset, TrainConfig};

use super::saved::summary;
use super::settings::DialogKnobs;
use crate::args::note_unused;
use crate::training::{Folder, Job, Kind, Output, absolute, check_preset, device_of, extend, lock};

/// Options of `dialog train`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true, after_help = "Rarer options are in crates/seq2seq/README.md.")]
pub struct TrainArgs {
    /// Folder with train.jsonl, valid.jsonl and test.jsonl.
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub data: Option<PathBuf>,
    /// Continue the run in this folder. Settings need not be given again, and must not be others, but for these: --epochs and
    /// --patience extend the run, even a finished one, to a new total.
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// With --resume and --device: continue on another device than the run's. What it computes differs by rounding and in
    /// its random numbers; config.json records the change.
    #[arg(hide = true, long, requires_all = ["device", "resume"])]
    pub change_device: bool,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif [default: mos].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// Sizes and procedure to start from: small or paper [default: small].
    #[arg(long)]
    pub preset: Option<Preset>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda [default: auto].
    #[arg(long)]
    pub device: Option<DeviceChoice>,
    /// How often it is saved, and written about.
    #[command(flatten)]
    pub record: RecordArgs,
    /// One JSON object an epoch, and one at the end, on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How processes work together.
    #[command(flatten)]
    pub reduce: ReduceArgs,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub given: Given<DialogKnobs>,
}

/// What a training begins with at one process.
type Ready = (Folder<Dialogues>, RunConfig, Corpus);

/// Trains as the arguments say and saves the run, or continues one.
///
/// `program` is the one that was started. Several processes train together, and rank 0 writes and prints. Nothing is written before all
/// input is found to be good.
pub fn run(args: &TrainArgs, program: &'static str, ranks: &Ranks) -> Result<(), Failure> {
    let output = &Output::new(format!("{program} train"), args.json, &args.record, ranks, false)?;
    let ranks = &agree(ranks, args.reduce.apply_to(ranks).map_err(Failure::from))?;
    let ready = match &args.resume {
        Some(path) => resume(args, lock(path, ranks)?, ranks),
        None => start(args),
    };
    let (folder, config, corpus) = agree(ranks, ready)?;
    if ranks.is_first() {
        note_unused(&args.given, config.model.head);
    }
    let vocab_parallel = args.reduce.vocab_parallel;
    Job { config: &config, text: &corpus, output, ranks, vocab_parallel }.train_and_print(folder)
}

fn start(args: &TrainArgs) -> Result<Ready, Failure> {
    let (preset, head) = (args.preset.unwrap_or(Preset::Small), args.head.unwrap_or(HeadKind::Mos));
    let model = |vocab: usize| -> Result<ModelConfig, Failure> {
        let model = args.given.apply("model", &preset.model(head, vocab));
        model.validate()?;
        Ok(model)
    };
    let train: TrainConfig = args.given.apply("train", &preset.train());
    train.validate()?;
    let text = args.given.apply("text", &DialogConfig::default());
    text.validate()?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    model(text.vocab_size)?;
    let folder = Folder::new(args.out.as_deref(), || format!("dialog-{preset}-{head}-{}", train.seed))?;
    let data = args.data.as_ref().ok_or("train needs --data DIR")?;
    let corpus = load(data, &text)?;
    let name = device::resolve(args.device.unwrap_or_default());
    let config = RunConfig {
        versions: Versions::current(),
        preset: preset.to_string(),
        device: name.to_string(),
        data: absolute(data),
        corpus: fingerprint(&corpus),
        finetunes: None,
        text,
        tokens: None,
        model: model(corpus.vocabulary().len())?,
        train,
        extensions: vec![],
    };
    Ok((folder, config, corpus))
}

/// A run that goes on; rank 0 has locked it.
fn resume(args: &TrainArgs, run: RunFolder, ranks: &Ranks) -> Result<Ready, Failure> {
    let config = run.config()?;
    let mut now = config.clone();
    check_preset(args.preset, &config.preset)?;
    if let Some(head) = args.head {
        now.model.head = head;
    }
    let given = args.given.without(&["train.epochs", "train.stop.patience"]);
    now.text = given.apply("text", &now.text);
    now.model = given.apply("model", &now.model);
    now.train = given.apply("train", &now.train);
    config.check(&now)?;
    let device = device_of(args.device, args.change_device, &config.device)?;
    let (epochs, patience) = (args.given.value("train.epochs"), args.given.value("train.stop.patience"));
    let change = Extension { epochs, patience, device, max_minutes: None };
    let data = text_folder(args.data.as_deref(), &config.data)?;
    let corpus = load(data, &config.text)?;
    check_corpus(&config, &corpus)?;
    let run = extend(&run, &config, &change, ranks)?;
    let config = run.config()?;
    Ok((Folder::Old(run), config, corpus))
}

impl<'a> Kind for &'a Corpus {
    type Task = DialogTask<'a>;

    fn vocabulary(&self) -> &Vocabulary {
        Corpus::vocabulary(self)
    }

    fn parameters(config: &RunConfig, _device: &Device) -> Result<usize, Failure> {
        Ok(config.model.num_params())
    }

    fn task(
        &self,
        config: &RunConfig,
        vocabulary: &Ranks,
        device: &Device,
    ) -> Result<DialogTask<'a>, Failure> {
        Ok(DialogTask::among(vocabulary, &config.model, &config.train, self, device)?)
    }

    fn announce(&self, config: &RunConfig, _parameters: usize, place: &str) {
        let (model, pairs) = (summary(&config.model), self.train().num_pairs());
        print_note(format_args!("{model}, {pairs} training pairs, {place}"));
    }
}

/// Reads the dialogues in a folder.
fn load(data: &Path, text: &DialogConfig) -> Result<Corpus, Failure> {
    refuse_file(data)?;
    let _reading = Working::new(format!("reading the dialogues in {}", data.display()));
    Ok(Corpus::load(data, text)?)
}
