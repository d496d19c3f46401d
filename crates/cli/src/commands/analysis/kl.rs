//! `kl`: how much next-word distributions differ between contexts.

use std::path::PathBuf;

use clap::Args;
use highrank::analysis::{PairwiseKl, RowAnalysis};
use program::args::Head;
use program::failure::Failure;
use serde::Serialize;

use crate::commands::analysis::frame::{Analysis, HeldOutArgs, Row};
use crate::commands::analysis::model::of_words;
use crate::commands::analysis::runs::SavedRun;

/// Options of `kl`.
#[derive(Debug, Clone, Args)]
pub struct KlArgs {
    /// Folder of a run; several may be given.
    #[arg(long = "run", value_name = "RUN", required = true, num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// A run's divergence.
#[derive(Debug, Serialize)]
struct Divergence {
    run: String,
    head: Head,
    contexts: usize,
    /// Mean over all pairs of different contexts, in nats.
    pairwise_kl: f64,
    /// Mean over all pairs, those of a context with itself included, in nats.
    pairwise_kl_all_pairs: f64,
    ppl: f64,
}

impl Row for Divergence {
    const LEGEND: &'static str =
        "pairwise KL: mean of KL(P_i || P_j) over all pairs of different contexts, exact, in nats";

    const HEADER: &'static str = "run                  head        contexts   pairwise KL  perplexity";

    fn line(&self) -> String {
        let Self { run, head, contexts, pairwise_kl, ppl, .. } = self;
        format!("{run:<20} {head:<10} {contexts:>9} {pairwise_kl:>13.4} {ppl:>11.2}")
    }
}

/// Prints the expected divergence between two contexts' distributions for every run.
pub fn run(args: &KlArgs) -> Result<(), Failure> {
    let analysis = Analysis::open(SavedRun::open_all(&args.runs)?, &args.text, 2, None)?;
    let contexts = analysis.text.contexts();
    let rows = analysis.print_rows(|run, model| {
        let mut divergence = PairwiseKl::new(run.vocabulary.len());
        let mut nll = 0.0;
        for window in analysis.windows(run, model) {
            let rows = of_words(model.head().forward(window.hidden), run.vocabulary.len());
            let values: Vec<f64> = rows.into_data().iter::<f64>().collect();
            divergence.add_rows(&values).map_err(|error| run.failure(error))?;
            let targets = window.targets.iter().enumerate();
            nll -= targets.map(|(row, target)| values[row * divergence.columns() + target]).sum::<f64>();
        }
        let pairwise_kl = divergence.finish()?;
        Ok(Divergence {
            run: run.name.clone(),
            head: run.head,
            contexts,
            pairwise_kl,
            pairwise_kl_all_pairs: pairwise_kl * (contexts - 1) as f64 / contexts as f64,
            ppl: (nll / contexts as f64).exp(),
        })
    });
    rows.map(drop)
}
