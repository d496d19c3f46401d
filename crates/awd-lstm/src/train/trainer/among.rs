//! Several ranks that train one model: what they sum, and what they go by together.

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

use super::Trainer;
use crate::lstm::LstmState;
use crate::model::{LanguageModel, LmState};
use crate::train::losses::Losses;
use crate::train::observer::TrainObserver;
use crate::train::step::{OwnGradients, Stepped};
use runs::error::{Error, Result};
use runs::ranks::{Note, Ranks};

impl Trainer {
    /// Shares the work with other processes: each step's columns, and those of the held-out texts.
    ///
    /// All ranks have the same configurations and the same text, and read the same runs. Their weights stay the same to the bit, which
    /// is checked at every validation.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`] if there are more ranks than columns.
    pub fn with_ranks(mut self, ranks: &Ranks) -> Result<Self> {
        let batch = self.config.batch;
        if ranks.size() > batch {
            return Err(Error::TooManyRanks { ranks: ranks.size(), batch });
        }
        self.ranks = ranks.clone();
        Ok(self)
    }

    /// Whether training is to stop before the next step.
    pub(super) fn is_stopped(&self, observer: &mut dyn TrainObserver) -> bool {
        match self.ranks.are_several() {
            true => self.agreed.stop,
            false => observer.stop(),
        }
    }

    /// Whether the run is to be saved after this step.
    pub(super) fn is_save_due(&self) -> bool {
        match self.ranks.are_several() {
            true => self.agreed.save,
            false => self.is_save_due_here(),
        }
    }

    fn is_save_due_here(&self) -> bool {
        self.agreed.saves && self.checkpoint_every.is_some_and(|every| self.saved.elapsed() >= every)
    }

    /// Losses and gradients of all columns from those of every rank's. What was said to one of them, all know from here on.
    pub(super) fn add_up(
        &mut self,
        model: &LanguageModel,
        own: OwnGradients,
        observer: &mut dyn TrainObserver,
    ) -> Result<(Stepped, GradientsParams)> {
        let OwnGradients { stepped, grads, early } = own;
        if !self.ranks.are_several() {
            return Ok((stepped, grads));
        }
        let save = self.is_save_due_here();
        let pass = self.pass.as_mut().expect("a pass is under way");
        // Reading waits for the device, not for the others.
        let losses = stepped.losses.clone().into_array();
        let losses = losses.map(|loss| loss.into_data().iter::<f32>().next().unwrap_or(f32::NAN));
        let stop = observer.stop();
        let own = Note { losses, stop, save, seconds: pass.own_seconds(), waited: self.agreed.waited };
        let [waited, took] = early.as_ref().map_or([Duration::ZERO; 2], |early| [early.waited, early.took]);
        let began = Instant::now();
        let notes = self.ranks.gather_notes(own)?;
        self.agreed.waited = (waited + began.elapsed()).as_secs_f64();
        let began = Instant::now();
        let grads = match early {
            Some(early) => self.ranks.sum_rest(model, grads, early)?,
            None => self.ranks.sum_gradients(model, grads)?,
        };
        self.agreed.waiting.add(&notes, (took + began.elapsed()).as_secs_f64());

        let first = notes[0];
        pass.agree_on(first.seconds);
        self.agreed.stop = notes.iter().any(|note| note.stop);
        self.agreed.save = first.save;
        // In the order of the ranks, as gradients are.
        let mut sums = first.losses;
        for note in &notes[1..] {
            sums.iter_mut().zip(note.losses).for_each(|(sum, loss)| *sum += loss);
        }
        let options = (&stepped.losses.nll.device(), stepped.losses.nll.dtype());
        let sums = sums.map(|sum| Tensor::<1>::from_data(TensorData::new(vec![sum], [1]), options));
        Ok((Stepped { losses: Losses::from_array(sums), ..stepped }, grads))
    }

    /// Takes the time of rank 0 for the epoch's.
    pub(super) fn agree_on_time(&mut self) -> Result<()> {
        if let Some(pass) = self.pass.as_mut().filter(|_| self.ranks.are_several()) {
            let seconds = self.ranks.gather_equal(&[pass.own_seconds()])?;
            pass.agree_on(seconds[0]);
        }
        Ok(())
    }

    /// Checks that all ranks have the same weights: they have made the same updates, unless the memory of one is broken.
    pub(super) fn check_weights(&self, weights: &LanguageModel) -> Result<()> {
        struct Hash(DefaultHasher);
        impl ModuleVisitor for Hash {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.write(param.val().into_data().as_bytes());
            }
        }
        if !self.ranks.are_several() {
            return Ok(());
        }
        let mut hash = Hash(DefaultHasher::new());
        weights.visit(&mut hash);
        self.ranks.check_same("the hash of the weights", &hash.0.finish())
    }

    /// The carried state of all columns, at every rank.
    pub(super) fn whole_state(&self) -> Result<Option<LmState>> {
        let Some(pass) = &self.pass else { return Ok(None) };
        if !self.ranks.are_several() {
            return Ok(Some(pass.hidden.clone()));
        }
        let own = pass.hidden.layers.iter().flat_map(|layer| [layer.hidden.clone(), layer.cell.clone()]);
        let own: Vec<f32> = own.flat_map(|tensor| tensor.into_data().iter().collect::<Vec<f32>>()).collect();
        let all = self.ranks.gather(bytemuck::cast_slice(&own))?;
        let of_rank = |(rank, bytes): (usize, Vec<u8>)| {
            let columns = self.ranks.part_of(rank, self.config.batch).len();
            let mut values = bytemuck::pod_collect_to_vec::<u8, f32>(&bytes).into_iter();
            let mut fill = |zero: Tensor<2>| {
                let (shape, options) = (zero.shape(), (&zero.device(), zero.dtype()));
                let own: Vec<f32> = values.by_ref().take(shape.num_elements()).collect();
                Tensor::from_data(TensorData::new(own, shape), options)
            };
            let layers = self.model().zero_state(columns).layers.into_iter();
            let layers = layers.map(|layer| LstmState { hidden: fill(layer.hidden), cell: fill(layer.cell) });
            LmState { layers: layers.collect() }
        };
        Ok(Some(LmState::join(all.into_iter().enumerate().map(of_rank).collect())))
    }
}
