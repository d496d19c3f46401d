//! SGD with weight decay, and the average of its iterates.

use std::collections::HashMap;
use std::marker::PhantomData;

use burn::config::Config;
use burn::module::{AutodiffModule, ModuleMapper, Param, ParamId};
use burn::optim::adaptor::GradAdaptor;
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::record::Record;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Shape, Tensor};

use super::UpdateBackend;

/// Configuration of [`NtAsgd`].
#[derive(Config, Debug)]
pub struct NtAsgdConfig {
    /// Weight decay, added to the (clipped) gradient of every parameter.
    #[config(default = 1.2e-6)]
    pub weight_decay: f64,
}

impl NtAsgdConfig {
    /// The optimiser before its first step, not averaging.
    ///
    /// # Panics
    ///
    /// If the weight decay is negative or not finite.
    pub fn init<B: AutodiffBackend, M: AutodiffModule<B>>(&self) -> NtAsgd<M, B> {
        let decay = self.weight_decay;
        assert!(
            decay.is_finite() && decay >= 0.0,
            "NtAsgdConfig: weight_decay is {decay}, but must be at least 0"
        );
        NtAsgd {
            weight_decay: decay,
            averaging: false,
            iterates: 0,
            averages: HashMap::new(),
            module: PhantomData,
        }
    }
}

/// Non-monotonically triggered averaged SGD (NT-ASGD; arXiv 1708.02182, algorithm 1), for any module.
///
/// ```text
/// w_t   = w_{t-1} - lr (g + weight_decay · w_{t-1})
/// avg_t = mean(w_{T+1} … w_t)        from step T on, when averaging was started
/// ```
///
/// The updates of w do not change when averaging begins (t0 = 0, λ = 0), and the average holds the iterates made
/// after that moment only. Who trains decides when it is, for example by [`NonMonotone`](super::NonMonotone), and
/// takes the averaged weights from [`NtAsgd::averaged`] to evaluate and save. Should be created with
/// [`NtAsgdConfig`]; clip gradients before the step with [`clip_global_norm`](super::clip_global_norm).
///
/// A parameter without gradient keeps its value, without decay. Nothing in a step waits for the device.
#[derive(Clone)]
pub struct NtAsgd<M, B: AutodiffBackend> {
    weight_decay: f64,
    averaging: bool,
    /// Iterates in the averages.
    iterates: usize,
    /// The averages, flattened.
    averages: HashMap<ParamId, Tensor<B::InnerBackend, 1>>,
    module: PhantomData<M>,
}

/// State of [`NtAsgd`], which Burn's recorders can write and read.
#[derive(Record, Clone, Debug)]
pub struct NtAsgdRecord<B: Backend> {
    /// Whether averaging has begun.
    pub averaging: bool,
    /// Number of iterates in the averages.
    pub iterates: usize,
    /// The flattened average of each parameter by its serialised id, in the order of the ids.
    pub averages: Vec<(String, Tensor<B, 1>)>,
}

impl<M: AutodiffModule<B>, B: AutodiffBackend<InnerBackend: UpdateBackend>> NtAsgd<M, B> {
    /// Begins to average with the next step. Does nothing if averaging has begun already.
    pub fn start_averaging(&mut self) {
        self.averaging = true;
    }

    /// Whether averaging has begun.
    pub fn is_averaging(&self) -> bool {
        self.averaging
    }

    /// A copy of the module with the averaged weights, or with its own where there is no average yet.
    pub fn averaged(&self, module: &M) -> M {
        module.clone().map(&mut Averaged { averages: &self.averages })
    }

    fn step_with(&mut self, lr: LearningRate, module: M, mut grads: GradAdaptor) -> M {
        if self.averaging {
            self.iterates += 1;
        }
        module.map(&mut Step { optimiser: self, lr, grads: &mut grads })
    }

    fn average<const D: usize>(&mut self, id: ParamId, value: Tensor<B::InnerBackend, D>) {
        let count = value.shape().num_elements();
        let value = value.reshape([count]);
        let average = match self.averages.remove(&id) {
            Some(average) => B::InnerBackend::average(average, value, 1.0 / self.iterates as f64),
            // A copy: sharing memory with the weights would force the next step to copy them.
            None => value.mul_scalar(1.0),
        };
        self.averages.insert(id, average);
    }
}

impl<M: AutodiffModule<B>, B: AutodiffBackend<InnerBackend: UpdateBackend>> Optimizer<M, B> for NtAsgd<M, B> {
    type Record = NtAsgdRecord<B>;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        self.step_with(lr, module, grads.into())
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        self.step_with(lr, module, grads.into())
    }

    fn to_record(&self) -> Self::Record {
        let mut averages: Vec<_> = self
            .averages
            .iter()
            .map(|(id, average)| (id.serialize(), Tensor::from_inner(average.clone())))
            .collect();
        averages.sort_by(|(a, _), (b, _)| a.cmp(b));
        NtAsgdRecord { averaging: self.averaging, iterates: self.iterates, averages }
    }

    fn load_record(mut self, record: Self::Record) -> Self {
        self.averaging = record.averaging;
        self.iterates = record.iterates;
        self.averages = record
            .averages
            .into_iter()
            .map(|(id, average)| (ParamId::deserialize(&id), average.inner()))
            .collect();
        self
    }
}

struct Step<'a, M, B: AutodiffBackend> {
    optimiser: &'a mut NtAsgd<M, B>,
    lr: LearningRate,
    grads: &'a mut GradAdaptor,
}

impl<M: AutodiffModule<B>, B: AutodiffBackend<InnerBackend: UpdateBackend>> ModuleMapper<B>
    for Step<'_, M, B>
{
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let tracked = tensor.is_require_grad();
        let mut value = tensor.inner();
        if let Some((grad, device)) = self.grads.remove::<B::InnerBackend, D>(id) {
            if value.device() != device {
                value = value.to_device(&device);
            }
            value = B::InnerBackend::descend(value, grad, self.lr, self.optimiser.weight_decay);
        }
        if self.optimiser.averaging && tracked {
            self.optimiser.average(id, value.clone());
        }
        Param::from_mapped_value(id, Tensor::from_inner(value).set_require_grad(tracked), mapper)
    }
}

struct Averaged<'a, B: AutodiffBackend> {
    averages: &'a HashMap<ParamId, Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleMapper<B> for Averaged<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(average) = self.averages.get(&param.id) else { return param };
        param.map(|tensor| {
            let (shape, tracked): (Shape, bool) = (tensor.shape(), tensor.is_require_grad());
            Tensor::from_inner(average.clone().reshape(shape)).set_require_grad(tracked)
        })
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "nt_asgd_tests.rs"]
mod tests;
