//! The ranks that train one model together, as a step of each sees them.

use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

use crate::error::Result;
use crate::metrics::{Score, WaitMetrics};
use crate::ranks::{Grid, Ranks};

/// What all ranks go by, whatever their own clocks and signals say. A process of its own goes by itself.
#[derive(Debug, Default)]
pub struct Peers {
    /// All of them.
    pub(crate) grid: Grid,
    /// Whether the run is saved, by rank 0.
    pub(crate) saves: bool,
    /// Whether a rank was asked to stop.
    pub(crate) stop: bool,
    /// Whether the run is to be saved after this step.
    pub(crate) save: bool,
    /// Time of the epoch by rank 0's clock, in seconds.
    pub(crate) seconds: f64,
    /// How long this rank waited in the last step, in seconds.
    waited: f64,
    /// Since the last line of `steps.jsonl`.
    waiting: Waiting,
}

/// Waiting times, summed over steps, in seconds.
#[derive(Debug, Clone, Default)]
struct Waiting {
    /// Of each rank: for the slowest one, with its gradient at hand.
    of_ranks: Vec<f64>,
    /// Of this rank: for the sum of the gradients, once every rank had its own.
    sums: f64,
    steps: usize,
}

/// Numbers that a rank says of a step besides losses and gradients: whether it was asked to stop, whether it would save the run, its
/// clock, and how long it waited.
const SAID: usize = 4;

impl Peers {
    /// Those of a grid.
    pub(crate) fn new(grid: Grid) -> Self {
        Self { grid, ..Self::default() }
    }

    /// The ranks that share the columns of the batch.
    pub fn ranks(&self) -> &Ranks {
        &self.grid.batch
    }

    /// The losses and the gradients of all ranks from those of each, added in the order of the ranks. What was
    /// said to one rank, all know from here on.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    pub fn add_up<M: Module, const N: usize>(
        &mut self,
        model: &M,
        losses: [Tensor<1>; N],
        grads: GradientsParams,
    ) -> Result<([Tensor<1>; N], GradientsParams)> {
        let (all, ranks) = (&self.grid.all, &self.grid.batch);
        if !all.are_several() {
            return Ok((losses, grads));
        }
        let options = (losses[0].device(), losses[0].dtype());
        // Reading waits for the device, not for the others.
        let read = |loss: Tensor<1>| f64::from(loss.into_data().iter::<f32>().next().unwrap_or(f32::NAN));
        let mut own: Vec<f64> = losses.into_iter().map(read).collect();
        own.extend([f64::from(self.stop), f64::from(self.save), self.seconds, self.waited]);

        let began = Instant::now();
        let said = all.gather_equal(&own)?;
        self.waited = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let grads = ranks.sum_gradients(model, grads)?;
        let took = began.elapsed().as_secs_f64();

        let notes: Vec<&[f64]> = said.chunks(N + SAID).collect();
        // Those that share a vocabulary have the same losses.
        let width = all.size() / ranks.size();
        self.waiting.add(notes.iter().map(|note| note[N + 3]), took);
        self.stop = notes.iter().any(|note| note[N] != 0.0);
        (self.save, self.seconds) = (notes[0][N + 1] != 0.0, notes[0][N + 2]);
        let sums = std::array::from_fn(|index| {
            let notes = notes.iter().step_by(width);
            // They were f32 before.
            let sum = notes.map(|note| note[index] as f32).reduce(|sum, loss| sum + loss);
            Tensor::from_data(TensorData::new(vec![sum.unwrap_or(f32::NAN)], [1]), (&options.0, options.1))
        });
        Ok((sums, grads))
    }

    /// What ranks waited for each other since the last read; `None` for one process.
    pub(crate) fn read_waiting(&mut self) -> Option<WaitMetrics> {
        let Waiting { of_ranks, sums, steps } = std::mem::take(&mut self.waiting);
        if steps == 0 {
            return None;
        }
        let (ranks, steps) = (of_ranks.len(), steps as f64);
        Some(WaitMetrics {
            ranks,
            wait_seconds: of_ranks.iter().sum::<f64>() / ranks as f64 / steps,
            longest_wait_seconds: of_ranks.iter().fold(0.0, |longest: f64, wait| longest.max(*wait)) / steps,
            reduce_seconds: sums / steps,
        })
    }
}

/// The score of a text of which every rank has scored a part; `None` if one of them gave up. All ranks call it.
///
/// # Errors
/// [`Error::Communication`](crate::Error::Communication).
pub fn sum_scores(ranks: &Ranks, own: Option<Score>) -> Result<Option<Score>> {
    if !ranks.are_several() {
        return Ok(own);
    }
    let stopped = f64::from(own.is_none());
    let own = own.unwrap_or_default();
    // Counts below 2⁵³ are exact.
    let counted = own.correct.map_or(f64::NAN, |correct| correct as f64);
    let all = ranks.gather_equal(&[stopped, own.nll, own.tokens as f64, counted])?;
    let (all, _) = all.as_chunks::<4>();
    let sum = |index: usize| all.iter().map(|of_rank| of_rank[index]).sum::<f64>();
    let correct = Some(sum(3)).filter(|correct| correct.is_finite()).map(|correct| correct as usize);
    Ok((sum(0) == 0.0).then(|| Score { nll: sum(1), tokens: sum(2) as usize, correct }))
}

impl Waiting {
    fn add(&mut self, waited: impl ExactSizeIterator<Item = f64>, sums: f64) {
        self.of_ranks.resize(waited.len(), 0.0);
        self.of_ranks.iter_mut().zip(waited).for_each(|(sum, waited)| *sum += waited);
        self.sums += sums;
        self.steps += 1;
    }
}
