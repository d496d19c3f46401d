//! One run of a sweep to its end: training, finetuning, rank.

use std::path::Path;

use awd_lstm::train::{RunConfig, RunFolder};
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::files::last_part;
use program::interrupt::Interrupted;
use runs::data::Corpus;
use runs::files::replace;
use runs::ranks::Ranks;
use runs::{Error, FinalMetrics, load_weights};
use serde::{Deserialize, Serialize};

use crate::commands::analysis::model::Model;
use crate::commands::analysis::rank::{is_wide, spectrum};
use crate::commands::analysis::text::Text;
use crate::commands::sweep::found::{finetuned, finetuning};
use crate::commands::sweep::outcome::{Outcome, Rank, Trained};
use crate::commands::sweep::plan::Planned;
use crate::training::{Folder, Job, Output, Record, VALID};

/// The file of a run that keeps its rank.
const RANK: &str = "rank.json";

/// What runs are brought to their end with.
pub struct Stages<'a> {
    pub corpus: &'a Corpus,
    pub output: &'a Output,
    /// The text on which the ranks of log-probabilities are computed, if they are.
    pub rank_text: Option<&'a Text>,
    pub process: &'a Ranks,
}

/// How training ended: with the run, or because a loss was not finite.
type End = Result<Record, String>;

impl Stages<'_> {
    /// Does what is left of a run in the folder `path`. Returns its result, and whether anything was trained for it now. A loss that is not
    /// finite is a result, and an interrupt is [`Interrupted`].
    pub fn finish(&self, planned: &Planned, path: &Path) -> Result<(Outcome, bool), Failure> {
        let mut outcome = Outcome::of(planned, last_part(path));
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
        if let (Some(text), Some(last)) = (self.rank_text, &record.last) {
            // Where all is trained, nothing else asks.
            if self.output.interrupt.is_noted() {
                let line = "stopped; the same command goes on from here";
                return Err(self.output.interrupt.end(line.into()).into());
            }
            outcome.rank = Some(rank(text, &record, last)?);
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
                return Ok((Ok(record), false));
            }
            folder = Folder::Old(RunFolder::resume(path)?);
        }
        let (text, output, ranks) = (self.corpus, self.output, self.process);
        let job = Job { config: &config, text, output, ranks, vocab_parallel: 1 };
        // The run is unlocked before it is read.
        match job.train(folder).map(drop) {
            Ok(()) => Ok((Ok(Record::read(path)?), true)),
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

/// A rank with the end of the run that it was computed for.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    rank: Rank,
    of: FinalMetrics,
}

/// The first so many contexts of the validation text, for ranks.
pub fn rank_text(corpus: &Corpus, contexts: usize) -> Result<Text, Failure> {
    if contexts < 2 {
        return Err(format!("rank is {contexts}, but must be at least 2 contexts").into());
    }
    Text::of(VALID, corpus.valid(), Some(contexts), 2)
}

/// The rank of the log-probabilities of a finished run's best model on a text: the one in its folder, or computed and
/// kept there.
fn rank(text: &Text, record: &Record, last: &FinalMetrics) -> Result<Rank, Failure> {
    let path = record.path.join(RANK);
    // One that cannot be read is computed again.
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if let Ok(kept) = serde_json::from_str::<Kept>(&kept)
        && (kept.rank.rank_contexts, &kept.of) == (text.contexts(), last)
    {
        return Ok(kept.rank);
    }
    let name: DeviceName = record.config.device.parse()?;
    let device = device::open(name)?;
    let model = record.config.model.try_init(&device)?;
    let model = load_weights(model, &RunFolder::open(&record.path)?.best_weights()?)?;
    let (wide, vocab) = (is_wide(name), record.config.model.vocab);
    let model = Model::Lstm(Box::new(model));
    let spectrum = spectrum(&model, vocab, model.windows(text, &device, "rank"), wide)?;
    let rank = Rank {
        rank: spectrum.rank(if wide { f64::EPSILON } else { f32::EPSILON.into() }),
        rank_contexts: text.contexts(),
        rank_precision: if wide { "f64" } else { "f32" }.into(),
    };
    let kept = Kept { rank: rank.clone(), of: last.clone() };
    replace(&path, (serde_json::to_string_pretty(&kept)? + "\n").as_bytes())?;
    Ok(rank)
}
