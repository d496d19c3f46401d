//! `curves`: validation perplexities of several runs in one picture.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use awd_lstm::train::RunFolder;
use clap::Args;
use program::chart::perplexities;
use program::failure::Failure;
use program::files::{Force, absolute, create_folder, last_part};
use program::picture;
use program::print::{print_json, print_note, shown};
use program::statistics::decimal;
use runs::text::line_fault;
use runs::{Error, HASHES, METRICS, kind_of_run};
use serde::{Deserialize, Serialize};

use crate::training::Record;

/// Options of `curves`.
#[derive(Debug, Clone, Args)]
pub struct CurvesArgs {
    /// Folder of a run, of `train` or of the transformer; several may be given.
    #[arg(long = "run", value_name = "RUN", required = true, num_args = 1..)]
    pub runs: Vec<PathBuf>,
    /// Folder for `curves.svg`.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Whether files are replaced.
    #[command(flatten)]
    pub force: Force,
    /// One JSON object a run on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// A line of a run's [`METRICS`]. The line of a finished run has neither epoch nor step.
#[derive(Debug, Deserialize)]
struct Metrics {
    epoch: Option<f64>,
    step: Option<f64>,
    /// Steps of the epoch, if the text was validated within it.
    steps: Option<f64>,
    valid_ppl: Option<f64>,
    /// On the last line.
    best_epoch: Option<f64>,
}

/// A run's validation perplexities.
#[derive(Debug, Serialize)]
struct Curve {
    run: String,
    /// What training is measured by: epoch or step.
    axis: &'static str,
    best_valid_ppl: f64,
    /// Epoch or step, and the perplexity after it.
    points: Vec<(f64, f64)>,
}

/// Draws the validation perplexities of runs in one picture.
pub fn run(args: &CurvesArgs) -> Result<(), Failure> {
    args.force.check_in(&args.out, &["curves.svg"])?;
    let (mut paths, mut seen) = (vec![], HashSet::new());
    for path in &args.runs {
        match seen.insert(absolute(path)) {
            true => paths.push(path.as_path()),
            false => print_note(format_args!("left out: `{}` is given twice", path.display())),
        }
    }
    let mut curves = vec![];
    for path in &paths {
        let mut curve = Curve::read(path)?;
        // What two have in common tells neither.
        if paths.iter().filter(|other| last_part(other) == curve.run).count() > 1 {
            curve.run = path.display().to_string();
        }
        curves.push(curve);
    }
    if let Some(other) = curves.iter().find(|curve| curve.axis != curves[0].axis) {
        let first = &curves[0];
        return Err(format!(
            "`{}` is measured by {} and `{}` by {}: draw them apart",
            first.run, first.axis, other.run, other.axis
        )
        .into());
    }
    create_folder(&args.out)?;
    let line = |curve: &Curve| {
        (format!("{}, best {}", curve.run, decimal(curve.best_valid_ppl, 1)), curve.points.clone())
    };
    let lines = curves.iter().map(line).collect();
    let chart = perplexities("Validation perplexity".into(), curves[0].axis, lines);
    picture::save(&chart, &args.out.join("curves"))?;
    for curve in &curves {
        match args.json {
            true => print_json(curve),
            false => {
                let best = decimal(curve.best_valid_ppl, 2);
                println!("{:<24} best validation perplexity {best}", shown(&curve.run));
            }
        }
    }
    if !args.json {
        println!("wrote {}", args.out.join("curves.svg").display());
    }
    Ok(())
}

impl Curve {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(METRICS);
        let nothing = format!("run `{}` has no finished epoch to draw", folder.display());
        // A folder without hashes has lines from elsewhere.
        let text = if folder.join(HASHES).is_file() {
            // What was changed is refused, as wherever a run is read.
            kind_of_run(folder)?;
            RunFolder::open(folder)?.metrics()?
        } else if path.is_file() {
            fs::read_to_string(&path).map_err(Error::io("read", &path))?
        } else if Record::exists(folder) {
            return Err(nothing.into());
        } else {
            return Err(Error::NotARun { path: folder.to_path_buf(), missing: METRICS }.into());
        };
        let (mut axis, mut points, mut given) = ("epoch", vec![], f64::INFINITY);
        for (number, line) in text.lines().enumerate() {
            let metrics: Metrics = serde_json::from_str(line).map_err(|error| Error::Damaged {
                path: path.clone(),
                reason: format!("line {}: {}", number + 1, line_fault(&error)),
            })?;
            let Some(ppl) = metrics.valid_ppl else { continue };
            match (metrics.epoch, metrics.step) {
                (Some(epoch), None) => points.push((epoch, ppl)),
                (Some(epoch), Some(step)) => {
                    points.push((epoch - 1.0 + step / metrics.steps.unwrap_or(step), ppl));
                }
                (None, Some(step)) => {
                    axis = "step";
                    points.push((step, ppl));
                }
                // The model that training started from was the best one.
                (None, None) if metrics.best_epoch == Some(0.0) => given = ppl,
                (None, None) => {}
            }
        }
        if points.is_empty() {
            return Err(nothing.into());
        }
        let best_valid_ppl = points.iter().map(|point| point.1).fold(given, f64::min);
        Ok(Self { run: last_part(folder), axis, best_valid_ppl, points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(lines: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        folder
    }

    fn args(runs: &[&Path], out: &Path) -> CurvesArgs {
        CurvesArgs {
            runs: runs.iter().map(|run| run.to_path_buf()).collect(),
            out: out.to_path_buf(),
            force: Force::default(),
            json: true,
        }
    }

    #[test]
    fn runs_of_either_program_are_drawn() {
        let epochs = "{\"epoch\":1,\"valid_ppl\":90.5,\"lr\":30}\n{\"epoch\":2,\"valid_ppl\":80.25}\n{\"best_epoch\":2,\"valid_ppl\":80.25}\n";
        let within =
            "{\"epoch\":1,\"step\":5,\"steps\":20,\"valid_ppl\":90.5}\n{\"epoch\":1,\"valid_ppl\":80.25}\n";
        let steps = "{\"step\":200,\"valid_ppl\":900}\n{\"step\":400,\"valid_ppl\":700}\n{\"steps\":400,\"valid_ppl\":690}\n";
        for (lines, axis, points) in [
            (epochs, "epoch", [(1.0, 90.5), (2.0, 80.25)]),
            (within, "epoch", [(0.25, 90.5), (1.0, 80.25)]),
            (steps, "step", [(200.0, 900.0), (400.0, 700.0)]),
        ] {
            let folder = run_of(lines);
            let curve = Curve::read(folder.path()).unwrap();
            assert_eq!((curve.axis, curve.points.as_slice()), (axis, points.as_slice()));
            assert_eq!(curve.best_valid_ppl, points[1].1);
            run(&args(&[folder.path(), folder.path()], folder.path())).unwrap();
            let svg = fs::read_to_string(folder.path().join("curves.svg")).unwrap();
            assert!(svg.contains(axis) && svg.contains(&curve.run), "{svg}");
            // The same run twice is one curve.
            let force = Force { force: true };
            run(&CurvesArgs { force, ..args(&[folder.path()], folder.path()) }).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("curves.svg")).unwrap(), svg);
        }
    }

    #[test]
    fn the_given_model_may_be_the_best() {
        let lines = "{\"epoch\":1,\"valid_ppl\":90.5}\n{\"best_epoch\":0,\"valid_ppl\":80.25}\n";
        let curve = Curve::read(run_of(lines).path()).unwrap();
        assert_eq!((curve.best_valid_ppl, curve.points), (80.25, vec![(1.0, 90.5)]));
    }

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let runs = ["a/r", "b/r", "b/s"].map(|name| folder.path().join(name));
        for run in &runs {
            fs::create_dir_all(run).unwrap();
            fs::write(run.join(METRICS), "{\"epoch\":1,\"valid_ppl\":90}\n").unwrap();
        }
        run(&args(&[&runs[0], &runs[1], &runs[2]], folder.path())).unwrap();
        let svg = fs::read_to_string(folder.path().join("curves.svg")).unwrap();
        assert!(svg.contains("a/r, best") && svg.contains("b/r, best") && svg.contains("s, best"), "{svg}");
        assert!(!svg.contains("b/s"), "{svg}");
    }

    #[test]
    fn a_run_that_was_changed_is_not_drawn() {
        let folder = run_of("{\"epoch\":1,\"valid_ppl\":90}\n");
        let path = folder.path();
        let config = serde_json::json!({"versions": {"kind": "awd-lstm", "format": runs::FORMAT}});
        fs::write(path.join("config.json"), config.to_string()).unwrap();
        runs::note_hashes(path).unwrap();
        assert_eq!(Curve::read(path).unwrap().points, [(1.0, 90.0)]);
        for (name, content, expected) in [
            (METRICS, "{\"epoch\":1,\"valid_ppl\":80}\n", "SHA-256"),
            ("config.json", "", "config.json` is damaged"),
        ] {
            fs::write(path.join(name), content).unwrap();
            let message = Curve::read(path).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_one_line() {
        let (epochs, steps) =
            (run_of("{\"epoch\":1,\"valid_ppl\":90}\n"), run_of("{\"step\":9,\"valid_ppl\":9}\n"));
        let (none, damaged, empty) =
            (tempfile::tempdir().unwrap(), run_of("{\"epoch\":1,\n"), run_of("{\"best_epoch\":1}\n"));
        for (runs, expected) in [
            (vec![epochs.path(), steps.path()], "by epoch and"),
            (vec![none.path()], "metrics.jsonl"),
            (vec![damaged.path()], "line 1"),
            (vec![empty.path()], "no finished epoch"),
        ] {
            let message = run(&args(&runs, none.path())).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
        assert_eq!(fs::read_dir(none.path()).unwrap().count(), 0);
    }
}
