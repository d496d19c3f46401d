//! `slowdown`: how much longer a mixture trains than a softmax, over components and batches (Yang et al., ICLR 2018, table 13).

use std::path::PathBuf;

use awd_lstm::{HeadKind, ModelConfig, Preset, TrainConfig};
use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use highrank::Precision;
use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;

use highrank_benches::timing::median_seconds;
use highrank_benches::workload::Training;
use program::args::DistinctList;
use program::chart::{Chart, Scale};
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::files::{Force, create_folder};
use program::picture;
use program::print::print_json;
use program::println;

/// Times training steps of a Mixture of Softmaxes and of the softmax model that it is compared with, at the same batch for several
/// numbers of components, and each at its own batch. Beside them what the paper measured on GPUs.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct SlowdownArgs {
    /// The models: those of which text.
    #[arg(long, value_enum, default_value_t)]
    pub text: Text,
    /// Numbers of components, separated by commas [default: the paper's].
    #[arg(long, value_name = "KS")]
    pub components: Option<DistinctList<usize>>,
    /// Batches that both models share, separated by commas [default: the softmax's own].
    #[arg(long, value_name = "SIZES")]
    pub batches: Option<DistinctList<usize>>,
    /// V, size of the vocabulary [default: the text's].
    #[arg(long)]
    pub vocab: Option<usize>,
    /// Timed steps; the median counts.
    #[arg(long, default_value_t = 5)]
    pub repeats: usize,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16.
    #[arg(long, default_value_t)]
    pub precision: Precision,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// Folder for the picture: slowdown.svg.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whether the picture replaces a file.
    #[command(flatten)]
    pub force: Force,
    /// One JSON object a measurement on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// A text, with a softmax model and a mixture for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Text {
    /// Penn Treebank: presets awd-lstm and paper.
    #[default]
    Ptb,
    /// WikiText-2: presets awd-lstm-wikitext2 and wikitext2.
    Wikitext2,
    /// One Billion Word: preset billion-word with both heads.
    BillionWord,
    /// Preset small with both heads, of which the paper says nothing.
    Small,
}

impl Text {
    /// The presets of softmax and mixture, the vocabulary, and the paper's slowdowns by components at the same batch.
    fn setting(self) -> (Preset, Preset, usize, &'static [(usize, f64)]) {
        match self {
            Self::Ptb => (Preset::AwdLstm, Preset::Paper, 10_000, &[(5, 1.2), (10, 1.6), (15, 1.9)]),
            Self::Wikitext2 => {
                (Preset::AwdLstmWikitext2, Preset::Wikitext2, 33_278, &[(5, 1.3), (10, 1.9), (15, 2.5)])
            }
            Self::BillionWord => (Preset::BillionWord, Preset::BillionWord, 100_000, &[(7, 3.8)]),
            Self::Small => (Preset::Small, Preset::Small, 10_000, &[]),
        }
    }

    /// The paper's slowdown where each model has its own batch: one GPU, and three.
    fn published_best(self) -> &'static [f64] {
        match self {
            Self::Ptb => &[2.8],
            Self::Wikitext2 => &[6.4, 2.9],
            Self::BillionWord => &[5.7, 2.1],
            Self::Small => &[],
        }
    }
}

/// A mixture beside a softmax.
#[derive(Debug, Serialize)]
struct Slowdown {
    components: usize,
    /// Parallel text streams of the mixture, and of the softmax.
    batch: usize,
    softmax_batch: usize,
    tokens_per_s: f64,
    softmax_tokens_per_s: f64,
    /// Time of an epoch over the softmax's.
    slowdown: f64,
    /// The paper's slowdowns, on one GPU and on three if it tells them apart.
    published: Vec<f64>,
}

/// Runs the program.
///
/// # Errors
/// Sizes that make no model, a picture that exists already, or a device that is not there.
pub fn run(args: &SlowdownArgs) -> Result<(), Failure> {
    if args.repeats == 0 {
        return Err("--repeats is 0, but a measurement needs at least 1".into());
    }
    if let Some(out) = &args.out {
        args.force.check_in(out, &["slowdown.svg"])?;
        create_folder(out)?;
    }
    let name = device::resolve(args.device);
    let bench = Bench { args, device: device::open(name)? };
    let (components, batches) = (bench.components(), bench.batches());
    // All settings are checked before the first measurement.
    for components in components.iter().copied().map(Some).chain([None]) {
        device::check_room(name, bench.model(components)?.0.num_params())?;
    }
    for &batch in &batches {
        procedure(args.text.setting().1, batch)?;
    }
    if !args.json {
        println!(
            "{:>4}{:>7}{:>15}{:>10}{:>18}{:>10}{:>14}",
            "K", "batch", "softmax batch", "tokens/s", "softmax tokens/s", "slowdown", "the paper's"
        );
    }
    let rows = bench.measure(&components, &batches)?;
    let Some(out) = &args.out else { return Ok(()) };
    picture::save(&chart(args.text, &rows), &out.join("slowdown"))
}

struct Bench<'a> {
    args: &'a SlowdownArgs,
    device: Device,
}

impl Bench<'_> {
    /// Numbers of components: those given, else the paper's, else the preset's.
    fn components(&self) -> Vec<usize> {
        let (_, mixture, _, published) = self.args.text.setting();
        let paper = match published.is_empty() {
            true => vec![mixture.model(HeadKind::Mos, 2).components],
            false => published.iter().map(|(components, _)| *components).collect(),
        };
        self.args.components.as_ref().map_or(paper, |list| list.0.clone())
    }

    /// Batches that both models share: those given, else the softmax's own.
    fn batches(&self) -> Vec<usize> {
        let own = self.args.text.setting().0.train().batch;
        self.args.batches.as_ref().map_or(vec![own], |list| list.0.clone())
    }

    fn measure(&self, components: &[usize], batches: &[usize]) -> Result<Vec<Slowdown>, Failure> {
        let (softmax, mixture, _, published) = self.args.text.setting();
        let own = (mixture.train().batch, softmax.train().batch);
        let of_preset = mixture.model(HeadKind::Mos, 2).components;
        let mut rows = vec![];
        for &batch in batches {
            let reference = self.tokens_per_s(None, batch)?;
            for &components in components {
                let found = published.iter().find(|(of, _)| *of == components);
                let published = found.map(|(_, slowdown)| *slowdown).into_iter().collect();
                let speed = self.tokens_per_s(Some(components), batch)?;
                rows.push(self.row(components, (batch, batch), (speed, reference), published));
            }
        }
        // Each model as it is trained, where that is another setting.
        if own.0 != own.1 && self.args.batches.is_none() && components.contains(&of_preset) {
            let reference = self.tokens_per_s(None, own.1)?;
            let speed = self.tokens_per_s(Some(of_preset), own.0)?;
            let published = self.args.text.published_best().to_vec();
            rows.push(self.row(of_preset, own, (speed, reference), published));
        }
        Ok(rows)
    }

    /// The mixture of so many components, or the softmax; and its preset.
    fn model(&self, components: Option<usize>) -> Result<(ModelConfig, Preset), Failure> {
        let (softmax, mixture, vocab, _) = self.args.text.setting();
        let (preset, head) = match components {
            Some(_) => (mixture, HeadKind::Mos),
            None => (softmax, HeadKind::Softmax),
        };
        let mut model = preset.model(head, self.args.vocab.unwrap_or(vocab));
        model.components = components.unwrap_or(model.components);
        model.precision = self.args.precision;
        model.validate()?;
        Ok((model, preset))
    }

    /// Tokens of a training step of that model over its median time.
    fn tokens_per_s(&self, components: Option<usize>, batch: usize) -> Result<f64, Failure> {
        let (model, preset) = self.model(components)?;
        let mut training = Training::new(&model, procedure(preset, batch)?, &self.device)?;
        let seconds = median_seconds(self.args.repeats, || Ok(training.step()))?;
        Ok(training.tokens() as f64 / seconds)
    }

    fn row(
        &self,
        components: usize,
        (batch, softmax_batch): (usize, usize),
        (tokens_per_s, softmax_tokens_per_s): (f64, f64),
        published: Vec<f64>,
    ) -> Slowdown {
        let slowdown = softmax_tokens_per_s / tokens_per_s;
        let row = Slowdown {
            components,
            batch,
            softmax_batch,
            tokens_per_s,
            softmax_tokens_per_s,
            slowdown,
            published,
        };
        if self.args.json {
            print_json(&row);
        } else {
            let published: Vec<String> = row.published.iter().map(|slowdown| slowdown.to_string()).collect();
            println!(
                "{components:>4}{batch:>7}{softmax_batch:>15}{tokens_per_s:>10.0}{softmax_tokens_per_s:>18.0}{slowdown:>10.2}{:>14}",
                if published.is_empty() { "-".into() } else { published.join(", ") }
            );
        }
        row
    }
}

/// The procedure of a preset with another batch.
fn procedure(preset: Preset, batch: usize) -> Result<TrainConfig, Failure> {
    let procedure = TrainConfig { batch, ..preset.train() };
    procedure.validate()?;
    Ok(procedure)
}

/// Slowdowns over components: a line for every batch that the models share, and the paper's.
fn chart(text: Text, rows: &[Slowdown]) -> Chart {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for row in rows {
        let label = match row.batch == row.softmax_batch {
            true => format!("batch {}", row.batch),
            false => format!("batch {}, softmax {}", row.batch, row.softmax_batch),
        };
        let point = (row.components as f64, row.slowdown);
        match lines.iter_mut().find(|(of, _)| *of == label) {
            Some((_, points)) => points.push(point),
            None => lines.push((label, vec![point])),
        }
    }
    let published: Vec<(f64, f64)> =
        text.setting().3.iter().map(|&(components, slowdown)| (components as f64, slowdown)).collect();
    if !published.is_empty() {
        lines.push(("the paper, same batch".into(), published));
    }
    Chart {
        caption: "Time of a training epoch over the softmax's".into(),
        x: ("components K", Scale::Linear),
        y: ("slowdown", Scale::Linear),
        lines,
        labels: Some(SeriesLabelPosition::UpperLeft),
    }
}
