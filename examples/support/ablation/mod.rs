//! `ptb_mos ablation`: heads of equal size on the same text and seeds.

mod report;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use awd_lstm::data::Corpus;
use awd_lstm::train::{EpochMetrics, FinalMetrics, Fingerprint, RunConfig, RunFolder, Versions};
use awd_lstm::{Error, HeadKind, ModelConfig, Preset, TrainConfig};
use clap::Args;
use serde::Serialize;

use crate::args::Overrides;
use crate::device::{DeviceName, on_device};
use crate::exit::Failure;
use crate::interrupt::Interrupted;
use crate::progress::print_json;
use crate::sizes;
use crate::text::TextArgs;
use crate::train::{Folder, Output, TrainTask};

/// Options of `ablation`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct AblationArgs {
    /// Folder with train.txt, valid.txt and test.txt.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Output layers, separated by commas.
    #[arg(long, default_value = "softmax,moc,mos,sigsoftmax,plif,mos-plif")]
    pub heads: List<HeadKind>,
    /// Seeds, separated by commas. Every head is trained with each.
    #[arg(long, default_value = "28")]
    pub seeds: List<u64>,
    /// Parameters of every model, about [default: those of the preset's Mixture of Softmaxes].
    #[arg(long, value_name = "N")]
    pub parameters: Option<usize>,
    /// Sizes and procedure to start from: small or paper.
    #[arg(long, default_value = "small")]
    pub preset: Preset,
    /// Folder to write runs, table and picture to. A second call goes on with what is there.
    #[arg(long, value_name = "DIR", default_value = "runs/ablation")]
    pub out: PathBuf,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// Save a run inside of epochs too, every so many minutes.
    #[arg(long, value_name = "MIN", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Different values, written with commas in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr<Err: Display> + PartialEq + Display> FromStr for List<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut values: Vec<T> = vec![];
        for part in text.split(',').map(str::trim) {
            let value = part.parse().map_err(|error| format!("`{part}`: {error}"))?;
            if values.contains(&value) {
                return Err(format!("`{value}` is there twice"));
            }
            values.push(value);
        }
        Ok(Self(values))
    }
}

/// What one run came to.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    head: HeadKind,
    seed: u64,
    parameters: usize,
    d_embedding: usize,
    lstm_sizes: Vec<usize>,
    epochs: usize,
    best_epoch: usize,
    valid_ppl: f64,
    test_ppl: f64,
    /// Median over epochs, of training.
    tokens_per_s: f64,
    /// Wall-clock time of training.
    seconds: f64,
}

/// Trains all heads with all seeds, or what is left of that, and writes table and picture.
///
/// # Errors
/// Bad input, a budget that a head cannot meet, or what goes wrong in training.
pub fn run(args: &AblationArgs) -> Result<(), Failure> {
    let output = Output::new(false, args.checkpoint_every)?;
    let corpus = Corpus::load(&args.data, &args.text.config())?;
    let configs = plan(args, &corpus)?;
    let path = |config: &RunConfig| args.out.join(format!("{}-{}", config.model.head, config.train.seed));
    // Runs of other settings are found before any time is spent.
    for config in &configs {
        finished(&path(config), config)?;
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
        let outcome = match finished(&path, &config)? {
            Some(outcome) => outcome,
            None => train(args, &path, config, &corpus, &output)?,
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

/// The configuration of every run, heads first, all sizes solved for.
fn plan(args: &AblationArgs, corpus: &Corpus) -> Result<Vec<RunConfig>, Failure> {
    let given = &args.overrides;
    if given.seed.is_some() || given.d_embedding.is_some() {
        let name = if given.seed.is_some() { "--seed" } else { "--d-embedding" };
        let instead = if given.seed.is_some() { "--seeds" } else { "--parameters" };
        return Err(format!("an ablation chooses {name} itself; give {instead}").into());
    }
    let base = |head| {
        let mut model = args.preset.model(head, corpus.vocabulary().len());
        given.apply_to_model(&mut model);
        model
    };
    let budget = args.parameters.unwrap_or_else(|| base(HeadKind::Mos).num_params());
    let mut train = args.preset.train();
    given.apply_to_procedure(&mut train);
    train.validate()?;
    let fingerprint = Fingerprint::of(corpus);
    let mut configs = vec![];
    for &head in &args.heads.0 {
        let model = sizes::matching(&base(head), budget)?;
        model.validate()?;
        for &seed in &args.seeds.0 {
            configs.push(RunConfig {
                versions: Versions::current(),
                preset: args.preset.to_string(),
                device: args.device.to_string(),
                data: std::fs::canonicalize(&args.data).unwrap_or_else(|_| args.data.clone()),
                corpus: fingerprint.clone(),
                text: args.text.config(),
                finetunes: None,
                model: model.clone(),
                train: TrainConfig { seed, ..train.clone() },
            });
        }
    }
    Ok(configs)
}

fn heads(configs: &[RunConfig]) -> Vec<(HeadKind, &ModelConfig)> {
    let mut seen = BTreeSet::new();
    let models = configs.iter().map(|config| (config.model.head, &config.model));
    models.filter(|(head, _)| seen.insert(head.name())).collect()
}

/// What a run came to that is done already; none if there is no run or an unfinished one.
fn finished(path: &Path, config: &RunConfig) -> Result<Option<Outcome>, Failure> {
    if !path.join("config.json").exists() {
        return Ok(None);
    }
    let run = RunFolder::open(path)?;
    let of_run = run.config()?;
    let here = |error: Error| -> Failure { format!("`{}`: {error}", path.display()).into() };
    of_run.check(config).map_err(here)?;
    if of_run.corpus != config.corpus {
        return Err(format!("`{}` was trained on other text; choose another --out", path.display()).into());
    }
    let lines = run.metrics()?;
    let Some(last) = lines.lines().last().and_then(|line| serde_json::from_str::<FinalMetrics>(line).ok())
    else {
        return Ok(None);
    };
    let epochs: Vec<EpochMetrics> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut speeds: Vec<f64> = epochs.iter().map(|epoch| epoch.tokens_per_s).collect();
    speeds.sort_by(f64::total_cmp);
    Ok(Some(Outcome {
        head: config.model.head,
        seed: config.train.seed,
        parameters: config.model.num_params(),
        d_embedding: config.model.d_embedding,
        lstm_sizes: config.model.lstm_sizes.clone(),
        epochs: epochs.len(),
        best_epoch: last.best_epoch,
        valid_ppl: last.valid_ppl,
        test_ppl: last.test_ppl,
        tokens_per_s: speeds.get(speeds.len() / 2).copied().unwrap_or(f64::NAN),
        seconds: last.seconds,
    }))
}

/// Trains a run to its end, from where it is.
fn train(
    args: &AblationArgs,
    path: &Path,
    config: RunConfig,
    corpus: &Corpus,
    output: &Output,
) -> Result<Outcome, Failure> {
    let folder = match path.join("config.json").exists() {
        true => Folder::Old(RunFolder::resume(path)?),
        false => Folder::New(path.to_path_buf()),
    };
    let task = TrainTask { folder, config: config.clone(), corpus: corpus.clone(), output: output.clone() };
    on_device(args.device, task).map_err(|error| match error.is::<Interrupted>() {
        true => output.interrupt.end("stopped and saved; the same command goes on from here".into()).into(),
        false => error,
    })?;
    let outcome = finished(path, &config)?;
    outcome.ok_or_else(|| format!("`{}` ended without a result", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_of_different_values() {
        assert_eq!("28, 29".parse::<List<u64>>().unwrap(), List(vec![28, 29]));
        assert_eq!("28,28".parse::<List<u64>>().unwrap_err(), "`28` is there twice");
        assert!("mos,mix".parse::<List<HeadKind>>().unwrap_err().contains("unknown head `mix`"));
        assert!("".parse::<List<u64>>().is_err());
    }
}
