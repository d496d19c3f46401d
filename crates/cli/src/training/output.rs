//! What is reported while a run is trained.

use std::time::Duration;

use program::args::RecordArgs;
use program::failure::Failure;
use program::interrupt::Interrupt;
use program::progress::Progress;
use program::ranks::agree;
use runs::error::check;
use runs::ranks::Ranks;
use runs::{Error, LOG_INTERVAL};

/// What is reported while a run is trained, and how often it is saved.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command that continues a stopped run, but for `--resume RUN`.
    pub command: String,
    /// Objects on standard output.
    pub json: bool,
    /// Time between two checkpoints inside of an epoch.
    pub checkpoint_every: Duration,
    /// Steps between two lines of the log and of `steps.jsonl`, if they were asked for.
    log_every: Option<usize>,
    /// What stops the run.
    pub interrupt: Interrupt,
    /// Whether nothing is said of the run but what goes wrong.
    pub quiet: bool,
}

impl Output {
    /// Checkpoints and lines as often as `record` says, on which all processes agree. An interrupt stops the run and makes a checkpoint,
    /// unless the run is `dry` and has nothing to save.
    pub fn new(
        command: String,
        json: bool,
        record: &RecordArgs,
        ranks: &Ranks,
        dry: bool,
    ) -> Result<Self, Failure> {
        let new = || -> Result<Self, Failure> {
            let interrupt =
                if dry { Interrupt::default() } else { Interrupt::of_training(ranks.is_first())? };
            let &RecordArgs { checkpoint_every: minutes, log_every } = record;
            let time = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|time| !time.is_zero());
            let Some(checkpoint_every) = time else {
                let expected = "a number of minutes above 0 and at most 3e17";
                return Err(Error::invalid("checkpoint-every", minutes, expected).into());
            };
            check(log_every != Some(0), "log-every", 0, "at least 1 step")?;
            Ok(Self { command, json, checkpoint_every, log_every, interrupt, quiet: false })
        };
        agree(ranks, new())
    }

    /// The same, but nothing is said of the run.
    pub fn quietly(&self) -> Self {
        Self { quiet: true, ..self.clone() }
    }

    /// Steps between two lines of `steps.jsonl`.
    pub fn log_every(&self) -> usize {
        self.log_every.unwrap_or(LOG_INTERVAL)
    }

    /// A reporter of a run, which an interrupt stops.
    pub fn progress(&self) -> Progress<'static> {
        let progress = if self.quiet { Progress::bar_only("") } else { Progress::new(self.json) };
        progress.until(&self.interrupt).with_every_interval(self.log_every.is_some())
    }
}
