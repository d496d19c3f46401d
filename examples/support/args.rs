//! The command line of `ptb_mos`.

use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

use awd_lstm::{Error, HeadKind, ModelConfig, Preset, TrainConfig};
use clap::{Args, Parser, Subcommand};
use highrank::Precision;

use crate::ablation::AblationArgs;
use crate::analysis::compare::CompareArgs;
use crate::analysis::kl::KlArgs;
use crate::analysis::plif::PlifArgs;
use crate::analysis::rank::RankArgs;
use crate::device::DeviceName;
use crate::dynamic_eval::DynamicEvalArgs;
use crate::export::ExportArgs;
use crate::finetune::FinetuneArgs;
use crate::generate::GenerateArgs;
use crate::import::ImportArgs;
use crate::text::TextArgs;

/// Trains AWD-LSTM language models with high-rank output layers.
///
/// Without a command, trains a softmax and a Mixture of Softmaxes of equal size on a generated language and sets both
/// against the truth; that takes a few minutes.
#[derive(Debug, Parser)]
#[command(name = "ptb_mos", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of the built-in study.
    #[command(flatten)]
    pub study: StudyArgs,
}

/// What `ptb_mos` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train on text: a folder with train.txt, valid.txt and test.txt, one sentence a line.
    Train(Box<TrainArgs>),
    /// Perplexity of a saved run's best model.
    Eval(EvalArgs),
    /// Empirical rank and spectrum of the log-probabilities of saved runs.
    Rank(RankArgs),
    /// Expected divergence between the next-word distributions of two contexts, for saved runs.
    Kl(KlArgs),
    /// Where one saved run beats another, token by token.
    Compare(CompareArgs),
    /// The functions that saved runs with a PLIF have learnt.
    Plif(PlifArgs),
    /// Train a saved run's best model on, averaging from the first step.
    Finetune(FinetuneArgs),
    /// Perplexity of a saved run's best model while it learns from what it was scored on.
    DynamicEval(DynamicEvalArgs),
    /// Train a list of heads of equal size on the same text and seeds, and set them side by side.
    Ablation(Box<AblationArgs>),
    /// Text from a saved run's best model.
    Generate(GenerateArgs),
    /// Make a run of a PyTorch model's weights.
    Import(ImportArgs),
    /// Write a run's best model for PyTorch.
    Export(ExportArgs),
}

/// Options of the built-in study.
#[derive(Debug, Clone, Args)]
pub struct StudyArgs {
    /// Number of seeds; with more than one, means and spreads are shown.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seeds: usize,
    /// The first seed.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// One JSON object a head and seed on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Options of `train`.
#[derive(Debug, Clone, Args)]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// Folder with train.txt, valid.txt and test.txt, or with folders train, valid and test of such files: a folder
    /// train may be larger than memory.
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub data: Option<PathBuf>,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Go on with the run in this folder. Settings need not be given again, and must not be others.
    #[arg(long, value_name = "RUN", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Sizes and procedure to start from: small, paper, awd-lstm, wikitext2, billion-word or text8 [default: small].
    #[arg(long)]
    pub preset: Option<Preset>,
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif [default: mos].
    #[arg(long)]
    pub head: Option<HeadKind>,
    /// Where to compute: flex, ndarray, wgpu or cuda [default: flex].
    #[arg(long)]
    pub device: Option<DeviceName>,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Save the run inside of epochs too, every so many minutes.
    #[arg(long, value_name = "MIN", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    /// One JSON object an epoch on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Options of `eval`.
#[derive(Debug, Clone, Args)]
pub struct EvalArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Folder with valid.txt and test.txt [default: the run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Settings that replace a preset's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Instead of the preset's settings")]
pub struct Overrides {
    /// Passes over the training text.
    #[arg(long)]
    pub epochs: Option<usize>,
    /// Seed of everything random.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Learning rate.
    #[arg(long)]
    pub lr: Option<f64>,
    /// Parallel text streams in training.
    #[arg(long)]
    pub batch: Option<usize>,
    /// Accumulate gradients over slices of so many of them, for less memory.
    #[arg(long, value_name = "N")]
    pub small_batch: Option<usize>,
    /// Mean time steps of a training step.
    #[arg(long)]
    pub bptt: Option<usize>,
    /// Width of the embedding.
    #[arg(long, value_name = "D")]
    pub d_embedding: Option<usize>,
    /// Sizes of the LSTM layers, first to last, separated by commas.
    #[arg(long, value_name = "SIZES")]
    pub lstm: Option<Sizes>,
    /// Components of a mixture.
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Pieces of a PLIF.
    #[arg(long)]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T].
    #[arg(long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster on NVIDIA GPUs only.
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Dropout on the last LSTM's output.
    #[arg(long, value_name = "P")]
    pub dropout_output: Option<f64>,
    /// Dropout between LSTM layers.
    #[arg(long, value_name = "P")]
    pub dropout_hidden: Option<f64>,
    /// Dropout on the embedded words.
    #[arg(long, value_name = "P")]
    pub dropout_input: Option<f64>,
    /// Dropout on the latent contexts of a mixture.
    #[arg(long, value_name = "P")]
    pub dropout_latent: Option<f64>,
    /// Dropout of whole words.
    #[arg(long, value_name = "P")]
    pub dropout_embedding: Option<f64>,
    /// Dropout of recurrent weights.
    #[arg(long, value_name = "P")]
    pub dropout_weight: Option<f64>,
}

/// Sizes of layers, written with commas in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

impl FromStr for Sizes {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl TrainArgs {
    /// The preset to start from.
    pub fn preset(&self) -> Preset {
        self.preset.unwrap_or(Preset::Small)
    }

    /// The output layer.
    pub fn head(&self) -> HeadKind {
        self.head.unwrap_or(HeadKind::Mos)
    }

    /// Where to compute.
    pub fn device(&self) -> DeviceName {
        self.device.unwrap_or(DeviceName::Flex)
    }

    /// The model for a vocabulary of `vocab` words: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`ModelConfig::validate`] says.
    pub fn model(&self, vocab: usize) -> Result<ModelConfig, Error> {
        let mut model = self.preset().model(self.head(), vocab);
        self.overrides.apply_to_model(&mut model);
        model.validate()?;
        Ok(model)
    }

    /// The procedure: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`TrainConfig::validate`] says.
    pub fn config(&self) -> Result<TrainConfig, Error> {
        let mut config = self.preset().train();
        self.overrides.apply_to_procedure(&mut config);
        config.validate()?;
        Ok(config)
    }
}

impl Overrides {
    /// Sets what was given of the model.
    pub fn apply_to_model(&self, model: &mut ModelConfig) {
        set(&mut model.lstm_sizes, self.lstm.clone().map(|sizes| sizes.0));
        if let Some(d_embedding) = self.d_embedding {
            // A head without mixture reads the last LSTM's output as it is: that layer goes with the width.
            if let (false, None, Some(last)) =
                (model.head.is_mixture(), &self.lstm, model.lstm_sizes.last_mut())
            {
                *last = d_embedding;
            }
            model.d_embedding = d_embedding;
        }
        set(&mut model.components, self.components);
        set(&mut model.knots, self.knots);
        set(&mut model.plif_bound, self.plif_bound);
        set(&mut model.precision, self.precision);
        set(&mut model.dropouts.output, self.dropout_output);
        set(&mut model.dropouts.hidden, self.dropout_hidden);
        set(&mut model.dropouts.input, self.dropout_input);
        set(&mut model.dropouts.latent, self.dropout_latent);
        set(&mut model.dropouts.embedding, self.dropout_embedding);
        set(&mut model.dropouts.weight, self.dropout_weight);
    }

    /// Sets what was given of the procedure.
    pub fn apply_to_procedure(&self, config: &mut TrainConfig) {
        set(&mut config.epochs, self.epochs);
        set(&mut config.seed, self.seed);
        set(&mut config.lr, self.lr);
        set(&mut config.batch, self.batch);
        if self.small_batch.is_some() {
            config.small_batch = self.small_batch;
        }
        set(&mut config.bptt, self.bptt);
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn overrides_replace_the_presets_settings() {
        let line = "ptb_mos train --data d --head softmax --d-embedding 16 --dropout-weight 0.25 --seed 5 --lr 3 --precision tf32";
        let Some(Command::Train(args)) = Cli::parse_from(line.split(' ')).command else { panic!("train") };
        let model = args.model(50).unwrap();
        assert_eq!((model.d_embedding, model.lstm_sizes.as_slice()), (16, [256, 16].as_slice()));
        assert_eq!((model.dropouts.weight, model.dropouts.output), (0.25, 0.2));
        assert_eq!(model.precision, Precision::Tf32);
        let config = args.config().unwrap();
        assert_eq!((config.seed, config.lr, config.bptt), (5, 3.0, 35));
    }
}
