//! `dynamic-eval`: perplexities of a model that learns from what it was scored on.

use std::path::PathBuf;
use std::time::Instant;

use awd_lstm::data::Batches;
use awd_lstm::train::{
    RunConfig, RunFolder, StatisticsOrigin, dynamic_nll, gradient_statistics, load_statistics, mean_nll,
    save_statistics,
};
use awd_lstm::{Dropouts, HeadKind, LanguageModel, ModelConfig, Preset};
use burn::module::Module;
use clap::Args;
use program::args::TokenArgs;
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::files::{Force, text_folder};
use program::print::print_json;
use program::progress::ShareBar;
use program::statistics::decimal;
use runs::data::{Corpus, Fingerprint};
use runs::error::check;
use runs::optim::{DynamicConfig, DynamicForm, GradientStatistics};
use runs::{Error, load_weights};
use serde::Serialize;

use crate::training::{TEST, VALID, load_held_out, note_other_texts, require_test, require_training};

/// Options of `dynamic-eval`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct DynamicEvalArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Folder with valid.txt and test.txt in the words of the run [default: the run's]. If it has a training text, that must be
    /// the run's, and is read in place of it: the run's own folder need not be there.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which published form of the root mean square: program or paper.
    #[arg(long, default_value = "program")]
    pub form: DynamicForm,
    /// Learning rate [default: the preset's].
    #[arg(long)]
    pub lr: Option<f64>,
    /// Added to the root mean square [default: the preset's].
    #[arg(long)]
    pub eps: Option<f64>,
    /// How strongly weights are drawn back to the trained ones [default: the preset's].
    #[arg(long)]
    pub lambda: Option<f64>,
    /// Columns of the training text for the gradient statistics.
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Tokens of a chunk that is scored, then learned from.
    #[arg(long, default_value_t = 5)]
    pub bptt: usize,
    /// Dropout of recurrent weights while the statistics are made and the text is scored and learned from, as the published
    /// program has it in force, at 0.5 for its presets.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub weight_dropout: f64,
    /// File with gradient statistics: read if it exists, and otherwise made.
    #[arg(long, value_name = "FILE")]
    pub statistics: Option<PathBuf>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Where the encoded text is kept.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// Perplexities with and without learning from what was scored, and all that they depend on.
#[derive(Debug, Serialize)]
struct Perplexities {
    run: String,
    head: HeadKind,
    parameters: usize,
    seed: u64,
    #[serde(flatten)]
    dynamic: DynamicConfig,
    batch: usize,
    bptt: usize,
    weight_dropout: f64,
    valid_ppl: f64,
    test_ppl: f64,
    static_valid_ppl: f64,
    static_test_ppl: f64,
    seconds: f64,
}

/// Evaluates a saved run's best model while it learns from what it was scored on.
pub fn run(args: &DynamicEvalArgs) -> Result<(), Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let preset: Preset = config.preset.parse().unwrap_or(Preset::Paper);
    let given = preset.dynamic();
    let dynamic = DynamicConfig {
        form: args.form,
        lr: args.lr.unwrap_or(given.lr),
        eps: args.eps.unwrap_or(given.eps),
        lambda: args.lambda.unwrap_or(given.lambda),
    };
    dynamic.validate()?;
    check(args.bptt > 0, "bptt", args.bptt, "at least 1")?;
    let drop = args.weight_dropout;
    check((0.0..1.0).contains(&drop), "weight_dropout", drop, "at least 0 and below 1")?;
    if drop > 0.0 && args.statistics.is_some() {
        return Err(
            "--statistics keeps statistics without dropout only: leave it out, or --weight-dropout".into()
        );
    }
    if let Some(file) = args.statistics.as_ref().filter(|file| !file.exists()) {
        Force::default().check(file)?;
    }
    let (corpus, held_out) = texts(args, &run, &config)?;
    // Learning from what was scored takes gradients.
    let device = device::open(device::resolve(args.device))?.autodiff();
    let started = Instant::now();
    // One column each, because the model learns from what came before.
    let valid = Batches::new(VALID, held_out.valid(), 1, 2)?;
    let test = Batches::new(TEST, held_out.test(), 1, 2)?;
    let dropouts = Dropouts { weight: args.weight_dropout, ..Dropouts::NONE };
    let plain = ModelConfig { dropouts, ..config.model.clone() };
    device.seed(config.train.seed);
    let model = load_weights(plain.try_init(&device)?, &run.best_weights()?)?;
    let statistics = statistics(args, &run, &config, &corpus, &model)?;
    let perplexity = |what: &'static str, batches: &Batches| {
        let bar = ShareBar::new(&format!("dynamic evaluation of {what}"));
        let mut progress = |share: f64| bar.set(share);
        dynamic_nll(&model, &statistics, &dynamic, (what, batches), args.bptt, &mut progress).map(f64::exp)
    };
    let valid_ppl = perplexity(VALID, &valid)?;
    let test_ppl = perplexity(TEST, &test)?;
    let fixed = model.valid();
    let result = Perplexities {
        run: args.run.display().to_string(),
        head: config.model.head,
        parameters: config.model.num_params(),
        seed: config.train.seed,
        dynamic,
        batch: args.batch,
        bptt: args.bptt,
        weight_dropout: args.weight_dropout,
        valid_ppl,
        test_ppl,
        static_valid_ppl: mean_nll(&fixed, &valid).exp(),
        static_test_ppl: mean_nll(&fixed, &test).exp(),
        seconds: started.elapsed().as_secs_f64(),
    };
    if args.json {
        print_json(&result);
    } else {
        println!(
            "perplexity with dynamic evaluation: valid {}, test {} (without: {}, {})",
            decimal(result.valid_ppl, 2),
            decimal(result.test_ppl, 2),
            decimal(result.static_valid_ppl, 2),
            decimal(result.static_test_ppl, 2)
        );
    }
    Ok(())
}

/// The text that the run was trained on, and the one to evaluate.
fn texts(args: &DynamicEvalArgs, run: &RunFolder, config: &RunConfig) -> Result<(Corpus, Corpus), Failure> {
    require_training(&args.run, &config.corpus)?;
    let has_training_text =
        |data: &&PathBuf| ["train.txt", "train", "text8"].iter().any(|name| data.join(name).exists());
    let moved = args.data.as_ref().filter(has_training_text);
    let data = text_folder(moved.map(PathBuf::as_path), &config.data)?;
    let corpus = args.tokens.or(config.tokens.as_ref()).load(data, &config.text, false)?;
    match moved {
        None => config.corpus.check(&corpus)?,
        // The texts that are scored may be others.
        Some(_) => {
            let now = Fingerprint { train: Fingerprint::of(&corpus).train, ..config.corpus.clone() };
            if let Some((what, [before, now])) = config.corpus.difference(&now) {
                return Err(Error::DataChanged { what, before, now }.into());
            }
        }
    }
    let held_out = match &args.data {
        Some(data) => load_held_out(data, &config.text, run.vocabulary()?)?,
        None => corpus.clone(),
    };
    require_test(&held_out, args.data.as_ref().unwrap_or(&config.data))?;
    note_other_texts(&config.corpus, &Fingerprint::of(&held_out), &[VALID, TEST]);
    Ok((corpus, held_out))
}

/// The statistics of the training text: from their file, or made and put there.
fn statistics(
    args: &DynamicEvalArgs,
    run: &RunFolder,
    config: &RunConfig,
    corpus: &Corpus,
    model: &LanguageModel,
) -> Result<GradientStatistics, Failure> {
    let train = Batches::of("the training text", corpus.train(), args.batch, 2)?;
    let fixed = model.valid();
    let origin = StatisticsOrigin::new(&run.best_weights()?, &config.corpus, args.batch, args.bptt)?;
    if let Some(path) = args.statistics.as_ref().filter(|path| path.exists()) {
        return Ok(load_statistics(&fixed, &origin, path)?);
    }
    let bar = ShareBar::new("gradient statistics of the training text");
    let mut progress = |share: f64| bar.set(share);
    let statistics = gradient_statistics(model, &train, args.bptt, &mut progress)?;
    if let Some(path) = &args.statistics {
        save_statistics(&statistics, &fixed, &origin, path)?;
    }
    Ok(statistics)
}
