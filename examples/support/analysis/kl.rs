//! `ptb_mos kl`: how much next-word distributions differ between contexts.

use std::path::PathBuf;

use awd_lstm::{HeadKind, LmBackend};
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use highrank::analysis::{PairwiseKl, RowAnalysis};
use serde::Serialize;

use super::HeldOutArgs;
use super::runs::SavedRun;
use super::text::Text;
use crate::device::{Task, on_device};
use crate::exit::Failure;
use crate::progress::print_json;

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
    head: HeadKind,
    contexts: usize,
    /// Mean over all pairs of different contexts, in nats.
    pairwise_kl: f64,
    /// Mean over all pairs, those of a context with itself included, in nats.
    pairwise_kl_all_pairs: f64,
    ppl: f64,
}

/// Prints the expected divergence between two contexts' distributions for every run.
///
/// # Errors
/// Bad input: no run, a damaged one, text that is too short or not covered by the vocabulary.
pub fn run(args: &KlArgs) -> Result<(), Failure> {
    let runs = SavedRun::open_all(&args.runs)?;
    SavedRun::same_vocabulary(&runs)?;
    let text = Text::load(&args.text, &runs, 2)?;
    on_device(args.text.device, KlTask { args, runs, text })
}

struct KlTask<'a> {
    args: &'a KlArgs,
    runs: Vec<SavedRun>,
    text: Text,
}

impl Task for KlTask<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> Result<(), Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { args, runs, text } = self;
        if !args.text.json {
            println!(
                "{:<20} {:<10} {:>9} {:>13} {:>11}",
                "run", "head", "contexts", "pairwise KL", "perplexity"
            );
        }
        for run in &runs {
            let model = run.model::<B::InnerBackend>(&device)?;
            let mut divergence = PairwiseKl::new(run.vocabulary.len());
            let mut nll = 0.0;
            for window in text.windows(&model, &device, &run.name) {
                let rows = model.head().log_probs(window.hidden);
                let values: Vec<f64> = rows.into_data().iter::<f64>().collect();
                divergence.add_rows(&values).map_err(|error| run.failure(error))?;
                let targets = window.targets.iter().enumerate();
                nll -= targets.map(|(row, target)| values[row * divergence.columns() + target]).sum::<f64>();
            }
            let result = Divergence {
                run: run.name.clone(),
                head: run.config.model.head,
                contexts: text.contexts(),
                pairwise_kl: divergence.mean_distinct_pairs()?,
                pairwise_kl_all_pairs: divergence.mean_all_pairs()?,
                ppl: (nll / text.contexts() as f64).exp(),
            };
            if args.text.json {
                print_json(&result);
            } else {
                let Divergence { run, head, contexts, pairwise_kl, ppl, .. } = result;
                println!("{run:<20} {head:<10} {contexts:>9} {pairwise_kl:>13.4} {ppl:>11.2}");
            }
        }
        if !args.text.json {
            println!(
                "pairwise KL: mean of KL(P_i || P_j) over all pairs of different contexts, exact, in nats"
            );
        }
        Ok(())
    }
}
