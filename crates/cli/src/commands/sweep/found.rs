//! Where the runs of a sweep are.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use awd_lstm::train::RunConfig;
use program::failure::Failure;
use program::files::check_folder;
use runs::Error;

use crate::commands::sweep::outcome::{Outcome, RESULTS};
use crate::commands::sweep::plan::{Plan, Planned};
use crate::training::Record;

/// The folder of the run that finetunes the run in `path`.
pub fn finetuned(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-finetuned");
    name.into()
}

/// Checks that a sweep may be put into the folder `out`: it is that of a sweep, holds nothing, or holds runs and nothing that a sweep
/// writes beside them.
pub fn check_out(out: &Path) -> Result<(), Failure> {
    if out.join(RESULTS).is_file() {
        return Ok(());
    }
    let has_runs = !present(out)?.is_empty();
    let is_written = |name: &str| name == "table.md" || name.ends_with(".svg");
    // A run that was cut off as it began has its lock alone.
    let is_run = |name: &str| out.join(name).join("lock").is_file() || Record::exists(&out.join(name));
    check_folder(out, |name| is_run(name) || (has_runs && !is_written(name)))
}

/// Checks that all results in the folder `out` are of runs in these folders: a sweep writes the results of its own runs alone.
pub fn check_results(out: &Path, folders: &[PathBuf]) -> Result<(), Failure> {
    let file = out.join(RESULTS);
    if !file.is_file() {
        return Ok(());
    }
    let own: Vec<_> =
        folders.iter().filter_map(|folder| folder.file_name()).map(|name| name.to_string_lossy()).collect();
    match Outcome::read_all(&file)?.iter().find(|outcome| own.iter().all(|own| *own != outcome.run)) {
        Some(Outcome { run, .. }) => Err(format!(
            "`{}` has the result of `{run}`, a run that this sweep does not have: choose another --out, or replace it with --force",
            file.display()
        )
        .into()),
        None => Ok(()),
    }
}

/// The folder of a sweep for which none is named, with that of every run: `first`, unless it holds other runs than the plan's, or the
/// first of `first-2`, `first-3` and so on that does not.
///
/// # Errors
/// A folder that cannot be read: the next ones would not be either.
pub fn fresh(plan: &Plan, first: &Path) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
    let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", first.display())));
    for out in std::iter::once(first.to_path_buf()).chain(numbered) {
        let present = present(&out)?;
        let (Ok(()), Ok(folders)) = (check_out(&out), folders(plan, &out)) else { continue };
        let planned = |path: &PathBuf| folders.iter().any(|own| own == path || finetuned(own) == *path);
        if present.iter().all(planned) {
            return Ok((out, folders));
        }
    }
    unreachable!("there is no end of numbers")
}

/// The folder of every run of a plan, present or not.
///
/// A run that is there under another name, because fewer settings varied when it was made, is taken as it is. Another run in the place of a
/// planned one is refused.
pub fn folders(plan: &Plan, out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let present = present(out)?;
    let mut folders: Vec<PathBuf> = vec![];
    for planned in &plan.runs {
        let own = out.join(&planned.name);
        let fits = |path: &PathBuf| {
            !folders.contains(path)
                && plan.runs.iter().all(|other| out.join(&other.name) != *path)
                && Record::read(path).is_ok_and(|record| check(&record.config, &planned.config).is_ok())
        };
        let folder = match Record::exists(&own) {
            true => own,
            false => present.iter().find(|path| fits(path)).cloned().unwrap_or(own),
        };
        verify(&folder, &planned.config)?;
        if let Some(config) = finetuning(planned, &folder) {
            verify(&finetuned(&folder), &config)?;
        }
        folders.push(folder);
    }
    Ok(folders)
}

/// The configuration of the run that finetunes the run in `folder`.
pub fn finetuning(planned: &Planned, folder: &Path) -> Option<RunConfig> {
    let train = planned.finetuning.clone()?;
    let finetunes = Some(program::files::absolute(folder));
    Some(RunConfig { finetunes, train, ..planned.config.clone() })
}

/// The runs in a folder, in the order of their names.
fn present(out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(out) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(vec![]);
        }
        entries => entries.map_err(Error::io("read", out))?,
    };
    let paths = entries.map(|entry| Ok(entry.map_err(Error::io("read", out))?.path()));
    let mut paths = paths.collect::<Result<Vec<_>, Failure>>()?;
    paths.retain(|path| Record::exists(path));
    paths.sort();
    Ok(paths)
}

/// Whether a folder holds this run, or none.
fn verify(path: &Path, config: &RunConfig) -> Result<(), Failure> {
    if !Record::exists(path) {
        return Ok(());
    }
    let checked = Record::read(path).map_err(Failure::from).and_then(|run| check(&run.config, config));
    checked.map_err(|error| format!("`{}`: {error}", path.display()).into())
}

/// Whether a run that is there is the one that is planned.
fn check(of_run: &RunConfig, planned: &RunConfig) -> Result<(), Failure> {
    of_run.check(planned)?;
    if of_run.corpus != planned.corpus {
        return Err("it was trained on other text; choose another --out".into());
    }
    match of_run.finetunes.is_some() == planned.finetunes.is_some() {
        true => Ok(()),
        false => Err("it is a run of another kind; choose another --out".into()),
    }
}
