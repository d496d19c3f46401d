//! The command itself: cell by cell of the grid.

use std::path::Path;

use burn::tensor::Device;

use crate::synthetic::args::SyntheticArgs;
use crate::synthetic::dirichlet::grid::{Fit, FitSettings, Grid, Outcome, Setting, contexts};
use crate::synthetic::dirichlet::heat_map::{HeatMaps, Quantity};
use crate::synthetic::dirichlet::model::fit;
use crate::synthetic::dirichlet::truth::Truth;
use crate::synthetic::fits::Fits;
use crate::synthetic::report::{Report, Reported};
use crate::synthetic::tries::{self, Try, mean_text};
use program::args::Head;
use program::device;
use program::failure::Failure;
use program::picture;

/// Runs the grid, or reads what came of it before, prints a table and draws the heat maps.
///
/// # Errors
/// Bad input, a device that is missing, a folder that cannot be written, a picture that exists already; an interrupt, or the end of
/// the time, after which the maps show what there is.
pub fn run(args: &SyntheticArgs) -> Result<(), Failure> {
    if !args.from.is_empty() {
        return Report::<Outcome>::again(&args.fits, &args.from);
    }
    let grid = Grid::new(args)?;
    Report::<Outcome>::check(&args.fits)?;
    let device = device::open(device::resolve(args.fits.device))?;
    let of_cell = grid.heads.len() * args.lr.0.len() * args.fits.seeds.0.len();
    let mut fits = Fits::new(&args.fits, grid.settings.len() * of_cell)?;
    let mut report = Report::begin(&args.fits);
    let made = grid.settings.iter().try_for_each(|&setting| {
        let cell = cell(setting, args, &grid.heads, &mut fits, &device)?;
        cell.into_iter().for_each(|outcome| report.add(outcome));
        Ok(())
    });
    report.end(made)
}

/// What every head comes to in a setting.
fn cell(
    setting: Setting,
    args: &SyntheticArgs,
    heads: &[Head],
    fits: &mut Fits,
    device: &Device,
) -> Result<Vec<Outcome>, Failure> {
    let Setting { alpha, words, d, contexts } = setting;
    let mut tries: Vec<Vec<Try<Fit>>> = vec![vec![]; heads.len()];
    for &seed in &args.fits.seeds.0 {
        // Drawn for the first fit that is not there yet, and then the same for all.
        let mut truth: Option<Truth> = None;
        for (&head, tries) in heads.iter().zip(&mut tries) {
            for &lr in &args.lr.0 {
                let of = FitSettings {
                    setting,
                    head,
                    parts: args.fits.parts(head),
                    epochs: args.epochs,
                    batch: args.batch,
                    lr,
                    seed,
                };
                let config = head.config(&args.fits.sizes(d, words));
                let result = fits.result(&of, |fits, settings| {
                    let draw = || Truth::new(alpha, words, contexts, args.batch, seed);
                    let truth = truth.get_or_insert_with(draw);
                    fit(fits, settings, &of, &config, truth, device)
                })?;
                tries.push(Try { lr, seed, result });
            }
        }
    }
    Ok(heads.iter().zip(tries).map(|(&head, tries)| Outcome::new(setting, head, tries)).collect())
}

impl Reported for Outcome {
    const COMMAND: &'static str = "synthetic";
    const PLACE: &'static str = "in a setting";
    const PICTURES: [&'static str; 2] = ["kl", "mode_match"];

    fn setting(&self) -> String {
        let Self { alpha, words, d, head, .. } = self;
        format!("{head} with alpha {alpha}, {words} words and d {d}")
    }

    fn lr(&self) -> Option<f64> {
        self.lr
    }

    fn header() -> String {
        format!(
            "{:>6} {:>6} {:>5} {:<14} {:>10} {:>6} {:>17} {:>17} {:>8}",
            "alpha", "words", "d", "head", "parameters", "lr", "KL", "mode match", "seconds"
        )
    }

    fn line(&self) -> String {
        let Self { alpha, words, d, head, parameters, lr, seconds, fits, .. } = self;
        let kl = mean_text(fits, *lr, 4, |fit| fit.kl);
        let mode_match = mean_text(fits, *lr, 4, |fit| fit.mode_match);
        let lr = lr.map_or("-".into(), |lr| lr.to_string());
        format!(
            "{alpha:>6} {words:>6} {d:>5} {head:<14} {parameters:>10} {lr:>6} {kl:>17} {mode_match:>17} {seconds:>8.1}"
        )
    }

    fn legend(outcomes: &[Self]) -> String {
        let of_fits = tries::legend(
            outcomes.iter().map(|outcome| &outcome.fits[..]),
            "training loss, which is the KL plus a constant,",
        );
        format!(
            "KL: mean over {} contexts of KL(truth || model) in nats; mode match: share of contexts whose most probable word is the true \
             one{of_fits}",
            contexts(outcomes)
        )
    }

    fn draw(outcomes: &[Self], out: &Path) -> Result<(), Failure> {
        for (quantity, stem) in [Quantity::Kl, Quantity::ModeMatch].into_iter().zip(Self::PICTURES) {
            picture::save(&HeatMaps::new(outcomes, quantity), &out.join(stem))?;
        }
        Ok(())
    }
}
