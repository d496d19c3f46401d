//! Saved runs that are looked at together.

use std::path::{Path, PathBuf};

use awd_lstm::train::{RunConfig, RunFolder};
use awd_lstm::{HeadKind, LanguageModel};
use burn::tensor::Device;
use runs::data::Vocabulary;
use runs::load_weights;

use crate::failure::Failure;

/// A saved run: its configuration and its name in tables and pictures.
pub struct SavedRun {
    /// The folder's name, or its path where two folders have the same name.
    pub name: String,
    folder: RunFolder,
    /// Its settings.
    pub config: RunConfig,
    /// Its words.
    pub vocabulary: Vocabulary,
}

impl SavedRun {
    /// Opens runs, none of their weights yet.
    ///
    /// # Errors
    /// What is wrong with a folder.
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        paths
            .iter()
            .enumerate()
            .map(|(index, path)| {
                let clash =
                    paths.iter().enumerate().any(|(other, p)| other != index && short(p) == short(path));
                let name = if clash { path.display().to_string() } else { short(path) };
                let folder = RunFolder::open(path)?;
                let (config, vocabulary) = (folder.config()?, folder.vocabulary()?);
                // A run without a finished epoch is found out before any other is computed.
                folder.best_weights()?;
                Ok(Self { name, folder, config, vocabulary })
            })
            .collect()
    }

    /// Checks that all runs are over the same words in the same order.
    ///
    /// # Errors
    /// The first difference from the first run.
    pub fn same_vocabulary(runs: &[Self]) -> Result<(), Failure> {
        let Some((first, others)) = runs.split_first() else { return Ok(()) };
        for other in others {
            let (a, b) = (first.vocabulary.words(), other.vocabulary.words());
            let names = format!("runs `{}` and `{}` have different vocabularies", first.name, other.name);
            if a.len() != b.len() {
                return Err(format!(
                    "{names}, of {} and {} words: train both on the same data",
                    a.len(),
                    b.len()
                )
                .into());
            }
            if let Some(id) = (0..a.len()).find(|&id| a[id] != b[id]) {
                return Err(format!(
                    "{names}: word {id} is `{}` in one and `{}` in the other; train both on the same data",
                    a[id], b[id]
                )
                .into());
            }
        }
        Ok(())
    }

    /// The run's best model.
    ///
    /// # Errors
    /// Weights that cannot be read.
    pub fn model(&self, device: &Device) -> Result<LanguageModel, Failure> {
        let model = self.config.model.try_init(device)?;
        Ok(load_weights(model, &self.folder.best_weights()?)?)
    }

    /// An error that says which run it is about.
    pub fn failure(&self, error: impl std::fmt::Display) -> Failure {
        format!("run `{}`: {error}", self.name).into()
    }
}

/// A run's name in a picture's legend, with the head unless the name says it.
pub fn label(run: &str, head: HeadKind) -> String {
    match head.name() == run {
        true => run.into(),
        false => format!("{run} ({head})"),
    }
}

fn short(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
