//! Dynamic evaluation: a trained model goes on learning from the text that it is evaluated on.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::{parameter, update};
use crate::error::{Result, check};

/// Which root mean square scales the updates: the two published forms differ. Written `paper` and `program`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DynamicForm {
    /// As in the paper (arXiv 1709.07432, section 4): the root of the mean over batches of g², over its mean across all elements.
    Paper,
    /// As in the program behind the published perplexities: the root of the *sum* over batches of g², over the sum across
    /// parameter tensors of each tensor's mean.
    Program,
}

// The default first.
crate::by_name!(DynamicForm, "form": Program => "program", Paper => "paper");

/// Settings of dynamic evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicConfig {
    /// Which root mean square.
    pub form: DynamicForm,
    /// Learning rate.
    pub lr: f64,
    /// Added to the root mean square in the denominator.
    pub eps: f64,
    /// How strongly weights are drawn back to the trained ones.
    pub lambda: f64,
}

impl DynamicConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`](crate::Error::InvalidSetting) names the first setting that is out of range and the range.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [("lr", self.lr), ("eps", self.eps)] {
            check(value.is_finite() && value > 0.0, name, value, "finite and above 0")?;
        }
        check(self.lambda.is_finite() && self.lambda >= 0.0, "lambda", self.lambda, "finite and at least 0")
    }
}

/// Sums over batches of the squared gradients of a module's parameters, element by element.
#[derive(Clone, Debug, Default)]
pub struct GradientStatistics {
    /// Flattened, by parameter.
    sums: HashMap<ParamId, Tensor<1>>,
    batches: usize,
}

impl GradientStatistics {
    /// Statistics before the first batch.
    pub fn new() -> Self {
        Self { sums: HashMap::new(), batches: 0 }
    }

    /// Statistics of `batches` batches, from their flattened sums.
    pub fn from_sums(sums: HashMap<ParamId, Tensor<1>>, batches: usize) -> Self {
        Self { sums, batches }
    }

    /// Adds the gradients of one batch. A parameter without gradient counts as one whose gradient is 0.
    pub fn add<M: Module>(&mut self, module: &M, grads: &GradientsParams) {
        self.batches += 1;
        module.visit(&mut Add { sums: &mut self.sums, grads });
    }

    /// Batches so far.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// The flattened sum of a parameter's squared gradients; none if there is no such parameter.
    pub fn sum(&self, id: ParamId) -> Option<Tensor<1>> {
        self.sums.get(&id).cloned()
    }

    /// The flattened root mean square of a parameter in the given form.
    pub fn rms(&self, form: DynamicForm, id: ParamId) -> Option<Tensor<1>> {
        self.sum(id).map(|sum| root(form, sum, self.batches))
    }

    /// What a root mean square is divided by to make the decay's norm: in the paper's form the mean of all of its elements, in
    /// the program's the sum across parameters of their means.
    pub fn scale<M: Module>(&self, module: &M, form: DynamicForm) -> f64 {
        let (mut sum, mut means, mut elements) = (0.0, 0.0, 0);
        // In the module's order, so that the same statistics make the same bits: identities are drawn at random.
        for squares in burn::module::list_param_ids(module).iter().filter_map(|id| self.sums.get(id)) {
            let count = squares.shape().num_elements();
            let rms = root(form, squares.clone(), self.batches);
            // In f64: millions of elements.
            let total: f64 = rms.into_data().iter::<f64>().sum();
            sum += total;
            means += total / count as f64;
            elements += count;
        }
        match form {
            DynamicForm::Paper => sum / elements as f64,
            DynamicForm::Program => means,
        }
    }
}

fn root(form: DynamicForm, sum: Tensor<1>, batches: usize) -> Tensor<1> {
    match form {
        DynamicForm::Paper => (sum / batches as f64).sqrt(),
        DynamicForm::Program => sum.sqrt(),
    }
}

struct Add<'a> {
    sums: &'a mut HashMap<ParamId, Tensor<1>>,
    grads: &'a GradientsParams,
}

impl ModuleVisitor for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let square = parameter::flat(match self.grads.get::<D>(param.id) {
            Some(grad) => grad.clone() * grad,
            None => param.val().inner().zeros_like(),
        });
        let sum = match self.sums.remove(&param.id) {
            Some(sum) => sum + square,
            None => square,
        };
        self.sums.insert(param.id, sum);
    }
}

/// The update of dynamic evaluation (Krause et al., arXiv 1709.07432, section 4).
///
/// ```text
/// norm  = RMS / scale                                  see DynamicForm
/// decay = lambda · min(norm, 1 / lambda)
/// w_t   = w_{t-1} - lr · g_t / (RMS + eps) + decay · (w_0 - w_{t-1})
/// ```
///
/// The gradient is that of the mean nll of a chunk at `w_{t-1}`, without dropout, clipping or weight decay, and `w_0` are the
/// trained weights.
pub struct DynamicUpdate {
    /// By parameter, all flattened: `w_0`, `lr / (RMS + eps)`, decay.
    parameters: HashMap<ParamId, [Tensor<1>; 3]>,
}

impl DynamicUpdate {
    /// The update from the trained weights of `module` with its gradient statistics.
    ///
    /// # Errors
    /// What [`DynamicConfig::validate`] says; [`Error::InvalidSetting`](crate::Error::InvalidSetting) if the statistics hold no batch or only zeros.
    ///
    /// # Panics
    /// If a parameter has no statistics: they are another module's.
    pub fn new<M: Module>(
        module: &M,
        statistics: &GradientStatistics,
        config: &DynamicConfig,
    ) -> Result<Self> {
        config.validate()?;
        check(statistics.batches > 0, "batches", 0, "at least 1")?;
        let scale = statistics.scale(module, config.form);
        check(scale.is_finite() && scale > 0.0, "mean of the gradients' RMS", scale, "finite and above 0")?;
        let mut prepare = Prepare { statistics, config, scale, parameters: HashMap::new() };
        module.visit(&mut prepare);
        Ok(Self { parameters: prepare.parameters })
    }

    /// The flattened decay of a parameter.
    pub fn decay(&self, id: ParamId) -> Option<Tensor<1>> {
        self.parameters.get(&id).map(|[_, _, decay]| decay.clone())
    }

    /// One update. A parameter without gradient is only drawn back.
    ///
    /// # Panics
    /// If a parameter is not one of the module that this update was made for.
    pub fn step<M: Module>(&self, module: M, grads: GradientsParams) -> M {
        module.map(&mut Step { update: self, grads })
    }
}

struct Prepare<'a> {
    statistics: &'a GradientStatistics,
    config: &'a DynamicConfig,
    scale: f64,
    parameters: HashMap<ParamId, [Tensor<1>; 3]>,
}

impl ModuleVisitor for Prepare<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let DynamicConfig { form, lr, eps, lambda } = *self.config;
        let rms = self.statistics.rms(form, param.id).expect("the statistics are this module's");
        let rate = (rms.clone() + eps).recip() * lr;
        // lambda · min(norm, 1 / lambda)
        let decay = (rms * (lambda / self.scale)).clamp_max(1.0);
        // A copy: sharing memory with the weights would force every step to copy them.
        let origin = parameter::flat(param.val().inner()).mul_scalar(1.0);
        self.parameters.insert(param.id, [origin, rate, decay]);
    }
}

struct Step<'a> {
    update: &'a DynamicUpdate,
    grads: GradientsParams,
}

impl ModuleMapper for Step<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        parameter::map(param, |value| {
            let shape = value.shape();
            let known = self.update.parameters.get(&id).expect("the update was made for this module");
            let [origin, rate, decay] = known.clone();
            let grad = self.grads.remove::<D>(id);
            let grad = grad.map_or_else(|| origin.zeros_like(), parameter::flat);
            update::adapt(parameter::flat(value), grad, rate, decay, origin).reshape(shape)
        })
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "dynamic_tests.rs"]
mod tests;
