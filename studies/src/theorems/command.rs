//! The command itself: theorem by theorem.

use std::time::Instant;

use serde::Serialize;

use super::args::{Theorem, TheoremsArgs};
use super::entropy::Duality;
use super::evidence::Evidence;
use super::floor::{self, ErrorFloor};
use super::plif::PlifErrors;
use super::powers::PowerRanks;
use super::rank::{self, HeadRanks};
use super::square::SquaredRanks;
use program::failure::Failure;
use program::files::create_folder;
use program::picture;
use program::print::print_json;
use program::println;

/// Measures the theorems, prints the measurements and draws them.
///
/// # Errors
/// A folder that cannot be written, a picture that exists already, or a theorem that does not hold.
pub fn run(args: &TheoremsArgs) -> Result<(), Failure> {
    let theorems = args.only.as_ref().map_or(Theorem::ALL.to_vec(), |only| only.0.clone());
    if let Some(out) = &args.out {
        let names: Vec<String> = theorems.iter().map(|theorem| format!("{}.svg", theorem.stem())).collect();
        args.force.check_in(out, &names)?;
        create_folder(out)?;
    }
    let mut refuted = vec![];
    for theorem in theorems {
        let started = Instant::now();
        let holds = match theorem {
            Theorem::Rank => {
                show(args, theorem, started, HeadRanks::measure(&rank::Sizes::default(), args.seed)?)?
            }
            Theorem::Floor => {
                show(args, theorem, started, ErrorFloor::measure(&floor::Sizes::default(), args.seed)?)?
            }
            Theorem::Entropy => show(args, theorem, started, Duality::measure(args.seed)?)?,
            Theorem::Powers => show(args, theorem, started, PowerRanks::measure(args.seed)?)?,
            Theorem::Square => show(args, theorem, started, SquaredRanks::measure(args.seed)?)?,
            Theorem::Plif => show(args, theorem, started, PlifErrors::measure()?)?,
        };
        if !holds {
            refuted.push(theorem.name());
        }
    }
    match refuted.is_empty() {
        true => Ok(()),
        false => Err(format!("measured otherwise than proved: {}", refuted.join(", ")).into()),
    }
}

/// Prints and draws the measurements; whether they agree with the theorem.
fn show<E: Evidence>(
    args: &TheoremsArgs,
    theorem: Theorem,
    started: Instant,
    evidence: E,
) -> Result<bool, Failure> {
    #[derive(Serialize)]
    struct Line<'a, E> {
        theorem: &'static str,
        holds: bool,
        seconds: f64,
        #[serde(flatten)]
        evidence: &'a E,
    }
    let (holds, seconds) = (evidence.holds(), started.elapsed().as_secs_f64());
    if args.json {
        print_json(&Line { theorem: theorem.name(), holds, seconds, evidence: &evidence });
    } else {
        let verdict = if holds { "holds" } else { "DOES NOT HOLD" };
        println!("{}\n{verdict} ({seconds:.1} s)\n", evidence.text());
    }
    if let Some(out) = &args.out {
        picture::save(&evidence.chart(), &out.join(theorem.stem()))?;
    }
    Ok(holds)
}
