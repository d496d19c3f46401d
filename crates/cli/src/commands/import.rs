//! `import`: a run from the weights of a PyTorch model.

use std::path::PathBuf;

use awd_lstm::train::{RunConfig, RunFolder};
use awd_lstm::weights::{Noted, StateDict};
use awd_lstm::{HeadKind, ModelConfig, Preset};
use clap::Args;
use program::args::TextArgs;
use program::device;
use program::failure::Failure;
use program::files::{check_run_folder, refuse_file};
use program::print::{print_json, print_note};
use program::statistics::grouped;
use runs::Versions;
use runs::data::{Corpus, Fingerprint, Vocabulary};
use serde::Serialize;

use crate::args::missing_part;
use crate::training::absolute;

/// Options of `import`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct ImportArgs {
    /// Weights: a safetensors file, or a state dict that `torch.save` wrote.
    #[arg(long, value_name = "FILE")]
    pub weights: PathBuf,
    /// Folder with the train.txt, valid.txt and test.txt of the model: its words, numbered by first appearance.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// The model's words, one a line in the order of their numbers, in place of those of train.txt; --data then holds the texts to
    /// evaluate on. Such a run is not trained on.
    #[arg(long, value_name = "FILE")]
    pub vocab: Option<PathBuf>,
    /// Folder to write the run to.
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    /// Output layer [default: that of the file, if `export` wrote it; or what the tensors suggest: softmax, gss, plif, mos, mos-plif, doc, mixtape or adaptive].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// T of a PLIF, which bends on [-T, T] [default: that of the file, or 20].
    #[arg(long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// The contexts of a mixture are linear and started at the softmax, with noise of this spread, as with model.start_spread
    /// [default: what the file says, or tanh contexts].
    #[arg(long, value_name = "SPREAD")]
    pub start_spread: Option<f64>,
    /// Where dropouts and procedure are from, for further training.
    #[arg(long, default_value = "paper")]
    pub preset: Preset,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What is printed of a model that was imported.
#[derive(Debug, Serialize)]
pub struct Imported<M> {
    pub run: String,
    #[serde(flatten)]
    pub model: M,
    pub parameters: usize,
}

/// Makes a run of the weights, with the model as its best. Nothing is written if they do not fit.
pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    check_run_folder(&args.out)?;
    refuse_file(&args.data)?;
    let mut text = args.preset.text();
    args.text.apply_to(&mut text);
    text.validate()?;
    let state = StateDict::read(&args.weights)?;
    let noted = match state.noted()? {
        // Settings of another head.
        Noted { head: Some(head), .. } if args.head.is_some_and(|given| given != head) => Noted::default(),
        noted => noted,
    };
    let told = Noted {
        head: args.head.or(noted.head),
        plif_bound: args.plif_bound.or(noted.plif_bound),
        start_spread: args.start_spread.or(noted.start_spread),
    };
    let model = state.model_config(&told)?;
    let model = ModelConfig { dropouts: args.preset.model(model.head, 1).dropouts, ..model };
    let corpus = match &args.vocab {
        Some(path) => Corpus::load_held_out(&args.data, Vocabulary::load(path)?, &text)?,
        None => Corpus::load(&args.data, &text)?,
    };
    let vocabulary = corpus.vocabulary().clone();
    if vocabulary.len() != model.vocab {
        return Err(format!(
            "`{}` has {} words, but the model in `{}` has {}: it was made from other text",
            args.vocab.as_ref().unwrap_or(&args.data).display(),
            vocabulary.len(),
            args.weights.display(),
            model.vocab
        )
        .into());
    }
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.preset.to_string(),
        device: device::cpu_or_fastest().to_string(),
        data: absolute(&args.data),
        corpus: Fingerprint::of(&corpus),
        finetunes: None,
        tokens: None,
        text,
        model,
        train: args.preset.train(),
        extensions: vec![],
    };
    let imported = Imported {
        run: args.out.display().to_string(),
        parameters: config.model.num_params(),
        model: config.model.clone(),
    };
    // A file is read and written, nothing is computed: the CPU does for every device.
    let model = state.model(&config.model, &device::open(device::cpu_or_fastest())?)?;
    guessed(args, &noted, &config.model).iter().for_each(print_note);
    RunFolder::create_with_best(&args.out, &config, &vocabulary, &model)?;
    if args.json {
        print_json(&imported);
    } else {
        let Imported { model, parameters, .. } = &imported;
        println!(
            "{} with {} parameters, {} words, embedding {}, LSTMs {:?}{}, run folder {}",
            model.head,
            grouped(*parameters),
            grouped(model.vocab),
            model.d_embedding,
            model.lstm_sizes,
            if model.head.is_mixture() {
                let below = model.lower_components.iter().filter(|_| model.head.reads_layers());
                format!(", {} components", model.components + below.sum::<usize>())
            } else {
                String::new()
            },
            args.out.display()
        );
    }
    Ok(())
}

/// What of a model neither its file nor the command line said, and what was said in vain, a line each.
fn guessed(args: &ImportArgs, noted: &Noted, model: &ModelConfig) -> Vec<String> {
    let (head, mut lines) = (model.head, vec![]);
    let alike = match head {
        HeadKind::Mos => Some(HeadKind::Moc),
        HeadKind::Softmax => Some(HeadKind::Sigsoftmax),
        _ => None,
    };
    if let (Some(other), None) = (alike, args.head.or(noted.head)) {
        lines.push(format!("head taken from the tensors: {head}; {other} has the same ones, see --head"));
    }
    if head.has_plif() && args.plif_bound.or(noted.plif_bound).is_none() {
        lines.push(format!("T of the PLIF taken to be {}, see --plif-bound", model.plif_bound));
    }
    if let (Some(part), Some(_)) = (missing_part(head, "plif-bound"), args.plif_bound) {
        lines.push(format!("--plif-bound has no effect: the {head} head has no {part}"));
    }
    let may_start = matches!(head, HeadKind::Moc | HeadKind::Mos | HeadKind::MosPlif);
    if may_start && noted.head.is_none() && args.start_spread.is_none() {
        lines.push("contexts of the mixture taken to be tanh, see --start-spread".into());
    }
    lines
}
