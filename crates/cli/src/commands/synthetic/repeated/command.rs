//! The command itself: size by size, head by head.

use std::path::Path;

use burn::tensor::Device;
use plotters::prelude::SeriesLabelPosition;

use crate::args::Head;
use crate::chart::{Chart, Scale};
use crate::commands::synthetic::fits::Fits;
use crate::commands::synthetic::found::{self, distinct};
use crate::commands::synthetic::repeated::args::RepeatedArgs;
use crate::commands::synthetic::repeated::network::fit;
use crate::commands::synthetic::repeated::outcome::{Fit, FitSettings, Outcome};
use crate::commands::synthetic::tries::{self, Try};
use crate::device;
use crate::failure::{Failure, Incomplete};
use crate::picture;
use crate::print::print_json;

/// Trains every head at every size, or reads what came of it before, prints a table and draws loss and accuracy over the number of
/// symbols.
///
/// # Errors
/// Bad input, a device that is missing, a folder that cannot be written; an interrupt, or the end of the time, after which the
/// pictures show what there is.
pub fn run(args: &RepeatedArgs) -> Result<(), Failure> {
    let mut outcomes = vec![];
    let mut done = |outcome: Outcome| {
        match args.fits.json {
            true => print_json(&outcome),
            false => println!("{}", outcome.line()),
        }
        outcomes.push(outcome);
    };
    let header = || {
        if !args.fits.json {
            println!("{}", Outcome::header());
        }
    };
    let made = match args.from.is_empty() {
        true => {
            args.validate()?;
            let device = device::open(device::resolve(args.fits.device))?;
            let mut fits = Fits::new(&args.fits, args.count())?;
            header();
            all(args, &mut fits, &device, done)
        }
        false => {
            let found = found::read(&args.from, &args.fits, "synthetic repeated", Outcome::setting)?;
            header();
            found.into_iter().for_each(&mut done);
            Ok(())
        }
    };
    if !outcomes.is_empty() {
        if !args.fits.json {
            println!("{}", legend(&outcomes));
        }
        if let Some(out) = &args.fits.out {
            draw(&outcomes, out)?;
        }
    }
    made?;
    match outcomes.iter().filter(|outcome| outcome.lr.is_none()).count() {
        0 => Ok(()),
        count => Err(Incomplete(format!("{count} heads diverged at a size at every learning rate")).into()),
    }
}

/// Loss and accuracy over the number of symbols.
///
/// # Errors
/// A file that cannot be written.
fn draw(outcomes: &[Outcome], out: &Path) -> Result<(), Failure> {
    let mut losses = lines(outcomes, |it| it.loss);
    let guessing = outcomes.iter().map(|it| (it.vocab as f64, it.guessing)).collect();
    losses.push(("even guessing, ln V".into(), ascending(guessing)));
    let accuracies = lines(outcomes, |it| it.accuracy.map(|share| 100.0 * share));
    // Losses rise with the number of symbols, and accuracies fall.
    for (stem, title, lines, labels) in [
        ("repeated_loss", "loss after the first symbol, nats", losses, SeriesLabelPosition::UpperLeft),
        ("repeated_accuracy", "symbols that are predicted, %", accuracies, SeriesLabelPosition::LowerLeft),
    ] {
        let picture = Chart {
            caption: "Sequences that repeat one symbol".into(),
            x: ("number of symbols V", Scale::Logarithmic),
            y: (title, Scale::Linear),
            lines,
            labels,
        };
        picture::save(&picture, &out.join(stem))?;
    }
    Ok(())
}

/// Fits everything and hands over the outcome of each head at each size as soon as it is there.
fn all(
    args: &RepeatedArgs,
    fits: &mut Fits,
    device: &Device,
    mut done: impl FnMut(Outcome),
) -> Result<(), Failure> {
    for &vocab in &args.vocab.0 {
        for &d in &args.d.0 {
            for &head in &args.heads.0 {
                let tries = tries(args, (vocab, d, head), fits, device)?;
                done(Outcome::new(args, (vocab, d, head), tries));
            }
        }
    }
    Ok(())
}

/// The fits of a head at a size.
fn tries(
    args: &RepeatedArgs,
    (vocab, d, head): (usize, usize, Head),
    fits: &mut Fits,
    device: &Device,
) -> Result<Vec<Try<Fit>>, Failure> {
    let mut tries = vec![];
    for &lr in &args.lr.0 {
        for &seed in &args.fits.seeds.0 {
            let of = FitSettings {
                experiment: "repeated",
                vocab,
                d,
                head,
                parts: args.fits.parts(head),
                steps: args.steps(vocab),
                batch: args.batch,
                lr,
                seed,
            };
            let config = head.config(&args.fits.sizes(d, vocab));
            let result = fits.result(&of, |fits, settings| fit(fits, settings, &of, &config, device))?;
            tries.push(Try { lr, seed, result });
        }
    }
    Ok(tries)
}

/// A line for each head and width.
fn lines(outcomes: &[Outcome], value: impl Fn(&Outcome) -> Option<f64>) -> Vec<(String, Vec<(f64, f64)>)> {
    let line = |(d, head): (usize, Head)| {
        let of = outcomes.iter().filter(|outcome| (outcome.d, outcome.head) == (d, head));
        let points = of.filter_map(|outcome| Some((outcome.vocab as f64, value(outcome)?))).collect();
        (format!("{head}, d {d}"), ascending(points))
    };
    distinct(outcomes.iter().map(|outcome| (outcome.d, outcome.head))).into_iter().map(line).collect()
}

/// Points from left to right, each once.
fn ascending(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup();
    points
}

fn legend(outcomes: &[Outcome]) -> String {
    let of_fits = tries::legend(outcomes.iter().map(|outcome| &outcome.fits[..]), "loss");
    format!(
        "loss: mean over all symbols, which all are training data, after the first of a sequence, in nats, whose floor is 0 and which is \
         ln V at a guess; visits: how often a symbol was seen in training{of_fits}"
    )
}
