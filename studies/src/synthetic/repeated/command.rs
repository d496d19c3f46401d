//! The command itself: size by size, head by head.

use std::path::Path;

use burn::tensor::Device;
use plotters::prelude::SeriesLabelPosition;

use crate::synthetic::fits::Fits;
use crate::synthetic::repeated::args::RepeatedArgs;
use crate::synthetic::repeated::network::fit;
use crate::synthetic::repeated::outcome::{Fit, FitSettings, Outcome};
use crate::synthetic::report::{Report, Reported, distinct};
use crate::synthetic::tries::{self, Try, mean_text};
use program::args::Head;
use program::chart::{Chart, Scale};
use program::device;
use program::failure::Failure;
use program::picture;
use program::statistics::grouped;

/// Trains every head at every size, or reads what came of it before, prints a table and draws loss and accuracy over the number of
/// symbols.
///
/// # Errors
/// Bad input, a device that is missing, a folder that cannot be written, a picture that exists already; an interrupt, or the end of
/// the time, after which the pictures show what there is.
pub fn run(args: &RepeatedArgs) -> Result<(), Failure> {
    if !args.from.is_empty() {
        return Report::<Outcome>::again(&args.fits, &args.from);
    }
    args.validate()?;
    Report::<Outcome>::check(&args.fits)?;
    let device = device::open(device::resolve(args.fits.device))?;
    let mut fits = Fits::new(&args.fits, args.count())?;
    let mut report = Report::begin(&args.fits);
    let sizes = args.vocab.0.iter().flat_map(|&vocab| args.d.0.iter().map(move |&d| (vocab, d)));
    let mut all = sizes.flat_map(|(vocab, d)| args.heads.0.iter().map(move |&head| (vocab, d, head)));
    let made = all.try_for_each(|of| {
        report.add(Outcome::new(args, of, tries(args, of, &mut fits, &device)?));
        Ok(())
    });
    report.end(made)
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

impl Reported for Outcome {
    const COMMAND: &'static str = "synthetic repeated";
    const PLACE: &'static str = "at a size";
    const PICTURES: [&'static str; 2] = ["repeated_loss", "repeated_accuracy"];

    fn setting(&self) -> String {
        let Self { vocab, d, head, .. } = self;
        format!("{head} with {vocab} symbols and d {d}")
    }

    fn lr(&self) -> Option<f64> {
        self.lr
    }

    fn header() -> String {
        format!(
            "{:>8} {:>5} {:<14} {:>11} {:>8} {:>7} {:>17} {:>7} {:>17} {:>8}",
            "symbols", "d", "head", "parameters", "visits", "lr", "loss", "ln V", "accuracy, %", "seconds"
        )
    }

    fn line(&self) -> String {
        let Self { vocab, d, head, parameters, visits, lr, guessing, seconds, fits, .. } = self;
        let loss = mean_text(fits, *lr, 4, |fit| fit.loss);
        let accuracy = mean_text(fits, *lr, 2, |fit| fit.accuracy.map(|share| 100.0 * share));
        let (vocab, parameters) = (grouped(*vocab), grouped(*parameters));
        let lr = lr.map_or("-".into(), |lr| lr.to_string());
        format!(
            "{vocab:>8} {d:>5} {head:<14} {parameters:>11} {visits:>8.1} {lr:>7} {loss:>17} {guessing:>7.3} {accuracy:>17} {seconds:>8.1}"
        )
    }

    fn legend(outcomes: &[Self]) -> String {
        let of_fits = tries::legend(outcomes.iter().map(|outcome| &outcome.fits[..]), "loss");
        format!(
            "loss: mean over all symbols, which all are training data, after the first of a sequence, in nats, whose floor is 0 and which is \
             ln V at a guess; visits: how often a symbol was seen in training{of_fits}"
        )
    }

    fn draw(outcomes: &[Self], out: &Path) -> Result<(), Failure> {
        let mut losses = lines(outcomes, |it| it.loss);
        let guessing = outcomes.iter().map(|it| (it.vocab as f64, it.guessing)).collect();
        losses.push(("even guessing, ln V".into(), ascending(guessing)));
        let accuracies = lines(outcomes, |it| it.accuracy.map(|share| 100.0 * share));
        let [of_loss, of_accuracy] = Self::PICTURES;
        // Losses rise with the number of symbols, and accuracies fall.
        for (stem, title, lines, labels) in [
            (of_loss, "loss after the first symbol, nats", losses, SeriesLabelPosition::UpperLeft),
            (of_accuracy, "symbols that are predicted, %", accuracies, SeriesLabelPosition::LowerLeft),
        ] {
            let picture = Chart {
                caption: "Sequences that repeat one symbol".into(),
                x: ("number of symbols V", Scale::Logarithmic),
                y: (title, Scale::Linear),
                lines,
                labels: Some(labels),
            };
            picture::save(&picture, &out.join(stem))?;
        }
        Ok(())
    }
}
