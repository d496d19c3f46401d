//! The command itself: size by size, head by head.

use burn::tensor::Device;
use plotters::prelude::SeriesLabelPosition;

use crate::args::Head;
use crate::chart::{Chart, Scale};
use crate::commands::synthetic::fits::Fits;
use crate::commands::synthetic::repeated::args::RepeatedArgs;
use crate::commands::synthetic::repeated::network::fit;
use crate::commands::synthetic::repeated::outcome::{Fit, FitSettings, Outcome};
use crate::commands::synthetic::tries::Try;
use crate::device;
use crate::failure::{Failure, Incomplete};
use crate::picture;
use crate::print::print_json;

/// Trains every head at every size, prints a table and draws loss and accuracy over the number of symbols.
///
/// # Errors
/// Bad input, a device that is missing, a folder that cannot be written; an interrupt, or the end of the time, after which the
/// pictures show what there is.
pub fn run(args: &RepeatedArgs) -> Result<(), Failure> {
    args.validate()?;
    let device = device::open(device::resolve(args.fits.device))?;
    let mut fits = Fits::new(&args.fits, args.count())?;
    if !args.fits.json {
        println!("{}", Outcome::header());
    }
    let mut outcomes = vec![];
    let made = all(args, &mut fits, &device, |outcome| {
        match args.fits.json {
            true => print_json(&outcome),
            false => println!("{}", outcome.line()),
        }
        outcomes.push(outcome);
    });
    if !args.fits.json {
        println!("{}", legend(args));
    }
    if let (Some(out), false) = (&args.fits.out, outcomes.is_empty()) {
        let mut losses = lines(args, &outcomes, |it| it.loss);
        let guessing = outcomes.iter().map(|it| (it.vocab as f64, it.guessing)).collect();
        losses.push(("even guessing, ln V".into(), ascending(guessing)));
        let accuracies = lines(args, &outcomes, |it| it.accuracy.map(|share| 100.0 * share));
        // Losses rise with the number of symbols, and accuracies fall.
        for (stem, title, lines, labels) in [
            ("repeated_loss", "loss after the first symbol, nats", losses, SeriesLabelPosition::UpperLeft),
            (
                "repeated_accuracy",
                "symbols that are predicted, %",
                accuracies,
                SeriesLabelPosition::LowerLeft,
            ),
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
    }
    made?;
    match outcomes.iter().filter(|outcome| outcome.lr.is_none()).count() {
        0 => Ok(()),
        count => Err(Incomplete(format!("{count} heads diverged at a size at every learning rate")).into()),
    }
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
fn lines(
    args: &RepeatedArgs,
    outcomes: &[Outcome],
    value: impl Fn(&Outcome) -> Option<f64>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines = vec![];
    for &d in &args.d.0 {
        for &head in &args.heads.0 {
            let of = outcomes.iter().filter(|outcome| (outcome.d, outcome.head) == (d, head));
            let points = of.filter_map(|outcome| Some((outcome.vocab as f64, value(outcome)?))).collect();
            lines.push((format!("{head}, d {d}"), ascending(points)));
        }
    }
    lines
}

/// Points from left to right, each once.
fn ascending(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup();
    points
}

fn legend(args: &RepeatedArgs) -> String {
    let mut text = "loss: mean over all symbols after the first of a sequence, in nats, whose floor is 0 and which is ln V at a guess; \
                    visits: how often a symbol was seen in training"
        .to_string();
    if args.fits.seeds.0.len() > 1 {
        text += &format!("; mean ± standard deviation over {} seeds", args.fits.seeds.0.len());
    }
    if args.lr.0.len() > 1 {
        text += "; lr: the learning rate with the lowest loss in the mean over seeds: all symbols are training data";
    }
    text
}
