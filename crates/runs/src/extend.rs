//! A run that goes on for longer than it was started for, or elsewhere.

use crate::changes::{Extended, differences};
use crate::error::{Error, Result};
use crate::folder::{Folder, RunSettings};

/// What is changed of a run that was begun. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extension {
    /// Epochs of the whole run.
    pub epochs: Option<usize>,
    /// Minutes of the whole run.
    pub max_minutes: Option<f64>,
    /// What the run's rule of early stopping calls patience: of a language model, the validations in a row without a new best after
    /// which training ends.
    pub patience: Option<usize>,
    /// Name of the device that the run goes on with. Results on another device differ by rounding and by dropout masks.
    pub device: Option<String>,
}

/// Settings of a run that can be changed after its start: see [`Folder::extend`].
pub trait Extendable: RunSettings + Clone {
    /// What a checkpoint says of how far the run is.
    type State;

    /// The paths in `config.json` of what an [`Extension`] can change.
    const CHANGEABLE: &'static [&'static str];

    /// Sets what `change` sets.
    ///
    /// # Errors
    /// Names a setting that such a run lacks.
    fn apply(&mut self, change: &Extension) -> Result<(), String>;

    /// What was changed since the run was started, oldest first.
    fn extensions_mut(&mut self) -> &mut Vec<Extended>;

    /// How far a run's checkpoint is; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    fn saved_state(run: &Folder<Self>) -> Result<Option<Self::State>>;

    /// Number of epochs that are done.
    fn epochs_done(state: &Self::State) -> usize;

    /// Whether a run has more to train with this configuration, and had not with `before`.
    ///
    /// # Errors
    /// Says why it has nothing to train although the procedure was changed, and what would do.
    fn goes_on(&self, before: &Self, state: &Self::State) -> Result<bool, String>;
}

impl<C: Extendable> Folder<C> {
    /// Changes a run that was begun, so that it goes on for longer or on another device, and returns its new configuration.
    ///
    /// The run's `config.json` gets the new values and a record of each change, in its
    /// `extensions`. The last line of a finished run that goes on is taken away from `metrics.jsonl`.
    /// A run of more epochs goes on to the bits of one that was started with as many. Values that the run has already
    /// change nothing.
    ///
    /// # Errors
    /// [`Error::CannotExtend`] if more is done than is asked for, or a finished run would still be finished; what is wrong with
    /// the configuration; [`Error::Io`], [`Error::Damaged`]. The run is then as it was.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`Folder::is_locked`].
    pub fn extend(&self, change: &Extension) -> Result<C, C::Error> {
        assert!(self.is_locked(), "extend: the run folder was opened to read it only");
        let refused = |reason| Error::CannotExtend { path: self.path().to_path_buf(), reason };
        let before = self.config()?;
        let state = C::saved_state(self)?;
        let mut now = before.clone();
        now.apply(change).map_err(refused)?;
        now.validate()?;
        let after_epoch = state.as_ref().map_or(0, C::epochs_done);
        let changes = differences(&before, &now, C::CHANGEABLE, after_epoch);
        if changes.is_empty() {
            return Ok(before);
        }
        if let Some(state) = &state
            && now.goes_on(&before, state).map_err(refused)?
        {
            // First: a run without its last line is one that is to be finished, whatever its configuration says.
            self.reset_metrics(&self.saved_metrics()?)?;
        }
        now.extensions_mut().extend(changes);
        self.replace_config(&now)?;
        Ok(now)
    }
}
