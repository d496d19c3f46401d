//! The command line.

use std::path::PathBuf;

use clap::Parser;
use gpt::{GptConfig, TrainConfig};
use highrank::HeadConfig;

use super::head::{HeadArgs, Size};
use crate::args::{CHECKED, RecordArgs, Setting, TextArgs, apply, checked};
use crate::device::DeviceChoice;

/// Trains a small GPT, whose output layer is tied to its embedding, and saves the run, or continues one; without --data, on a
/// generated language, in about a minute.
///
/// A vocabulary of fewer words than --vocab-size is padded to that size with rows that stand for no word. Sizes and steps without
/// a default here depend on the text: more for --data.
#[derive(Debug, Clone, Parser)]
#[command(version, allow_negative_numbers = true)]
pub struct TransformerArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Train nothing: perplexities of the model of this run.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "steps", "epochs", "rounds"])]
    pub run: Option<PathBuf>,
    /// Continue the run in this folder. All settings are the run's; only the folder of the text may be another.
    #[arg(long, value_name = "RUN", conflicts_with_all = [
        "out", "run", "device", "head", "components", "dropout_latent", "knots", "plif_bound", "cap", "units",
        "precision", "vocab_size", "lower_case", "characters", "d_model", "d_embedding", "equal_parameters", "layers",
        "attention_heads", "context", "dropout", "steps", "epochs", "rounds", "batch", "lr", "warmup", "weight_decay", "clip",
        "valid_tokens", "eval_tokens", "seed",
    ])]
    pub resume: Option<PathBuf>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object a line on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How often it is saved, and written about.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The output layer.
    #[command(flatten)]
    pub head: HeadArgs,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Sizes.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Procedure.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// A setting by its place in config.json, such as train.lr=0.001 or model.dropout=0.2, but for the head's; may be given several
    /// times. It replaces an option.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting, conflicts_with = "resume")]
    pub settings: Vec<Setting>,
}

/// A setting of a transformer.
fn setting(text: &str) -> Result<Setting, String> {
    if text.starts_with("model.head") {
        return Err("the head is chosen by --head and its options".into());
    }
    let head = HeadConfig::softmax(4, 2).with_tied(true);
    checked(text, &GptConfig::new(4, head), &TrainConfig::new(1))
}

/// The sizes of the model.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Width of the transformer [default: 64; 128 with --data].
    #[arg(long, value_name = "D")]
    pub d_model: Option<usize>,
    /// Width of the embedding [default: that of the transformer].
    #[arg(long, value_name = "D")]
    pub d_embedding: Option<usize>,
    /// Choose the width of the embedding so that the model has as many parameters as one with a softmax, whose width is
    /// --d-embedding.
    #[arg(long)]
    pub equal_parameters: bool,
    /// Layers of the transformer [default: 2; 3 with --data].
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Attention heads of a layer.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub attention_heads: usize,
    /// Longest sequence that the model reads [default: 32; 64 with --data].
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Dropout after the embedding and in each layer.
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub dropout: f64,
}

/// The procedure of the training.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Training")]
pub struct TrainingArgs {
    /// Steps of the optimiser [default: 600; 400 with --data].
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub steps: Option<usize>,
    /// As many steps as read so many times the training text, a round each.
    #[arg(long, value_name = "N", conflicts_with = "rounds")]
    pub epochs: Option<usize>,
    /// Rounds of as many steps each, with validation after each [default: at most 4, to divide the steps].
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Sequences of a step.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub batch: usize,
    /// Highest learning rate, which then falls to 0 as a cosine does.
    #[arg(long, default_value_t = 2e-3)]
    pub lr: f64,
    /// Steps in which the learning rate rises [default: a tenth].
    #[arg(long, value_name = "N")]
    pub warmup: Option<usize>,
    /// Weight decay of AdamW.
    #[arg(long, default_value_t = 0.01)]
    pub weight_decay: f64,
    /// Largest norm of the gradient, over all parameters together.
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
    /// Tokens of the validation text that a round ends with.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub valid_tokens: usize,
    /// Tokens of validation and test text that are scored at the end [default: all].
    #[arg(long, visible_alias = "limit", value_name = "N")]
    pub eval_tokens: Option<usize>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
}

impl TransformerArgs {
    /// The model with the output layer that `head` makes of the transformer's width, the embedding's and the vocabulary.
    pub fn model(&self, head: &HeadArgs, d_embedding: usize, vocabulary: Size) -> GptConfig {
        let (sizes, d_model) = (&self.model, self.d_model());
        let model = GptConfig::new(d_model, head.config(d_model, d_embedding, vocabulary))
            .with_context(sizes.context.unwrap_or(self.unless_data(32, 64)))
            .with_layers(sizes.layers.unwrap_or(self.unless_data(2, 3)))
            .with_attention_heads(sizes.attention_heads)
            .with_dropout(sizes.dropout);
        apply(&self.settings, "model", &model).expect(CHECKED)
    }

    /// The width of the embedding, of a softmax if the parameters are to be as many as its.
    pub fn d_embedding(&self) -> usize {
        self.model.d_embedding.unwrap_or(self.d_model())
    }

    fn d_model(&self) -> usize {
        self.model.d_model.unwrap_or(self.unless_data(64, 128))
    }

    /// The procedure on a training text of so many tokens, read in sequences of `context`.
    pub fn procedure(&self, tokens: usize, context: usize) -> TrainConfig {
        let TrainingArgs {
            steps,
            epochs,
            rounds,
            batch,
            lr,
            warmup,
            weight_decay,
            clip,
            valid_tokens,
            eval_tokens,
            seed,
        } = self.training;
        let (steps, rounds) = match (steps, epochs) {
            (None, Some(epochs)) => {
                (epochs.saturating_mul(tokens.div_ceil(batch.saturating_mul(context).max(1))), Some(epochs))
            }
            (steps, _) => (steps.unwrap_or(self.unless_data(600, 400)), rounds),
        };
        let rounds = rounds.unwrap_or_else(|| (1..=4).rev().find(|n| steps.is_multiple_of(*n)).unwrap_or(1));
        let train = TrainConfig::new(steps)
            .with_rounds(rounds)
            .with_batch(batch)
            .with_lr(lr)
            .with_warmup(warmup.unwrap_or(steps / 10))
            .with_weight_decay(weight_decay)
            .with_clip(clip)
            .with_valid_tokens(Some(valid_tokens))
            .with_eval_tokens(eval_tokens)
            .with_seed(seed);
        apply(&self.settings, "train", &train).expect(CHECKED)
    }

    fn unless_data(&self, without: usize, with: usize) -> usize {
        if self.data.is_some() { with } else { without }
    }
}
