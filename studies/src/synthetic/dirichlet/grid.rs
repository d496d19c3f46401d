//! The settings that are tried, and their results.

use runs::Error;
use runs::error::check;
use serde::{Deserialize, Serialize};

use crate::synthetic::args::SyntheticArgs;
use crate::synthetic::fit_args::HeadParts;
use crate::synthetic::report::distinct;
use crate::synthetic::tries::{Try, best_rate, mean};
use program::args::{DistinctList, Head};

/// The heads that are compared where a command line says nothing, in the order of tables and pictures.
const HEADS: [&str; 5] = ["softmax", "sigsoftmax", "plif", "monotonic-net", "mos"];

/// One cell of the grid.
#[derive(Debug, Clone, Copy, Serialize)]
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

/// What is tried, checked.
pub struct Grid {
    /// Every cell, the small ones first.
    pub settings: Vec<Setting>,
    /// The heads.
    pub heads: Vec<Head>,
}

impl Grid {
    /// What the arguments ask for.
    ///
    /// # Errors
    /// A number out of range.
    pub fn new(args: &SyntheticArgs) -> Result<Self, Error> {
        let sizes = |given: &Option<DistinctList<usize>>, small: &[usize], full: &[usize]| match given {
            Some(list) => list.0.clone(),
            None => if args.full { full } else { small }.to_vec(),
        };
        let contexts = args.contexts.unwrap_or(if args.full { 100_000 } else { 1500 });
        let alphas = args.alphas.clone().map_or(vec![0.01, 0.1, 1.0], |list| list.0);
        let vocabularies = sizes(&args.words, &[100, 400], &[100, 1000, 10_000]);
        let dims = sizes(&args.dims, &[5, 20, 80], &[10, 50, 100, 200]);
        let heads = || HEADS.map(|name| name.parse().expect("the names of heads")).to_vec();
        let heads = args.heads.clone().map_or_else(heads, |list| list.0);
        args.fits.validate(&heads, &args.lr.0)?;
        for (name, value) in [("contexts", contexts), ("epochs", args.epochs), ("batch", args.batch)] {
            check(value >= 1, name, value, "at least 1")?;
        }
        for words in &vocabularies {
            check(*words >= 2, "words", words, "at least 2")?;
        }
        for d in &dims {
            check(*d >= 1, "dims", d, "at least 1")?;
        }
        for alpha in &alphas {
            check(*alpha > 0.0 && alpha.is_finite(), "alphas", alpha, "finite and above 0")?;
        }
        let mut settings = vec![];
        for words in vocabularies {
            for &d in &dims {
                settings.extend(alphas.iter().map(|&alpha| Setting { alpha, words, d, contexts }));
            }
        }
        Ok(Self { settings, heads })
    }
}

/// All that a fit depends on.
#[derive(Debug, Serialize)]
#[serde(tag = "experiment", rename = "dirichlet")]
pub struct FitSettings {
    /// The cell.
    #[serde(flatten)]
    pub setting: Setting,
    /// The head.
    pub head: Head,
    /// Its other sizes.
    #[serde(flatten)]
    pub parts: HeadParts,
    /// Passes over the contexts.
    pub epochs: usize,
    /// Contexts of a step.
    pub batch: usize,
    /// Learning rate at the start.
    pub lr: f64,
    /// Seed of the distributions and of the training.
    pub seed: u64,
}

/// The result of a trained head.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Fit {
    /// Learned scalars, those of the contexts' vectors included.
    pub parameters: usize,
    /// Mean of `KL(truth ‖ model)` in nats; none if training diverged.
    pub kl: Option<f64>,
    /// Share of contexts with the true mode.
    pub mode_match: Option<f64>,
    /// Wall-clock time of the training.
    pub seconds: f64,
}

/// The result of one head in one setting, with its best learning rate, in the mean over seeds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Concentration of the Dirichlet law.
    pub alpha: f64,
    /// `M`, the size of the vocabulary.
    pub words: usize,
    /// `d`, the width of a context's vector and of a decoder row.
    pub d: usize,
    /// The head.
    pub head: Head,
    /// Number of contexts.
    pub contexts: usize,
    /// Learned scalars, those of the contexts' vectors included.
    pub parameters: usize,
    /// The learning rate with the lowest training loss, in the mean over seeds; none if training diverged with each.
    pub lr: Option<f64>,
    /// Mean over contexts of `KL(truth ‖ model)` in nats, and its spread over seeds.
    pub kl: Option<f64>,
    pub kl_spread: Option<f64>,
    /// Share of contexts whose most probable word is the true one, and its spread over seeds.
    pub mode_match: Option<f64>,
    pub mode_match_spread: Option<f64>,
    /// Wall-clock time of all fits.
    pub seconds: f64,
    /// All fits.
    pub fits: Vec<Try<Fit>>,
}

impl Outcome {
    /// Of a head's fits in a setting, one at least.
    pub fn new(setting: Setting, head: Head, fits: Vec<Try<Fit>>) -> Self {
        let Setting { alpha, words, d, contexts } = setting;
        // The divergence is the cross-entropy that training makes small, less the truth's entropy.
        let lr = best_rate(&fits, |fit| fit.kl);
        let (kl, kl_spread) = mean(&fits, lr, |fit| fit.kl);
        let (mode_match, mode_match_spread) = mean(&fits, lr, |fit| fit.mode_match);
        let seconds = fits.iter().map(|fit| fit.result.seconds).sum();
        let parameters = fits[0].result.parameters;
        Self {
            alpha,
            words,
            d,
            head,
            contexts,
            parameters,
            lr,
            kl,
            kl_spread,
            mode_match,
            mode_match_spread,
            seconds,
            fits,
        }
    }
}

/// The number of contexts; all that there are, where outcomes of several studies stand together.
pub fn contexts(outcomes: &[Outcome]) -> String {
    let numbers = distinct(outcomes.iter().map(|outcome| outcome.contexts));
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}
