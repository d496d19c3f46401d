//! The options of a loss.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::{Floats, Ints};

use super::distribution::Distribution;
use crate::checks::TensorChecks;
use crate::error::{HeadError, expect_shape, in_range, not_negative};
use crate::likelihood::Shares;
use crate::ops::Divergence;
use crate::parameters::constant;

/// How a loss is made of the tokens' log-probabilities. The default is the mean nll.
///
/// | option | |
/// |---|---|
/// | [`ignore_index`](Self::with_ignore_index), [token weights](Self::with_token_weights) | which tokens count, and how much |
/// | [class weights](Self::with_class_weights) | how much each word counts |
/// | [label smoothing](Self::with_label_smoothing) | `(1 − ε) q + ε/V'` in place of `q` (Szegedy et al., CVPR 2016) |
/// | [teacher](Self::with_teacher) | a few likely words a token in place of one (distillation; Hinton et al. 2015) |
/// | [distributions](Self::with_distributions) | a distribution over all words in place of one word |
/// | [z-loss](Self::with_z_loss) | `λ (log normaliser)²`, which keeps logits near 0 (PaLM, Chowdhery et al. 2022, section 5) |
/// | [prior variation](Self::with_prior_cv) | `λ cv²` of a mixture's priors, so all components are used (Takase et al., EMNLP 2018) |
/// | [distillation](Self::with_distillation) | another head's distribution in place of a word, and how the two are compared |
/// | [entropy bonus](Self::with_entropy_bonus) | `−λ H`, which keeps a policy from becoming sure too early (Williams and Peng 1991) |
/// | [reduction](Self::with_reduction) | mean, sum, or a sum over a given number |
/// | [per token](Self::with_per_token) | the value of each token as well |
/// | [statistics](Self::with_statistics) | nll, entropy, likeliest word for each token |
///
/// A token does not count if its target is ignored or its weight is 0. Nor does it if it is scored against one word whose class
/// weight is 0, without label smoothing, z-loss or entropy bonus. Such a token contributes nothing, even if its hidden state is
/// NaN: its row is left out before any product, and its gradient is exactly 0. On a GPU its row is set to 0 instead, because counting the tokens would wait for the device.
///
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::{HeadConfig, Loss, LossOptions};
///
/// let device = Device::default().autodiff();
/// let head = HeadConfig::mos(16, 8, 100, 3).init(&device);
/// let hidden = Tensor::<3>::random([2, 3, 16], Distribution::Default, &device);
/// let targets = Tensor::<2, Int>::from_data([[5, 7, -100], [3, -100, -100]], &device);
///
/// let options = LossOptions::new().with_ignore_index(-100).with_label_smoothing(0.1).with_statistics(true);
/// let Loss { value, statistics, .. } = head.loss_with(hidden, targets, &options);
/// let gradients = value.backward();
/// let perplexity_of_each = statistics.unwrap().nll.exp();
/// # let _ = (gradients, perplexity_of_each);
/// ```
#[derive(Debug, Clone, Default)]
pub struct LossOptions {
    pub(crate) ignored: Vec<i64>,
    pub(crate) token_weights: Option<Floats>,
    pub(crate) class_weights: Option<Floats>,
    pub(crate) distribution: Option<TargetDistribution>,
    pub(crate) label_smoothing: f64,
    pub(crate) z_loss: f64,
    pub(crate) prior_cv: f64,
    pub(crate) entropy_bonus: f64,
    pub(crate) reduction: Reduction,
    pub(crate) per_token: bool,
    pub(crate) statistics: bool,
    /// Whether the host finds out which tokens count, on a GPU too.
    pub(crate) read_back: bool,
}

/// How the losses of tokens become one value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Reduction {
    /// `Σ_n w_n loss_n / Σ_n w_n`; [class weights](LossOptions::with_class_weights) say what else it may divide by. Where
    /// that is 0 it is NaN, and its gradients are 0.
    #[default]
    Mean,
    /// `Σ_n w_n loss_n`.
    Sum,
    /// `Σ_n w_n loss_n / n` for a given n, finite and above 0: with the number of tokens of a whole batch, the losses and gradients
    /// of its slices add up to those of the batch, however many tokens of a slice count. If none does, the loss is 0 and so are all
    /// gradients. The [variation of priors](LossOptions::with_prior_cv) is that of each slice, which does not add up.
    Divisor(f64),
}

/// What tokens are scored against in place of one word each.
// One lives at a time: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub(crate) enum TargetDistribution {
    /// Likely words of each token, `[.., m]` both.
    Teacher { ids: Ints, probs: Floats },
    /// `[.., V]`, with the rows of the padding.
    Dense(Floats),
    /// Those of another head, and how they are compared.
    Model(Distribution, Divergence),
}

impl LossOptions {
    /// The mean nll.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tokens with this target do not count. Any integer: −100, a word, or one beyond the vocabulary. Further calls add further
    /// targets.
    pub fn with_ignore_index(mut self, index: i64) -> Self {
        self.ignored.push(index);
        self
    }

    /// How much each token counts, of the targets' shape: 0 or more. The gradient reaches tracked weights of tokens that
    /// count.
    pub fn with_token_weights<const T: usize>(mut self, weights: Tensor<T>) -> Self {
        self.token_weights = Some(weights.into());
        self
    }

    /// How much each word counts, shape `[V]`, as in PyTorch's cross-entropy: word v's part of the loss is
    /// `−w_v q̃_v log P(v)`, with the smoothed target distribution `q̃`. A word of weight 0 adds nothing, even if it is masked. A
    /// mean divides by `Σ_n w_{y_n}`, with token weights `t_n` by `Σ_n t_n w_{y_n}`; where a teacher or distributions are the targets,
    /// by the number of tokens, with token weights by their sum. The z-loss and the entropy bonus are not weighted. Constants of the loss.
    pub fn with_class_weights(mut self, weights: Tensor<1>) -> Self {
        self.class_weights = Some(constant(weights).into());
        self
    }

    /// Scores against m words a token with their probabilities, both of shape `[.., m]`, constants of the loss: no gradient reaches
    /// tracked ones. What a row leaves of 1 is shared evenly by the unmasked words that it does not list. The words of a row are all different; one
    /// of probability 0 adds nothing, even if it is masked.
    ///
    /// Targets still say which tokens are ignored, and which words the [statistics](Self::with_statistics)' nll is of. Where a row
    /// lists all unmasked words, nothing takes what it leaves of 1, and the loss is that much smaller.
    pub fn with_teacher<const D: usize>(mut self, ids: Tensor<D, Int>, probs: Tensor<D>) -> Self {
        let (ids, probs) = (ids.into(), constant(probs).into());
        self.distribution = Some(TargetDistribution::Teacher { ids, probs });
        self
    }

    /// Scores against a distribution over all words for each token, `−Σ_v q_v log P(v)`, constants of the loss: no gradient reaches
    /// tracked ones. Where a few words have most of the probability, [`with_teacher`](Self::with_teacher) needs no `[.., V]` tensor.
    ///
    /// Targets still say which tokens are ignored, and which words the [statistics](Self::with_statistics)' nll is of. The rows are
    /// taken as they are: that none is negative and each sums to 1 is not checked.
    ///
    /// # Shapes
    /// - distributions: `[.., V]`; with a padded vocabulary and no clusters [`decoder_rows`](crate::HeadConfig::decoder_rows) in place of `V`
    pub fn with_distributions<const D: usize>(mut self, distributions: Tensor<D>) -> Self {
        self.distribution = Some(TargetDistribution::Dense(constant(distributions).into()));
        self
    }

    /// Learns [another head's distributions](crate::OutputHead::distribution): the [divergence](Divergence) of each token takes the
    /// place of its cross-entropy. Neither head's probabilities are ever stored: those of a chunk of tokens exist at a time. It costs
    /// the teacher's forward product beside a step of this head. The heads may differ in kind, width and number of components; their
    /// words are the same, and their hidden states have the same leading dimensions.
    ///
    /// A loss refuses it in a head with clusters, beside label smoothing or class weights, and where β of a Jensen–Shannon divergence
    /// is not between 0 and 1.
    ///
    /// Targets still say which tokens are ignored, and which words the [statistics](Self::with_statistics)' nll is of. Where
    /// one has some of a word that is masked in the other, a Kullback–Leibler divergence is infinite; the other two are not. All are
    /// infinite for a student whose words are all masked.
    ///
    /// ```
    /// use burn::tensor::{Device, Distribution, Int, Tensor};
    /// use highrank::{Divergence, HeadConfig, LossOptions};
    ///
    /// let device = Device::default().autodiff();
    /// let teacher = HeadConfig::softmax(64, 100).init(&device);
    /// let student = HeadConfig::mos(16, 8, 100, 3).init(&device);
    /// let random = |width| Tensor::<3>::random([2, 5, width], Distribution::Default, &device);
    /// let targets = Tensor::<2, Int>::zeros([2, 5], &device); // −100 where a token is padding
    ///
    /// let distribution = teacher.distribution(random(64));
    /// let options = LossOptions::new()
    ///     .with_ignore_index(-100)
    ///     .with_distillation(distribution, Divergence::JensenShannon { beta: 0.5 });
    /// student.loss_with(random(16), targets, &options).value.backward();
    /// ```
    pub fn with_distillation(mut self, teacher: Distribution, divergence: Divergence) -> Self {
        self.distribution = Some(TargetDistribution::Model(teacher, divergence));
        self
    }

    /// `λ`, any finite number: the loss of a token gains `−λ H` with the entropy `H = −Σ_v P(v) log P(v)` of its distribution, so
    /// a λ above 0 rewards a distribution that stays broad. From the same sweep; a mixture's entropy is that of the mixed
    /// distribution.
    pub fn with_entropy_bonus(mut self, lambda: f64) -> Self {
        self.entropy_bonus = lambda;
        self
    }

    /// `ε` in `[0, 1)`: how much of the target distribution is spread evenly over all unmasked words.
    pub fn with_label_smoothing(mut self, epsilon: f64) -> Self {
        self.label_smoothing = epsilon;
        self
    }

    /// `λ`, 0 or more: the weight of `z_n`. Usual is 1e-4.
    pub fn with_z_loss(mut self, lambda: f64) -> Self {
        self.z_loss = lambda;
        self
    }

    /// `λ`, 0 or more: the weight of the squared coefficient of variation of a mixture's priors, summed over the tokens that
    /// count (Takase et al., EMNLP 2018, after Shazeer et al., ICLR 2017). It is 0 if all components are used alike, and `K − 1`
    /// if one is used alone:
    ///
    /// ```text
    /// s_k = Σ_n w_n π_nk      cv² = (1/K) Σ_k (s_k − s̄)² / s̄²      s̄ = (1/K) Σ_k s_k
    /// ```
    ///
    /// `w_n` is the token's weight times that of its word; under a teacher or distributions, the token's weight. A mean gains `λ cv²`, a
    /// sum `λ cv² Σ_n w_n`, and a sum [over n](Reduction::Divisor) one n-th of that; the value of a single token gains nothing. The
    /// paper has λ = 0.001; its program takes the sums of each sequence apart and multiplies by about `K − 1`.
    ///
    /// A loss of a head without priors refuses it: only a mixture has them.
    pub fn with_prior_cv(mut self, lambda: f64) -> Self {
        self.prior_cv = lambda;
        self
    }

    /// What becomes of the tokens' losses.
    pub fn with_reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Whether [`Loss::per_token`](super::Loss::per_token) is made. The backward pass then recomputes the logits, as any
    /// upstream gradient may come: four matrix products in place of three.
    pub fn with_per_token(mut self, per_token: bool) -> Self {
        self.per_token = per_token;
        self
    }

    /// Whether [`TokenStatistics`](super::TokenStatistics) are made, in the same sweep.
    pub fn with_statistics(mut self, statistics: bool) -> Self {
        self.statistics = statistics;
        self
    }

    /// What each token's loss is multiplied with, by the reduction.
    ///
    /// - weights: of the tokens, and what a mean makes of them
    pub(crate) fn shares(
        &self,
        weights: impl FnOnce() -> Tensor<1>,
        mean: impl FnOnce() -> Shares,
    ) -> Shares {
        match self.reduction {
            Reduction::Mean => mean(),
            Reduction::Sum => Shares::sum(weights()),
            Reduction::Divisor(n) => Shares::over(weights(), n),
        }
    }

    /// Checks all numbers, and the shapes, devices and float types of all tensors.
    ///
    /// The values of tensors are checked where the loss is computed on a CPU.
    ///
    /// - targets: their shape
    /// - rows: of the decoder, the padding's too
    ///
    /// # Errors
    /// Of the first that is wrong.
    pub(crate) fn check(
        &self,
        targets: &[usize],
        rows: usize,
        vocab: usize,
        checks: &TensorChecks,
    ) -> Result<(), HeadError> {
        in_range("label_smoothing", self.label_smoothing, "a number in [0, 1)", 0.0..1.0)?;
        for (name, value) in [("z_loss", self.z_loss), ("prior_cv", self.prior_cv)] {
            not_negative(name, value)?;
            checks.factor(name, value)?;
        }
        in_range("entropy_bonus", self.entropy_bonus, "a finite number", f64::MIN..=f64::MAX)?;
        checks.factor("entropy_bonus", self.entropy_bonus.abs())?;
        if let Reduction::Divisor(divisor) = self.reduction {
            in_range("divisor", divisor, "a finite number above 0", f64::MIN_POSITIVE..=f64::MAX)?;
            checks.scale("divisor", divisor)?;
        }
        if let Some(weights) = &self.token_weights {
            expect_shape("token_weights", &weights.shape(), targets, "the shape of the targets")?;
            checks.tensor("token_weights", weights)?;
        }
        if let Some(weights) = &self.class_weights {
            expect_shape(
                "class_weights",
                &weights.shape(),
                &[vocab],
                "a weight for each word of the vocabulary",
            )?;
            checks.tensor("class_weights", weights)?;
        }
        match &self.distribution {
            None => Ok(()),
            Some(TargetDistribution::Teacher { ids, probs }) => {
                let got = ids.shape();
                let fits = got
                    .split_last()
                    .is_some_and(|(listed, leading)| leading == targets && (1..=vocab).contains(listed));
                if !fits {
                    let expected =
                        format!("{targets:?} of the targets and then m, 1 to the vocabulary's {vocab}");
                    return Err(HeadError::Shape { what: "teacher_ids", got: got.to_vec(), expected });
                }
                expect_shape("teacher_probs", &probs.shape(), &got, "the shape of teacher_ids")?;
                checks.device("teacher_ids", &Device::new(ids.device()))?;
                checks.tensor("teacher_probs", probs)
            }
            Some(TargetDistribution::Dense(distributions)) => {
                let expected = [targets, &[rows]].concat();
                let because = "of the targets and then a probability for each row of the decoder";
                expect_shape("distributions", &distributions.shape(), &expected, because)?;
                checks.tensor("distributions", distributions)
            }
            Some(TargetDistribution::Model(teacher, divergence)) => {
                if let Divergence::JensenShannon { beta } = *divergence {
                    in_range("beta", beta, "a number between 0 and 1", f64::MIN_POSITIVE..1.0)?;
                }
                let reason = "a divergence from another head has no single target: leave it out";
                for (option, is_set) in [
                    ("label_smoothing", self.label_smoothing != 0.0),
                    ("class_weights", self.class_weights.is_some()),
                ] {
                    if is_set {
                        return Err(HeadError::Unused { option, reason });
                    }
                }
                teacher.check(targets, rows, vocab, checks)
            }
        }
    }
}
