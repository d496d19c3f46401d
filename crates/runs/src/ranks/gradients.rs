//! The gradients of a model as one buffer.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

use super::handle::Ranks;
use crate::error::Result;

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
        let mut taken = Take { grads: &mut grads, values: vec![], found: vec![] };
        module.visit(&mut taken);
        let Take { mut values, found, .. } = taken;
        self.sum(&mut values)?;
        module.visit(&mut Restore { grads: &mut grads, values: &values, found: &found });
        Ok(grads)
    }
}

/// Takes the gradients out, end to end: their memory is free before the sums come back.
struct Take<'a> {
    grads: &'a mut GradientsParams,
    values: Vec<f32>,
    /// The parameters with a gradient, in order.
    found: Vec<ParamId>,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.grads.remove::<D>(param.id) else { return };
        let data = grad.into_data();
        match data.as_slice::<f32>() {
            Ok(values) => self.values.extend_from_slice(values),
            Err(_) => self.values.extend(data.iter::<f32>()),
        }
        self.found.push(param.id);
    }
}

/// Puts the gradients of the parameters `found` back.
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
