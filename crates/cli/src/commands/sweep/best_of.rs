//! The best settings of each head, trained anew.

use std::path::Path;

use awd_lstm::{HeadKind, TrainConfig};

use crate::args::Overrides;
use crate::commands::sweep::args::SweepArgs;
use crate::commands::sweep::cells::{self, Cell};
use crate::commands::sweep::grid;
use crate::commands::sweep::outcome::{Exact, Outcome};
use crate::commands::sweep::planned::{Chosen, PARAMETERS, Plan, Planned, Runs, Settings, Varying};
use crate::commands::sweep::planner::{neutralise_model, neutralise_procedure};
use crate::commands::sweep::results;
use crate::failure::Failure;
use crate::training::finetuning;

/// The settings of a head and number of parameters with the lowest validation perplexity.
struct Best<'a> {
    cell: Cell<'a>,
    /// Its mean over seeds, after finetuning if there is any.
    valid_ppl: f64,
    /// Number of settings that were tried.
    among: usize,
}

/// The runs that train the best settings in `path` anew.
///
/// # Errors
/// Results that cannot be read or were of other text, a head without any, seeds that were used to choose, settings that change a
/// model.
pub fn plan(args: &SweepArgs, make: &Runs, path: &Path) -> Result<Plan, Failure> {
    let outcomes = results::read(path)?;
    if let Some(seed) = make.seeds.iter().find(|seed| outcomes.iter().any(|outcome| outcome.seed == **seed)) {
        return Err(format!(
            "--seeds has {seed}, which the settings in `{}` were chosen with; give others",
            path.display()
        )
        .into());
    }
    let all = best(&outcomes);
    let heads = args.named_heads().unwrap_or_else(|| {
        let mut heads: Vec<HeadKind> = all.iter().map(|best| best.cell.head()).collect();
        heads.dedup();
        heads
    });
    let mut chosen = vec![];
    for head in heads {
        let before = chosen.len();
        chosen.extend(all.iter().filter(|best| best.cell.head() == head));
        if chosen.len() == before {
            return Err(format!("`{}` has no result of the head {head}", path.display()).into());
        }
    }
    let mut runs = vec![];
    for &seed in make.seeds {
        for best in &chosen {
            runs.push(run(args, make, path, best, seed)?);
        }
    }
    let mut notes: Vec<String> = vec![];
    let counts: Vec<usize> = chosen.iter().map(|best| best.among).collect();
    if counts.iter().any(|count| *count != counts[0]) {
        let counts = chosen.iter().map(|best| format!("{} of {}", best.among, best.cell.head()));
        notes.push(format!(
            "not as many settings were tried of each: {}",
            counts.collect::<Vec<_>>().join(", ")
        ));
    }
    let axes = results::axes(runs.iter().flat_map(|run| &run.settings));
    Ok(Plan { runs, axes, notes })
}

/// The best of every head and number of parameters, in the order of their first results.
fn best(outcomes: &[Outcome]) -> Vec<Best<'_>> {
    let mut all: Vec<Best> = vec![];
    for cell in Cell::all(outcomes) {
        let valid_ppl = cell.mean(cells::chosen_by).unwrap_or(f64::INFINITY);
        match all
            .iter_mut()
            .find(|best| best.cell.first().head_and_budget() == cell.first().head_and_budget())
        {
            Some(best) => {
                best.among += 1;
                if valid_ppl < best.valid_ppl {
                    (best.cell, best.valid_ppl) = (cell, valid_ppl);
                }
            }
            None => all.push(Best { cell, valid_ppl, among: 1 }),
        }
    }
    all.retain(|best| best.valid_ppl.is_finite());
    all.sort_by_key(|best| outcomes.iter().position(|outcome| outcome.head == best.cell.head()));
    all
}

/// A run with the best settings and a fresh seed.
fn run(args: &SweepArgs, make: &Runs, path: &Path, best: &Best, seed: u64) -> Result<Planned, Failure> {
    let first = best.cell.first();
    let of = |error: Failure| -> Failure { format!("{} of `{}`: {error}", first.run, path.display()).into() };
    let Some(exact) = &first.exact else {
        return Err(of("it does not say its settings, as results of earlier versions do not".into()));
    };
    if exact.corpus != make.corpus {
        return Err(of("it was trained on other text".into()));
    }
    let settings = settings(args, exact, first.setting("lr").is_some()).map_err(of)?;
    let budget = first.setting(PARAMETERS).map_or(String::new(), |budget| format!("-p{budget}"));
    let name = format!("{}{budget}-s{seed}", first.head);
    let mut planned = make.planned(name, varying(args, &first.settings), settings, seed);
    planned.config.preset.clone_from(&exact.preset);
    if args.training.device.is_none() {
        planned.config.device.clone_from(&exact.device);
    }
    planned.chosen = Some(Chosen { run: first.run.clone(), among: best.among, valid_ppl: best.valid_ppl });
    Ok(planned)
}

/// The settings that varied, those that are given in the place of the chosen ones.
fn varying(args: &SweepArgs, chosen: &Varying) -> Varying {
    let axes = &args.training.overrides.axes;
    let given = |flag: &str| axes.iter().find(|axis| axis.flag == flag).map(|axis| axis.values[0].clone());
    chosen.iter().map(|(flag, value)| (flag.clone(), given(flag).unwrap_or_else(|| value.clone()))).collect()
}

/// The chosen settings with the test at the end, and with those of the procedure that are given. `lr_chosen`: whether the learning
/// rate was among what varied.
fn settings(args: &SweepArgs, exact: &Exact, lr_chosen: bool) -> Result<Settings, Failure> {
    let axes = &args.training.overrides.axes;
    if let Some(axis) = axes.iter().find(|axis| axis.is_open()) {
        return Err(format!("--best-of takes one value of --{}", axis.flag).into());
    }
    let overrides = grid::overrides(axes.iter().map(|axis| (axis.flag.as_str(), axis.values[0].as_str())))?;
    let mut model = exact.model.clone();
    overrides.apply_to_model(&mut model);
    neutralise_model(&mut model, &exact.model);
    if model != exact.model {
        return Err("--best-of keeps the model: leave its sizes, precision and dropouts out".into());
    }
    let mut train = TrainConfig { test: true, ..exact.train.clone() };
    overrides.apply_to_procedure(&mut train)?;
    train.validate()?;
    neutralise_procedure(&mut train, model.head, &exact.train);
    let finetuning = match (&args.finetune, &exact.finetuning) {
        (Some(epochs), _) => {
            // As in a sweep: a rate that was chosen is better than the preset's.
            let of_trial = exact.finetuning.as_ref().map(|train| train.lr);
            let lr = args.finetune_lr.or(of_trial).or(lr_chosen.then_some(train.lr));
            let overrides = Overrides { lr, epochs: *epochs, ..Overrides::default() };
            Some(finetuning(&exact.preset, &train, &overrides)?)
        }
        (None, Some(of_trial)) => Some(TrainConfig { test: train.test, ..of_trial.clone() }),
        (None, None) => None,
    };
    Ok(Settings { model, train, finetuning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::table::tests::outcome;

    #[test]
    fn the_best_is_that_of_the_lowest_validation_perplexity() {
        let mut outcomes = [
            outcome(HeadKind::Mos, &[("lr", "5")], 1, 12.0),
            outcome(HeadKind::Mos, &[("lr", "5")], 2, 10.0),
            outcome(HeadKind::Mos, &[("lr", "6")], 1, 10.5),
            outcome(HeadKind::Mos, &[("lr", "6")], 2, 10.5),
            outcome(HeadKind::Mos, &[("lr", "7")], 1, 8.0),
            outcome(HeadKind::Mos, &[("lr", "7")], 2, 8.0),
            outcome(HeadKind::Softmax, &[("lr", "5")], 1, 20.0),
        ];
        // One of its seeds failed; the test text has no say.
        outcomes[5].trained = None;
        outcomes[0].trained.as_mut().unwrap().test_ppl = Some(1.0);
        let all = best(&outcomes);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].cell.first().setting("lr"), all[0].valid_ppl, all[0].among), (Some("6"), 11.5, 3));
        assert_eq!((all[1].cell.head(), all[1].among), (HeadKind::Softmax, 1));
        // What finetuning reached counts.
        outcomes[0].finetuned = outcomes[4].trained.clone();
        outcomes[1].finetuned = outcomes[4].trained.clone();
        assert_eq!(best(&outcomes)[0].cell.first().setting("lr"), Some("5"));
    }

    #[test]
    fn each_number_of_parameters_has_its_best() {
        let of =
            |budget: &str, lr: &str, ppl| outcome(HeadKind::Mos, &[("lr", lr), (PARAMETERS, budget)], 1, ppl);
        let outcomes = [of("10", "5", 9.0), of("20", "5", 7.0), of("10", "6", 8.0), of("20", "6", 8.0)];
        let all = best(&outcomes);
        let chosen: Vec<_> = all.iter().map(|best| best.cell.first().setting("lr").unwrap()).collect();
        assert_eq!(chosen, ["6", "5"]);
    }
}
