//! The training procedure.

use serde::{Deserialize, Serialize};

use crate::regularisation::Penalties;
use runs::error::{Result, check};

/// How a model is trained. The procedure is that of AWD-LSTM (arXiv 1708.02182, sections 3 and 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// B, the number of parallel text streams in training.
    pub batch: usize,
    /// The most columns of a slice of the batch, if gradients are accumulated over slices, which are of equal size to within one
    /// column. Except for rounding and for `prior_cv`, which is the mean of the slices', the result is that of the whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_batch: Option<usize>,
    /// Mean number of time steps of a training step.
    pub bptt: usize,
    /// Learning rate of a step of `bptt` time steps; a step of n gets `lr · n / bptt`. The last of an epoch gets what its drawn
    /// length would have.
    pub lr: f64,
    /// Factor on the learning rate of all parameters of the head's contexts: a mixture's projections, to its contexts and to its
    /// weights, or a Mixtape's contexts and gates. It acts after clipping. Heads without such parameters ignore it. 1 if a file does not
    /// say.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub latent_lr: f64,
    /// Largest global gradient norm, over all parameters together.
    pub clip: f64,
    /// Weight decay, added to the clipped gradient of every weight.
    pub weight_decay: f64,
    /// Weight of activation regularisation, on the dropped output.
    pub alpha: f64,
    /// Weight of temporal activation regularisation, on the raw output.
    pub beta: f64,
    /// Weight of the squared coefficient of variation of a mixture's priors over the tokens of a step, as
    /// [`LossOptions::with_prior_cv`](highrank::LossOptions::with_prior_cv). Heads without priors ignore it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prior_cv: f64,
    /// Averaging begins when the validation loss is worse than the best of all earlier ones but the last `nonmono`. It counts
    /// validations, so with `validate_every` it may do so inside of an epoch.
    pub nonmono: usize,
    /// A step has at most `bptt + max_seq_len_delta` time steps.
    pub max_seq_len_delta: usize,
    /// Number of parallel streams of the validation text.
    pub eval_batch: usize,
    /// Number of parallel streams of the test text.
    pub test_batch: usize,
    /// Number of passes over the training text.
    pub epochs: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether this is finetuning: weights are averaged from the first step, and the criterion that would begin averaging
    /// ends training instead.
    pub average_from_start: bool,
    /// The validation text is also scored after every so many steps of an epoch, and the criterion, the best model, `patience`
    /// and `lr_decay` see that like the validation at an epoch's end. `None`: only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_every: Option<usize>,
    /// Training ends after so many validations in a row without a new best. `None`: never for that reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// How the learning rate falls. `None`: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr_decay: Option<LrDecay>,
    /// Wall-clock time of training in minutes, all processes and validations together. After it, the run ends as if its epochs
    /// were done: the weights of that moment are validated, and the best ones tested. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_minutes: Option<f64>,
    /// Whether the best model is scored on the test text at the end.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub test: bool,
}

fn one() -> f64 {
    1.0
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

fn yes() -> bool {
    true
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_yes(test: &bool) -> bool {
    *test
}

// As above.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(weight: &f64) -> bool {
    *weight == 0.0
}

/// A learning rate that falls by a factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LrDecay {
    /// What the rate is multiplied by, between 0 and 1.
    pub factor: f64,
    /// When.
    pub when: DecayWhen,
}

/// When a learning rate is multiplied by the factor of [`LrDecay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecayWhen {
    /// Before every epoch from this one on (Zaremba et al., arXiv 1409.2329): epoch e has the rate
    /// `lr · factor^(e - epoch + 1)`.
    From {
        /// The first epoch with a smaller rate, counted from 1.
        epoch: usize,
    },
    /// After every validation without a new best.
    Plateau,
}

impl TrainConfig {
    /// What the loss of a training step has besides the nll.
    pub fn penalties(&self) -> Penalties {
        Penalties { alpha: self.alpha, beta: self.beta, prior_cv: self.prior_cv }
    }

    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`](runs::error::Error::InvalidSetting) names the first setting that is out of range and the range.
    pub fn validate(&self) -> Result<()> {
        for (name, size) in [
            ("batch", self.batch),
            ("bptt", self.bptt),
            ("eval_batch", self.eval_batch),
            ("test_batch", self.test_batch),
            ("epochs", self.epochs),
        ] {
            check(size > 0, name, size, "at least 1")?;
        }
        if let Some(small_batch) = self.small_batch {
            check((1..=self.batch).contains(&small_batch), "small_batch", small_batch, "from 1 to batch")?;
        }
        for (name, value) in [("lr", self.lr), ("latent_lr", self.latent_lr), ("clip", self.clip)] {
            check(value.is_finite() && value > 0.0, name, value, "finite and above 0")?;
        }
        for (name, value) in [
            ("weight_decay", self.weight_decay),
            ("alpha", self.alpha),
            ("beta", self.beta),
            ("prior_cv", self.prior_cv),
        ] {
            check(value.is_finite() && value >= 0.0, name, value, "finite and at least 0")?;
        }
        for (name, count) in [("validate_every", self.validate_every), ("patience", self.patience)] {
            check(count != Some(0), name, 0, "at least 1")?;
        }
        if let Some(LrDecay { factor, when }) = self.lr_decay {
            check(factor > 0.0 && factor < 1.0, "lr_decay.factor", factor, "above 0 and below 1")?;
            check(when != DecayWhen::From { epoch: 0 }, "lr_decay.from.epoch", 0, "at least 1")?;
        }
        if let Some(minutes) = self.max_minutes {
            check(minutes.is_finite() && minutes > 0.0, "max_minutes", minutes, "finite and above 0")?;
        }
        Ok(())
    }
}
