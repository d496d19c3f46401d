//! The command itself: one run after the other, and what there is of table and pictures after each.

use crate::commands::sweep::args::SweepArgs;
use crate::commands::sweep::plan::Plan;
use crate::commands::sweep::rank::Ranks;
use crate::commands::sweep::stages::{Reached, Stages};
use crate::commands::sweep::{found, listing, table};
use crate::failure::{Failure, Incomplete};
use crate::files::create_folder;
use crate::print::{print_json, print_note};
use crate::statistics::grouped;
use crate::training::Output;

/// Trains all runs, or what is left of them, and writes results, table and pictures.
///
/// # Errors
/// Bad input, a number of parameters that a head cannot meet, runs of other settings in the folder, or what goes wrong in
/// training. Runs whose loss is not finite are left out, and end in [`Incomplete`].
pub fn run(args: &SweepArgs, program: &'static str) -> Result<(), Failure> {
    let output = Output::new(program, false, &args.training.record)?;
    let (tokens, text) = (&args.training.tokens, args.training.text());
    let corpus =
        if args.dry_run { tokens.look(&args.data, &text)? } else { tokens.load(&args.data, &text)? };
    let plan = Plan::new(args, &corpus)?;
    let ranks = args.rank.map(|contexts| Ranks::new(&corpus, contexts)).transpose()?;
    // Runs of other settings are found before any time is spent.
    let folders = found::folders(&plan, &args.out)?;
    if args.dry_run {
        return listing::print(plan.runs.iter().zip(folders.iter().map(|path| path.as_path())), args.json);
    }
    let stages = Stages { corpus: &corpus, output: &output, ranks };
    let (count, mut outcomes) = (plan.runs.len(), vec![]);
    for (index, (planned, folder)) in plan.runs.iter().zip(&folders).enumerate() {
        let parameters = grouped(planned.config.model.num_params());
        print_note(format_args!("run {} of {count}: {}, {parameters} parameters", index + 1, planned.name));
        let Reached { outcome, new } = stages.finish(planned, folder)?;
        if let Some(reason) = &outcome.failed {
            print_note(format_args!("{} failed: {reason}", outcome.run));
        }
        if args.json {
            print_json(&outcome);
        }
        outcomes.push(outcome);
        if new || index + 1 == count {
            create_folder(&args.out)?;
            table::save(&outcomes, &plan.axes, &args.out)?;
        }
    }
    if !args.json {
        print!("{}", table::table(&outcomes, &plan.axes));
    }
    match outcomes.iter().filter(|outcome| outcome.failed.is_some()).count() {
        0 => Ok(()),
        failed => Err(Incomplete(format!(
            "{failed} of {count} runs failed; delete a run's folder in `{}` to train it again",
            args.out.display()
        ))
        .into()),
    }
}
