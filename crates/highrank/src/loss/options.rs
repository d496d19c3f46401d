//! The options of a loss.

use burn::tensor::{Int, Tensor};
use highrank_kernels::{Floats, Ints};

use crate::error::HeadError;

/// How a loss is made of the tokens' log-probabilities. The default is the mean nll.
///
/// | option | |
/// |---|---|
/// | [`ignore_index`](Self::with_ignore_index), [token weights](Self::with_token_weights) | which tokens count, and how much |
/// | [class weights](Self::with_class_weights) | token weights by target word |
/// | [label smoothing](Self::with_label_smoothing) | `(1 − ε) q + ε/V'` in place of `q` (Szegedy et al., CVPR 2016) |
/// | [teacher](Self::with_teacher) | a few likely words a token in place of one (distillation; Hinton et al. 2015) |
/// | [z-loss](Self::with_z_loss) | `λ (log normaliser)²`, which keeps logits near 0 (PaLM, Chowdhery et al. 2022, section 5) |
/// | [prior variation](Self::with_prior_cv) | `λ cv²` of a mixture's priors, so all components are used (Takase et al., EMNLP 2018) |
/// | [temperature](Self::with_temperature) | `f(z)/τ` in every component |
/// | [reduction](Self::with_reduction) | mean, sum, or a value for each token |
/// | [statistics](Self::with_statistics) | nll, entropy, likeliest word for each token |
///
/// A token that does not count, because its target is the ignored one or its weight is 0, is as if it were not there,
/// *whatever its hidden state holds*: NaN too. Its row is left out before any product, and its gradient is exactly 0. On a
/// GPU, where how many count is not known without waiting, its row is set to 0 instead.
///
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::{HeadConfig, LossOptions};
///
/// let device = Device::default().autodiff();
/// let head = HeadConfig::mos(16, 8, 100, 3).init(&device);
/// let hidden = Tensor::<3>::random([2, 3, 16], Distribution::Default, &device);
/// let targets = Tensor::<2, Int>::from_data([[5, 7, -100], [3, -100, -100]], &device);
///
/// let options = LossOptions::new().with_ignore_index(-100).with_label_smoothing(0.1).with_statistics(true);
/// let made = head.loss_with(hidden, targets, &options);
/// let gradients = made.loss.backward();
/// let perplexity_of_each = made.statistics.unwrap().nll.exp();
/// # let _ = (gradients, perplexity_of_each);
/// ```
#[derive(Debug, Clone)]
pub struct LossOptions {
    pub(crate) ignore_index: Option<i64>,
    pub(crate) token_weights: Option<Floats>,
    pub(crate) class_weights: Option<Floats>,
    pub(crate) teacher: Option<Teacher>,
    pub(crate) label_smoothing: f64,
    pub(crate) z_loss: f64,
    pub(crate) prior_cv: f64,
    pub(crate) temperature: f64,
    pub(crate) reduction: Reduction,
    pub(crate) statistics: bool,
}

/// How the losses of tokens become the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reduction {
    /// `Σ_n w_n loss_n / Σ_n w_n`. Where nothing counts it is NaN, and its gradients are 0.
    #[default]
    Mean,
    /// `Σ_n w_n loss_n`.
    Sum,
    /// `w_n loss_n`, a value for each token.
    None,
}

/// Likely words of each token.
#[derive(Debug, Clone)]
pub(crate) struct Teacher {
    /// `[.., m]`
    pub(crate) ids: Ints,
    /// `[.., m]`
    pub(crate) probs: Floats,
}

impl Default for LossOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LossOptions {
    /// The mean nll.
    pub fn new() -> Self {
        Self {
            ignore_index: None,
            token_weights: None,
            class_weights: None,
            teacher: None,
            label_smoothing: 0.0,
            z_loss: 0.0,
            prior_cv: 0.0,
            temperature: 1.0,
            reduction: Reduction::Mean,
            statistics: false,
        }
    }

    /// Tokens with this target do not count. Any integer: −100, a word, or one beyond the vocabulary.
    pub fn with_ignore_index(mut self, index: i64) -> Self {
        self.ignore_index = Some(index);
        self
    }

    /// How much each token counts, of the targets' shape: 0 or more. The gradient reaches tracked weights of tokens that
    /// count.
    pub fn with_token_weights<const T: usize>(mut self, weights: Tensor<T>) -> Self {
        self.token_weights = Some(weights.into());
        self
    }

    /// How much a token counts by its target word, shape `[V]`: token n gets the factor `weights[y_n]`. A mean divides by
    /// the sum of the tokens' weights.
    pub fn with_class_weights(mut self, weights: Tensor<1>) -> Self {
        self.class_weights = Some(weights.into());
        self
    }

    /// Scores against m words a token with their probabilities, both of shape `[.., m]`, constants of the loss. What a row
    /// leaves of 1 is shared evenly by the unmasked words that it does not list. The words of a row are all different; one
    /// of probability 0 adds nothing, even if it is masked.
    ///
    /// Targets are still needed, for the nll among the statistics and for the ignored tokens.
    pub fn with_teacher<const D: usize>(mut self, ids: Tensor<D, Int>, probs: Tensor<D>) -> Self {
        self.teacher = Some(Teacher { ids: ids.into(), probs: probs.into() });
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

    /// `λ`, 0 or more: the weight of the squared coefficient of variation of a mixture's priors, summed over the tokens that count
    /// (Takase et al., EMNLP 2018, after Shazeer et al., ICLR 2017). It is 0 if all components are used alike, and `K − 1` if one is
    /// used alone:
    ///
    /// ```text
    /// s_k = Σ_n w_n π_nk      cv² = (1/K) Σ_k (s_k − s̄)² / s̄²      s̄ = (1/K) Σ_k s_k
    /// ```
    ///
    /// A mean gains `λ cv²`, a sum `λ cv² Σ_n w_n`. The term belongs to the tokens of one call together, so it needs one of these
    /// reductions. The paper has λ = 0.001; its program takes the sums of each sequence apart and multiplies by about `K − 1`.
    pub fn with_prior_cv(mut self, lambda: f64) -> Self {
        self.prior_cv = lambda;
        self
    }

    /// `τ`, above 0: divides the mapped logits of every component and leaves priors alone.
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.temperature = temperature;
        self
    }

    /// What becomes of the tokens' losses.
    pub fn with_reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Whether [`TokenStatistics`](super::TokenStatistics) are made, in the same sweep.
    pub fn with_statistics(mut self, statistics: bool) -> Self {
        self.statistics = statistics;
        self
    }

    /// The token weights of a row of tokens, `[N]`.
    pub(crate) fn weights_of_tokens(&self, tokens: usize) -> Option<Tensor<1>> {
        self.token_weights.as_ref().map(|weights| weights.clone().reshape([tokens]).tensor())
    }

    /// Checks that no option asks about target words.
    ///
    /// # Errors
    /// [`HeadError::NeedsWords`] of the first that does.
    pub(crate) fn validate_without_words(&self) -> Result<(), HeadError> {
        let asking = [
            ("ignore_index", self.ignore_index.is_some()),
            ("class_weights", self.class_weights.is_some()),
            ("teacher", self.teacher.is_some()),
        ];
        match asking.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(HeadError::NeedsWords { option }),
            None => Ok(()),
        }
    }

    /// Checks all numbers, and the shapes of all tensors for targets of a shape and a vocabulary of a size.
    ///
    /// The values of tensors are checked where the loss is computed on a CPU.
    ///
    /// # Errors
    /// [`HeadError::LossOption`] or [`HeadError::Shape`], of the first that is wrong.
    pub fn validate(&self, targets: &[usize], vocab: usize) -> Result<(), HeadError> {
        let number = |name, value: f64, holds: bool, expected| match holds {
            true => Ok(()),
            false => Err(HeadError::LossOption { name, value, expected }),
        };
        let epsilon = self.label_smoothing;
        number("label_smoothing", epsilon, (0.0..1.0).contains(&epsilon), "a number in [0, 1)")?;
        let lambda = self.z_loss;
        number("z_loss", lambda, lambda >= 0.0 && lambda.is_finite(), "a finite number of at least 0")?;
        let lambda = self.prior_cv;
        number("prior_cv", lambda, lambda >= 0.0 && lambda.is_finite(), "a finite number of at least 0")?;
        let reduced = lambda == 0.0 || self.reduction != Reduction::None;
        number(
            "prior_cv",
            lambda,
            reduced,
            "0 without a reduction: the term belongs to all tokens together",
        )?;
        validate_temperature(self.temperature)?;
        let shape = |what, got: burn::tensor::Shape, fits: bool, expected: String| match fits {
            true => Ok(()),
            false => Err(HeadError::Shape { what, got: got.to_vec(), expected }),
        };
        if let Some(weights) = &self.token_weights {
            let got = weights.shape();
            let fits = got.to_vec() == targets;
            shape("token_weights", got, fits, format!("{targets:?}, the shape of the targets"))?;
        }
        if let Some(weights) = &self.class_weights {
            let got = weights.shape();
            let fits = got.to_vec() == [vocab];
            shape(
                "class_weights",
                got,
                fits,
                format!("[{vocab}], a weight for each word of the vocabulary"),
            )?;
        }
        if let Some(Teacher { ids, probs }) = &self.teacher {
            let got = ids.shape();
            let (last, leading) =
                got.to_vec().split_last().map_or((0, vec![]), |(m, rest)| (*m, rest.to_vec()));
            let fits = leading == targets && (1..=vocab).contains(&last);
            let expected = format!("{targets:?} of the targets and then m, 1 to the vocabulary's {vocab}");
            shape("teacher_ids", got.clone(), fits, expected)?;
            let expected = format!("{:?}, the shape of teacher_ids", got.to_vec());
            shape("teacher_probs", probs.shape(), probs.shape() == got, expected)?;
        }
        Ok(())
    }
}

/// Checks that a temperature is above 0 and finite.
pub(crate) fn validate_temperature(value: f64) -> Result<(), HeadError> {
    match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => {
            let expected = "a finite number above 0";
            Err(HeadError::LossOption { name: "temperature", value, expected })
        }
    }
}
