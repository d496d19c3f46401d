//! The command line of `ptb_mos`.

use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

use awd_lstm::{Error, HeadKind, ModelConfig, Preset, TrainConfig};
use clap::{Args, Parser, Subcommand};

use crate::analysis::compare::CompareArgs;
use crate::analysis::kl::KlArgs;
use crate::analysis::plif::PlifArgs;
use crate::analysis::rank::RankArgs;
use crate::device::DeviceName;

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
    /// Folder with train.txt, valid.txt and test.txt.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Sizes and procedure to start from: small or paper.
    #[arg(long, default_value = "small")]
    pub preset: Preset,
    /// Output layer: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif.
    #[arg(long, default_value = "mos")]
    pub head: HeadKind,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// Folder to write the run to [default: a new one under runs/].
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
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
    /// The model for a vocabulary of `vocab` words: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`ModelConfig::validate`] says.
    pub fn model(&self, vocab: usize) -> Result<ModelConfig, Error> {
        let given = &self.overrides;
        let mut model = self.preset.model(self.head, vocab);
        set(&mut model.lstm_sizes, given.lstm.clone().map(|sizes| sizes.0));
        if let Some(d_embedding) = given.d_embedding {
            // A head without mixture reads the last LSTM's output as it is: that layer goes with the width.
            if let (false, None, Some(last)) =
                (self.head.is_mixture(), &given.lstm, model.lstm_sizes.last_mut())
            {
                *last = d_embedding;
            }
            model.d_embedding = d_embedding;
        }
        set(&mut model.components, given.components);
        set(&mut model.knots, given.knots);
        set(&mut model.plif_bound, given.plif_bound);
        set(&mut model.dropouts.output, given.dropout_output);
        set(&mut model.dropouts.hidden, given.dropout_hidden);
        set(&mut model.dropouts.input, given.dropout_input);
        set(&mut model.dropouts.latent, given.dropout_latent);
        set(&mut model.dropouts.embedding, given.dropout_embedding);
        set(&mut model.dropouts.weight, given.dropout_weight);
        model.validate()?;
        Ok(model)
    }

    /// The procedure: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`TrainConfig::validate`] says.
    pub fn config(&self) -> Result<TrainConfig, Error> {
        let given = &self.overrides;
        let mut config = self.preset.train();
        set(&mut config.epochs, given.epochs);
        set(&mut config.seed, given.seed);
        set(&mut config.lr, given.lr);
        set(&mut config.batch, given.batch);
        set(&mut config.bptt, given.bptt);
        config.validate()?;
        Ok(config)
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
        let line =
            "ptb_mos train --data d --head softmax --d-embedding 16 --dropout-weight 0.25 --seed 5 --lr 3";
        let Some(Command::Train(args)) = Cli::parse_from(line.split(' ')).command else { panic!("train") };
        let model = args.model(50).unwrap();
        assert_eq!((model.d_embedding, model.lstm_sizes.as_slice()), (16, [256, 16].as_slice()));
        assert_eq!((model.dropouts.weight, model.dropouts.output), (0.25, 0.2));
        let config = args.config().unwrap();
        assert_eq!((config.seed, config.lr, config.bptt), (5, 3.0, 35));
    }
}
