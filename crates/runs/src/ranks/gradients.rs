//! The gradients of a model as one buffer, or as two, of which the first is summed while the second is computed.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, TensorData};

use super::handle::Ranks;
use crate::error::Result;

/// Gradients that were summed while others were computed.
#[derive(Debug)]
pub struct Early {
    /// Sums: `shared` of the matrix's, and those of `found`.
    values: Vec<f32>,
    shared: usize,
    found: Vec<ParamId>,
    matrix: ParamId,
    /// Rows of the matrix that the other gradients are added to, ascending.
    rows: Vec<i64>,
    /// How long this rank waited for the slowest one, its other gradients at hand.
    pub waited: Duration,
    /// How long the sum took besides: what was not hidden behind the computation.
    pub took: Duration,
}

impl Ranks {
    /// Sums the gradients of a module over all ranks, by way of the host. Every rank has gradients of the same parameters.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    pub fn sum_gradients<M: Module>(
        &self,
        module: &M,
        mut grads: GradientsParams,
    ) -> Result<GradientsParams> {
        if !self.are_several() {
            return Ok(grads);
        }
        let mut flat = Flat::default();
        flat.take(module, &mut grads);
        self.sum(&mut flat.values)?;
        restore(module, &mut grads, &flat.values, &flat.found);
        Ok(grads)
    }

    /// Whether [`sum_meanwhile`](Self::sum_meanwhile) is to be called, and may be.
    pub fn can_sum_meanwhile(&self) -> bool {
        self.are_several() && self.sums_meanwhile() && self.communicator.is_for_any_thread()
    }

    /// Sums gradients of a module over all ranks in a thread of its own, while `work` computes others.
    ///
    /// Of the matrix `matrix`, the gradient so far is summed here, if there is any: that of an embedding by the decoder that it is. What is
    /// added to it meanwhile is added to the rows of `tokens` alone, those of all ranks.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication), once `work` is done.
    pub fn sum_meanwhile<M: Module, T>(
        &self,
        module: &M,
        mut grads: GradientsParams,
        (matrix, so_far): (ParamId, Option<Tensor<2>>),
        tokens: &Tensor<2, Int>,
        work: impl FnOnce() -> T,
    ) -> Result<(Early, T)> {
        let began = Instant::now();
        let mut flat = Flat::default();
        if let Some(so_far) = so_far {
            flat.push(&so_far.into_data());
        }
        let shared = flat.values.len();
        flat.take(module, &mut grads);
        let Flat { mut values, found } = flat;
        let mut rows: Vec<i64> = tokens.to_data().iter::<i64>().collect();
        rows.sort_unstable();
        rows.dedup();
        let before = began.elapsed();

        self.communicator.computes_meanwhile(true);
        let (summed, made, ready) = thread::scope(|scope| {
            let sum = scope.spawn(|| -> Result<Instant> {
                self.wait()?;
                let arrived = Instant::now();
                self.sum(&mut values)?;
                Ok(arrived)
            });
            let made = work();
            self.communicator.computes_meanwhile(false);
            let ready = Instant::now();
            (sum.join().unwrap_or_else(|panic| resume_unwind(panic)), made, ready)
        });
        let arrived = summed?;
        let waited = arrived.saturating_duration_since(ready);
        let took = before + ready.elapsed().saturating_sub(waited);
        Ok((Early { values, shared, found, matrix, rows, waited, took }, made))
    }

    /// Sums the gradients that were computed meanwhile, and returns the sums of all.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    pub fn sum_rest<M: Module>(
        &self,
        module: &M,
        mut grads: GradientsParams,
        early: Early,
    ) -> Result<GradientsParams> {
        let Early { values: mut whole, shared, found, matrix, rows, .. } = early;
        let own = whole.split_off(shared);
        let mut flat = Flat::default();
        // With what was there before: so the order of the sum is that of a gradient that is summed at once.
        let matrix = grads.remove::<2>(matrix).map(|grad| (matrix, grad));
        if let Some((_, grad)) = &matrix {
            let index = Tensor::<1, Int>::from_data(rows.as_slice(), &grad.device());
            flat.push(&grad.clone().select(0, index).into_data());
        }
        let of_rows = flat.values.len();
        flat.take(module, &mut grads);
        self.sum(&mut flat.values)?;

        let (of_rows, rest) = flat.values.split_at(of_rows);
        restore(module, &mut grads, rest, &flat.found);
        restore(module, &mut grads, &own, &found);
        if let Some((id, grad)) = matrix {
            let [count, width] = grad.dims();
            // Without a gradient before, rows that no rank looked up have none.
            whole.resize(count * width, 0.0);
            for (row, sums) in rows.into_iter().zip(of_rows.chunks(width)) {
                whole[row as usize * width..][..width].copy_from_slice(sums);
            }
            let data = TensorData::new(whole, [count, width]);
            grads.register(id, Tensor::<2>::from_data(data, (&grad.device(), grad.dtype())));
        }
        Ok(grads)
    }
}

/// Gradients end to end.
#[derive(Default)]
struct Flat {
    values: Vec<f32>,
    /// The parameters with a gradient, in order.
    found: Vec<ParamId>,
}

impl Flat {
    fn push(&mut self, data: &TensorData) {
        match data.as_slice::<f32>() {
            Ok(values) => self.values.extend_from_slice(values),
            Err(_) => self.values.extend(data.iter::<f32>()),
        }
    }

    /// Takes the gradients out: their memory is free before the sums come back.
    fn take<M: Module>(&mut self, module: &M, grads: &mut GradientsParams) {
        module.visit(&mut Take { grads, flat: self });
    }
}

struct Take<'a> {
    grads: &'a mut GradientsParams,
    flat: &'a mut Flat,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.grads.remove::<D>(param.id) else { return };
        self.flat.push(&grad.into_data());
        self.flat.found.push(param.id);
    }
}

/// Puts the gradients of the parameters `found` back.
fn restore<M: Module>(module: &M, grads: &mut GradientsParams, values: &[f32], found: &[ParamId]) {
    module.visit(&mut Restore { grads, values, found });
}

struct Restore<'a> {
    grads: &'a mut GradientsParams,
    /// Those not yet restored.
    values: &'a [f32],
    found: &'a [ParamId],
}

impl ModuleVisitor for Restore<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((first, rest)) = self.found.split_first().filter(|(first, _)| **first == param.id) else {
            return;
        };
        let weight = param.val().inner();
        let (own, others) = self.values.split_at(weight.shape().num_elements());
        (self.values, self.found) = (others, rest);
        let data = TensorData::new(own.to_vec(), weight.shape());
        self.grads.register(*first, Tensor::<D>::from_data(data, (&weight.device(), weight.dtype())));
    }
}
