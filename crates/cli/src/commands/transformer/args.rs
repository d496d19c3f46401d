//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser};
use gpt::{GptConfig, TrainConfig};
use highrank::HeadConfig;
use program::args::{Form, Given, Knob, Knobs, RecordArgs, ReduceArgs, Setting, TextArgs, checked};
use program::device::DeviceChoice;
use runs::data::TextConfig;

use super::head::HeadArgs;

/// Trains a small GPT, whose output layer shares the embedding unless --untied is given, and saves the run, or continues one; without --data, on a
/// generated language, in about a minute.
///
/// A vocabulary of fewer words than --vocab-size is padded to that size with rows that stand for no word.
#[derive(Debug, Clone, Parser)]
#[command(version, allow_negative_numbers = true, after_help = "Rarer options are in crates/gpt/README.md.")]
pub struct TransformerArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Start from the best model of this run instead of random weights, with its text and sizes. Its softmax goes on as --head, from
    /// the same function where that head starts there, as a mixture with linear contexts or a PLIF does; any other head goes on as itself,
    /// with what it has learned, whatever --precision and --dropout-latent are now.
    #[arg(long, value_name = "RUN", requires = "head", conflicts_with_all = [
        "untied", "vocab_size", "lower_case", "characters", "d_model", "d_embedding", "d_ff", "parameters", "layers",
        "attention-heads", "context",
    ])]
    pub from: Option<PathBuf>,
    /// Continue the run in this folder. All settings are the run's; only the folder of the text may be another.
    #[arg(long, value_name = "RUN", conflicts_with_all = [
        "out", "from", "device", "head", "components", "activation", "start", "facets", "untied", "dropout_latent", "knots", "plif_bound",
        "cap", "units", "precision", "vocab_size", "lower_case", "characters", "d_model", "d_embedding", "d_ff", "parameters", "layers",
        "attention-heads", "context", "dropout", "steps", "epochs", "rounds", "batch", "lr", "warmup", "weight-decay", "clip",
        "valid-tokens", "eval-tokens", "no-test", "seed", "set",
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
    /// How processes work together.
    #[command(flatten)]
    pub reduce: ReduceArgs,
    /// Other settings.
    #[command(flatten)]
    pub given: Given<GptKnobs>,
}

/// The settings of a transformer that have the same default for every text.
#[derive(Debug, Clone, Copy, Default)]
pub struct GptKnobs;

impl Knobs for GptKnobs {
    const HEADING: &'static str = "Settings";
    const SET: &'static str = "A setting by its place in config.json, such as train.lr=0.001 or model.dropout=0.2, but for the head's; may be \
                               given several times. It has the last word";
    #[rustfmt::skip]
    const ALL: &'static [Knob] = &[
        Knob::new("attention-heads", "model.attention_heads", Form::Plain, "N", "Attention heads of a layer [default: 4]").rare(),
        Knob::new("dropout", "model.dropout", Form::Plain, "P", "Dropout after the embedding and in each layer [default: 0.1, or that of the run of --from]"),
        Knob::new("batch", "train.batch", Form::Plain, "N", "Sequences of a step [default: 16]"),
        Knob::new("lr", "train.lr", Form::Plain, "LR", "Highest learning rate, which then falls as a cosine that would reach 0 one step after the last [default: 0.5 / width; half of the first run's with --from]"),
        Knob::new("weight-decay", "train.weight_decay", Form::Plain, "W", "Weight decay of AdamW [default: 0.01]").rare(),
        Knob::new("clip", "train.clip", Form::Plain, "NORM", "Largest norm of the gradient, over all parameters together [default: 1]").rare(),
        Knob::new("valid-tokens", "train.valid_tokens", Form::Plain, "N", "Tokens of the validation text that a round ends with [default: 20000]").rare(),
        Knob::new("eval-tokens", "train.eval_tokens", Form::Plain, "N", "Tokens of validation and test text that are scored at the end [default: all]").rare(),
        Knob::new("no-test", "train.test", Form::Inverse, "BOOL", "Do not score the best model on the test text").rare(),
        Knob::new("seed", "train.seed", Form::Plain, "SEED", "Seed of everything random [default: 28]"),
    ];

    fn check(setting: &Setting) -> Result<(), String> {
        if setting.is_within("model.facets") {
            return Err("facets are chosen by --facets, with which the contexts of the head go".into());
        }
        if setting.is_within("model.d_model") {
            return Err("the width is chosen by --d-model, with which that of the head goes".into());
        }
        let head = HeadConfig::softmax(4, 2).with_tied(true);
        checked(setting, &GptConfig::new(4, head), &TrainConfig::new(1), &TextConfig::default())
    }
}

/// The sizes of the model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Width of the transformer [default: 64; 128 with --data].
    #[arg(long, value_name = "D")]
    pub d_model: Option<usize>,
    /// Width of the embedding [default: that of the transformer].
    #[arg(long, value_name = "D")]
    pub d_embedding: Option<usize>,
    /// Width of the feed-forward part of a layer [default: four times --d-model].
    #[arg(hide = true, long, value_name = "D")]
    pub d_ff: Option<usize>,
    /// Choose --d-ff so that the model has as nearly as it can so many parameters, to compare heads at equal size.
    #[arg(long, value_name = "N", conflicts_with = "d_ff")]
    pub parameters: Option<usize>,
    /// Layers of the transformer [default: 2; 3 with --data].
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Longest sequence that the model reads [default: 32; 64 with --data].
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
}

/// The procedure of the training.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub struct TrainingArgs {
    /// Steps of the optimiser [default: 600; 400 with --data or --from].
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub steps: Option<usize>,
    /// As many steps as read so many times the training text, a round each.
    #[arg(long, value_name = "N", conflicts_with = "rounds", value_parser = epochs)]
    pub epochs: Option<usize>,
    /// Rounds of as many steps each, with validation after each [default: at most 4, to divide the steps].
    #[arg(hide = true, long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Steps in which the learning rate rises [default: a tenth].
    #[arg(hide = true, long, value_name = "N")]
    pub warmup: Option<usize>,
}

/// A number of epochs, of which there is one at least.
fn epochs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("epochs is 0, but must be at least 1".into()),
        other => other.map_err(|error: std::num::ParseIntError| error.to_string()),
    }
}

impl TransformerArgs {
    pub fn text_config(&self) -> TextConfig {
        self.given.apply("text", &self.text.config())
    }

    /// The model with its output layer over so many words.
    pub fn model(&self, words: usize) -> GptConfig {
        let (sizes, head) = (&self.model, &self.head);
        let d_model = sizes.d_model.unwrap_or(self.unless_data(64, 128));
        let d_embedding = sizes.d_embedding.unwrap_or(d_model);
        let rows = self.text_config().vocab_size.unwrap_or(words);
        let context = sizes.context.unwrap_or(self.unless_data(32, 64));
        let layers = sizes.layers.unwrap_or(self.unless_data(2, 3));
        let facets = head.facets(layers, context);
        let model = GptConfig::new(d_model, head.config(d_model, d_embedding, facets, words, rows))
            .with_context(context)
            .with_layers(layers)
            .with_d_ff(sizes.d_ff)
            .with_facets(facets);
        let given = self.given.apply("model", &model);
        // Facets fit sizes from `--set`, too.
        let fitting = head.facets(given.layers, given.context);
        given.with_facets(fitting)
    }

    /// The procedure for a model, on a training text of so many tokens.
    ///
    /// - origin: of the run that it goes on from
    pub fn procedure(&self, tokens: usize, model: &GptConfig, origin: Option<&TrainConfig>) -> TrainConfig {
        let TrainingArgs { steps, epochs, rounds, warmup } = self.training;
        let batch = self.given.value("train.batch").unwrap_or(16_usize);
        let (steps, rounds) = match (steps, epochs) {
            (None, Some(epochs)) => (
                epochs.saturating_mul(tokens.div_ceil(batch.saturating_mul(model.context).max(1))),
                Some(epochs),
            ),
            (steps, _) => (steps.unwrap_or(self.unless_data(600, 400)), rounds),
        };
        // Defaults fit the steps of `--set`, too.
        let steps: usize = self.given.value("train.steps").unwrap_or(steps);
        let rounds = rounds.unwrap_or_else(|| (1..=4).rev().find(|n| steps.is_multiple_of(*n)).unwrap_or(1));
        let train = TrainConfig::new(steps)
            .with_rounds(rounds)
            // Near the best that a search found at widths 64 to 256. A rate as high as at first would undo some of what was learned.
            .with_lr(origin.map_or(0.5 / model.d_model as f64, |origin| 0.5 * origin.lr))
            .with_warmup(warmup.unwrap_or(steps / 10))
            .with_valid_tokens(Some(20_000))
            .with_seed(self.seed());
        self.given.apply("train", &train)
    }

    /// The seed, which does not depend on model and text.
    pub fn seed(&self) -> u64 {
        self.given.value("train.seed").unwrap_or(28)
    }

    fn unless_data(&self, without: usize, with: usize) -> usize {
        if self.data.is_some() || self.from.is_some() { with } else { without }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contexts_of_a_mixture_read_facets_unless_told_otherwise() {
        let facets = |line: &str, layers, context| {
            let words = std::iter::once("line").chain(line.split_whitespace());
            let head = TransformerArgs::try_parse_from(words).unwrap().head;
            head.facets(layers, context).map(|facets| (facets.layers, facets.window))
        };
        assert_eq!(facets("--head mos", 3, 64), Some((3, 3)));
        assert_eq!(facets("--head moc --activation residual", 1, 2), Some((2, 2)));
        assert_eq!(facets("--head mos --facets 1x2", 3, 64), Some((1, 2)));
        for line in
            ["--head mos --facets none", "--head mos --activation tanh", "--head softmax", "--head plif"]
        {
            assert_eq!(facets(line, 3, 64), None, "{line}");
        }
    }

    #[test]
    fn rounds_divide_the_steps_that_are_asked_for() {
        for (line, expected) in [
            ("line --steps 20", (4, 2)),
            ("line --set train.steps=30", (3, 3)),
            ("line --steps 20 --set train.steps=30", (3, 3)),
        ] {
            let args = TransformerArgs::try_parse_from(line.split(' ')).unwrap();
            let train = args.procedure(1000, &args.model(50), None);
            assert_eq!((train.rounds, train.warmup), expected, "{line}");
        }
    }

    #[test]
    fn a_run_goes_on_at_half_of_the_first_runs_rate() {
        let origin = TrainConfig::new(10).with_lr(0.008);
        for (line, expected) in
            [("line --from RUN --head mos", 0.004), ("line --from RUN --head mos --lr 0.5", 0.5)]
        {
            let args = TransformerArgs::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(args.procedure(1000, &args.model(50), Some(&origin)).lr, expected, "{line}");
        }
        let new = TransformerArgs::try_parse_from(["line", "--d-model", "50"]).unwrap();
        assert_eq!(new.procedure(1000, &new.model(50), None).lr, 0.01);
    }

    #[test]
    fn a_vocabulary_is_padded_to_as_many_rows_as_are_asked_for() {
        for (line, rows) in [
            ("line", 1000),
            ("line --vocab-size 5", 1000),
            ("line --vocab-size 1000", 1000),
            ("line --vocab-size 262144", 262_144),
        ] {
            let head = TransformerArgs::try_parse_from(line.split(' ')).unwrap().model(1000).head;
            assert_eq!((head.vocab, head.decoder_rows()), (1000, rows), "{line}");
        }
    }
}
