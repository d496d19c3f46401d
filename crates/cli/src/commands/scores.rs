//! What `eval` is asked for any kind of model, and what it answers.

use std::path::PathBuf;

use awd_lstm::{ModelConfig, TrainConfig};
use clap::{Args, ValueEnum};
use program::args::TokenArgs;
use program::device::DeviceChoice;
use program::print::{bits_text, print_json, with_bits};
use program::statistics::decimal;
use runs::data::Tokens;
use runs::error::check;
use runs::{Error, Folder, Settings};
use serde::Serialize;

use crate::training::{TEST, VALID};

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
    #[arg(long, hide_possible_values = true)]
    pub split: Option<Split>,
    /// Score only the first N tokens of a text.
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub max_tokens: Option<usize>,
    /// Which weights: best (those with the lowest validation perplexity), last or averaged (those of the latest checkpoint)
    /// [default: best; the last of a transformer that was stopped before its first validation].
    #[arg(long, hide_possible_values = true)]
    pub weights: Option<Weights>,
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

impl EvalArgs {
    /// Whether a text can be cut to the tokens that are asked for.
    pub fn check(&self) -> Result<(), Error> {
        let tokens = self.max_tokens.unwrap_or(usize::MAX);
        check(tokens > 1, "max-tokens", tokens, "at least 2")
    }
}

/// One of the texts of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// Weights that a run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
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
    pub fn file<S: Settings>(self, run: &Folder<S>) -> Result<PathBuf, Error> {
        match self {
            Self::Best => run.best_weights(),
            Self::Last => run.last_weights(),
            Self::Averaged => run.averaged_weights(),
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

    /// The perplexities that there are, under these names of the three texts.
    fn named(&self, names: [&'static str; 3]) -> Vec<(&'static str, f64)> {
        let ppls = [self.train_ppl, self.valid_ppl, self.test_ppl];
        names.into_iter().zip(ppls).filter_map(|(name, ppl)| Some((name, ppl?))).collect()
    }

    /// The perplexities under the names that JSON has for their bits per character.
    pub fn bits(&self) -> Vec<(&'static str, f64)> {
        self.named(["train_bpc", "valid_bpc", "test_bpc"])
    }

    /// The scores in words; tokens may be `characters`.
    pub fn text(&self, characters: bool) -> String {
        let all = self.named(["train", "valid", "test"]);
        let ppls: Vec<String> =
            all.iter().map(|(name, ppl)| format!("{name} {}", decimal(*ppl, 2))).collect();
        let floor =
            self.floor_ppl.map_or(String::new(), |floor| format!(" (the language's own: {floor:.2})"));
        let accuracy = self.test_accuracy;
        let accuracy = accuracy.map_or(String::new(), |percent| format!(", accuracy test {percent:.1} %"));
        format!("perplexity {}{floor}{}{accuracy}", ppls.join(", "), bits_text(characters, &all))
    }
}

/// What `eval` answers of a run.
#[derive(Debug, Serialize)]
pub struct Evaluated {
    pub run: String,
    pub head: String,
    pub parameters: usize,
    pub weights: Weights,
    #[serde(flatten)]
    pub scores: Scores,
    /// Predicted tokens.
    pub tokens: usize,
    /// Wall-clock time of scoring.
    pub seconds: f64,
    pub device: String,
    /// Of a language model of LSTMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainConfig>,
}

impl Evaluated {
    /// Prints it on standard output, as JSON or in words; tokens may be `characters`.
    pub fn print(&self, json: bool, characters: bool) {
        match json {
            true => print_json(&with_bits(self, characters, &self.scores.bits())),
            false => println!("{}", self.scores.text(characters)),
        }
    }
}

/// The first so many tokens of a text, or all there are.
pub fn first(tokens: &Tokens, most: Option<usize>) -> Vec<u32> {
    tokens.get(0..most.map_or(tokens.len(), |most| tokens.len().min(most)))
}
