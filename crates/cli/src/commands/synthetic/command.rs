//! The command itself: cell by cell of the grid.

use std::time::Instant;

use crate::commands::synthetic::args::SyntheticArgs;
use crate::commands::synthetic::fit::{Procedure, train};
use crate::commands::synthetic::grid::{Grid, Outcome, Setting};
use crate::commands::synthetic::heat_map::{HeatMaps, Quantity};
use crate::device;
use crate::failure::Failure;
use crate::files::create_folder;
use crate::picture;
use crate::print::print_json;

/// Runs the grid, prints a table and draws the heat maps.
///
/// # Errors
/// Bad input, a device that is missing, a training that diverges.
pub fn run(args: &SyntheticArgs) -> Result<(), Failure> {
    let grid = Grid::new(args)?;
    if let Some(out) = &args.out {
        create_folder(out)?;
    }
    let device = device::open(device::resolve(args.device))?;
    let procedure = Procedure {
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        components: args.components,
        knots: args.knots,
        units: args.units,
        seed: args.seed,
    };
    if !args.json {
        println!(
            "{:>6} {:>6} {:>5} {:<14} {:>10} {:>8} {:>11} {:>8}",
            "alpha", "words", "d", "head", "parameters", "KL", "mode match", "seconds"
        );
    }
    let mut outcomes = vec![];
    for setting in grid.settings() {
        let Setting { alpha, words, d, contexts } = setting;
        for &head in &grid.heads {
            let start = Instant::now();
            let fit = train(setting, head, procedure, &device)
                .map_err(|error| format!("{head}, alpha {alpha}, {words} words, d {d}: {error}"))?;
            let outcome = Outcome {
                alpha,
                words,
                d,
                head,
                contexts,
                parameters: fit.parameters,
                kl: fit.kl,
                mode_match: fit.mode_match,
                seconds: start.elapsed().as_secs_f64(),
            };
            print(&outcome, args.json);
            outcomes.push(outcome);
        }
    }
    if !args.json {
        println!(
            "KL: mean over {} contexts of KL(truth || model) in nats; mode match: share of contexts whose most \
             probable word is the true one",
            grid.contexts
        );
    }
    let Some(out) = &args.out else { return Ok(()) };
    for (quantity, stem) in [(Quantity::Kl, "kl"), (Quantity::ModeMatch, "mode_match")] {
        picture::save(&HeatMaps { grid: &grid, outcomes: &outcomes, quantity }, &out.join(stem))?;
    }
    Ok(())
}

fn print(outcome: &Outcome, json: bool) {
    if json {
        return print_json(outcome);
    }
    let Outcome { alpha, words, d, head, parameters, kl, mode_match, seconds, .. } = outcome;
    println!(
        "{alpha:>6} {words:>6} {d:>5} {head:<14} {parameters:>10} {kl:>8.4} {mode_match:>11.4} {seconds:>8.1}"
    );
}
