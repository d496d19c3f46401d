//! Which pairs each training step sees.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use runs::error::{Result, check};
use runs::mix_seed;

use super::split::{Pair, Run, Split};

/// The batches of training: runs of consecutive pairs, which share most of their contexts, drawn at random without replacement.
///
/// A pass over the text shuffles its runs and deals them out, so many to a batch; the last batch of a pass may be smaller. What a
/// step sees depends on the seed and its number alone, so training can go on from any step.
#[derive(Debug, Clone)]
pub struct Schedule {
    runs: Vec<Run>,
    runs_per_batch: usize,
    seed: u64,
    /// The pass that `runs` is in the order of; none before the first batch.
    pass: Option<u64>,
    /// The order of the pass: places in `runs`.
    order: Vec<u32>,
}

/// Checks a batch of pairs in runs of `run`.
///
/// # Errors
/// [`InvalidSetting`](runs::Error::InvalidSetting).
pub(crate) fn check_batch(batch: usize, run: usize) -> Result<()> {
    check(run > 0, "run", run, "at least 1")?;
    let multiple = batch > 0 && batch.is_multiple_of(run);
    check(multiple, "batch", batch, "a multiple of run, the pairs that stay together")
}

impl Schedule {
    /// Batches of `batch` pairs in runs of `run`. Runs at the end of a dialogue may be shorter, and batches with them.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) if `run` is 0 or `batch` is not a multiple of it, or if the text has no pair.
    pub fn new(split: &Split, run: usize, batch: usize, seed: u64) -> Result<Self> {
        check_batch(batch, run)?;
        let runs: Vec<Run> = split.runs(run).collect();
        check(!runs.is_empty(), "pairs of the training text", 0, "at least 1")?;
        let order = (0..runs.len() as u32).collect();
        Ok(Self { runs, runs_per_batch: batch / run, seed, pass: None, order })
    }

    /// Number of batches in a pass over the text.
    pub fn batches(&self) -> usize {
        self.runs.len().div_ceil(self.runs_per_batch)
    }

    /// The pairs of a training step, counted from 0 over all passes.
    pub fn pairs(&mut self, step: u64) -> Vec<Pair> {
        let batches = self.batches() as u64;
        let (pass, batch) = (step / batches, (step % batches) as usize);
        if self.pass != Some(pass) {
            (0..).zip(&mut self.order).for_each(|(run, place)| *place = run);
            self.order.shuffle(&mut Pcg64Mcg::seed_from_u64(mix_seed(self.seed, pass, u64::MAX)));
            self.pass = Some(pass);
        }
        let end = ((batch + 1) * self.runs_per_batch).min(self.order.len());
        let dealt = &self.order[batch * self.runs_per_batch..end];
        dealt.iter().flat_map(|&run| self.runs[run as usize].pairs()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::split::tests::split_of;

    fn split() -> Split {
        let turns = |count: usize| (0..count).map(|_| "A: a").collect::<Vec<_>>();
        let dialogues = [9, 20, 2, 33, 15].map(turns);
        split_of(&dialogues.each_ref().map(Vec::as_slice), &["a"])
    }

    fn order(pair: &Pair) -> (usize, usize) {
        (pair.dialogue, pair.turn)
    }

    #[test]
    fn a_pass_is_every_pair_once_in_another_order() {
        let split = split();
        let mut schedule = Schedule::new(&split, 6, 12, 3).unwrap();
        let batches = schedule.batches() as u64;
        assert_eq!(batches, split.runs(6).count().div_ceil(2) as u64);
        let mut passes = Vec::new();
        for pass in 0..3 {
            let mut pairs = Vec::new();
            for step in pass * batches..(pass + 1) * batches {
                let batch = schedule.pairs(step);
                assert!((1..=12).contains(&batch.len()));
                pairs.extend(batch);
            }
            passes.push(pairs.clone());
            pairs.sort_by_key(order);
            assert_eq!(pairs, split.pairs().collect::<Vec<_>>());
        }
        assert!(passes[0] != passes[1] && passes[1] != passes[2]);
    }

    #[test]
    fn a_step_depends_on_its_number_and_the_seed_alone() {
        let split = split();
        let schedule = |seed| Schedule::new(&split, 6, 6, seed).unwrap();
        let mut in_order = schedule(1);
        let steps: Vec<Vec<Pair>> = (0..60).map(|step| in_order.pairs(step)).collect();
        let mut resumed = schedule(1);
        for step in [59, 3, 40, 41, 0] {
            assert_eq!(resumed.pairs(step), steps[step as usize]);
        }
        let mut other = schedule(2);
        assert!((0..60).any(|step| other.pairs(step) != steps[step as usize]));
    }

    #[test]
    fn sizes_are_checked() {
        let split = split();
        for (split, run, batch, expected) in [
            (&split, 0, 30, "run is 0"),
            (&split, 6, 0, "batch is 0, but must be a multiple of run"),
            (&split, 6, 20, "batch is 20, but must be a multiple of run"),
            (&split_of(&[], &[]), 6, 30, "pairs of the training text is 0"),
        ] {
            let message = Schedule::new(split, run, batch, 1).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
