//! Training by Burn's `SupervisedTraining`.

use std::path::Path;

use burn::data::dataset::transform::{SamplerDataset, SamplerDatasetOptions};
use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::LrSchedulerConfig;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::lr_scheduler::sequential::SequentialLrSchedulerConfig;
use burn::module::Module;
use burn::optim::{AdamWConfig, ModuleOptimizer};
use burn::train::metric::LossMetric;
use burn::train::renderer::MetricsRenderer;
use burn::train::{Interrupter, Learner, LearningResult, SupervisedTraining};
use highrank::train::{AccuracyMetric, PerplexityMetric};
use runs::Error;
use runs::data::{Corpus, Tokens};

use crate::config::TrainConfig;
use crate::data::{Windows, loader};
use crate::model::Gpt;

/// Trains a model on the training text of `corpus`, in sequences from random places, and meets the validation text after each
/// round. Burn writes the metrics of each step to `folder`, which must exist.
///
/// A stop asked of `interrupter` ends the training after the step under way; the result then holds the model as it was.
///
/// # Errors
/// As [`TrainConfig::validate_for`].
pub fn train(
    model: Gpt,
    config: &TrainConfig,
    corpus: &Corpus,
    folder: &Path,
    renderer: Box<dyn MetricsRenderer>,
    interrupter: Interrupter,
) -> Result<LearningResult<Gpt>, Error> {
    let [context, _] = model.positions.weight.dims();
    config.validate_for(corpus, context)?;
    let device = model.devices().into_iter().next().expect("a model has parameters");
    let held_out = corpus.valid();
    let held_out = &held_out[..config.valid_tokens.unwrap_or(held_out.len()).min(held_out.len())];
    // A new draw of places for every round.
    let places = SamplerDataset::new(
        Windows::everywhere(corpus.train().clone(), context),
        SamplerDatasetOptions::default()
            .with_replacement()
            .with_fixed_size(config.steps / config.rounds * config.batch)
            .with_seed(config.seed),
    );
    let held_out = Windows::side_by_side(Tokens::Memory(held_out.to_vec()), context);
    let training = SupervisedTraining::new(
        folder,
        loader(places, config.batch, &device),
        loader(held_out, config.batch, &device),
    );
    Ok(training
        .metrics((LossMetric::new(), PerplexityMetric::new(), AccuracyMetric::new()))
        .num_epochs(config.rounds)
        .renderer(renderer)
        .with_interrupter(interrupter)
        .with_application_logger(None)
        .launch(Learner::new(model, optimiser(config), schedule(config))))
}

fn optimiser(config: &TrainConfig) -> ModuleOptimizer {
    AdamWConfig::new()
        .with_beta_2(0.99)
        // The rows of rare words have gradients far below Burn's default of 1e-5.
        .with_epsilon(1e-8)
        .with_weight_decay(config.weight_decay as f32)
        .with_grad_clipping(Some(GradientClippingConfig::Norm(config.clip as f32)))
        .init()
}

fn schedule(config: &TrainConfig) -> ModuleLrScheduler {
    let TrainConfig { steps, lr, warmup, .. } = *config;
    let fall = CosineAnnealingLrSchedulerConfig::new(lr, steps - warmup);
    let schedule = match warmup {
        0 => fall.init(),
        _ => {
            let rise = LinearLrSchedulerConfig::new(lr / warmup as f64, lr, warmup);
            let parts = vec![LrSchedulerConfig::Linear(rise), LrSchedulerConfig::Cosine(fall)];
            SequentialLrSchedulerConfig::new(parts, vec![warmup]).init()
        }
    };
    schedule.expect("the learning rate and the numbers of steps were checked")
}

#[cfg(all(test, feature = "flex"))]
mod tests;
