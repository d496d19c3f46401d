//! The result of one run of an ablation.

use std::path::Path;

use awd_lstm::train::{EpochMetrics, FinalMetrics, RunConfig, RunFolder};
use awd_lstm::{Error, HeadKind};
use serde::Serialize;

use crate::failure::Failure;
use crate::statistics::median;

/// The result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The output layer.
    pub head: HeadKind,
    /// The seed of everything random.
    pub seed: u64,
    /// Number of parameters.
    pub parameters: usize,
    /// Width of the embedding.
    pub d_embedding: usize,
    /// Sizes of the LSTM layers.
    pub lstm_sizes: Vec<usize>,
    /// Epochs trained.
    pub epochs: usize,
    /// The epoch of the best model.
    pub best_epoch: usize,
    /// Its perplexity on the validation text.
    pub valid_ppl: f64,
    /// Its perplexity on the test text.
    pub test_ppl: f64,
    /// Median over epochs, of training.
    pub tokens_per_s: f64,
    /// Wall-clock time of training.
    pub seconds: f64,
}

impl Outcome {
    /// The result of the run in the folder `path`; none if there is no run or an unfinished one.
    ///
    /// # Errors
    /// A run of other settings than `config`, or a damaged one.
    pub fn of_run(path: &Path, config: &RunConfig) -> Result<Option<Self>, Failure> {
        if !path.join("config.json").exists() {
            return Ok(None);
        }
        let run = RunFolder::open(path)?;
        let of_run = run.config()?;
        let here = |error: Error| -> Failure { format!("`{}`: {error}", path.display()).into() };
        of_run.check(config).map_err(here)?;
        if of_run.corpus != config.corpus {
            return Err(
                format!("`{}` was trained on other text; choose another --out", path.display()).into()
            );
        }
        let lines = run.metrics()?;
        let last = lines.lines().last().and_then(|line| serde_json::from_str::<FinalMetrics>(line).ok());
        let Some(last) = last else { return Ok(None) };
        let epochs: Vec<EpochMetrics> =
            lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Some(Self {
            head: config.model.head,
            seed: config.train.seed,
            parameters: config.model.num_params(),
            d_embedding: config.model.d_embedding,
            lstm_sizes: config.model.lstm_sizes.clone(),
            epochs: epochs.len(),
            best_epoch: last.best_epoch,
            valid_ppl: last.valid_ppl,
            test_ppl: last.test_ppl,
            tokens_per_s: median(epochs.iter().map(|epoch| epoch.tokens_per_s)).unwrap_or(f64::NAN),
            seconds: last.seconds,
        }))
    }
}
