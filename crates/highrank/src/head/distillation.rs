//! A head as a teacher of another.

use burn::tensor::Tensor;

use super::output::OutputHead;
use crate::context::{ContextPath, Tokens};
use crate::error::OrPanic;
use crate::loss::Distribution;

impl OutputHead {
    /// This head's distributions for some hidden states, for another head to
    /// [learn from](crate::LossOptions::with_distillation). No logits are made here, and no gradient flows through the result. It is
    /// that of the head as it is: of a head in training, with its dropout; [`valid`](burn::module::Module::valid) gives one that drops
    /// nothing.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    ///
    /// # Panics
    /// If the last dimension of `hidden` is not `H`, there is no token, or a tensor is on another device than the head. If the head
    /// has clusters.
    #[track_caller]
    pub fn distribution<const D: usize>(&self, hidden: Tensor<D>) -> Distribution {
        let checks = self.check(&hidden).or_panic("distribution");
        self.has_common_logits("distribution").or_panic("distribution");
        let head = self.clone();
        let likelihood = move |tokens| Ok(head.likelihood_input(tokens, ContextPath::Native)?.0);
        let tokens = Tokens::all(hidden.detach());
        Distribution::new(tokens, [self.vocab(), self.rows()], checks, likelihood)
    }
}
