//! Saved runs that are looked at together.

use std::path::{Path, PathBuf};

use awd_lstm::train::AwdLstm;
use awd_lstm::{HeadKind, ModelConfig};
use burn::tensor::Device;
use gpt::{GptConfig, Transformer};
use program::args::Head;
use program::failure::Failure;
use program::files::last_part;
use runs::data::{Fingerprint, TextConfig, Vocabulary};
use runs::{Settings, kind_of_run, load_weights};
use seq2seq::train::Dialogues;

use crate::commands::analysis::model::Model;

/// A saved run of a language model: what it is of and its name in tables and pictures.
pub struct SavedRun {
    /// The folder's name, or its path where two folders have the same name.
    pub name: String,
    pub head: Head,
    /// Width of a row of the decoder: that of the embedding, but of the last LSTM under an untied head without contexts.
    pub d_embedding: usize,
    /// Whether its head has clusters of rare words.
    pub has_clusters: bool,
    /// Folder of its text; `None` if that was generated.
    pub data: Option<PathBuf>,
    pub text: TextConfig,
    pub corpus: Fingerprint,
    pub vocabulary: Vocabulary,
    model: Sizes,
    weights: PathBuf,
}

/// What a model is made of.
enum Sizes {
    Lstm(ModelConfig),
    Transformer(GptConfig),
}

impl SavedRun {
    /// Opens runs, none of their weights yet.
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>, Failure> {
        let open = |path: &PathBuf| {
            let alone = paths.iter().filter(|other| last_part(other) == last_part(path)).count() == 1;
            let name = if alone { last_part(path) } else { path.display().to_string() };
            match kind_of_run(path) {
                Ok(kind) if kind == Transformer::KIND => {
                    Self::open(name, &gpt::RunFolder::open(path)?, |preset, model| {
                        Ok((preset.parse()?, Sizes::Transformer(model)))
                    })
                }
                Ok(kind) if kind == Dialogues::KIND => Err(format!(
                    "`{}` is a run of {kind}, but analyses look into runs of {} and {}",
                    path.display(),
                    AwdLstm::KIND,
                    Transformer::KIND
                )
                .into()),
                _ => Self::open(name, &awd_lstm::train::RunFolder::open(path)?, |_, model| {
                    Ok((Head::Common(model.head), Sizes::Lstm(model)))
                }),
            }
        };
        paths.iter().map(open).collect()
    }

    fn open<S: Settings<Text = TextConfig>>(
        name: String,
        folder: &runs::Folder<S>,
        read: impl FnOnce(&str, S::Model) -> Result<(Head, Sizes), Failure>,
    ) -> Result<Self, Failure> {
        let config = folder.config()?;
        let data = config.data_folder().map(Path::to_path_buf);
        let (head, model) = read(&config.preset, config.model)?;
        let (d_embedding, has_clusters) = match &model {
            Sizes::Lstm(model) => (model.d_decoder(), model.clusters().is_some()),
            Sizes::Transformer(model) => (model.head.d_embedding, model.head.adaptive.is_some()),
        };
        Ok(Self {
            name,
            head,
            d_embedding,
            has_clusters,
            data,
            text: config.text,
            corpus: config.corpus,
            vocabulary: folder.vocabulary()?,
            model,
            // A run without a finished epoch is found out before any other is computed.
            weights: folder.best_weights()?,
        })
    }

    /// Checks that all runs are over the same words in the same order.
    pub fn same_vocabulary(runs: &[Self]) -> Result<(), Failure> {
        let Some((first, others)) = runs.split_first() else { return Ok(()) };
        for other in others {
            let (a, b) = (first.vocabulary.words(), other.vocabulary.words());
            let difference = match a.iter().zip(b).position(|(a, b)| a != b) {
                _ if a.len() != b.len() => format!(", of {} and {} words:", a.len(), b.len()),
                Some(id) => format!(": word {id} is `{}` in one and `{}` in the other;", a[id], b[id]),
                None => continue,
            };
            let runs = format!("runs `{}` and `{}` have different vocabularies", first.name, other.name);
            return Err(format!("{runs}{difference} train both on the same data").into());
        }
        Ok(())
    }

    /// Refuses runs whose logits are not all products with one decoder, each of a word.
    pub fn one_decoder(runs: &[Self]) -> Result<(), Failure> {
        let mixtape = Head::Common(HeadKind::Mixtape);
        match runs.iter().find(|run| run.has_clusters || run.head == mixtape) {
            Some(run) => {
                let (head, clusters) = (run.head, if run.has_clusters { " with clusters" } else { "" });
                Err(run.failure(format!(
                    "its head {head}{clusters} has logits that are no products with one decoder"
                )))
            }
            None => Ok(()),
        }
    }

    /// Its best model on a device.
    pub fn model(&self, device: &Device) -> Result<Model, Failure> {
        let weights = &self.weights;
        Ok(match &self.model {
            Sizes::Lstm(config) => Model::Lstm(load_weights(config.try_init(device)?, weights)?.into()),
            Sizes::Transformer(config) => {
                Model::Transformer(load_weights(config.try_init(device)?, weights)?.into())
            }
        })
    }

    /// An error that says which run it is about.
    pub fn failure(&self, error: impl std::fmt::Display) -> Failure {
        format!("run `{}`: {error}", self.name).into()
    }
}

/// A run's name in a picture's legend, with the head unless the name says it.
pub fn label(run: &str, head: Head) -> String {
    match head.name() == run {
        true => run.into(),
        false => format!("{run} ({head})"),
    }
}
