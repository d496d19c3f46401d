//! Which runs a sweep makes.

use std::collections::HashSet;

use awd_lstm::HeadKind;
use runs::data::Corpus;
use runs::data::Fingerprint;

use crate::commands::sweep::args::SweepArgs;
use crate::commands::sweep::best_of;
use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::planned::{Choice, PARAMETERS, Plan, Planned, Runs, Settings, Varying, at};
use crate::commands::sweep::planner::{Cell, Planner};
use crate::commands::sweep::{results, trials};
use crate::device;
use crate::failure::Failure;
use crate::files::absolute;

/// The most combinations of values that a sweep may have.
const MOST: usize = 10_000;

impl Plan {
    /// The plan that the arguments ask for, with all sizes solved for.
    ///
    /// # Errors
    /// Settings out of range or that do not go together, a number of parameters that a head cannot meet, more runs than are
    /// sensible.
    pub fn new(args: &SweepArgs, corpus: &Corpus) -> Result<Self, Failure> {
        let (heads, seeds) = (args.heads(), args.seeds()?);
        let make = Runs {
            heads: &heads,
            seeds: &seeds,
            corpus: Fingerprint::of(corpus),
            preset: args.training.preset().to_string(),
            device: device::resolve(args.training.device()).to_string(),
            data: absolute(args.data()?),
            text: args.text()?,
            tokens: args.training.tokens.remembered(),
        };
        if let Some(path) = &args.best_of {
            return best_of::plan(args, &make, path);
        }
        let planner = Planner::new(args, corpus.vocabulary().len())?;
        let all = || heads.iter().flat_map(|&head| planner.axes(head));
        let (runs, notes) = match args.trials {
            Some(0) => return Err("trials is 0, but must be at least 1".into()),
            Some(count) => {
                if all().any(|axis| axis.flag == "no-test" && axis.values.iter().any(|value| value != "true"))
                {
                    return Err("trials never score the test text: leave --no-test=false out".into());
                }
                trials::runs(&planner, &make, count, args.trial_seed)?
            }
            None => {
                if let Some(axis) = all().find(|axis| axis.range.is_some()) {
                    return Err(format!("--{} is a range, which needs --trials N", axis.flag).into());
                }
                grid(&planner, &make)?
            }
        };
        let axes = results::axes(runs.iter().flat_map(|run| &run.settings));
        Ok(Self { runs, axes, notes })
    }
}

/// Every combination of values, the runs of the first seed first, and what was left out.
fn grid(planner: &Planner, make: &Runs) -> Result<(Vec<Planned>, Vec<String>), Failure> {
    let (mut of_heads, mut notes) = (vec![], vec![]);
    for &head in make.heads {
        let (runs, more) = of_head(planner, head)?;
        of_heads.push((head, runs));
        notes.extend(more);
    }
    let mut runs = vec![];
    for &seed in make.seeds {
        for (head, of_head) in &of_heads {
            for (settings, of_run) in of_head {
                let varying =
                    settings.iter().map(|(flag, value)| format!("-{}{}", short(flag), plain(value)));
                let name = format!("{head}{}-s{seed}", varying.collect::<String>());
                runs.push(make.planned(name, settings.clone(), of_run.clone(), seed));
            }
        }
    }
    Ok((runs, notes))
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
    let combinations = combinations(&axes);
    let chosen = |combination: &[usize]| -> Vec<Choice> {
        let values = axes.iter().zip(combination);
        values.map(|(axis, &index)| (axis.flag.as_str(), axis.values[index].as_str())).collect()
    };
    let open = |combination: &[usize]| -> Vec<Choice> {
        let all = chosen(combination).into_iter().zip(&axes);
        all.filter(|(_, axis)| axis.is_open()).map(|(choice, _)| choice).collect()
    };
    let (mut all, mut impossible) = (vec![], vec![]);
    for combination in &combinations {
        let cell = planner.cell(head, &chosen(combination));
        match cell.map_err(|error| at(head, open(combination).into_iter(), &error))? {
            Cell::Possible(settings) => all.push(Some(*settings)),
            Cell::Impossible(reason) => {
                impossible.push((combination, reason));
                all.push(None);
            }
        }
    }
    let varies = varies(&axes, &combinations, &all);
    let mut notes: Vec<String> = vec![];
    for (combination, reason) in impossible {
        let varying = chosen(combination).into_iter().zip(&varies);
        let varying = varying.filter(|(_, varies)| **varies).map(|(choice, _)| choice);
        let reason = at(head, varying, &reason.into());
        if all.iter().all(Option::is_none) {
            return Err(reason);
        }
        let note = format!("left out: {reason}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let (mut seen, mut runs, mut same) = ((HashSet::new(), HashSet::new()), vec![], 0);
    for (combination, settings) in combinations.iter().zip(all) {
        let Some(settings) = settings else { continue };
        let varying: Varying = (0..axes.len())
            .filter(|&axis| varies[axis])
            .map(|axis| (axes[axis].flag.clone(), axes[axis].values[combination[axis]].clone()))
            .collect();
        // Combinations that differ in what the head does not have are one run.
        if !seen.0.insert(varying.clone()) {
            continue;
        }
        // So are those that come to the same model: a single layer has no first one.
        match seen.1.insert(settings.key()) {
            true => runs.push((varying, settings)),
            false => same += 1,
        }
    }
    if same > 0 {
        notes.push(format!("left out: {head}, {same} combinations that come to the same model as another"));
    }
    Ok((runs, notes))
}

/// Every combination of values, as their numbers, the last axis fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![vec![]], |before, axis| {
        let longer = |combination: Vec<usize>| {
            (0..axis.values.len()).map(move |index| combination.iter().copied().chain([index]).collect())
        };
        before.into_iter().flat_map(longer).collect()
    })
}

/// Which axes make a difference to any of their combinations.
fn varies(axes: &[Axis], combinations: &[Vec<usize>], all: &[Option<Settings>]) -> Vec<bool> {
    // How far apart in `all` two combinations are whose values of an axis are neighbours.
    let stride = |axis: usize| -> usize { axes[axis + 1..].iter().map(|axis| axis.values.len()).product() };
    let varies = |axis: usize| {
        let stride = stride(axis);
        let changes = |(index, combination): (usize, &Vec<usize>)| {
            combination[axis] > 0 && all[index] != all[index - stride]
        };
        combinations.iter().enumerate().any(changes)
    };
    (0..axes.len()).map(varies).collect()
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
