//! What ranks tell each other in every step.

use super::handle::Ranks;
use crate::error::Result;

/// What a rank says of a step, besides its gradients.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Note {
    /// Its part of the step's losses: nll, total, AR, TAR and the priors' term.
    pub losses: [f32; 5],
    /// Whether it was asked to stop.
    pub stop: bool,
    /// Whether it would save the run after this step.
    pub save: bool,
    /// Wall-clock time of the epoch so far, in seconds.
    pub seconds: f64,
    /// How long it waited for the others in the step before, in seconds.
    pub waited: f64,
}

impl Note {
    fn numbers(self) -> [f64; 9] {
        let Self { losses, stop, save, seconds, waited } = self;
        let [nll, total, ar, tar, prior_cv] = losses.map(f64::from);
        let [stop, save] = [stop, save].map(|yes| f64::from(u8::from(yes)));
        [nll, total, ar, tar, prior_cv, stop, save, seconds, waited]
    }

    fn of(numbers: [f64; 9]) -> Self {
        let [nll, total, ar, tar, prior_cv, stop, save, seconds, waited] = numbers;
        // They were f32 before.
        let losses = [nll, total, ar, tar, prior_cv].map(|loss| loss as f32);
        Self { losses, stop: stop != 0.0, save: save != 0.0, seconds, waited }
    }
}

impl Ranks {
    /// The notes of all ranks.
    pub fn gather_notes(&self, own: Note) -> Result<Vec<Note>> {
        let all = self.gather_equal(&own.numbers())?;
        Ok(all.as_chunks::<9>().0.iter().map(|numbers| Note::of(*numbers)).collect())
    }
}

/// Waiting times, summed over steps, in seconds.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Of each rank: for the slowest one, with its gradient at hand.
    pub of_ranks: Vec<f64>,
    /// Of this rank: for the sum of the gradients, once every rank had its own.
    pub sums: f64,
    /// Number of steps.
    pub steps: usize,
}

impl Waiting {
    /// Adds a step.
    pub fn add(&mut self, notes: &[Note], sums: f64) {
        self.of_ranks.resize(notes.len(), 0.0);
        self.of_ranks.iter_mut().zip(notes).for_each(|(sum, note)| *sum += note.waited);
        self.sums += sums;
        self.steps += 1;
    }
}
