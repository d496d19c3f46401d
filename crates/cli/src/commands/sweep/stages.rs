//! One run of a sweep to its end: training, finetuning, rank.

use std::path::Path;

use awd_lstm::train::{RunConfig, RunFolder};
use program::failure::Failure;
use program::interrupt::Interrupted;
use runs::Error;
use runs::data::Corpus;
use runs::ranks::Ranks as Process;

use crate::commands::sweep::found::{finetuned, finetuning};
use crate::commands::sweep::outcome::{Outcome, Trained};
use crate::commands::sweep::planned::Planned;
use crate::commands::sweep::rank::Ranks;
use crate::training::{Folder, Job, Output, Record};

/// What runs are brought to their end with.
pub struct Stages<'a> {
    /// The text.
    pub corpus: &'a Corpus,
    /// What is reported.
    pub output: &'a Output,
    /// Where ranks are computed, if they are.
    pub ranks: Option<Ranks>,
    /// This process.
    pub process: Process,
}

/// A result of a run.
pub struct Reached {
    /// The result.
    pub outcome: Outcome,
    /// Whether anything was trained for it now.
    pub new: bool,
}

/// How training ended.
enum End {
    Finished(Box<Record>),
    /// A loss was not finite.
    Failed(String),
}

impl Stages<'_> {
    /// Does what is left of a run in the folder `path`.
    ///
    /// # Errors
    /// What goes wrong but for a loss that is not finite, which is a result; [`Interrupted`] after an interrupt.
    pub fn finish(&self, planned: &Planned, path: &Path) -> Result<Reached, Failure> {
        let run = path.file_name().map_or(planned.name.clone(), |name| name.to_string_lossy().into_owned());
        let mut outcome = Outcome::of(planned, run);
        let (end, mut new) = self.train(path, planned.config.clone())?;
        let record = match end {
            End::Finished(record) => record,
            End::Failed(reason) => {
                return Ok(Reached { outcome: Outcome { failed: Some(reason), ..outcome }, new });
            }
        };
        outcome.trained = Trained::of(&record);
        if let Some(config) = finetuning(planned, path) {
            let (end, more) = self.train(&finetuned(path), config)?;
            new |= more;
            match end {
                End::Finished(record) => outcome.finetuned = Trained::of(&record),
                End::Failed(reason) => outcome.failed = Some(format!("finetuning: {reason}")),
            }
        }
        if let (Some(ranks), Some(last)) = (&self.ranks, &record.last) {
            outcome.rank = Some(ranks.of(&record, last)?);
        }
        Ok(Reached { outcome, new })
    }

    /// Trains a run to its end, from where it is; says also whether that was any work. A run that failed is not tried again.
    fn train(&self, path: &Path, config: RunConfig) -> Result<(End, bool), Failure> {
        let mut folder = Folder::New(path.to_path_buf());
        if Record::exists(path) {
            let record = Record::read(path)?;
            if let Some(reason) = record.failure.clone() {
                return Ok((End::Failed(reason), false));
            }
            if record.last.is_some() {
                return Ok((End::Finished(Box::new(record)), false));
            }
            folder = Folder::Old(RunFolder::resume(path)?);
        }
        let (corpus, output) = (self.corpus.clone(), self.output.clone());
        let job = Job { folder, config, corpus, output, ranks: self.process.clone(), vocab_parallel: 1 };
        match job.train() {
            Ok(_) => Ok((End::Finished(Box::new(Record::read(path)?)), true)),
            Err(error) if error.is::<Interrupted>() => {
                let line = "stopped and saved; the same command goes on from here";
                Err(self.output.interrupt.end(line.into()).into())
            }
            Err(error) => match error.downcast_ref::<Error>() {
                Some(Error::NonFiniteLoss { .. } | Error::NonFinitePerplexity { .. }) => {
                    Ok((End::Failed(error.to_string()), true))
                }
                _ => Err(error),
            },
        }
    }
}
