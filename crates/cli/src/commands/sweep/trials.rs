//! Random search: settings drawn for every head.

use std::collections::HashSet;

use awd_lstm::HeadKind;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::mix_seed;

use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::planned::{Choice, PARAMETERS, Planned, Runs, Settings, Varying, at};
use crate::commands::sweep::planner::{Cell, Planner};
use crate::failure::Failure;

/// Draws for one trial, before it is said that there are no more different ones.
const DRAWS: usize = 50;
/// Draws that tell whether a setting makes a difference to a head.
const PROBES: u64 = 8;

/// A trial before it has a name.
struct Trial {
    varying: Varying,
    settings: Settings,
}

/// So many trials for every head and number of parameters, in the order of their numbers: the first of all heads first.
///
/// # Errors
/// Settings out of range, or a head for which no draw meets the number of parameters.
pub fn runs(
    planner: &Planner,
    make: &Runs,
    count: usize,
    seed: u64,
) -> Result<(Vec<Planned>, Vec<String>), Failure> {
    let (mut all, mut notes) = (vec![], vec![]);
    let budgets: Vec<Option<String>> = match planner.budgets() {
        Some(axis) => axis.values.into_iter().map(Some).collect(),
        None => vec![None],
    };
    for &head in make.heads {
        for budget in &budgets {
            let (axes, budget) = (planner.axes(head), budget.as_deref());
            let search = Search { planner, head, axes, budget, several: budgets.len() > 1, seed };
            let (trials, more) = search.trials(count)?;
            notes.extend(more);
            all.push((head, budget.filter(|_| search.several), trials));
        }
    }
    let mut runs = vec![];
    for number in 1..=count {
        for (head, budget, trials) in &all {
            let Some(Trial { varying, settings }) = trials.get(number - 1) else { continue };
            let budget = budget.map_or(String::new(), |budget| format!("-p{budget}"));
            for &seed in make.seeds {
                let name = format!("{head}{budget}-t{number}-s{seed}");
                let run = make.planned(name, varying.clone(), settings.clone(), seed);
                runs.push(Planned { trial: Some(number), ..run });
            }
        }
    }
    Ok((runs, notes))
}

/// The search for one head.
struct Search<'a> {
    planner: &'a Planner<'a>,
    head: HeadKind,
    axes: Vec<Axis>,
    budget: Option<&'a str>,
    /// Whether there are other numbers of parameters.
    several: bool,
    seed: u64,
}

impl Search<'_> {
    /// So many different trials, if there are as many, and what there is to say of them.
    fn trials(&self, count: usize) -> Result<(Vec<Trial>, Vec<String>), Failure> {
        let (mut trials, mut seen, mut impossible): (Vec<Trial>, _, Vec<String>) =
            (vec![], HashSet::new(), vec![]);
        let varies = self.varies()?;
        let mut index = 0;
        while trials.len() < count && index < (count * DRAWS) as u64 {
            let drawn = self.draw(index);
            index += 1;
            match self.cell(&drawn)? {
                Cell::Impossible(reason) => impossible.push(reason),
                Cell::Possible(settings) => {
                    if seen.insert(settings.key()) {
                        let varying = self.varying(&drawn, &varies);
                        trials.push(Trial { varying, settings: *settings });
                    }
                }
            }
        }
        let of = match self.budget {
            Some(budget) => format!("{} of {budget} parameters", self.head),
            None => self.head.to_string(),
        };
        let mut notes = vec![];
        if let Some(reason) = impossible.first() {
            if trials.is_empty() {
                return Err(format!("{of}: no draw is possible: {reason}").into());
            }
            notes.push(format!("{of}: {} draws left out, the first: {reason}", impossible.len()));
        }
        if trials.len() < count {
            notes.push(format!("{of}: there are no more than {} different settings to try", trials.len()));
        }
        Ok((trials, notes))
    }

    /// Values of a draw, in the order of the axes.
    ///
    /// A value depends on seed, setting and number alone: other settings, heads or numbers of trials do not change it, and all
    /// heads draw the same ones.
    fn draw(&self, index: u64) -> Vec<String> {
        let value = |axis: &Axis| {
            let name = axis.flag.bytes().fold(0, |mixed, byte| mix_seed(mixed, byte.into(), 0));
            let mut rng = Pcg64Mcg::seed_from_u64(mix_seed(self.seed, name, index));
            match &axis.range {
                Some(range) => range.draw(&mut rng),
                None => axis.values[rng.random_range(0..axis.values.len())].clone(),
            }
        };
        self.axes.iter().map(value).collect()
    }

    fn cell(&self, drawn: &[String]) -> Result<Cell, Failure> {
        let settings = self.axes.iter().zip(drawn).map(|(axis, value)| (axis.flag.as_str(), value.as_str()));
        let budget = self.budget.map(|budget| (PARAMETERS, budget));
        let chosen: Vec<Choice> = settings.chain(budget).collect();
        let open = self.axes.iter().zip(drawn).filter(|(axis, _)| axis.is_open());
        let open = open.map(|(axis, value)| (axis.flag.as_str(), value.as_str())).chain(budget);
        self.planner.cell(self.head, &chosen).map_err(|error| at(self.head, open, &error))
    }

    /// Which settings make a difference to the head: for one of the first draws, another value of the setting does.
    fn varies(&self) -> Result<Vec<bool>, Failure> {
        let mut varies = vec![false; self.axes.len()];
        for index in 0..PROBES {
            let (drawn, next) = (self.draw(index), self.draw(index + 1));
            let cell = self.cell(&drawn)?;
            for (axis, varies) in varies.iter_mut().enumerate().filter(|(_, varies)| !**varies) {
                let mut other = drawn.clone();
                other[axis].clone_from(&next[axis]);
                *varies = other != drawn && self.cell(&other)? != cell;
            }
        }
        Ok(varies)
    }

    fn varying(&self, drawn: &[String], varies: &[bool]) -> Varying {
        let settings = self.axes.iter().zip(drawn).zip(varies).filter(|(_, varies)| **varies);
        let budget = self.budget.filter(|_| self.several);
        let budget = budget.map(|budget| (PARAMETERS.to_string(), budget.to_string()));
        settings.map(|((axis, value), _)| (axis.flag.clone(), value.clone())).chain(budget).collect()
    }
}
