//! What is reported while a run is trained.

use std::time::Duration;

use awd_lstm::Error;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// What is reported while a run is trained, and how often it is saved.
#[derive(Debug, Clone)]
pub struct Output {
    /// Name of the program that was started.
    pub program: &'static str,
    /// Objects on standard output.
    pub json: bool,
    /// Time between two checkpoints inside of an epoch.
    pub checkpoint_every: Duration,
    /// What stops the run.
    pub interrupt: Interrupt,
}

impl Output {
    /// Checkpoints every so many minutes, and after an interrupt, for which handlers are set.
    ///
    /// # Errors
    /// If the time is no positive number.
    pub fn new(program: &'static str, json: bool, minutes: f64) -> Result<Self, Failure> {
        let time = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|time| !time.is_zero());
        let Some(checkpoint_every) = time else {
            return Err(Error::invalid("checkpoint-every", minutes, "a number of minutes above 0").into());
        };
        Ok(Self { program, json, checkpoint_every, interrupt: Interrupt::install()? })
    }
}
