//! Which runs a sweep makes: every combination of values, of each head that has them, by every seed.

use std::collections::HashSet;

use awd_lstm::train::RunConfig;
use awd_lstm::{HeadKind, TrainConfig};
use program::device;
use program::failure::Failure;
use program::files::absolute;
use runs::Versions;
use runs::data::{Corpus, Fingerprint};

use crate::commands::sweep::args::SweepArgs;
use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::planned::{Choice, PARAMETERS, Plan, Planned, Settings, Varying};
use crate::commands::sweep::planner::Planner;

/// The most combinations of values that a sweep may have.
const MOST: usize = 10_000;

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
            let (runs, more) = of_head(&planner, head)?;
            of_heads.extend(runs.into_iter().map(|run| (head, run)));
            notes.extend(more);
        }
        let mut runs = vec![];
        for seed in args.seeds()? {
            for (head, (settings, of_run)) in &of_heads {
                let varying =
                    settings.iter().map(|(flag, value)| format!("-{}{}", short(flag), plain(value)));
                let name = format!("{head}{}-s{seed}", varying.collect::<String>());
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

/// What varies in a run of a head, and all its settings.
type Run = (Varying, Settings);

/// All different runs of a head, each with the settings that vary for this head, and what was left out.
fn of_head(planner: &Planner, head: HeadKind) -> Result<(Vec<Run>, Vec<String>), Failure> {
    let axes: Vec<Axis> = planner.axes(head).into_iter().chain(planner.budgets()).collect();
    let count = axes.iter().try_fold(1, |product: usize, axis| product.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > MOST) {
        return Err(format!("a sweep over more than {MOST} combinations of values would never end").into());
    }
    let (mut runs, mut seen, mut same, mut notes) = (vec![], HashSet::new(), 0, vec![]);
    let mut impossible = None;
    for chosen in combinations(&axes) {
        let varying: Vec<Choice> =
            chosen.iter().zip(&axes).filter(|(_, axis)| axis.is_open()).map(|(choice, _)| *choice).collect();
        let of_run: String = varying.iter().map(|(flag, value)| format!(", {flag} {value}")).collect();
        let here = |error: &Failure| Failure::from(format!("{head}{of_run}: {error}"));
        match planner.settings(head, &chosen).map_err(|error| here(&error))? {
            // Some come to one model: a single layer has no first one.
            Ok(settings) if !seen.insert(serde_json::to_string(&settings)?) => same += 1,
            Ok(settings) => {
                let varying =
                    varying.iter().map(|(flag, value)| (flag.to_string(), value.to_string())).collect();
                runs.push((varying, settings));
            }
            Err(reason) => {
                let reason = here(&reason);
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
    Ok((runs, notes))
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
