//! Models from and for PyTorch.

use std::path::{Path, PathBuf};

use awd_lstm::HeadKind;
use awd_lstm::weights::StateDict;
use clap::Args;
use program::args::Given;
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::files::{check_run_folder, refuse_file};
use program::print::{print_json, print_note};
use runs::Versions;
use seq2seq::data::{Corpus, DialogConfig};
use seq2seq::train::{RunConfig, RunFolder, fingerprint};
use seq2seq::{Preset, weights};

use super::saved::{Saved, summary};
use super::settings::DialogKnobs;
use crate::commands::import::Imported;
use crate::training::absolute;

/// Options of `dialog import`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct ImportArgs {
    /// Weights: a safetensors file, or a state dict that `torch.save` wrote.
    #[arg(long, value_name = "FILE")]
    pub weights: PathBuf,
    /// Folder with the train.jsonl, valid.jsonl and test.jsonl of the model: its words by frequency.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Folder to write the run to.
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif [default: that of the file, if `export` wrote it, or mos].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// The model's sizes, and the procedure for further training: small or paper.
    #[arg(long, default_value = "small")]
    pub preset: Preset,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Settings that are not the preset's.
    #[command(flatten)]
    pub given: Given<DialogKnobs>,
}

/// Makes a run of the weights, with the model as its best. Nothing is written if they do not fit.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    check_run_folder(&args.out)?;
    refuse_file(&args.data)?;
    let text = args.given.apply("text", &DialogConfig::default());
    text.validate()?;
    let corpus = Corpus::load(&args.data, &text)?;
    let train = args.given.apply("train", &args.preset.train());
    train.validate()?;
    let state = StateDict::read(&args.weights)?;
    let noted = state.noted()?;
    let head = args.head.or(noted.head);
    let mut base = args.preset.model(head.unwrap_or(HeadKind::Mos), corpus.vocabulary().len());
    base.plif_bound = noted.plif_bound.unwrap_or(base.plif_bound);
    let model = args.given.apply("model", &base);
    // A file is read and written, nothing is computed: the CPU does for every device.
    let device = device::open(device::cpu_or_fastest())?;
    let read = weights::of_state(&state, &model, &device, device.settings().float_dtype.into())?;
    if head.is_none() {
        print_note("the file does not say its head: taken to be mos, see --head");
    }
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.preset.to_string(),
        device: device::cpu_or_fastest().to_string(),
        data: absolute(&args.data),
        corpus: fingerprint(&corpus),
        finetunes: None,
        text,
        tokens: None,
        model,
        train,
        extensions: vec![],
    };
    RunFolder::create_with_best(&args.out, &config, corpus.vocabulary(), &read)?;
    if args.json {
        let parameters = config.model.num_params();
        print_json(&Imported { run: args.out.display().to_string(), model: config.model, parameters });
    } else {
        println!("{}, run folder {}", summary(&config.model), args.out.display());
    }
    Ok(())
}

/// Writes a run's best model as a safetensors file. Returns the number of its parameters.
pub fn export(run: &Path, out: &Path) -> Result<usize, Failure> {
    let saved = Saved::open(run)?;
    let model = saved.model(DeviceChoice::Named(device::cpu_or_fastest()))?;
    weights::write_noted(&model, &saved.config.model, out)?;
    Ok(saved.config.model.num_params())
}
