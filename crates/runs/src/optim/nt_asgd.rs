//! SGD with weight decay, and the average of its iterates.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId, list_param_ids};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::{clip, parameter, update};
use crate::error::Result;
use crate::shards::Shards;

/// Non-monotonically triggered averaged SGD (NT-ASGD; arXiv 1708.02182, algorithm 1), for any module.
///
/// ```text
/// w_t   = w_{t-1} - lr (g + weight_decay · w_{t-1})
/// avg_t = mean(w_{T+1} … w_t)        from step T on, when averaging was started
/// ```
///
/// The updates of w do not change when averaging begins (t0 = 0, λ = 0), and the average holds only the iterates made
/// after that moment. The caller decides when that is, for example by [`NonMonotone`](super::NonMonotone), and takes the
/// averaged weights from [`NtAsgd::averaged`] to evaluate and save. Clip gradients before the step with
/// [`clip_global_norm`](super::clip_global_norm), or in it with [`step_clipped`](Self::step_clipped).
///
/// A parameter without gradient keeps its value, without decay. Nothing in a step waits for the device.
///
/// To save the state, save [`is_averaging`](Self::is_averaging), [`iterates`](Self::iterates) and the weights of
/// [`averaged`](Self::averaged); [`resume_averaging`](Self::resume_averaging) restores it to the same bits.
#[derive(Clone, Debug)]
pub struct NtAsgd {
    weight_decay: f64,
    /// Factors on the learning rate other than 1.
    factors: HashMap<ParamId, f64>,
    /// The parameters of which this rank has some rows alone.
    shards: Shards,
    averaging: bool,
    /// Iterates in the averages.
    iterates: usize,
    /// The averages, flattened.
    averages: HashMap<ParamId, Tensor<1>>,
}

impl NtAsgd {
    /// The optimiser before its first step, not averaging. The weight decay is added to the (clipped) gradient of every parameter.
    ///
    /// # Panics
    /// If it is negative or not finite.
    pub fn new(weight_decay: f64) -> Self {
        assert!(
            weight_decay.is_finite() && weight_decay >= 0.0,
            "NtAsgd::new: weight_decay is {weight_decay}, but must be at least 0"
        );
        Self {
            weight_decay,
            factors: HashMap::new(),
            shards: Shards::default(),
            averaging: false,
            iterates: 0,
            averages: HashMap::new(),
        }
    }

    /// Multiplies the learning rate of the parameters of `part` by a factor: `w_t = w_{t-1} - factor · lr (g + ..)`. It acts
    /// after clipping, whose norm it does not change.
    ///
    /// Parameters are told by their identity: `part` is a part of the module that is trained.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn with_factor<M: Module>(mut self, part: &M, factor: f64) -> Self {
        assert!(
            factor.is_finite() && factor > 0.0,
            "NtAsgd::with_factor: the factor is {factor}, but must be finite and above 0"
        );
        self.factors.extend(list_param_ids(part).into_iter().map(|id| (id, factor)));
        self
    }

    /// Clips to the norm over the rows of all ranks.
    pub fn with_shards(self, shards: Shards) -> Self {
        Self { shards, ..self }
    }

    /// Begins to average with the next step. Does nothing if averaging has begun already.
    pub fn start_averaging(&mut self) {
        self.averaging = true;
    }

    /// Whether averaging has begun.
    pub fn is_averaging(&self) -> bool {
        self.averaging
    }

    /// Number of iterates in the averages.
    pub fn iterates(&self) -> usize {
        self.iterates
    }

    /// A copy of the module with the averaged weights, or with its own where there is no average yet.
    pub fn averaged<M: Module>(&self, module: &M) -> M {
        module.clone().map(&mut Averaged { averages: &self.averages })
    }

    /// Continues an average: that of `iterates` iterates is the weights of `averaged`.
    ///
    /// Averages belong to parameters by their identity, which a file of weights does not keep. `averaged` is therefore the
    /// module under training with the saved averages loaded into it.
    pub fn resume_averaging<M: Module>(&mut self, averaged: &M, iterates: usize) {
        let mut flatten = Flatten { averages: HashMap::new() };
        averaged.visit(&mut flatten);
        (self.averaging, self.iterates, self.averages) = (true, iterates, flatten.averages);
    }

    /// One step with the learning rate `lr`.
    pub fn step<M: Module>(&mut self, lr: f64, module: M, grads: GradientsParams) -> M {
        self.step_by(lr, module, grads, None)
    }

    /// One step with the learning rate `lr` after clipping to the norm over all parameters together: the weights of
    /// [`clip_global_norm`](super::clip_global_norm) and [`step`](Self::step), with one visit of the gradients less.
    ///
    /// Returns the module and the norm before clipping, `[1]`, on the gradients' device; `None` if no parameter has a gradient.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication), if [ranks](Self::with_shards) hold rows.
    ///
    /// # Panics
    /// If `max_norm` is not a positive number.
    pub fn step_clipped<M: Module>(
        &mut self,
        lr: f64,
        module: M,
        grads: GradientsParams,
        max_norm: f64,
    ) -> Result<(M, Option<Tensor<1>>)> {
        let measured = clip::norm_and_coefficient(&module, &grads, max_norm, &self.shards)?;
        let (norm, factor) = measured.unzip();
        Ok((self.step_by(lr, module, grads, factor), norm))
    }

    /// One step with gradients that are multiplied by a factor first.
    fn step_by<M: Module>(
        &mut self,
        lr: f64,
        module: M,
        grads: GradientsParams,
        factor: Option<Tensor<1>>,
    ) -> M {
        if self.averaging {
            self.iterates += 1;
        }
        module.map(&mut Step { optimiser: self, lr, grads, factor })
    }

    fn average<const D: usize>(&mut self, id: ParamId, value: Tensor<D>) {
        let value = parameter::flat(value);
        let average = match self.averages.remove(&id) {
            Some(average) => update::average(average, value, 1.0 / self.iterates as f64),
            // A copy: sharing memory with the weights would force the next step to copy them.
            None => value.mul_scalar(1.0),
        };
        self.averages.insert(id, average);
    }
}

struct Step<'a> {
    optimiser: &'a mut NtAsgd,
    lr: f64,
    grads: GradientsParams,
    factor: Option<Tensor<1>>,
}

impl ModuleMapper for Step<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tracked) = (param.id, param.is_require_grad());
        parameter::map(param, |mut value| {
            if let Some(grad) = self.grads.remove::<D>(id) {
                let device = grad.device();
                if value.device() != device {
                    value = value.to_device(&device);
                }
                let lr = self.lr * self.optimiser.factors.get(&id).copied().unwrap_or(1.0);
                value = update::descend(value, grad, self.factor.as_ref(), lr, self.optimiser.weight_decay);
            }
            if self.optimiser.averaging && tracked {
                self.optimiser.average(id, value.clone());
            }
            value
        })
    }
}

struct Averaged<'a> {
    averages: &'a HashMap<ParamId, Tensor<1>>,
}

impl ModuleMapper for Averaged<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(average) = self.averages.get(&param.id) else { return param };
        parameter::map(param, |value| {
            let shape = value.shape();
            average.clone().reshape(shape)
        })
    }
}

struct Flatten {
    averages: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for Flatten {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.averages.insert(param.id, parameter::flat(param.val().inner()));
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "nt_asgd_tests.rs"]
mod tests;
