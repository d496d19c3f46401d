//! `rank`: empirical rank and spectrum of the matrix of log-probabilities.

use awd_lstm::HeadKind;
use burn::tensor::DType;
use clap::Args;
use highrank::analysis::{RowAnalysis, Spectrum, SpectrumBuilder};
use plotters::prelude::SeriesLabelPosition;
use program::args::Head;
use program::chart::{Chart, Scale};
use program::device::DeviceName;
use program::failure::Failure;
use serde::{Deserialize, Serialize};

use crate::commands::analysis::frame::{self, Analysis, Row, SourceArgs};
use crate::commands::analysis::model::{Model, of_words};
use crate::commands::analysis::runs::{SavedRun, label};
use crate::commands::analysis::text::Window;

/// Options of `rank`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("out", |out| out.help("Folder for the plot of all spectra, spectrum.svg")))]
pub struct RankArgs {
    /// The runs, the text and where they are drawn.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Smallest normalised singular value that is drawn: below, f64 has rounding errors only.
const LOWEST: f64 = 1e-16;

/// A run's rank.
#[derive(Debug, Serialize, Deserialize)]
struct Rank {
    run: String,
    head: Head,
    d_embedding: usize,
    contexts: usize,
    vocab: usize,
    /// What the rank of such a head cannot exceed.
    bound: Option<usize>,
    /// Float type of the output layer.
    precision: String,
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
        // The papers know no bound of other heads, and clusters have decoders and normalisers of their own.
        let is_bounded =
            matches!(run.head, Head::Common(HeadKind::Softmax | HeadKind::Moc)) && !run.has_clusters;
        Self {
            run: run.name.clone(),
            head: run.head,
            d_embedding: run.d_embedding,
            contexts: spectrum.rows,
            vocab: spectrum.columns,
            // One for each column of the decoder, one for the normaliser, one for the bias.
            bound: is_bounded.then(|| (run.d_embedding + 2).min(spectrum.singular_values.len())),
            precision: if wide { "f64" } else { "f32" }.into(),
            rank: wide.then(|| spectrum.rank(f64::EPSILON)),
            rank_f32: spectrum.rank(single),
            threshold: wide.then(|| spectrum.threshold(f64::EPSILON)),
            threshold_f32: spectrum.threshold(single),
            singular_values: spectrum.singular_values.clone(),
        }
    }

    fn largest(&self) -> f64 {
        self.singular_values.first().copied().unwrap_or(0.0)
    }

    /// The share of singular values at or below a value, over the value, the largest being 1: figure 1 of Yang et al.
    fn points(&self) -> Vec<(f64, f64)> {
        let count = self.singular_values.len() as f64;
        let share = |index: usize| 100.0 * (1.0 - index as f64 / count);
        let values = self.singular_values.iter().enumerate().rev();
        values.map(|(index, value)| ((value / self.largest()).max(LOWEST), share(index))).collect()
    }
}

impl Row for Rank {
    const LEGEND: &'static str =
        "rank: singular values above the expected roundoff of f64, or of f32; largest: the largest of them";

    const HEADER: &'static str =
        "run                  head           d  contexts   words   bound      rank  rank f32     largest";

    fn line(&self) -> String {
        let Self { run, head, d_embedding, contexts, vocab, rank_f32, .. } = self;
        let or_dash = |value: Option<usize>| value.map_or("-".into(), |value| value.to_string());
        let (bound, rank, largest) = (or_dash(self.bound), or_dash(self.rank), self.largest());
        format!(
            "{run:<20} {head:<10} {d_embedding:>5} {contexts:>9} {vocab:>7} {bound:>7} {rank:>9} {rank_f32:>9} \
             {largest:>11.3e}"
        )
    }
}

/// Prints rank and spectrum for every run, and draws the spectra into one plot.
pub fn run(args: &RankArgs) -> Result<(), Failure> {
    frame::run(&args.source, ("rank of a run", "spectrum"), look, |rows| Chart {
        caption: "Spectrum of the matrix of log-probabilities".into(),
        x: ("singular value over the largest (log)", Scale::Logarithmic),
        y: ("singular values at or below, %", Scale::Linear),
        lines: rows.iter().map(|row| (label(&row.run, row.head), row.points())).collect(),
        labels: Some(SeriesLabelPosition::LowerRight),
    })
}

fn look(source: &SourceArgs) -> Result<Vec<Rank>, Failure> {
    let runs = SavedRun::open_all(&source.runs)?;
    let analysis = Analysis::open(runs, &source.text, 2, source.out.as_deref())?;
    let wide = is_wide(analysis.device_name);
    analysis.print_rows(|run, model| {
        let spectrum = spectrum(model, run.vocabulary.len(), analysis.windows(run, model), wide);
        let spectrum = spectrum.map_err(|error| run.failure(error))?;
        Ok(Rank::new(run, &spectrum, wide))
    })
}

/// Whether a device computes the output layer in f64. Rounded to f32, every matrix has full rank beyond that rounding; the CPU
/// computes in f64.
pub fn is_wide(device: DeviceName) -> bool {
    device == DeviceName::Flex
}

/// The spectrum of a model's log-probabilities of `vocab` words in the contexts of some text, with the output layer in f64 if
/// `wide`, otherwise in f32.
pub fn spectrum(
    model: &Model,
    vocab: usize,
    text: impl Iterator<Item = Window>,
    wide: bool,
) -> Result<Spectrum, Failure> {
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let head = model.head_in(dtype);
    let mut builder = SpectrumBuilder::new(vocab);
    for window in text {
        for block in head.log_prob_blocks(window.hidden.cast(dtype)) {
            builder.add(of_words(block, vocab))?;
        }
    }
    Ok(builder.finish()?)
}
