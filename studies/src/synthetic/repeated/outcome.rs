//! What a fit depends on, and what came of it.

use serde::{Deserialize, Serialize};

use crate::synthetic::fit_args::HeadParts;
use crate::synthetic::repeated::args::RepeatedArgs;
use crate::synthetic::tries::{Try, best_rate, mean};
use program::args::Head;

/// All that a fit depends on.
#[derive(Debug, Serialize)]
#[serde(tag = "experiment", rename = "repeated")]
pub struct FitSettings {
    /// `V`
    pub vocab: usize,
    /// Width of embedding, hidden state and decoder row.
    pub d: usize,
    /// The head.
    pub head: Head,
    /// Its other sizes.
    #[serde(flatten)]
    pub parts: HeadParts,
    /// Training steps.
    pub steps: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// Learning rate at the start.
    pub lr: f64,
    /// Seed of the sequences and of the training.
    pub seed: u64,
}

/// The result of a trained network.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Fit {
    /// Learned scalars of the whole network.
    pub parameters: usize,
    /// Mean over all symbols of the loss after the first symbol of a sequence, in nats; none if training diverged.
    pub loss: Option<f64>,
    /// Share of the symbols that are predicted after the first one.
    pub accuracy: Option<f64>,
    /// Wall-clock time of the training.
    pub seconds: f64,
}

/// The result of one head at one size, with its best learning rate, in the mean over seeds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// `V`
    pub vocab: usize,
    /// Width of embedding, hidden state and decoder row.
    pub d: usize,
    /// The head.
    pub head: Head,
    /// Training steps.
    pub steps: usize,
    /// How often each symbol was seen, on average.
    pub visits: f64,
    /// Learned scalars of the whole network.
    pub parameters: usize,
    /// The learning rate with the lowest loss, in the mean over seeds; none if training diverged with each.
    pub lr: Option<f64>,
    /// Loss after the first symbol in nats, and its spread over seeds.
    pub loss: Option<f64>,
    pub loss_spread: Option<f64>,
    /// The least loss there can be, in nats.
    pub floor: f64,
    /// The loss of even guessing, `ln V`, in nats.
    pub guessing: f64,
    /// Share of the symbols that are predicted, and its spread over seeds.
    pub accuracy: Option<f64>,
    pub accuracy_spread: Option<f64>,
    /// Wall-clock time of all fits.
    pub seconds: f64,
    /// All fits.
    pub fits: Vec<Try<Fit>>,
}

impl Outcome {
    /// Of a head's fits at a size, one at least.
    pub fn new(args: &RepeatedArgs, (vocab, d, head): (usize, usize, Head), fits: Vec<Try<Fit>>) -> Self {
        // All symbols are training data: there is nothing else to be learned or tested.
        let lr = best_rate(&fits, |fit| fit.loss);
        let (loss, loss_spread) = mean(&fits, lr, |fit| fit.loss);
        let (accuracy, accuracy_spread) = mean(&fits, lr, |fit| fit.accuracy);
        let steps = args.steps(vocab);
        Self {
            vocab,
            d,
            head,
            steps,
            visits: (steps * args.batch) as f64 / vocab as f64,
            parameters: fits[0].result.parameters,
            lr,
            loss,
            loss_spread,
            floor: 0.0,
            guessing: (vocab as f64).ln(),
            accuracy,
            accuracy_spread,
            seconds: fits.iter().map(|fit| fit.result.seconds).sum(),
            fits,
        }
    }
}
