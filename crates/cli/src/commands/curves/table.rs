//! All that runs have recorded, as one table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use runs::{Error, files};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// A line a validation, in a run's folder.
pub const METRICS: &str = "metrics.jsonl";
/// A line every few steps.
const STEPS: &str = "steps.jsonl";
/// The columns of every table, in front.
const FIRST: [&str; 4] = ["run", "line", "epoch", "step"];

/// Writes the lines of the runs' [`METRICS`] and [`STEPS`] to `file` as CSV and returns their number.
///
/// The first columns are `run`, `line` (what the line is about: `epoch`, `validation` inside of an epoch, `steps` or `end`),
/// `epoch` and `step`. The others are all names that occur in a line, in alphabetical order; a line without such a name has an
/// empty field there. The order of lines is that of the runs and of their files.
///
/// # Errors
/// A folder that is no run or has no line yet, a damaged line, a file that cannot be written.
pub fn save(runs: &[PathBuf], file: &Path) -> Result<usize, Failure> {
    let mut lines: Vec<BTreeMap<String, String>> = vec![];
    for folder in runs {
        let (metrics, steps) = (read(&folder.join(METRICS))?, read(&folder.join(STEPS))?);
        if metrics.is_none() && steps.is_none() {
            return Err(Error::NotARun { path: folder.clone(), missing: METRICS }.into());
        }
        let run = name(folder);
        for line in metrics.unwrap_or_default() {
            let kind = match (line.contains_key("epoch"), line.contains_key("step")) {
                (true, false) => "epoch",
                (_, true) => "validation",
                (false, false) => "end",
            };
            lines.push(fields(&run, kind, &line));
        }
        lines.extend(steps.unwrap_or_default().iter().map(|line| fields(&run, "steps", line)));
    }
    let names: BTreeSet<&str> = lines.iter().flat_map(|line| line.keys().map(String::as_str)).collect();
    let columns: Vec<&str> =
        FIRST.into_iter().chain(names.into_iter().filter(|name| !FIRST.contains(name))).collect();
    let mut writer = csv::Writer::from_writer(vec![]);
    writer.write_record(&columns)?;
    for line in &lines {
        writer.write_record(columns.iter().map(|column| line.get(*column).map_or("", String::as_str)))?;
    }
    files::replace(file, &writer.into_inner()?)?;
    Ok(lines.len())
}

/// The last part of a run's path.
pub fn name(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| folder.display().to_string())
}

/// The objects in a file; none if there is no such file. A last line without an end is just being written.
fn read(path: &Path) -> Result<Option<Vec<Map<String, Value>>>, Error> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(Error::io("read", path))?,
    };
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate();
    let objects = whole.map(|(number, line)| {
        serde_json::from_str(line).map_err(|error| Error::Damaged {
            path: path.to_path_buf(),
            reason: format!("line {}: {error}", number + 1),
        })
    });
    objects.collect::<Result<_, _>>().map(Some)
}

/// The fields of a line, by column.
fn fields(run: &str, kind: &str, line: &Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut fields: BTreeMap<String, String> =
        line.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    fields.insert("run".to_string(), run.to_string());
    fields.insert("line".to_string(), kind.to_string());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_run_is_in_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, metrics: Option<&str>, steps: Option<&str>| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            for (file, text) in [(METRICS, metrics), (STEPS, steps)] {
                if let Some(text) = text {
                    fs::write(path.join(file), text).unwrap();
                }
            }
            path
        };
        let both = run(
            "lr 30, \"best\"",
            Some(
                "{\"epoch\":1,\"step\":9,\"valid_ppl\":95}\n{\"epoch\":1,\"valid_ppl\":90.5}\n\
                 {\"ended\":\"epochs\",\"valid_ppl\":90.5,\"test_ppl\":null}\n",
            ),
            Some("{\"epoch\":1,\"step\":3,\"nll\":4.5,\"averaging\":false}\n{\"epoch\":1,\"st"),
        );
        let running = run("running", None, Some("{\"epoch\":1,\"step\":3,\"nll\":5}\n"));
        let file = folder.path().join("all.csv");
        assert_eq!(save(&[both, running], &file).unwrap(), 5);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "run,line,epoch,step,averaging,ended,nll,test_ppl,valid_ppl\n\
             \"lr 30, \"\"best\"\"\",validation,1,9,,,,,95\n\
             \"lr 30, \"\"best\"\"\",epoch,1,,,,,,90.5\n\
             \"lr 30, \"\"best\"\"\",end,,,,epochs,,,90.5\n\
             \"lr 30, \"\"best\"\"\",steps,1,3,false,,4.5,,\n\
             running,steps,1,3,,,5,,\n"
        );
        let before = fs::read(&file).unwrap();
        for (metrics, expected) in [(None, "is not a run folder"), (Some("{\"epoch\":\n"), "line 1")] {
            let bad = run(expected, metrics, None);
            let message = save(&[bad], &file).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
        assert_eq!(fs::read(&file).unwrap(), before);
    }
}
