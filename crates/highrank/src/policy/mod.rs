//! Losses of preference tuning and of policy gradients, as functions of log-probabilities.
//!
//! None of them reads logits. [`token_log_probs`](crate::OutputHead::token_log_probs) gives the log-probabilities of the tokens that
//! were written, differentiable and without a `[.., V]` tensor; everything here is a few operations on `[B, L]`, B sequences of L
//! tokens.
//!
//! | function | loss |
//! |---|---|
//! | [`dpo_loss`] | direct preference optimisation: the chosen answer above the rejected one, relative to a reference |
//! | [`simpo_loss`] | the same of mean log-probabilities, with a margin and without a reference |
//! | [`orpo_loss`] | supervised tuning with a penalty on the odds of the rejected answer |
//! | [`kto_loss`] | answers that are desirable or not, in no pairs |
//! | [`kto_reference_point`] | the reference point of that loss |
//! | [`grpo_loss`] | the token loss of PPO and GRPO: clipped ratios, a penalty against a reference, an entropy bonus |
//! | [`group_advantages`] | rewards of several answers to one prompt, made advantages |
//! | [`sequence_sum`], [`sequence_mean`] | log-probabilities of whole sequences |
//!
//! # What all have in common
//!
//! - Log-probabilities are natural. `log_probs` is that of the model being trained; gradients flow to it, and to the entropy of a
//!   bonus, alone. Everything else is a constant: references, old log-probabilities, advantages, reference points.
//! - A mask `[B, L]` is true where a token counts. Prompts, padding and gaps do not. There, every other tensor may hold any number,
//!   NaN too, and gradients are exactly 0.
//! - A token that counts needs finite log-probabilities: a masked word, of log-probability −∞, cannot have been written.
//! - Of no sequences or pairs a loss is 0, and so is its gradient.
//! - All tensors are on one device, with autodiff or without, and of one float type. Results are f32 at least.
//! - Options outside of their ranges, and shapes that do not fit, panic; the message has both shapes.
//!
//! # Example
//! ```
//! use burn::tensor::{Device, Distribution, Int, Tensor};
//! use highrank::policy::{DpoOptions, Pairs, dpo_loss};
//! use highrank::{HeadConfig, LogProbOptions};
//!
//! let device = Device::default().autodiff();
//! let head = HeadConfig::mos(16, 8, 100, 3).init(&device);
//! let hidden = Tensor::<3>::random([2, 4, 16], Distribution::Default, &device); // two answers
//! // The prompt and the padding count for nothing, and cost nothing.
//! let words = Tensor::<2, Int>::from_data([[-100, 7, 9, 1], [-100, 7, 2, -100]], &device);
//! let mask = words.clone().not_equal_elem(-100);
//!
//! let options = LogProbOptions { ignored: vec![-100], ..Default::default() };
//! let made = head.token_log_probs(hidden, words.unsqueeze_dim(2), &options);
//! let log_probs: Tensor<2> = made.log_probs.squeeze_dim(2);
//! let reference = log_probs.clone().detach() - 0.1; // of a frozen model
//! let pairs = Pairs::halves(2, &device); // the first half of the sequences is chosen
//! let loss = dpo_loss(log_probs, reference, mask, &pairs, &DpoOptions::default());
//! let gradients = loss.value.backward();
//! # let _ = gradients;
//! ```

mod advantages;
mod dpo;
mod grpo;
mod kto;
mod orpo;
mod pairs;
mod sequences;
mod simpo;
#[cfg(all(test, feature = "flex"))]
mod tests;

pub use advantages::{GroupScale, group_advantages};
pub use dpo::{DpoOptions, dpo_loss};
pub use grpo::{Aggregation, GrpoLoss, GrpoOptions, grpo_loss};
pub use kto::{KtoLoss, KtoOptions, kto_loss, kto_reference_point};
pub use orpo::{OrpoLoss, OrpoOptions, orpo_loss};
pub use pairs::{Pairs, PreferenceLoss};
pub use sequences::{sequence_mean, sequence_sum};
pub use simpo::{SimpoOptions, simpo_loss};
