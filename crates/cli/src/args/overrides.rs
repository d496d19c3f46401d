//! Settings that replace a preset's.

use awd_lstm::{ModelConfig, TrainConfig};
use clap::Args;
use highrank::Precision;

use crate::args::list::List;

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
    pub lstm: Option<List<usize>>,
    /// Components of a mixture.
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Pieces of a PLIF.
    #[arg(long)]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T].
    #[arg(long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster where the hardware multiplies
    /// such numbers.
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
