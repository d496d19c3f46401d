//! The runs of a sweep before they are trained.

use std::path::Path;

use program::failure::Failure;
use program::print::print_json;
use program::statistics::grouped;
use runs::text::comma_list;
use serde::Serialize;

use crate::commands::sweep::found::finetuned;
use crate::commands::sweep::outcome::Outcome;
use crate::commands::sweep::planned::Planned;
use crate::training::Record;
use runs::RunState;

/// A run, and what is done of it.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    run: Outcome,
    /// None if there is no folder yet.
    state: Option<RunState>,
    epochs_done: usize,
    epochs: usize,
    /// Of the run that finetunes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    finetuning: Option<RunState>,
}

/// Prints every run with its sizes and what is done of it.
pub fn print<'a>(runs: impl Iterator<Item = (&'a Planned, &'a Path)>, json: bool) -> Result<(), Failure> {
    if !json {
        println!("{:<32} {:>13}  {:<36} done", "run", "parameters", "sizes");
    }
    for (planned, path) in runs {
        let record = read(path)?;
        let listed = Listed {
            run: Outcome::of(planned, planned.name.clone()),
            state: record.as_ref().map(|record| record.state),
            epochs_done: record.as_ref().map_or(0, Record::epochs_done),
            epochs: planned.config.train.epochs,
            finetuning: read(&finetuned(path))?.as_ref().map(|record| record.state),
        };
        match json {
            true => print_json(&listed),
            false => println!("{}", listed.line()),
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Record>, Failure> {
    Ok(if Record::exists(path) { Some(Record::read(path)?) } else { None })
}

impl Listed {
    fn line(&self) -> String {
        let Self { run, state, epochs_done, epochs, finetuning } = self;
        let state =
            state.map_or("nothing".into(), |state| format!("{state}, {epochs_done} of {epochs} epochs"));
        let finetuning = finetuning.map_or(String::new(), |state| format!("; finetuning {state}"));
        format!("{:<32} {:>13}  {:<36} {state}{finetuning}", run.run, grouped(run.parameters), sizes(run))
    }
}

/// A run's sizes as text.
pub fn sizes(run: &Outcome) -> String {
    let components = run.components.map_or(String::new(), |components| format!(", K {components}"));
    format!("d {}, LSTM {}{components}", run.d_embedding, comma_list(&run.lstm_sizes))
}
