//! A head as a teacher of another.

use burn::tensor::{Int, Tensor};

use super::output::OutputHead;
use crate::context::{ContextOps, Tokens};
use crate::error::{HeadError, OrPanic};
use crate::loss::{Distribution, LossOptions};
use crate::ops::Divergence;

impl OutputHead {
    /// This head's distributions for some hidden states, for another head to [learn from](Self::distill). No logits are made
    /// here, and no gradient flows through the result. It is that of the head as it is: of a head in training, with its dropout;
    /// [`valid`](burn::module::Module::valid) gives one that drops nothing.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    ///
    /// # Panics
    /// If the last dimension of `hidden` is not `H`, there is no token, or a tensor is on another device than the head. If the head
    /// has clusters.
    #[track_caller]
    pub fn distribution<const D: usize>(&self, hidden: Tensor<D>) -> Distribution {
        self.try_distribution(hidden).or_panic("distribution")
    }

    fn try_distribution<const D: usize>(&self, hidden: Tensor<D>) -> Result<Distribution, HeadError> {
        let checks = self.check(&hidden)?;
        self.has_common_logits("distribution")?;
        let head = self.clone();
        let likelihood = move |tokens| Ok(head.likelihood(tokens, ContextOps::Native)?.0);
        let tokens = Tokens::all(hidden.detach());
        Ok(Distribution::new(tokens, [self.vocab(), self.rows()], checks, likelihood))
    }

    /// The mean divergence of this head's distributions from a teacher's, in nats, over all tokens. For ignored tokens, weights and
    /// more see [`LossOptions::with_distillation`].
    ///
    /// Both heads' logits exist for one chunk of tokens at a time. It costs the teacher's forward product beside a step of this head.
    ///
    /// ```
    /// use burn::tensor::{Device, Distribution, Tensor};
    /// use highrank::{Divergence, HeadConfig};
    ///
    /// let device = Device::default().autodiff();
    /// let teacher = HeadConfig::softmax(64, 100).init(&device);
    /// let student = HeadConfig::mos(16, 8, 100, 3).init(&device);
    /// let random = |width| Tensor::<3>::random([2, 5, width], Distribution::Default, &device);
    /// let loss = student.distill(random(16), teacher.distribution(random(64)), Divergence::ReverseKl);
    /// loss.backward();
    /// ```
    ///
    /// # Shapes
    /// - hidden: `[.., H]`; the teacher's hidden states have the same leading dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// If shapes, vocabularies or devices do not fit, this head has clusters, or β of a Jensen–Shannon divergence is not between 0
    /// and 1.
    #[track_caller]
    pub fn distill<const D: usize>(
        &self,
        hidden: Tensor<D>,
        teacher: Distribution,
        divergence: Divergence,
    ) -> Tensor<1> {
        self.try_distill(hidden, teacher, divergence).or_panic("distill")
    }

    fn try_distill<const D: usize>(
        &self,
        hidden: Tensor<D>,
        teacher: Distribution,
        divergence: Divergence,
    ) -> Result<Tensor<1>, HeadError> {
        let (checks, dims) = (self.check(&hidden)?, hidden.dims());
        let options = LossOptions::new().with_distillation(teacher, divergence);
        options.check(&dims[..D - 1], self.rows(), self.vocab(), &checks)?;
        self.check_use(&options)?;
        let targets = Tensor::<1, Int>::zeros([dims[..D - 1].iter().product::<usize>()], &hidden.device());
        Ok(self.counted_loss(hidden, targets, &options)?.value)
    }
}
