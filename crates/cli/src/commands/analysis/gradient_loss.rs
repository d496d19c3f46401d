//! `analyse gradient`: how much of the logits' gradient the decoder keeps from the hidden state.

use burn::tensor::{Int, Tensor};
use clap::Args;
use highrank::analysis::{AnalysisError, GradientLoss, GradientShares};
use plotters::prelude::SeriesLabelPosition;
use program::args::Head;
use program::chart::{Chart, Scale};
use program::failure::Failure;
use serde::{Deserialize, Serialize};

use crate::commands::analysis::frame::{self, Analysis, Row, SourceArgs};
use crate::commands::analysis::runs::{SavedRun, label};

/// Options of `analyse gradient`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("out", |out| out.help(
    "Folder for the plot of all runs, gradient_loss.svg: the share of tokens that lose at most so much"
)))]
pub struct GradientLossArgs {
    /// The runs, the text and where they are drawn.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// What a run's decoder loses of the gradient.
#[derive(Debug, Serialize, Deserialize)]
struct Lost {
    run: String,
    head: Head,
    d_embedding: usize,
    components: usize,
    contexts: usize,
    /// Contexts whose target has probability 1, in no mean.
    without_gradient: usize,
    vocab: usize,
    /// Dimension of the decoder's column space.
    dimension: usize,
    /// Mean of `‖Q‖/‖G‖`.
    share: f64,
    /// The share that a tenth, half and nine tenths of the contexts do not exceed.
    share_quantiles: [f64; 3],
    /// Mean of `‖Q‖²/‖G‖²`.
    squared_share: f64,
    /// `Σ‖Q‖²/Σ‖G‖²`.
    total_squared_share: f64,
    /// Of the gradient summed over all contexts; none if it is 0.
    share_of_sum: Option<f64>,
    /// The expected `‖Q‖²/‖G‖²` of a direction drawn at random.
    squared_share_by_chance: f64,
    /// Shares in ascending order, each with the percentage of contexts that lose at most so much.
    distribution: Vec<(f64, f64)>,
}

impl Lost {
    fn new(run: &SavedRun, components: usize, lost: &GradientShares) -> Self {
        let shares = sorted(&lost.shares);
        let quantile =
            |at: f64| shares[((shares.len() as f64 * at).ceil() as usize).clamp(1, shares.len()) - 1];
        Self {
            run: run.name.clone(),
            head: run.head,
            d_embedding: run.d_embedding,
            components,
            contexts: lost.rows,
            without_gradient: lost.without_gradient,
            vocab: run.vocabulary.len(),
            dimension: lost.dimension,
            share: lost.mean_share,
            share_quantiles: [0.1, 0.5, 0.9].map(quantile),
            squared_share: lost.mean_squared_share,
            total_squared_share: lost.total_squared_share,
            share_of_sum: lost.share_of_sum,
            squared_share_by_chance: lost.by_chance,
            distribution: distribution(&lost.shares),
        }
    }
}

fn sorted(shares: &[f64]) -> Vec<f64> {
    let mut shares = shares.to_vec();
    shares.sort_by(f64::total_cmp);
    shares
}

impl Row for Lost {
    const LEGEND: &'static str = "G: gradient of a context's nll by the logits z = h W^T + b, before the logit map, of all components; \
                                  Q: its part outside of the decoder's column space, which does not reach the hidden state; \
                                  means over contexts, all: sum of |Q|^2 over that of |G|^2, sum: |Q|/|G| of the gradient summed \
                                  over contexts, chance: |Q|^2/|G|^2 expected of a random direction";

    const HEADER: &'static str = concat!(
        "run                  head           d  contexts   words dimension",
        "   |Q|/|G| |Q|^2/|G|^2       all       sum    chance"
    );

    fn line(&self) -> String {
        let Self { run, head, d_embedding, contexts, vocab, dimension, .. } = self;
        let sum = self.share_of_sum.map_or("-".into(), |share| format!("{share:.5}"));
        format!(
            "{run:<20} {head:<10} {d_embedding:>5} {contexts:>9} {vocab:>7} {dimension:>9} {:>9.5} {:>11.5} {:>9.5} {sum:>9} \
             {:>9.5}",
            self.share, self.squared_share, self.total_squared_share, self.squared_share_by_chance
        )
    }
}

/// Points of a line in the plot.
const POINTS: usize = 400;

/// The share of tokens that lose at most so much, over the share that they lose, in ascending order.
fn distribution(shares: &[f64]) -> Vec<(f64, f64)> {
    let shares = sorted(shares);
    let last = shares.len().saturating_sub(1);
    let places = (0..=POINTS).map(|point| last * point / POINTS);
    let mut points: Vec<_> =
        places.map(|at| (shares[at], 100.0 * (at + 1) as f64 / shares.len() as f64)).collect();
    points.dedup();
    points
}

/// Prints the share of the gradient that every run's decoder loses, and draws its distribution over tokens.
pub fn run(args: &GradientLossArgs) -> Result<(), Failure> {
    frame::run(&args.source, ("lost gradient of a run", "gradient_loss"), look, |rows| Chart {
        caption: "Gradient of the logits that is lost in the decoder".into(),
        x: ("share |Q|/|G| that a token loses", Scale::Linear),
        y: ("tokens that lose at most so much, %", Scale::Linear),
        lines: rows.into_iter().map(|row| (label(&row.run, row.head), row.distribution)).collect(),
        labels: Some(SeriesLabelPosition::UpperLeft),
    })
}

fn look(source: &SourceArgs) -> Result<Vec<Lost>, Failure> {
    let runs = SavedRun::open_all(&source.runs)?;
    // Before a line of the table is printed.
    SavedRun::one_decoder(&runs)?;
    let analysis = Analysis::open(runs, &source.text, 1, source.out.as_deref())?;
    analysis.print_rows(|run, model| {
        let head = model.head();
        let failed = |error: AnalysisError| run.failure(error);
        let mut loss = GradientLoss::of_head(&head).map_err(failed)?;
        for window in analysis.windows(run, model) {
            let targets: Vec<i64> = window.targets.iter().map(|target| *target as i64).collect();
            let targets = Tensor::<1, Int>::from_data(targets.as_slice(), &analysis.device);
            loss.add(&head, window.hidden, targets).map_err(failed)?;
        }
        Ok(Lost::new(run, head.components(), &loss.finish().map_err(failed)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_rises_to_all_tokens() {
        assert_eq!(
            distribution(&[0.5, 0.25, 1.0, 0.75]),
            [(0.25, 25.0), (0.5, 50.0), (0.75, 75.0), (1.0, 100.0)]
        );
        let many: Vec<f64> = (0..5000).map(|n| f64::from(n * 7919 % 5000) / 5000.0).collect();
        let points = distribution(&many);
        assert_eq!((points.len(), points[0], points[POINTS]), (POINTS + 1, (0.0, 0.02), (0.9998, 100.0)));
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    }
}
