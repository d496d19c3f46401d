//! One head fitted to one set of distributions.

use std::fmt;
use std::str::FromStr;

use awd_lstm::Error;
use burn::module::{AutodiffModule, Module, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData};
use highrank::analysis::AgainstTruth;
use highrank::{HeadConfig, LikelihoodBackend, OutputHead};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Serialize, Serializer};

use super::truth::Truth;
use crate::exit::Failure;

/// A head of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Plain softmax.
    Softmax,
    /// Sigsoftmax.
    Sigsoftmax,
    /// Piecewise linear increasing function.
    Plif,
    /// Monotonic network, equation 14 of the paper.
    MonotonicNet,
    /// Mixture of Softmaxes.
    Mos,
}

impl Head {
    /// Every head, in the order of tables and pictures.
    pub const ALL: [Self; 5] = [Self::Softmax, Self::Sigsoftmax, Self::Plif, Self::MonotonicNet, Self::Mos];

    /// The name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Sigsoftmax => "sigsoftmax",
            Self::Plif => "plif",
            Self::MonotonicNet => "monotonic-net",
            Self::Mos => "mos",
        }
    }

    fn config(self, d: usize, words: usize, procedure: Procedure) -> HeadConfig {
        match self {
            Self::Softmax => HeadConfig::softmax(d, words),
            Self::Sigsoftmax => HeadConfig::sigsoftmax(d, words),
            Self::Plif => HeadConfig::plif(d, words, procedure.knots),
            Self::MonotonicNet => HeadConfig::monotonic_net(d, words, procedure.units),
            Self::Mos => HeadConfig::mos(d, d, words, procedure.components),
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Head {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Head {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|head| head.name() == text)
            .ok_or_else(|| Error::unknown_name("head", text, &Self::ALL.map(Self::name)))
    }
}

/// One cell of the grid.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Concentration of the Dirichlet law.
    pub alpha: f64,
    /// `M`, the size of the vocabulary.
    pub words: usize,
    /// `d`, the width of a context's vector and of a decoder row.
    pub d: usize,
    /// `N`
    pub contexts: usize,
}

/// How every head is trained.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    pub epochs: usize,
    pub batch: usize,
    pub lr: f64,
    pub components: usize,
    pub knots: usize,
    pub units: usize,
    pub seed: u64,
}

/// What a trained head comes to.
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
struct Model<B: Backend> {
    /// `[batch, d]` each.
    contexts: Vec<Param<Tensor<B, 2>>>,
    head: OutputHead<B>,
}

/// Fits a head by Adam on the cross-entropy with the true distributions, and compares the two.
///
/// # Errors
/// If the training diverges.
pub fn train<B>(
    setting: Setting,
    head: Head,
    procedure: Procedure,
    device: &B::Device,
) -> Result<Fit, Failure>
where
    B: AutodiffBackend + LikelihoodBackend,
    B::InnerBackend: LikelihoodBackend,
{
    let Setting { alpha, words, d, contexts } = setting;
    let Procedure { epochs, batch, lr, seed, .. } = procedure;
    let truth = Truth::new(alpha, words, contexts, batch, seed);
    B::seed(device, seed);
    let vectors = |block| Tensor::random([truth.rows(block), d], Distribution::Normal(0.0, 1.0), device);
    let mut model = Model::<B> {
        contexts: (0..truth.blocks()).map(|block| Param::from_tensor(vectors(block))).collect(),
        head: head.config(d, words, procedure).try_init(device)?,
    };
    let mut optimiser = AdamConfig::new().init::<B, Model<B>>();
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
    use burn::backend::{Autodiff, Flex};

    #[test]
    fn every_head_learns_and_enough_dimensions_are_enough() {
        let procedure =
            Procedure { epochs: 150, batch: 20, lr: 0.1, components: 3, knots: 50, units: 4, seed: 1 };
        for head in Head::ALL {
            let fit = |d| {
                let setting = Setting { alpha: 1.0, words: 12, d, contexts: 50 };
                train::<Autodiff<Flex>>(setting, head, procedure, &Default::default()).unwrap()
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
