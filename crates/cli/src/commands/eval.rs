//! `eval`: perplexities of a saved run's weights.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use awd_lstm::data::Batches;
use awd_lstm::train::{RunConfig, RunFolder, mean_nll_among};
use awd_lstm::{HeadKind, LanguageModel, ModelConfig, TrainConfig};
use burn::tensor::Device;
use clap::Args;
use gpt::Transformer;
use runs::Error;
use runs::data::Part;
use runs::data::Tokens;
use runs::error::check;
use runs::ranks::Ranks;
use runs::{Folder, Settings, kind_of_run, load_weights};
use serde::Serialize;

use crate::args::TokenArgs;
use crate::commands::transformer;
use crate::device::{self, DeviceChoice, DeviceName};
use crate::failure::Failure;
use crate::print::{bits_text, print_json, print_note, with_bits};
use crate::progress::Working;
use crate::ranks::{agree, refuse};
use crate::statistics::decimal;
use crate::training::{TEST, VALID, load_held_out, other_texts, require_test};

/// Options of `eval`.
#[derive(Debug, Clone, Args)]
pub struct EvalArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Folder with valid.txt and test.txt [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which text: train, valid or test. The training text is scored as if it were the test text, without dropout
    /// [default: valid and test].
    #[arg(long)]
    pub split: Option<Split>,
    /// Score only the first N tokens of a text.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub max_tokens: Option<usize>,
    /// Which weights: best (those with the lowest validation perplexity), last or averaged (those of the latest checkpoint).
    #[arg(long, default_value = "best")]
    pub weights: Weights,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Where the encoded text is kept, for the training text.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// One of the texts of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// The training text.
    Train,
    /// The validation text.
    Valid,
    /// The test text.
    Test,
}

impl Split {
    /// The text, in messages.
    pub fn what(self) -> &'static str {
        match self {
            Self::Train => "the training text",
            Self::Valid => VALID,
            Self::Test => TEST,
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "train" => Ok(Self::Train),
            "valid" => Ok(Self::Valid),
            "test" => Ok(Self::Test),
            other => Err(Error::unknown_name("split", other, ["train", "valid", "test"])),
        }
    }
}

/// Weights that a run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// Those with the lowest validation loss.
    Best,
    /// Those under training when the run was saved last.
    Last,
    /// The mean of those since averaging began, when the run was saved last.
    Averaged,
}

impl Weights {
    /// Their file.
    ///
    /// # Errors
    /// A run that does not keep them.
    pub fn file<S: Settings>(self, run: &Folder<S>) -> Result<PathBuf, Error> {
        match self {
            Self::Best => run.best_weights(),
            Self::Last => run.last_weights(),
            Self::Averaged => run.averaged_weights(),
        }
    }
}

impl FromStr for Weights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            "averaged" => Ok(Self::Averaged),
            other => Err(Error::unknown_name("weights", other, ["best", "last", "averaged"])),
        }
    }
}

/// How well texts are predicted; accuracies are in percent, where they are counted.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Scores {
    #[serde(skip_serializing_if = "Option::is_none")]
    train_ppl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_ppl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_ppl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    train_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    /// A generated language's own perplexity on the test text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ppl: Option<f64>,
}

impl Scores {
    /// Notes how well a text is predicted.
    pub fn set(&mut self, split: Split, ppl: f64, accuracy: Option<f64>) {
        let places = match split {
            Split::Train => (&mut self.train_ppl, &mut self.train_accuracy),
            Split::Valid => (&mut self.valid_ppl, &mut self.valid_accuracy),
            Split::Test => (&mut self.test_ppl, &mut self.test_accuracy),
        };
        (*places.0, *places.1) = (Some(ppl), accuracy);
    }

    /// The perplexities that there are, in the order of the texts.
    fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
        let all = [
            ("train", "train_bpc", self.train_ppl),
            ("valid", "valid_bpc", self.valid_ppl),
            ("test", "test_bpc", self.test_ppl),
        ];
        all.into_iter().filter_map(|(name, bits, ppl)| Some((name, bits, ppl?)))
    }

    /// Bits per character under their names in JSON.
    fn bits(&self) -> Vec<(&'static str, f64)> {
        self.all().map(|(_, bits, ppl)| (bits, ppl)).collect()
    }

    /// The scores in words; tokens may be `characters`.
    pub fn text(&self, characters: bool) -> String {
        let all: Vec<(&str, f64)> = self.all().map(|(name, _, ppl)| (name, ppl)).collect();
        let ppls: Vec<String> =
            all.iter().map(|(name, ppl)| format!("{name} {}", decimal(*ppl, 2))).collect();
        let floor =
            self.floor_ppl.map_or(String::new(), |floor| format!(" (the language's own: {floor:.2})"));
        let accuracy = self.test_accuracy;
        let accuracy = accuracy.map_or(String::new(), |percent| format!(", accuracy test {percent:.1} %"));
        format!("perplexity {}{floor}{}{accuracy}", ppls.join(", "), bits_text(characters, &all))
    }
}

/// The object on standard output.
#[derive(Debug, Serialize)]
struct Evaluated {
    run: PathBuf,
    head: HeadKind,
    parameters: usize,
    weights: Weights,
    #[serde(flatten)]
    scores: Scores,
    /// Predicted tokens.
    tokens: usize,
    /// Wall-clock time of scoring.
    seconds: f64,
    device: String,
    model: ModelConfig,
    train: TrainConfig,
}

/// Scores texts with a saved run's weights and prints the perplexities.
///
/// # Errors
/// Bad input: no run, a damaged one, text that the model's vocabulary does not cover, weights that it does not keep.
pub fn run(args: &EvalArgs, ranks: &Ranks) -> Result<(), Failure> {
    if kind_of_run(&args.run).is_ok_and(|kind| kind == Transformer::KIND) {
        return refuse(ranks, "eval of a transformer").and_then(|()| transformer::eval(args));
    }
    let name = device::resolve(args.device);
    let Prepared { config, texts, model } = agree(ranks, prepare(args, name, ranks))?;
    ranks.check_same("model", &config.model)?;
    if ranks.are_several() {
        let parts: Vec<Part> = texts.iter().map(|(_, batches)| part(batches, &model.device())).collect();
        ranks.check_same("text", &parts)?;
    }
    let (mut scores, mut tokens, start) = (Scores::default(), 0, Instant::now());
    for (split, batches) in &texts {
        let _scoring = ranks.is_first().then(|| Working::new(format!("scoring {}", split.what())));
        let of_text = mean_nll_among(ranks, &model, batches)?.exp();
        if !of_text.is_finite() {
            return agree(ranks, Err("the perplexity is not finite".into()));
        }
        tokens += batches.predictions();
        scores.set(*split, of_text, None);
    }
    if !ranks.is_first() {
        return Ok(());
    }
    let seconds = start.elapsed().as_secs_f64();
    let characters = config.text.characters;
    if args.json {
        let bits = scores.bits();
        let evaluated = Evaluated {
            run: args.run.clone(),
            head: config.model.head,
            parameters: config.model.num_params(),
            weights: args.weights,
            scores,
            tokens,
            seconds,
            device: name.to_string(),
            model: config.model,
            train: config.train,
        };
        print_json(&with_bits(&evaluated, characters, &bits));
    } else {
        println!("{}", scores.text(characters));
    }
    Ok(())
}

/// What is scored.
struct Prepared {
    config: RunConfig,
    texts: Vec<(Split, Batches)>,
    model: LanguageModel,
}

fn prepare(args: &EvalArgs, device: DeviceName, ranks: &Ranks) -> Result<Prepared, Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    if let Some(tokens) = args.max_tokens {
        check(tokens > 1, "max-tokens", tokens, "at least 2")?;
    }
    let texts = texts(args, &run, &config, ranks.is_first())?;
    let weights = args.weights.file(&run)?;
    let device = device::open_at(device, ranks.local_rank())?;
    let model = load_weights(config.model.try_init(&device)?, &weights)?;
    Ok(Prepared { config, texts, model })
}

/// What a text is compared by between processes.
fn part(batches: &Batches, device: &Device) -> Part {
    let windows = batches.windows(1024, device);
    Part::of(batches.predictions(), windows.map(|window| window.targets.into_data().as_bytes().to_vec()))
}

/// The texts that are scored.
fn texts(
    args: &EvalArgs,
    run: &RunFolder,
    config: &RunConfig,
    first_process: bool,
) -> Result<Vec<(Split, Batches)>, Failure> {
    let TrainConfig { eval_batch, test_batch, .. } = config.train;
    if args.split == Some(Split::Train) {
        let data: &Path = args.data.as_ref().unwrap_or(&config.data);
        let corpus = args.tokens.or(config.tokens.as_ref()).load(data, &config.text)?;
        config.corpus.check(&corpus)?;
        let ids = first(corpus.train(), args.max_tokens);
        return Ok(vec![(Split::Train, Batches::new(Split::Train.what(), &ids, test_batch, 2)?)]);
    }
    let corpus = load_held_out(args.data.as_deref(), config, run.vocabulary()?)?;
    let mut wanted =
        vec![(Split::Valid, corpus.valid(), eval_batch), (Split::Test, corpus.test(), test_batch)];
    if args.split != Some(Split::Valid) {
        require_test(&corpus, args.data.as_ref().unwrap_or(&config.data))?;
    }
    wanted.retain(|(split, ..)| args.split.is_none_or(|wanted| wanted == *split));
    if first_process {
        let names: Vec<&str> = wanted.iter().map(|(split, ..)| split.what()).collect();
        other_texts(config, &corpus, &names).iter().for_each(print_note);
    }
    let batches = wanted.into_iter().map(|(split, ids, batch)| {
        let ids = &ids[..args.max_tokens.map_or(ids.len(), |most| ids.len().min(most))];
        Ok((split, Batches::new(split.what(), ids, batch, 2)?))
    });
    batches.collect()
}

/// The first so many tokens of a text, or all there are.
pub fn first(tokens: &Tokens, most: Option<usize>) -> Vec<u32> {
    let count = most.map_or(tokens.len(), |most| tokens.len().min(most));
    match tokens {
        Tokens::Memory(ids) => ids[..count].to_vec(),
        Tokens::Disk(file) => {
            let mut ids = vec![0; count];
            file.read(0, &mut ids);
            ids
        }
    }
}
