//! What every experiment does with its outcomes: it prints them as they come, or those that it printed before, and draws them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::synthetic::fit_args::FitArgs;
use crate::synthetic::kept::Kept;
use program::failure::{Failure, Incomplete};
use program::files::{create_folder, read_json_lines};
use program::print::print_json;
use program::println;

/// What comes of a head in a setting.
pub trait Reported: Serialize + DeserializeOwned {
    /// The experiment's command.
    const COMMAND: &'static str;
    /// What one outcome is of, besides its head.
    const PLACE: &'static str;
    /// The names of the pictures, without `.svg`.
    const PICTURES: [&'static str; 2];

    /// Head and setting by name.
    fn setting(&self) -> String;
    /// The learning rate that counts; none if training diverged with each.
    fn lr(&self) -> Option<f64>;
    /// The names of the columns.
    fn header() -> String;
    /// The values.
    fn line(&self) -> String;
    /// What the columns mean.
    fn legend(outcomes: &[Self]) -> String;
    /// Draws them.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn draw(outcomes: &[Self], out: &Path) -> Result<(), Failure>;
}

/// The outcomes so far.
pub struct Report<'a, R> {
    args: &'a FitArgs,
    outcomes: Vec<R>,
}

impl<'a, R: Reported> Report<'a, R> {
    /// Checks that the pictures of fits may be written: a folder that has fits has their pictures too.
    ///
    /// # Errors
    /// A picture that exists already, beside no fits; a file in the place of the folder.
    pub fn check(args: &FitArgs) -> Result<(), Failure> {
        match args.out.as_deref().is_some_and(Kept::has_fits) {
            true => Ok(()),
            false => Self::check_pictures(args),
        }
    }

    fn check_pictures(args: &FitArgs) -> Result<(), Failure> {
        let Some(out) = &args.out else { return Ok(()) };
        args.force.check_in(out, &R::PICTURES.map(|stem| format!("{stem}.svg")))
    }

    /// Begins the table.
    pub fn begin(args: &'a FitArgs) -> Self {
        if !args.json {
            println!("{}", R::header());
        }
        Self { args, outcomes: vec![] }
    }

    /// Prints an outcome.
    pub fn add(&mut self, outcome: R) {
        match self.args.json {
            true => print_json(&outcome),
            false => println!("{}", outcome.line()),
        }
        self.outcomes.push(outcome);
    }

    /// Ends the table and draws what there is; `made`: how the fits ended.
    ///
    /// # Errors
    /// A file that cannot be written, how the fits ended, or heads that diverged.
    pub fn end(self, made: Result<(), Failure>) -> Result<(), Failure> {
        if !self.outcomes.is_empty() {
            if !self.args.json {
                println!("{}", R::legend(&self.outcomes));
            }
            if let Some(out) = &self.args.out {
                R::draw(&self.outcomes, out)?;
            }
        }
        made?;
        match self.outcomes.iter().filter(|outcome| outcome.lr().is_none()).count() {
            0 => Ok(()),
            count => {
                let line = format!("{count} heads diverged {} at every learning rate", R::PLACE);
                Err(Incomplete(line).into())
            }
        }
    }

    /// The whole report of outcomes that were printed with `--json` before, of all files; the folder for pictures is created.
    ///
    /// # Errors
    /// A picture that exists already, a file that cannot be read, a line that is no outcome of the experiment, two outcomes of one
    /// setting, a folder that cannot be created; as [`end`](Self::end).
    pub fn again(args: &'a FitArgs, files: &[PathBuf]) -> Result<(), Failure> {
        Self::check_pictures(args)?;
        let what = format!("result that `{} --json` printed", R::COMMAND);
        let (mut found, mut settings) = (vec![], HashSet::new());
        for path in files {
            for outcome in read_json_lines::<R>(path, &what)? {
                let of = outcome.setting();
                if settings.contains(&of) {
                    return Err(format!("`{}` has a second result of {of}", path.display()).into());
                }
                settings.insert(of);
                found.push(outcome);
            }
        }
        if let Some(out) = &args.out {
            create_folder(out)?;
        }
        let mut report = Self::begin(args);
        found.into_iter().for_each(|outcome| report.add(outcome));
        report.end(Ok(()))
    }
}

/// Different values, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = vec![];
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
