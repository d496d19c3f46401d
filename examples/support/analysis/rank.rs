//! `ptb_mos rank`: empirical rank and spectrum of the matrix of log-probabilities.

use std::path::PathBuf;

use awd_lstm::{HeadKind, LmBackend, ModelConfig};
use burn::tensor::DType;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use highrank::analysis::{RowAnalysis, Spectrum, SpectrumBuilder};
use serde::Serialize;

use super::runs::SavedRun;
use super::spectrum_plot::SpectrumPlot;
use super::text::{Text, cast};
use super::{HeldOutArgs, output_folder};
use crate::device::{DeviceName, Task, on_device};
use crate::exit::Failure;
use crate::picture;
use crate::progress::print_json;

/// Options of `rank`.
#[derive(Debug, Clone, Args)]
pub struct RankArgs {
    /// Folder of a run; several may be given.
    #[arg(long = "run", value_name = "RUN", required = true, num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// Folder for the plot of all spectra, spectrum.svg and spectrum.png.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The text.
    #[command(flatten)]
    pub text: HeldOutArgs,
}

/// A run's rank.
#[derive(Debug, Serialize)]
struct Rank {
    run: String,
    head: HeadKind,
    d_embedding: usize,
    contexts: usize,
    vocab: usize,
    /// What the rank of such a head cannot exceed.
    bound: Option<usize>,
    /// Float type of the output layer.
    precision: &'static str,
    /// Singular values above the roundoff of f64; none where the output layer was computed in f32.
    rank: Option<usize>,
    /// Singular values above the roundoff of f32.
    rank_f32: usize,
    threshold: Option<f64>,
    threshold_f32: f64,
    singular_values: Vec<f64>,
}

impl Rank {
    fn new(run: &SavedRun, spectrum: &Spectrum, wide: bool) -> Self {
        let single = f32::EPSILON as f64;
        Self {
            run: run.name.clone(),
            head: run.config.model.head,
            d_embedding: run.config.model.d_embedding,
            contexts: spectrum.rows(),
            vocab: spectrum.columns(),
            bound: bound(&run.config.model).map(|bound| bound.min(spectrum.singular_values.len())),
            precision: if wide { "f64" } else { "f32" },
            rank: wide.then(|| spectrum.rank()),
            rank_f32: spectrum.rank_with(single),
            threshold: wide.then(|| spectrum.threshold(f64::EPSILON)),
            threshold_f32: spectrum.threshold(single),
            singular_values: spectrum.singular_values.clone(),
        }
    }

    fn print(&self) {
        let or_dash = |value: Option<usize>| value.map_or("-".into(), |value| value.to_string());
        println!(
            "{:<20} {:<10} {:>5} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11.3e}",
            self.run,
            self.head,
            self.d_embedding,
            self.contexts,
            self.vocab,
            or_dash(self.bound),
            or_dash(self.rank),
            self.rank_f32,
            self.singular_values[0],
        );
    }
}

/// The largest rank that the head can reach: one for each column of the decoder, one for the normaliser, one for the
/// bias. None where the papers know no bound.
fn bound(model: &ModelConfig) -> Option<usize> {
    match model.head {
        HeadKind::Softmax | HeadKind::Moc => Some(model.d_embedding + 2),
        _ => None,
    }
}

/// Prints rank and spectrum for every run, and draws the spectra into one plot.
///
/// # Errors
/// Bad input: no run, a damaged one, text that is too short or not covered by the vocabulary.
pub fn run(args: &RankArgs) -> Result<(), Failure> {
    let runs = SavedRun::open_all(&args.runs)?;
    SavedRun::same_vocabulary(&runs)?;
    let text = Text::load(&args.text, &runs, 2)?;
    if let Some(out) = &args.out {
        output_folder(out)?;
    }
    on_device(args.text.device, RankTask { args, runs, text })
}

struct RankTask<'a> {
    args: &'a RankArgs,
    runs: Vec<SavedRun>,
    text: Text,
}

impl Task for RankTask<'_> {
    type Output = ();

    fn run<B>(self, device: B::Device) -> Result<(), Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { args, runs, text } = self;
        // Rounded to f32, every matrix has full rank beyond that rounding; the CPU computes the output layer in f64.
        let wide = args.text.device == DeviceName::Flex;
        let mut lines = vec![];
        if !args.text.json {
            println!(
                "{:<20} {:<10} {:>5} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11}",
                "run", "head", "d", "contexts", "words", "bound", "rank", "rank f32", "largest"
            );
        }
        for run in &runs {
            let model = run.model::<B::InnerBackend>(&device)?;
            let dtype = if wide { DType::F64 } else { DType::F32 };
            let output = cast(model.clone(), dtype);
            let mut builder = SpectrumBuilder::new(run.vocabulary.len());
            for window in text.windows(&model, &device, &run.name) {
                for block in output.head().log_prob_blocks(window.hidden.cast(dtype)) {
                    builder.add(block).map_err(|error| run.failure(error))?;
                }
            }
            let spectrum = builder.finish().map_err(|error| run.failure(error))?;
            let rank = Rank::new(run, &spectrum, wide);
            if args.text.json {
                print_json(&rank);
            } else {
                rank.print();
            }
            lines.push((run.label(), spectrum.normalised()));
        }
        if !args.text.json {
            println!(
                "rank: singular values above the expected roundoff of f64, or of f32; largest: the largest of them"
            );
        }
        if let Some(out) = &args.out {
            picture::save(&SpectrumPlot::new(lines), &out.join("spectrum"))?;
        }
        Ok(())
    }
}
