//! The module of an output head.

use burn::module::Module;
use highrank_kernels::Precision;

use crate::context::Context;
use crate::decoder::Decoder;
use crate::logit_map::LogitMap;

/// An output layer: from a hidden state to a distribution over `V` words.
///
/// ```text
/// log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) )_x ]
/// ```
///
/// Should be created with [`HeadConfig`](crate::HeadConfig). It runs on whatever device its tensors are on. Hidden states may have any number of leading dimensions, of which the first is
/// time if there are two or more (it matters to latent dropout only). All methods that need the decoder matrix are also
/// on [`BoundHead`](crate::BoundHead), which [`tied_to`](Self::tied_to) returns for a head without a matrix of its own.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::HeadConfig;
///
/// let device = Device::default().autodiff();
/// let head = HeadConfig::mos(64, 32, 1000, 5).init(&device);
///
/// let hidden = Tensor::<3>::random([7, 2, 64], Distribution::Default, &device); // [T, B, H]
/// let targets = Tensor::<2, Int>::full([7, 2], 3, &device); // [T, B]
/// let loss = head.loss(hidden.clone(), targets, None); // mean nll in nats, no logits kept
/// let gradients = loss.backward();
/// assert_eq!(head.log_probs(hidden).dims(), [7, 2, 1000]);
/// # let _ = gradients;
/// ```
#[derive(Module, Debug)]
pub struct OutputHead {
    /// `g → (h_k, log π_k)`.
    pub context: Context,
    /// `f`.
    pub logit_map: LogitMap,
    /// `W` and `b`.
    pub decoder: Decoder,
    /// Size in bytes of the largest logit matrix that may exist at a time; `None` leaves it to the device.
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to.
    #[module(skip)]
    pub precision: Precision,
}
