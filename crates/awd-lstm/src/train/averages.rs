//! The optimiser's averages as a module's weights, the form in which they are saved.

use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::Optimizer;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::optim::{NtAsgd, NtAsgdRecord, UpdateBackend};

/// Sets the optimiser's averages to the weights of `averaged`, as the mean of `iterates` iterates.
///
/// Averages belong to parameters by their identity, which a weights file does not keep: `averaged` is the
/// module under training with the saved averages loaded into it.
pub(super) fn restore<M, B>(optimiser: NtAsgd<M, B>, averaged: &M, iterates: usize) -> NtAsgd<M, B>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend<InnerBackend: UpdateBackend>,
{
    let mut visitor = Flatten { averages: Vec::new() };
    averaged.visit(&mut visitor);
    optimiser.load_record(NtAsgdRecord { averaging: true, iterates, averages: visitor.averages })
}

struct Flatten<B: Backend> {
    averages: Vec<(String, Tensor<B, 1>)>,
}

impl<B: Backend> ModuleVisitor<B> for Flatten<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val().detach();
        let count = value.shape().num_elements();
        self.averages.push((param.id.serialize(), value.reshape([count])));
    }
}
