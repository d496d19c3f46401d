//! Loss, perplexity and accuracy of a model that ends in a head, for Burn's `Learner` and `SupervisedTraining`
//! (Cargo feature `train`).
//!
//! Burn's own metrics of sequences read logits `[N, V]`, which a head never stores. Here a training step hands over a
//! [`HeadOutput`], a few sums over the batch's tokens, and a [`TokenMetric`] reads those. It weighs every counted token of an
//! epoch alike, however many a batch has; ignored tokens and tokens of weight 0 do not count.
//!
//! ```no_run
//! use burn::data::dataloader::DataLoader;
//! use burn::module::Module;
//! use burn::nn::{Embedding, EmbeddingConfig};
//! use burn::optim::AdamWConfig;
//! use burn::tensor::{Device, Int, Tensor};
//! use burn::train::metric::LossMetric;
//! use burn::train::{InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
//! use highrank::train::{HeadOutput, TokenMetric};
//! use highrank::{HeadConfig, LossOptions, OutputHead};
//! use std::sync::Arc;
//!
//! /// Predicts a word from the one before it.
//! #[derive(Module, Debug)]
//! struct Model {
//!     embedding: Embedding,
//!     head: OutputHead,
//! }
//!
//! /// Words `[B, T]` and their next words `[B, T]`, −100 where a sequence has ended.
//! type Batch = (Tensor<2, Int>, Tensor<2, Int>);
//!
//! impl Model {
//!     fn output(&self, (words, targets): Batch) -> HeadOutput {
//!         let options = LossOptions::new().with_ignore_index(-100).with_statistics(true);
//!         let loss = self.head.loss_with(self.embedding.forward(words), targets.clone(), &options);
//!         HeadOutput::new(loss, targets)
//!     }
//! }
//!
//! impl TrainStep for Model {
//!     type Input = Batch;
//!     type Output = HeadOutput;
//!
//!     fn step(&self, batch: Batch) -> TrainOutput<HeadOutput> {
//!         let output = self.output(batch);
//!         TrainOutput::new(self, output.loss.backward(), output)
//!     }
//! }
//!
//! impl InferenceStep for Model {
//!     type Input = Batch;
//!     type Output = HeadOutput;
//!
//!     fn step(&self, batch: Batch) -> HeadOutput {
//!         self.output(batch)
//!     }
//! }
//!
//! fn train(device: &Device, batches: Arc<dyn DataLoader<Batch>>, held_out: Arc<dyn DataLoader<Batch>>) -> Model {
//!     let model = Model {
//!         embedding: EmbeddingConfig::new(10_000, 64).init(device),
//!         head: HeadConfig::mos(64, 32, 10_000, 5).init(device),
//!     };
//!     SupervisedTraining::new("artifacts", batches, held_out)
//!         .metrics((LossMetric::new(), TokenMetric::perplexity(), TokenMetric::accuracy()))
//!         .num_epochs(10)
//!         .launch(Learner::new(model, AdamWConfig::new().init(), 1e-3))
//!         .model
//! }
//! # let _ = train;
//! ```

mod metric;
mod output;
#[cfg(all(test, any(feature = "flex", feature = "ndarray")))]
mod tests;

pub use metric::TokenMetric;
pub use output::HeadOutput;
