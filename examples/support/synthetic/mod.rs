//! `synthetic`: how well each head represents distributions drawn from a Dirichlet law (Ganea et al., ICML 2019,
//! section 5.1).

mod heat_map;
mod study;
mod truth;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use awd_lstm::{Error, LmBackend};
use burn::tensor::backend::AutodiffBackend;
use clap::Parser;
use serde::Serialize;

use crate::device::{DeviceName, Task, on_device};
use crate::exit::Failure;
use crate::progress::print_json;

use heat_map::{HeatMaps, Quantity};
use study::{Head, Procedure, Setting, train};

/// Fits next-word distributions drawn from Dir(alpha) with every head, over a grid of alpha, vocabulary and dimension.
///
/// Each context has a free vector of d numbers; decoder, logit map and mixture are shared. Trained on the cross-entropy
/// with the full distributions, so what is left of the divergence is what the head cannot express (or has not yet learnt).
#[derive(Debug, Clone, Parser)]
#[command(name = "synthetic", version, allow_negative_numbers = true)]
pub struct Args {
    /// The paper's grid: 100,000 contexts, up to 10,000 words and 200 dimensions. Other options still replace its values.
    #[arg(long)]
    pub full: bool,
    /// Number of contexts [default: 1500, full: 100000].
    #[arg(long, value_name = "N")]
    pub contexts: Option<usize>,
    /// Concentrations of the Dirichlet law, separated by commas [default: 0.01,0.1,1].
    #[arg(long, value_name = "ALPHAS")]
    pub alphas: Option<List<f64>>,
    /// Vocabulary sizes M, separated by commas [default: 100,400, full: 100,1000,10000].
    #[arg(long, value_name = "SIZES")]
    pub words: Option<List<usize>>,
    /// Dimensions d, separated by commas [default: 5,20,80, full: 10,50,100,200].
    #[arg(long, value_name = "SIZES")]
    pub dims: Option<List<usize>>,
    /// Heads, separated by commas: softmax, sigsoftmax, plif, monotonic-net, mos [default: all].
    #[arg(long, value_name = "HEADS")]
    pub heads: Option<List<Head>>,
    /// Passes over the contexts.
    #[arg(long, default_value_t = 100)]
    pub epochs: usize,
    /// Contexts of a training step.
    #[arg(long, default_value_t = 250)]
    pub batch: usize,
    /// Learning rate of Adam at the start; it falls linearly to 0.
    #[arg(long, default_value_t = 0.1)]
    pub lr: f64,
    /// Components of the mixture.
    #[arg(long, default_value_t = 3)]
    pub components: usize,
    /// Pieces of the PLIF.
    #[arg(long, default_value_t = 1000)]
    pub knots: usize,
    /// Units of the monotonic network.
    #[arg(long, default_value_t = 8)]
    pub units: usize,
    /// Seed of the distributions and of the training.
    #[arg(long, default_value_t = 28)]
    pub seed: u64,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// Folder for the heat maps: kl.svg, kl.png, mode_match.svg and mode_match.png.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object a setting and head on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Values written with commas in between.
#[derive(Debug, Clone, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.split(',').map(|value| value.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// What one head came to in one setting.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    alpha: f64,
    words: usize,
    d: usize,
    head: Head,
    contexts: usize,
    parameters: usize,
    /// Mean over contexts of `KL(truth ‖ model)` in nats.
    kl: f64,
    /// Share of contexts whose most probable word is the true one.
    mode_match: f64,
    seconds: f64,
}

/// Runs the grid, prints a table and draws the heat maps.
///
/// # Errors
/// Bad input, a device that is missing, a training that diverges.
pub fn run(args: &Args) -> Result<(), Failure> {
    let grid = Grid::new(args)?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)
            .map_err(|error| format!("cannot create `{}`: {error}", out.display()))?;
    }
    on_device(args.device, GridTask { args, grid })
}

/// The settings that are tried, checked.
struct Grid {
    contexts: usize,
    alphas: Vec<f64>,
    words: Vec<usize>,
    dims: Vec<usize>,
    heads: Vec<Head>,
}

impl Grid {
    fn new(args: &Args) -> Result<Self, Error> {
        let pick = |small: &[usize], full: &[usize]| if args.full { full.to_vec() } else { small.to_vec() };
        let sizes = |given: &Option<List<usize>>, small: &[usize], full: &[usize]| {
            given.clone().map_or_else(|| pick(small, full), |list| list.0)
        };
        let grid = Self {
            contexts: args.contexts.unwrap_or(if args.full { 100_000 } else { 1500 }),
            alphas: args.alphas.clone().map_or(vec![0.01, 0.1, 1.0], |list| list.0),
            words: sizes(&args.words, &[100, 400], &[100, 1000, 10_000]),
            dims: sizes(&args.dims, &[5, 20, 80], &[10, 50, 100, 200]),
            heads: args.heads.clone().map_or(Head::ALL.to_vec(), |list| list.0),
        };
        let counts = [
            ("contexts", grid.contexts, 1),
            ("epochs", args.epochs, 1),
            ("batch", args.batch, 1),
            ("components", args.components, 1),
            ("knots", args.knots, 1),
            ("units", args.units, 1),
        ];
        let words = grid.words.iter().map(|&words| ("words", words, 2));
        let dims = grid.dims.iter().map(|&dims| ("dims", dims, 1));
        for (name, value, least) in counts.into_iter().chain(words).chain(dims) {
            if value < least {
                let expected = if least == 1 { "at least 1" } else { "at least 2" };
                return Err(Error::invalid(name, value, expected));
            }
        }
        let numbers = grid.alphas.iter().map(|&alpha| ("alphas", alpha)).chain([("lr", args.lr)]);
        for (name, value) in numbers {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::invalid(name, value, "finite and above 0"));
            }
        }
        Ok(grid)
    }

    fn settings(&self) -> impl Iterator<Item = Setting> + '_ {
        let contexts = self.contexts;
        self.alphas.iter().flat_map(move |&alpha| {
            self.words
                .iter()
                .flat_map(move |&words| self.dims.iter().map(move |&d| Setting { alpha, words, d, contexts }))
        })
    }
}

struct GridTask<'a> {
    args: &'a Args,
    grid: Grid,
}

impl Task for GridTask<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> Result<(), Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { args, grid } = self;
        let procedure = Procedure {
            epochs: args.epochs,
            batch: args.batch,
            lr: args.lr,
            components: args.components,
            knots: args.knots,
            units: args.units,
            seed: args.seed,
        };
        if !args.json {
            println!(
                "{:>6} {:>6} {:>5} {:<14} {:>10} {:>8} {:>11} {:>8}",
                "alpha", "words", "d", "head", "parameters", "KL", "mode match", "seconds"
            );
        }
        let mut outcomes = vec![];
        for setting in grid.settings() {
            let Setting { alpha, words, d, contexts } = setting;
            for &head in &grid.heads {
                let start = Instant::now();
                let fit = train::<B>(setting, head, procedure, &device)
                    .map_err(|error| format!("{head}, alpha {alpha}, {words} words, d {d}: {error}"))?;
                let outcome = Outcome {
                    alpha,
                    words,
                    d,
                    head,
                    contexts,
                    parameters: fit.parameters,
                    kl: fit.kl,
                    mode_match: fit.mode_match,
                    seconds: start.elapsed().as_secs_f64(),
                };
                outcome.print(args.json);
                outcomes.push(outcome);
            }
        }
        if !args.json {
            println!(
                "KL: mean over {} contexts of KL(truth || model) in nats; mode match: share of contexts whose most \
                 probable word is the true one",
                grid.contexts
            );
        }
        let Some(out) = &args.out else { return Ok(()) };
        for (quantity, stem) in [(Quantity::Kl, "kl"), (Quantity::ModeMatch, "mode_match")] {
            crate::picture::save(&HeatMaps { grid: &grid, outcomes: &outcomes, quantity }, &out.join(stem))?;
        }
        Ok(())
    }
}

impl Outcome {
    fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        let Self { alpha, words, d, head, parameters, kl, mode_match, seconds, .. } = self;
        println!(
            "{alpha:>6} {words:>6} {d:>5} {head:<14} {parameters:>10} {kl:>8.4} {mode_match:>11.4} {seconds:>8.1}"
        );
    }
}
