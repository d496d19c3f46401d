#![doc = include_str!("../README.md")]
//!
//! # The parts of a head
//!
//! ```text
//! log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) )_x ]
//! ```
//!
//! | part | module | choices |
//! |---|---|---|
//! | context `g → (h_k, log π_k)` | [`context`] | direct, Mixture of Contexts, Mixture of Softmaxes, direct output connection, Mixtape |
//! | logit map `f` | [`logit_map`] | identity, sigsoftmax, generalised sigsoftmax, soft cap, PLIF, monotonic network |
//! | decoder `W, b` | [`decoder`] | owned, or tied to the caller's embedding; of all words, or with [clusters](HeadConfig::with_adaptive) of rare ones |
//!
//! and one likelihood serves them all, exact in log space and without ever storing the logits. The words of a
//! [Mixtape](context::Mixtape) mix their contexts themselves. A vocabulary may be shared out over ranks, each with its rows of the
//! decoder: [`shard`]. [`HeadConfig`] names the papers' heads:
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use highrank::HeadConfig;
//!
//! let device = Device::default().autodiff();
//! let (h, d, v) = (24, 16, 100); // hidden size, embedding size, vocabulary
//! let heads = [
//!     HeadConfig::softmax(d, v),              // the baseline
//!     HeadConfig::moc(h, d, v, 4),            // Mixture of Contexts
//!     HeadConfig::mos(h, d, v, 4),            // Mixture of Softmaxes
//!     HeadConfig::direct_output_connection(&[(h, 1), (h, 3)], d, v), // contexts from two layers
//!     HeadConfig::mixtape(h, d, v),           // logits mixed by gates of each word
//!     HeadConfig::sigsoftmax(d, v),           // e^z σ(z)
//!     HeadConfig::generalised_sigsoftmax(d, v), // the same with two learned parameters
//!     HeadConfig::soft_cap(d, v, 30.0),       // 30 tanh(z / 30)
//!     HeadConfig::plif(d, v, 1000),           // piecewise linear increasing function, 1000 knots
//!     HeadConfig::monotonic_net(d, v, 16),    // sum of 16 sigmoids
//!     HeadConfig::mos_plif(h, d, v, 4, 1000), // both
//! ];
//! for config in heads {
//!     let head = config.init(&device);
//!     let hidden = Tensor::<3>::ones([5, 2, config.d_hidden], &device); // [T, B, H]
//!     let targets = Tensor::<2, Int>::ones([5, 2], &device);
//!     let loss = head.loss(hidden, targets); // mean nll, nats
//!     loss.backward();
//! }
//! ```

#[cfg(feature = "analysis")]
pub mod analysis;
mod backends;
mod checks;
pub mod context;
pub mod decoder;
mod error;
mod head;
mod likelihood;
pub mod logit_map;
mod loss;
mod math;
mod ops;
mod parameters;
pub mod policy;
pub mod shard;
#[cfg(feature = "train")]
pub mod train;

pub use context::{Activation, ContextConfig, LatentDropout, Start, TimeAxis};
pub use error::HeadError;
pub use head::{
    AdaptiveConfig, BeamSearch, BeamState, Clusters, FinishedHypotheses, HeadConfig, Hypothesis,
    LiveHypotheses, LiveHypothesis, LogProbOptions, OutputHead, Sampling, Tail, TiedMatrix, TokenLogProbs,
    TopK,
};
pub use highrank_kernels::Precision;
pub use logit_map::LogitMapConfig;
pub use loss::{
    Distribution, Loss, LossOptions, Reduction, TokenStatistics, linear_cross_entropy, validate_targets,
};
pub use ops::Divergence;
pub use parameters::cast_parameters;
/// The version of `rand` whose traits the random draws take.
pub use rand;
