//! High-rank output layers for [Burn](https://burn.dev).
//!
//! A language model usually ends in a softmax over `h·Wᵀ`, whose matrix of log-probabilities cannot exceed rank `d + 1`:
//! the *softmax bottleneck* (Yang et al., *Breaking the Softmax Bottleneck*, ICLR 2018). This crate has the cures as Burn
//! modules over any backend, exact in log space, with a likelihood that never stores the logits.
//!
//! Every head is a choice of three parts,
//!
//! ```text
//! log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) )_x ]
//! ```
//!
//! | part | module | choices |
//! |---|---|---|
//! | context `g → (h_k, log π_k)` | [`context`] | direct, Mixture of Contexts, Mixture of Softmaxes |
//! | logit map `f` | [`logit_map`] | identity, sigsoftmax, generalised sigsoftmax, soft cap, PLIF, monotonic network |
//! | decoder `W, b` | [`decoder`] | owned, or tied to the caller's embedding |
//!
//! and one [`likelihood`] serves them all. [`HeadConfig`] names the papers' heads.
//!
//! # The heads
//! ```
//! use burn::backend::{Autodiff, Flex};
//! use burn::tensor::{Int, Tensor};
//! use highrank::HeadConfig;
//!
//! type B = Autodiff<Flex>;
//! let device = Default::default();
//! let (h, d, v) = (24, 16, 100); // hidden size, embedding size, vocabulary
//! let heads = [
//!     HeadConfig::softmax(d, v),              // the baseline
//!     HeadConfig::moc(h, d, v, 4),            // Mixture of Contexts
//!     HeadConfig::mos(h, d, v, 4),            // Mixture of Softmaxes
//!     HeadConfig::sigsoftmax(d, v),           // e^z σ(z)
//!     HeadConfig::gss(d, v),                  // generalised sigsoftmax
//!     HeadConfig::soft_cap(d, v, 30.0),       // 30 tanh(z / 30)
//!     HeadConfig::plif(d, v, 1000),           // piecewise linear increasing function, 1000 knots
//!     HeadConfig::monotonic_net(d, v, 16),    // sum of 16 sigmoids
//!     HeadConfig::mos_plif(h, d, v, 4, 1000), // both
//! ];
//! for config in heads {
//!     let head = config.init::<B>(&device);
//!     let hidden = Tensor::<B, 3>::ones([5, 2, config.d_hidden], &device); // [T, B, H]
//!     let targets = Tensor::<B, 2, Int>::ones([5, 2], &device);
//!     let loss = head.loss(hidden, targets, None); // mean nll, nats
//!     loss.backward();
//! }
//! ```
//!
//! # Tied weights
//! ```
//! use burn::backend::Flex;
//! use burn::nn::EmbeddingConfig;
//! use burn::tensor::{Int, Tensor};
//! use highrank::HeadConfig;
//!
//! let device = Default::default();
//! let embedding = EmbeddingConfig::new(100, 16).init::<Flex>(&device);
//! let head = HeadConfig::mos(24, 16, 100, 4).with_tied(true).init::<Flex>(&device);
//! let hidden = Tensor::<Flex, 2>::ones([5, 24], &device);
//! let log_probs = head.tied_to(embedding.weight.val()).log_probs(hidden);
//! assert_eq!(log_probs.dims(), [5, 100]);
//! ```
//!
//! # Features
//! | feature | backend |
//! |---|---|
//! | `flex` (default) | Burn's CPU backend |
//! | `ndarray` | Burn's older CPU backend |
//! | `wgpu` | GPU through WebGPU or Vulkan |
//! | `cuda` | NVIDIA GPU; its libraries are loaded at run time |

pub mod analysis;
mod autodiff;
pub mod context;
#[cfg(feature = "flex")]
pub mod cpu;
pub mod decoder;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
mod head;
pub mod likelihood;
pub mod logit_map;
mod math;
mod operations;
pub mod precision;

pub use context::ContextConfig;
pub use error::HeadError;
pub use head::{BoundHead, HeadConfig, OutputHead, Sampling, TopK, validate_targets};
pub use likelihood::{DEFAULT_MEMORY_BUDGET, LikelihoodBackend};
pub use logit_map::LogitMapConfig;
pub use precision::Precision;
