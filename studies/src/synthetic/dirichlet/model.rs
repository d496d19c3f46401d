//! One head fitted to one set of distributions.

use burn::module::{Module, Param};
use burn::optim::AdamConfig;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use highrank::analysis::AgainstTruth;
use highrank::{HeadConfig, LossOptions, OutputHead};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::synthetic::dirichlet::grid::{Fit, FitSettings, Setting};
use crate::synthetic::dirichlet::truth::Truth;
use crate::synthetic::fits::{Fits, Plan};
use program::failure::Failure;

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

/// Fits a head by Adam on the cross-entropy with the true distributions, and compares the two.
///
/// # Errors
/// As [`Fits::train`].
pub fn fit(
    fits: &mut Fits,
    kept: &Value,
    settings: &FitSettings,
    config: &HeadConfig,
    truth: &Truth,
    device: &Device,
) -> Result<Fit, Failure> {
    let device = &device.clone().autodiff();
    let &FitSettings { setting: Setting { alpha, words, d, .. }, head, epochs, lr, seed, .. } = settings;
    config.validate()?;
    device.seed(seed);
    let vectors = |block| Tensor::random([truth.rows(block), d], Distribution::Normal(0.0, 1.0), device);
    let model = Model {
        contexts: (0..truth.blocks()).map(|block| Param::from_tensor(vectors(block))).collect(),
        head: config.init(device),
    };
    let parameters = model.num_params();
    let mut order: Vec<usize> = (0..truth.blocks()).collect();
    let (mut rng, mut shuffles) = (Pcg64Mcg::seed_from_u64(seed), 0);
    let plan = Plan { steps: epochs * truth.blocks(), lr, adam: AdamConfig::new() };
    let label = format!("{head}, alpha {alpha}, {words} words, d {d}, lr {lr}, seed {seed}");
    let (model, seconds) = fits.train((kept, &label), &plan, model, |model, step| {
        // Once an epoch, also for those before a fit was continued.
        while shuffles <= step / truth.blocks() {
            order.shuffle(&mut rng);
            shuffles += 1;
        }
        let block = order[step % truth.blocks()];
        let rows = truth.rows(block);
        let distributions = TensorData::new(truth.probabilities(block), [rows, words]);
        let options = LossOptions::new().with_distributions(Tensor::<2>::from_data(distributions, device));
        // Every context counts, whatever word its target is.
        let targets = Tensor::<1, Int>::zeros([rows], device);
        model.head.loss_with(model.contexts[block].val(), targets, &options).value
    })?;
    let mut result = Fit { parameters, kl: None, mode_match: None, seconds };
    let Some(model) = model else { return Ok(result) };
    let model = model.valid();
    let mut fit = AgainstTruth::new(words);
    for block in 0..truth.blocks() {
        let rows = model.head.forward(model.contexts[block].val());
        let rows: Vec<f64> = rows.into_data().iter::<f64>().collect();
        // A last step may diverge, of which no loss tells.
        if rows.iter().any(|value| !value.is_finite()) {
            return Ok(result);
        }
        fit.add_rows(&truth.log_probs(block), &rows)?;
    }
    let fit = fit.finish()?;
    (result.kl, result.mode_match) = (Some(fit.mean_kl), Some(fit.mode_match));
    Ok(result)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::synthetic::args::SyntheticArgs;
    use clap::Parser;
    use program::args::Head;
    use serde_json::json;

    fn fitted(head: Head, d: usize, lr: f64) -> Fit {
        let args =
            SyntheticArgs::parse_from(["synthetic", "--components", "3", "--knots", "50", "--units", "4"])
                .fits;
        let (words, contexts, batch) = (12, 50, 20);
        let settings = FitSettings {
            setting: Setting { alpha: 1.0, words, d, contexts },
            head,
            parts: args.parts(head),
            epochs: 150,
            batch,
            lr,
            seed: 1,
        };
        let truth = Truth::new(1.0, words, contexts, batch, 1);
        let config = head.config(&args.sizes(d, words));
        let mut fits = Fits::new(&args, 1).unwrap();
        fit(&mut fits, &json!({}), &settings, &config, &truth, &Device::flex()).unwrap()
    }

    #[test]
    fn every_head_learns_and_enough_dimensions_are_enough() {
        for head in ["softmax", "sigsoftmax", "plif", "monotonic-net", "mos"] {
            let fit = |d| fitted(head.parse().unwrap(), d, 0.1);
            let (narrow, wide) = (fit(1), fit(12));
            let (narrow_kl, wide_kl) = (narrow.kl.unwrap(), wide.kl.unwrap());
            assert!(wide_kl < 0.03, "{head}: {wide:?}");
            assert!(wide.mode_match.unwrap() > 0.85, "{head}: {wide:?}");
            assert!(
                narrow_kl > 5.0 * wide_kl && narrow.parameters < wide.parameters,
                "{head}: {narrow:?}, {wide:?}"
            );
            assert!(wide_kl >= 0.0 && narrow_kl < 0.6, "{head}: {narrow:?}");
        }
    }

    #[test]
    fn a_fit_that_diverges_has_no_result() {
        let fit = fitted("softmax".parse().unwrap(), 2, 1e38);
        assert_eq!((fit.kl, fit.mode_match), (None, None), "{fit:?}");
    }
}
