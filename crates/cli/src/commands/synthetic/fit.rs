//! One head fitted to one set of distributions.

use burn::module::{Module, Param};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use highrank::analysis::AgainstTruth;
use highrank::{HeadConfig, OutputHead};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::commands::synthetic::grid::Setting;
use crate::commands::synthetic::head::Head;
use crate::commands::synthetic::truth::Truth;
use crate::failure::Failure;

/// How every head is trained.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    /// Passes over the contexts.
    pub epochs: usize,
    /// Contexts of a step.
    pub batch: usize,
    /// Learning rate at the start.
    pub lr: f64,
    /// Components of the mixture.
    pub components: usize,
    /// Pieces of the PLIF.
    pub knots: usize,
    /// Units of the monotonic network.
    pub units: usize,
    /// Seed of the distributions and of the training.
    pub seed: u64,
}

/// The result of a trained head.
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    /// Learnt scalars, those of the contexts' vectors included.
    pub parameters: usize,
    /// Mean of `KL(truth ‖ model)` in nats.
    pub kl: f64,
    /// Share of contexts with the true mode.
    pub mode_match: f64,
}

/// A free vector for each context, and a head over them.
///
/// The contexts of a training step are one parameter: a step touches (and Adam updates) these alone, so that its cost
/// does not depend on how many contexts there are. Contexts have nothing to do with each other, hence steps need no
/// other company each time.
#[derive(Module, Debug)]
struct Model {
    /// `[batch, d]` each.
    contexts: Vec<Param<Tensor<2>>>,
    head: OutputHead,
}

fn config(head: Head, d: usize, words: usize, procedure: Procedure) -> HeadConfig {
    match head {
        Head::Softmax => HeadConfig::softmax(d, words),
        Head::Sigsoftmax => HeadConfig::sigsoftmax(d, words),
        Head::Plif => HeadConfig::plif(d, words, procedure.knots),
        Head::MonotonicNet => HeadConfig::monotonic_net(d, words, procedure.units),
        Head::Mos => HeadConfig::mos(d, d, words, procedure.components),
    }
}

/// Fits a head by Adam on the cross-entropy with the true distributions, and compares the two.
///
/// # Errors
/// If the training diverges.
pub fn train(setting: Setting, head: Head, procedure: Procedure, device: &Device) -> Result<Fit, Failure> {
    let device = &device.clone().autodiff();
    let Setting { alpha, words, d, contexts } = setting;
    let Procedure { epochs, batch, lr, seed, .. } = procedure;
    let truth = Truth::new(alpha, words, contexts, batch, seed);
    device.seed(seed);
    let vectors = |block| Tensor::random([truth.rows(block), d], Distribution::Normal(0.0, 1.0), device);
    let mut model = Model {
        contexts: (0..truth.blocks()).map(|block| Param::from_tensor(vectors(block))).collect(),
        head: config(head, d, words, procedure).try_init(device)?,
    };
    let mut optimiser = AdamConfig::new().init();
    let mut order: Vec<usize> = (0..truth.blocks()).collect();
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let steps = (epochs * order.len()) as f64;
    let mut step = 0.0;
    for _ in 0..epochs {
        order.shuffle(&mut rng);
        for &block in &order {
            let rows = TensorData::new(truth.probabilities(block), [truth.rows(block), words]);
            let loss =
                model.head.soft_loss(model.contexts[block].val(), Tensor::from_data(rows, device), None);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimiser.step(lr * (1.0 - step / steps), model, gradients);
            step += 1.0;
        }
    }
    let model = model.valid();
    let mut fit = AgainstTruth::new(words);
    for block in 0..truth.blocks() {
        let rows = model.head.log_probs(model.contexts[block].val());
        let rows: Vec<f64> = rows.into_data().iter::<f64>().collect();
        fit.add_rows(&truth.log_probs(block), &rows)?;
    }
    Ok(Fit { parameters: model.num_params(), kl: fit.mean_kl()?, mode_match: fit.mode_match()? })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn every_head_learns_and_enough_dimensions_are_enough() {
        let procedure =
            Procedure { epochs: 150, batch: 20, lr: 0.1, components: 3, knots: 50, units: 4, seed: 1 };
        for head in Head::ALL {
            let fit = |d| {
                let setting = Setting { alpha: 1.0, words: 12, d, contexts: 50 };
                train(setting, head, procedure, &Device::flex()).unwrap()
            };
            let (narrow, wide) = (fit(1), fit(12));
            assert!(wide.kl < 0.03, "{head}: {wide:?}");
            assert!(wide.mode_match > 0.85, "{head}: {wide:?}");
            assert!(
                narrow.kl > 5.0 * wide.kl && narrow.parameters < wide.parameters,
                "{head}: {narrow:?}, {wide:?}"
            );
            assert!(wide.kl >= 0.0 && narrow.kl < 0.6, "{head}: {narrow:?}");
        }
    }
}
