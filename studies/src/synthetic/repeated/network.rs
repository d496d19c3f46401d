//! A small network that reads a symbol and predicts the next, which is the same.

use burn::module::{Initializer, Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Int, Tensor};
use highrank::{HeadConfig, HeadError, LossOptions, OutputHead, Reduction};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::synthetic::fits::{Fits, Plan};
use crate::synthetic::repeated::outcome::{Fit, FitSettings};
use program::failure::Failure;

/// `head(LayerNorm(e + B gelu(A e + a) + b))` of `e = E[s]`.
#[derive(Module, Debug)]
struct Network {
    /// `E`, `[V, d]`.
    embedding: Param<Tensor<2>>,
    inner: Linear,
    outer: Linear,
    norm: LayerNorm,
    head: OutputHead,
}

/// Hidden units of the residual block for each number of its width, as in Transformers.
const UNITS: usize = 4;

/// Symbols that are scored at a time after training.
const BLOCK: usize = 4096;

impl Network {
    fn new(config: &HeadConfig, device: &Device) -> Result<Self, HeadError> {
        config.validate()?;
        let (d, vocab) = (config.d_embedding, config.vocab);
        Ok(Self {
            embedding: Initializer::Normal { mean: 0.0, std: 1.0 }.init([vocab, d], device),
            inner: LinearConfig::new(d, UNITS * d).init(device),
            outer: LinearConfig::new(UNITS * d, d).init(device),
            norm: LayerNormConfig::new(d).init(device),
            head: config.init(device),
        })
    }

    /// `[N, d]` of `[N]` symbols.
    fn hidden(&self, symbols: Tensor<1, Int>) -> Tensor<2> {
        let e = self.embedding.val().select(0, symbols);
        let block = self.outer.forward(gelu(self.inner.forward(e.clone())));
        self.norm.forward(e + block)
    }

    /// Mean loss over all symbols in nats, and the share of them that is predicted; none if a loss is not finite.
    fn score(&self, vocab: usize, device: &Device) -> Option<(f64, f64)> {
        let options = LossOptions::new().with_reduction(Reduction::Sum).with_statistics(true);
        let (mut loss, mut right) = (0.0, 0.0);
        for start in (0..vocab).step_by(BLOCK) {
            let symbols = Tensor::<1, Int>::arange(start as i64..vocab.min(start + BLOCK) as i64, device);
            let scored = self.head.loss_with(self.hidden(symbols.clone()), symbols.clone(), &options);
            let best = scored.statistics.expect("they were asked for").argmax;
            loss += scored.value.into_scalar::<f64>();
            right += best.equal(symbols).int().sum().into_scalar::<i64>() as f64;
        }
        loss.is_finite().then_some((loss / vocab as f64, right / vocab as f64))
    }
}

/// Trains a network on sequences of symbols drawn evenly, and scores it on every symbol.
///
/// # Errors
/// As [`Fits::train`].
pub fn fit(
    fits: &mut Fits,
    kept: &Value,
    settings: &FitSettings,
    config: &HeadConfig,
    device: &Device,
) -> Result<Fit, Failure> {
    let with_autodiff = &device.clone().autodiff();
    let &FitSettings { vocab, d, head, steps, batch, lr, seed, .. } = settings;
    with_autodiff.seed(seed);
    let network = Network::new(config, with_autodiff)?;
    let parameters = network.num_params();
    // Rare symbols have gradients far below Burn's default.
    let plan = Plan { steps, lr, adam: AdamConfig::new().with_epsilon(1e-8) };
    let label = format!("{head}, {vocab} symbols, d {d}, lr {lr}, seed {seed}");
    let (network, seconds) = fits.train((kept, &label), &plan, network, |network, step| {
        let symbols = draw(vocab, batch, seed, step);
        let symbols = Tensor::<1, Int>::from_data(symbols.as_slice(), with_autodiff);
        network.head.loss(network.hidden(symbols.clone()), symbols)
    })?;
    let scored = network.and_then(|network| network.valid().score(vocab, device));
    let (loss, accuracy) = scored.unzip();
    Ok(Fit { parameters, loss, accuracy, seconds })
}

/// The symbols of a step's sequences.
fn draw(vocab: usize, batch: usize, seed: u64, step: usize) -> Vec<i64> {
    // Streams of neighbouring seeds are unrelated: the generator hashes them.
    let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step as u64);
    (0..batch).map(|_| rng.random_range(0..vocab as i64)).collect()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::synthetic::args::{Mode, SyntheticArgs};
    use clap::Parser;
    use program::args::Head;
    use serde_json::json;

    #[test]
    fn symbols_are_drawn_evenly_and_anew_in_each_step() {
        let mut counts = [0usize; 5];
        for step in 0..2000 {
            draw(5, 10, 3, step).into_iter().for_each(|symbol| counts[symbol as usize] += 1);
        }
        assert!(counts.iter().all(|count| count.abs_diff(4000) < 300), "{counts:?}");
        assert_eq!(draw(5, 10, 3, 7), draw(5, 10, 3, 7));
        assert_ne!(draw(50, 10, 3, 7), draw(50, 10, 3, 8));
        assert_ne!(draw(50, 10, 3, 7), draw(50, 10, 4, 7));
    }

    #[test]
    fn a_small_language_is_learned_by_every_head_and_no_step_leaves_it_unknown() {
        let line = ["synthetic", "repeated", "--components", "2", "--knots", "50"];
        let Some(Mode::Repeated(args)) = SyntheticArgs::parse_from(line).mode else { panic!("repeated") };
        let (vocab, d) = (30, 8);
        let of = |head: Head, steps| {
            let settings = FitSettings {
                vocab,
                d,
                head,
                parts: args.fits.parts(head),
                steps,
                batch: 60,
                lr: 0.03,
                seed: 1,
            };
            let config = head.config(&args.fits.sizes(d, vocab));
            let mut fits = Fits::new(&args.fits, 1).unwrap();
            fit(&mut fits, &json!({}), &settings, &config, &Device::flex()).unwrap()
        };
        // Mixtures of few dimensions leave two symbols out of thirty at most that share a place.
        for head in Head::all().filter(|head| args.fits.validate(&[*head], &[]).is_ok()) {
            let fit = of(head, 300);
            let (loss, accuracy) = (fit.loss.unwrap(), fit.accuracy.unwrap());
            assert!((0.0..0.4).contains(&loss) && accuracy > 0.9, "{head}: {fit:?}");
        }
        let fit = of("softmax".parse().unwrap(), 1);
        assert!((fit.loss.unwrap() - 30f64.ln()).abs() < 1.5 && fit.accuracy.unwrap() < 0.6, "{fit:?}");
        // Embedding, block, norm, decoder.
        assert_eq!(fit.parameters, 30 * 8 + (8 * 32 + 32) + (32 * 8 + 8) + 16 + (30 * 8 + 30));
    }
}
