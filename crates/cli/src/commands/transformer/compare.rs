//! `--compare`: what a step costs with Burn's own `Linear` and `CrossEntropyLoss`, and with the fused head, at the same sizes.

use std::process::{Command, Stdio};

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::module::linear;
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpt::{Gpt, GptConfig};
use highrank::HeadConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::device::{DeviceName, forget_peak, memory_bytes};
use crate::failure::Failure;
use crate::print::print_json;
use crate::statistics::median;
use crate::timing::seconds_of;
use crate::workload::{LossOption, OutputLayer, OutputStep};

/// What is compared.
pub struct Comparison<'a> {
    /// The models by the name of their output layer, the softmax first. Burn's own layers are measured at its sizes.
    pub models: Vec<(String, GptConfig)>,
    /// Sequences of a step.
    pub batch: usize,
    /// Timed steps.
    pub repeats: usize,
    /// The name of the device.
    pub name: DeviceName,
    /// The device.
    pub device: &'a Device,
}

/// The name of Burn's own layers.
const BURN: &str = "burn";

/// The part of the model that makes a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// Forward and backward of the output layer and its loss, from hidden states to their gradient.
    Output,
    /// Forward and backward of the whole model.
    Model,
}

impl Part {
    const ALL: [Self; 2] = [Self::Output, Self::Model];

    fn name(self) -> &'static str {
        match self {
            Self::Output => "output layer",
            Self::Model => "whole model",
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
struct Row {
    part: Part,
    layer: String,
    device: String,
    /// N of a step.
    tokens: usize,
    d_embedding: usize,
    /// Of the decoder matrix.
    rows: usize,
    median_ms: f64,
    /// Growth of a process's peak memory over its first two steps, gradients included; on a GPU what the runtime has taken
    /// after them less what was in use before. `null` where it is not known.
    added_peak_bytes: Option<u64>,
    /// Burn's time over this one's.
    speedup: f64,
    /// Its share of Burn's added memory.
    memory_share: Option<f64>,
    /// In nats.
    loss: f64,
}

/// A step that is timed; it returns the loss.
type Step = Box<dyn Fn() -> f64>;

impl Comparison<'_> {
    /// Measures and prints: objects on standard output with `json`, otherwise a table.
    ///
    /// # Errors
    /// Sizes that make no model, or a process that cannot be started.
    pub fn run(&self, json: bool) -> Result<(), Failure> {
        for part in Part::ALL {
            let rows = self.rows(part)?;
            if json {
                rows.iter().for_each(print_json);
            } else {
                print_table(&rows, part == Part::ALL[0]);
            }
        }
        Ok(())
    }

    /// Burn's own layers, then the models: their names, and whether they are Burn's.
    fn layers(&self) -> impl Iterator<Item = (&str, &GptConfig, bool)> {
        let (_, softmax) = &self.models[0];
        let models = self.models.iter().map(|(name, model)| (name.as_str(), model, false));
        std::iter::once((BURN, softmax, true)).chain(models)
    }

    fn step(&self, part: Part, config: &GptConfig, burn: bool) -> Result<Step, Failure> {
        match part {
            Part::Output => Ok(self.output_step(config, burn)),
            Part::Model => self.model_step(config, burn),
        }
    }

    fn rows(&self, part: Part) -> Result<Vec<Row>, Failure> {
        let mut measured = vec![];
        for (layer, config, burn) in self.layers() {
            // Before this process keeps memory of its own.
            let added_peak_bytes = memory_of_child(&row_name(part, layer))?;
            measured.push((layer, config, burn, added_peak_bytes));
        }
        let mut timed = vec![];
        for (_, config, burn, _) in &measured {
            let step = self.step(part, config, *burn)?;
            let loss = self.wait(&step)?;
            timed.push((step, loss, vec![]));
        }
        // In turn: where other work shares the machine, all meet the same of it.
        for _ in 0..self.repeats {
            for (step, _, times) in &mut timed {
                times.push(seconds_of(|| self.wait(step))?);
            }
        }
        let rows = measured.into_iter().zip(timed);
        let mut rows: Vec<Row> = rows
            .map(|((layer, config, _, added_peak_bytes), (_, loss, times))| Row {
                part,
                layer: layer.to_string(),
                device: self.name.to_string(),
                tokens: self.batch * config.context,
                d_embedding: config.head.d_embedding,
                rows: config.head.rows(),
                median_ms: median(times).map_or(f64::NAN, |seconds| seconds * 1e3),
                added_peak_bytes,
                speedup: f64::NAN,
                memory_share: None,
                loss,
            })
            .collect();
        let (ms, bytes) = (rows[0].median_ms, rows[0].added_peak_bytes);
        for row in &mut rows {
            row.speedup = ms / row.median_ms;
            let both = row.added_peak_bytes.zip(bytes).filter(|(_, burn)| *burn > 0);
            row.memory_share = both.map(|(own, burn)| own as f64 / burn as f64);
        }
        Ok(rows)
    }

    fn wait(&self, step: &Step) -> Result<f64, Failure> {
        let loss = step();
        self.device.sync()?;
        Ok(loss)
    }

    /// Prints how much memory two steps of a row add, for the process that asks by [`memory_of_child`].
    ///
    /// # Errors
    /// A name of no row, or sizes that make no model.
    pub fn print_memory(&self, row: &str) -> Result<(), Failure> {
        let mut all = Part::ALL.into_iter().flat_map(|part| self.layers().map(move |layer| (part, layer)));
        let found = all.find(|(part, (layer, ..))| row_name(*part, layer) == row);
        let Some((part, (_, config, burn))) = found else { return Err(format!("no row `{row}`").into()) };
        let step = self.step(part, config, burn)?;
        self.device.sync()?;
        forget_peak();
        let before = memory_bytes(self.name, self.device);
        self.wait(&step)?;
        self.wait(&step)?;
        let after = memory_bytes(self.name, self.device);
        print_json(&before.zip(after).map(|((in_use, _), (_, reserved))| reserved.saturating_sub(in_use)));
        Ok(())
    }

    /// A step of the output layer alone, its matrix its own.
    fn output_step(&self, config: &GptConfig, burn: bool) -> Step {
        let device = self.training_device();
        let HeadConfig { d_hidden, d_embedding, vocab, .. } = config.head;
        let layer = match burn {
            true => OutputLayer::burn(d_embedding, config.head.rows(), &device),
            false => OutputLayer::Head(config.head.clone().with_tied(false).init(&device)),
        };
        layer.create();
        let tokens = self.batch * config.context;
        let step = OutputStep::new(layer, [tokens, d_hidden, vocab], LossOption::Plain, &device);
        Box::new(move || step.run())
    }

    /// A step of the whole model, whose output layer takes the embedding as its matrix.
    fn model_step(&self, config: &GptConfig, burn: bool) -> Result<Step, Failure> {
        let device = self.training_device();
        let model = config.try_init(&device)?;
        model.visit(&mut Create);
        let mut rng = Pcg64::seed_from_u64(0);
        let shape = [self.batch, config.context];
        let mut draw = || -> Tensor<2, Int> {
            let words = (0..shape[0] * shape[1]).map(|_| rng.random_range(0..config.head.vocab as i64));
            Tensor::from_data(TensorData::new(words.collect::<Vec<_>>(), shape), &device)
        };
        let (tokens, targets) = (draw(), draw());
        let cross_entropy = CrossEntropyLossConfig::new().init(&device);
        Ok(Box::new(move || {
            let hidden = model.hidden(tokens.clone());
            let loss = match burn {
                true => {
                    let [batch, length, d] = hidden.dims();
                    let logits = burn_logits(&model, hidden.reshape([batch * length, d]));
                    cross_entropy.forward(logits, targets.clone().reshape([batch * length]))
                }
                false => model.head().loss(hidden, targets.clone()),
            };
            let gradients = loss.backward();
            let value = loss.inner().into_scalar::<f64>();
            drop(gradients);
            value
        }))
    }

    fn training_device(&self) -> Device {
        let device = self.device.clone().autodiff();
        device.seed(0);
        device
    }
}

/// The option that [`Comparison::print_memory`] answers.
pub const MEMORY_OF: &str = "--memory-of";

fn row_name(part: Part, layer: &str) -> String {
    format!("{}, {layer}", part.name())
}

/// How much memory two steps of a row add, in a process of its own: memory that one step leaves for reuse would hide some of what
/// the next one needs.
fn memory_of_child(row: &str) -> Result<Option<u64>, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(std::env::args_os().skip(1)).arg(MEMORY_OF).arg(row);
    let output = child.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(
            format!("the memory of {row} was not measured ({}): is there enough?", output.status).into()
        );
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What Burn's `Linear` computes, with the embedding as its matrix and the head's bias. Shapes `[N, d]` and `[N, V]`.
fn burn_logits(model: &Gpt, hidden: Tensor<2>) -> Tensor<2> {
    let bias = model.head.decoder.bias.as_ref().map(|bias| bias.val());
    linear(hidden, model.embedding.weight.val().transpose(), bias)
}

/// Asks for every parameter once: Burn creates them when they are first asked for.
struct Create;

impl ModuleVisitor for Create {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        drop(param.val());
    }
}

fn print_table(rows: &[Row], title: bool) {
    if title {
        let Row { tokens, d_embedding, rows, device, .. } = &rows[0];
        println!(
            "step of {tokens} tokens, width {d_embedding}, {rows} words, on {device}: forward and backward"
        );
        println!(
            "{:<13} {:<14} {:>10} {:>9} {:>18} {:>9}",
            "part", "layer", "ms", "speedup", "added peak MB", "share"
        );
    }
    for row in rows {
        let megabytes = row.added_peak_bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
        let share = row.memory_share.map_or("-".into(), |share| format!("{share:.2}"));
        println!(
            "{:<13} {:<14} {:>10.1} {:>9.2} {megabytes:>18} {share:>9}",
            row.part.name(),
            row.layer,
            row.median_ms,
            row.speedup
        );
    }
}
