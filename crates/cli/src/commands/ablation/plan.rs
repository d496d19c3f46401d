//! Which runs an ablation makes.

use std::path::Path;

use awd_lstm::data::Corpus;
use awd_lstm::train::{Fingerprint, RunConfig, Versions};
use awd_lstm::{HeadKind, TrainConfig};

use crate::args::TrainingArgs;
use crate::device;
use crate::failure::Failure;
use crate::sizes;

/// The runs of an ablation: every head with every seed.
pub struct Plan<'a> {
    /// What is trained and how.
    pub training: &'a TrainingArgs,
    /// Folder of the text.
    pub data: &'a Path,
    /// Output layers.
    pub heads: &'a [HeadKind],
    /// Seeds.
    pub seeds: &'a [u64],
    /// Parameters of every model, about; if not given, those of the preset's Mixture of Softmaxes.
    pub parameters: Option<usize>,
}

impl Plan<'_> {
    /// The configuration of every run, heads first, all sizes solved for.
    ///
    /// # Errors
    /// Settings out of range, ones that an ablation chooses itself, or a budget that a head cannot meet.
    pub fn configs(&self, corpus: &Corpus) -> Result<Vec<RunConfig>, Failure> {
        let Self { training, data, .. } = self;
        let given = &training.overrides;
        if given.seed.is_some() || given.d_embedding.is_some() {
            let name = if given.seed.is_some() { "--seed" } else { "--d-embedding" };
            let instead = if given.seed.is_some() { "--seeds" } else { "--parameters" };
            return Err(format!("an ablation chooses {name} itself; give {instead}").into());
        }
        let base = |head| training.model(head, corpus.vocabulary().len());
        let budget = self.parameters.unwrap_or_else(|| base(HeadKind::Mos).num_params());
        let train = training.procedure()?;
        let fingerprint = Fingerprint::of(corpus);
        let device = device::resolve(training.device());
        let mut configs = vec![];
        for &head in self.heads {
            let model = sizes::matching(&base(head), budget)?;
            model.validate()?;
            for &seed in self.seeds {
                configs.push(RunConfig {
                    versions: Versions::current(),
                    preset: training.preset().to_string(),
                    device: device.to_string(),
                    data: std::fs::canonicalize(data).unwrap_or_else(|_| data.to_path_buf()),
                    corpus: fingerprint.clone(),
                    text: training.text(),
                    finetunes: None,
                    model: model.clone(),
                    train: TrainConfig { seed, ..train.clone() },
                });
            }
        }
        Ok(configs)
    }
}
