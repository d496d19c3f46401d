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
    pub corpus: &'a Corpus,
    pub output: &'a Output,
    /// Where ranks are computed, if they are.
    pub ranks: Option<Ranks>,
    pub process: Process,
}

/// How training ended: with the run, or because a loss was not finite.
type End = Result<Box<Record>, String>;

impl Stages<'_> {
    /// Does what is left of a run in the folder `path`. Returns its result, and whether anything was trained for it now. A loss that is not
    /// finite is a result, and an interrupt is [`Interrupted`].
    pub fn finish(&self, planned: &Planned, path: &Path) -> Result<(Outcome, bool), Failure> {
        let run = path.file_name().map_or(planned.name.clone(), |name| name.to_string_lossy().into_owned());
        let mut outcome = Outcome::of(planned, run);
        let (end, mut new) = self.train(path, planned.config.clone())?;
        let record = match end {
            Ok(record) => record,
            Err(reason) => return Ok((Outcome { failed: Some(reason), ..outcome }, new)),
        };
        outcome.trained = Trained::of(&record);
        if let Some(config) = finetuning(planned, path) {
            let (end, more) = self.train(&finetuned(path), config)?;
            new |= more;
            match end {
                Ok(record) => outcome.finetuned = Trained::of(&record),
                Err(reason) => outcome.failed = Some(format!("finetuning: {reason}")),
            }
        }
        if let (Some(ranks), Some(last)) = (&self.ranks, &record.last) {
            outcome.rank = Some(ranks.of(&record, last)?);
        }
        Ok((outcome, new))
    }

    /// Trains a run to its end, from where it is; says also whether that was any work. A run that failed is not tried again.
    fn train(&self, path: &Path, config: RunConfig) -> Result<(End, bool), Failure> {
        let mut folder = Folder::New(path.to_path_buf());
        if Record::exists(path) {
            let record = Record::read(path)?;
            if let Some(reason) = record.failure.clone() {
                return Ok((Err(reason), false));
            }
            if record.last.is_some() {
                return Ok((Ok(Box::new(record)), false));
            }
            folder = Folder::Old(RunFolder::resume(path)?);
        }
        let (text, output, ranks) = (self.corpus, self.output, &self.process);
        let job = Job { config: &config, text, output, ranks, vocab_parallel: 1 };
        // The run is unlocked before it is read.
        match job.train(folder).map(drop) {
            Ok(()) => Ok((Ok(Box::new(Record::read(path)?)), true)),
            Err(error) if error.is::<Interrupted>() => {
                let line = "stopped and saved; the same command goes on from here";
                Err(self.output.interrupt.end(line.into()).into())
            }
            Err(error) => match error.downcast_ref::<Error>() {
                Some(Error::NonFiniteLoss { .. } | Error::NonFinitePerplexity { .. }) => {
                    Ok((Err(error.to_string()), true))
                }
                _ => Err(error),
            },
        }
    }
}
