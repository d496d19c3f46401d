//! Which runs a sweep makes: every combination of values, of each head that has them, by every seed.
//! Sizes of models of equal numbers of parameters are solved for.

use std::collections::HashSet;

use awd_lstm::sizes::{self, LastLstm};
use awd_lstm::train::RunConfig;
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};
use program::args::{Given, Knobs};
use program::device;
use program::failure::Failure;
use program::files::absolute;
use runs::Versions;
use runs::data::{Corpus, Fingerprint};
use serde::Serialize;

use crate::args::{LstmKnobs, Overrides, missing_part};
use crate::commands::sweep::args::{Equal, SweepArgs};
use crate::commands::sweep::grid::{self, Axis, Varying};
use crate::training::finetuning;

/// The name of the axis of numbers of parameters.
pub const PARAMETERS: &str = "parameters";
/// The most combinations of values that a sweep may have.
const MOST: usize = 10_000;
/// A model whose number of parameters is off by more than one part in so many is not of the size that was asked for.
const NEAR: usize = 10;

/// A run of a sweep, before it is trained.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Name of its folder: the head, the settings that vary, and the seed.
    pub name: String,
    pub settings: Varying,
    pub config: RunConfig,
    pub finetuning: Option<TrainConfig>,
}

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
    pub runs: Vec<Planned>,
    /// The settings that vary, numbers of parameters among them.
    pub axes: Vec<Axis>,
    /// What was left out, and why, a line each.
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan that the arguments ask for, with all sizes solved for; the runs of the first seed first.
    pub fn new(args: &SweepArgs, corpus: &Corpus) -> Result<Self, Failure> {
        let (hashes, data) = (Fingerprint::of(corpus), absolute(args.data()?));
        let text = args.training.text(&args.common());
        let device = device::resolve(args.training.device());
        let tokens = args.training.tokens.remembered();
        let planner = Planner::new(args, corpus.vocabulary().len())?;
        let (mut of_heads, mut notes) = (vec![], vec![]);
        for head in args.heads() {
            of_heads.extend(of_head(&planner, head, &mut notes)?);
        }
        let mut runs = vec![];
        for seed in args.seeds()? {
            for (settings, of_run) in &of_heads {
                let varying =
                    settings.iter().map(|(flag, value)| format!("-{}{}", short(flag), plain(value)));
                let name = format!("{}{}-s{seed}", of_run.model.head, varying.collect::<String>());
                let seeded = |train: &TrainConfig| TrainConfig { seed, ..train.clone() };
                let config = RunConfig {
                    versions: Versions::current(),
                    preset: args.training.preset().to_string(),
                    device: device.to_string(),
                    data: data.clone(),
                    corpus: hashes.clone(),
                    text: text.clone(),
                    tokens: tokens.clone(),
                    finetunes: None,
                    model: of_run.model.clone(),
                    train: seeded(&of_run.train),
                    extensions: vec![],
                };
                let finetuning = of_run.finetuning.as_ref().map(seeded);
                runs.push(Planned { name, settings: settings.clone(), config, finetuning });
            }
        }
        let axes = Axis::all(runs.iter().flat_map(|run| &run.settings));
        Ok(Self { runs, axes, notes })
    }
}

/// A setting and a value chosen for it, as it was written.
type Choice<'a> = (&'a str, &'a str);

/// A run's model and procedure, but for its seed.
#[derive(Debug, Serialize)]
struct Settings {
    model: ModelConfig,
    train: TrainConfig,
    finetuning: Option<TrainConfig>,
}

/// What varies in a run of a head, and all its settings.
type Run = (Varying, Settings);

/// All different runs of a head, each with the settings that vary for this head. What was left out is noted.
fn of_head(planner: &Planner, head: HeadKind, notes: &mut Vec<String>) -> Result<Vec<Run>, Failure> {
    let axes = planner.axes(head);
    let count = axes.iter().try_fold(1, |product: usize, axis| product.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > MOST) {
        return Err(format!("a sweep over more than {MOST} combinations of values would never end").into());
    }
    let (mut runs, mut seen, mut same, mut impossible) = (vec![], HashSet::new(), 0, None);
    for chosen in combinations(&axes) {
        let varying = chosen.iter().zip(&axes).filter(|(_, axis)| axis.values.len() > 1);
        let varying: Vec<Choice> = varying.map(|(choice, _)| *choice).collect();
        let of_run: String = varying.iter().map(|(flag, value)| format!(", {flag} {value}")).collect();
        let here = |error: Failure| Failure::from(format!("{head}{of_run}: {error}"));
        match planner.settings(head, &chosen).map_err(here)? {
            // Some come to one model: a single layer has no first one.
            Ok(settings) if !seen.insert(serde_json::to_string(&settings)?) => same += 1,
            Ok(settings) => {
                let varying =
                    varying.iter().map(|(flag, value)| (flag.to_string(), value.to_string())).collect();
                runs.push((varying, settings));
            }
            Err(reason) => {
                let reason = here(reason);
                notes.push(format!("left out: {reason}"));
                impossible = impossible.or(Some(reason));
            }
        }
    }
    if let (true, Some(reason)) = (runs.is_empty(), impossible) {
        return Err(reason);
    }
    if same > 0 {
        notes.push(format!("left out: {head}, {same} combinations that come to the same model as another"));
    }
    Ok(runs)
}

/// Every combination of values, the last axis fastest.
fn combinations<'a>(axes: &'a [Axis]) -> Vec<Vec<Choice<'a>>> {
    axes.iter().fold(vec![vec![]], |before, axis| {
        let longer = |combination: Vec<Choice<'a>>| {
            let choices = axis.values.iter().map(|value| (axis.flag.as_str(), value.as_str()));
            choices.map(|choice| combination.iter().copied().chain([choice]).collect()).collect::<Vec<_>>()
        };
        before.into_iter().flat_map(longer).collect()
    })
}

/// What the settings of a run are made of.
struct Planner<'a> {
    args: &'a SweepArgs,
    vocab: usize,
    /// The number of parameters where none is chosen; none for equal sizes.
    budget: Option<usize>,
}

impl<'a> Planner<'a> {
    /// A planner of models for so many words.
    fn new(args: &'a SweepArgs, vocab: usize) -> Result<Self, Failure> {
        let equal = args.equal();
        if args.parameters.is_some() && equal == Equal::Sizes {
            return Err("--parameters needs --equal parameters".into());
        }
        if args.finetune == Some(Some(0)) {
            return Err("finetune is 0, but must be at least 1".into());
        }
        let heads = args.heads();
        if let Some(other) = args.per_head.iter().find(|of| !heads.contains(&of.head)) {
            let head = other.head;
            return Err(format!("--for names the head {head}, which is not among --heads").into());
        }
        let mut named = HashSet::new();
        for of in &args.per_head {
            if let Some(axis) = of.settings.iter().find(|axis| !named.insert((of.head, &axis.flag))) {
                let (head, flag) = (of.head, &axis.flag);
                return Err(format!("--for {head} has {flag} twice: leave one of them out").into());
            }
        }
        if let Some((option, place)) = chosen_twice(args) {
            return Err(format!(
                "--set {place} and {option} choose the same, and --set has the last word: leave one of them out"
            )
            .into());
        }
        let mut planner = Self { args, vocab, budget: None };
        if equal == Equal::Parameters && args.parameters.is_none() {
            let axes = planner.axes(HeadKind::Mos);
            let first = axes.iter().map(|axis| (axis.flag.as_str(), axis.values[0].as_str()));
            let mut overrides = grid::overrides(first)?;
            overrides.given = overrides.given.and(&args.grid.set);
            planner.budget = Some(planner.base(HeadKind::Mos, &overrides).num_params());
        }
        Ok(planner)
    }

    /// The settings that were given and that a head has, its own in the place of those of all. Numbers of parameters are
    /// the last.
    fn axes(&self, head: HeadKind) -> Vec<Axis> {
        let own = || self.args.per_head.iter().filter(|of| of.head == head).flat_map(|of| &of.settings);
        let of_all = self.args.grid.axes.iter();
        let of_all = of_all.filter(|axis| own().all(|other| other.flag != axis.flag));
        let mut axes: Vec<Axis> = of_all.chain(own()).cloned().collect();
        axes.retain(|axis| missing_part(head, &axis.flag).is_none());
        if let Some(budgets) = &self.args.parameters {
            axes.push(Axis::new(PARAMETERS, budgets.0.iter().map(usize::to_string)));
        }
        axes
    }

    /// Model and procedure of chosen values, [`PARAMETERS`] among them, checked; or why no sizes meet the number of parameters.
    fn settings(&self, head: HeadKind, chosen: &[Choice]) -> Result<Result<Settings, Failure>, Failure> {
        let (budgets, chosen): (Vec<Choice>, Vec<Choice>) =
            chosen.iter().partition(|(flag, _)| *flag == PARAMETERS);
        let mut overrides = grid::overrides(chosen.into_iter())?;
        overrides.given = overrides.given.and(&self.args.grid.set);
        let budget = match budgets.first() {
            Some((_, budget)) => Some(budget.parse()?),
            None => self.budget,
        };
        let base = self.base(head, &overrides);
        base.validate()?;
        let model = match budget.map(|budget| solved(&base, &overrides, budget)) {
            None => base,
            Some(Ok(model)) => model,
            Some(Err(reason)) => return Ok(Err(reason)),
        };
        model.validate()?;
        // A rate that was chosen for training is also better for finetuning than the preset's.
        let lr = self.args.finetune_lr.or(overrides.given.value("train.lr"));
        let train = self.args.training.procedure(&overrides)?;
        let preset = self.args.training.preset();
        let finetuned = |epochs: Option<usize>| {
            let given = Given::default().with("train.lr", lr).with("train.epochs", epochs);
            finetuning(preset.name(), &train, &Overrides::of(given))
        };
        let finetuning = self.args.finetune.map(finetuned).transpose()?;
        Ok(Ok(Settings { model, train, finetuning }))
    }

    /// The model before any size is solved for.
    fn base(&self, head: HeadKind, overrides: &Overrides) -> ModelConfig {
        let mut model = self.args.training.model(head, self.vocab, overrides);
        if let (true, false, Some(last)) = (model.tied, head.has_contexts(), model.lstm_sizes.last_mut()) {
            *last = model.d_embedding;
        }
        model
    }
}

/// An option whose values, or sizes that it solves for, a setting of `--set` would replace in all runs, and the place of that setting.
fn chosen_twice(args: &SweepArgs) -> Option<(String, &str)> {
    let several = args.grid.axes.iter().filter(|axis| axis.values.len() > 1);
    let of_all = several.map(|axis| (format!("--{}", axis.flag), place(&axis.flag)));
    let of_head = args.per_head.iter().flat_map(|of| of.settings.iter().map(move |axis| (of.head, axis)));
    let of_head = of_head.map(|(head, axis)| (format!("--for {head}:{}", axis.flag), place(&axis.flag)));
    let seeds = args.seeds.iter().map(|_| ("--seeds".to_string(), "train.seed"));
    let solved_by = if args.parameters.is_some() { "--parameters" } else { "--equal parameters" };
    let solved_for: &[&'static str] = match args.equal() {
        Equal::Parameters => &["model.d_embedding", "model.lstm_sizes"],
        Equal::Sizes => &[],
    };
    let solved_for = solved_for.iter().map(|place| (solved_by.to_string(), *place));
    let mut options = of_all.chain(of_head).chain(seeds).chain(solved_for);
    options.find_map(|(option, place)| Some((option, args.grid.set.overlapping(place)?)))
}

/// The place in `config.json` of the setting that an option chooses.
fn place(flag: &str) -> &'static str {
    match flag {
        "d-embedding" => "model.d_embedding",
        "lstm" | "layers" | "last-lstm" => "model.lstm_sizes",
        "lr-decay" | "lr-decay-from" | "lr-decay-on-plateau" => "train.lr_decay",
        _ => LstmKnobs::ALL.iter().find(|knob| knob.name == flag).expect("all others are knobs").place,
    }
}

/// The model of `budget` parameters.
fn solved(base: &ModelConfig, overrides: &Overrides, budget: usize) -> Result<ModelConfig, Failure> {
    let last = if overrides.last_lstm.is_some() { LastLstm::Given } else { LastLstm::Free };
    // The width of the last LSTM is that of the embedding there.
    let one_width = base.tied && !base.head.has_contexts();
    let model = match overrides.d_embedding.is_some() || (one_width && last == LastLstm::Given) {
        true => sizes::matching_lstm(base, budget, last)?,
        false => sizes::matching(base, budget, last)?,
    };
    let (head, parameters) = (model.head, model.num_params());
    if parameters.abs_diff(budget) > budget / NEAR {
        return Err(
            format!("parameters is {budget}, but the {head} head comes no nearer than {parameters}").into()
        );
    }
    Ok(model)
}

/// A setting in the name of a folder.
fn short(flag: &str) -> &str {
    match flag {
        "d-embedding" => "d",
        "components" => "k",
        PARAMETERS => "p",
        other => other,
    }
}

/// A value in the name of a folder.
fn plain(value: &str) -> String {
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "+-.".contains(letter) { letter } else { '_' };
    value.chars().map(plain).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
