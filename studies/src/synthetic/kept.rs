//! Finished fits in a folder, and the one under way.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use runs::files;
use runs::optim::{load_optimiser, save_optimiser};
use runs::{Error, Shards, load_weights, save_weights};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use program::failure::Failure;
use program::files::create_folder;

/// A folder of fits, held by one process.
pub struct Kept {
    folder: PathBuf,
    fits: Vec<Fit>,
    /// The lines of `fits.jsonl`: numbers that are read and written again may lose their last bit.
    text: String,
    /// Held as long as this is.
    _lock: File,
}

/// A line of `fits.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
struct Fit {
    /// All that it depends on.
    settings: Value,
    result: Value,
}

/// How far the fit under way is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Position {
    /// Of which fit.
    settings: Value,
    /// Training steps done.
    pub step: usize,
    /// Wall-clock time of these steps.
    pub seconds: f64,
}

const FITS: &str = "fits.jsonl";
const LOCK: &str = "lock";
const UNFINISHED: &str = "unfinished";
const POSITION: &str = "position.json";
const MODEL: &str = "model.safetensors";
const OPTIMISER: &str = "optimiser.bin";

impl Kept {
    /// Whether a folder has finished fits.
    pub fn has_fits(folder: &Path) -> bool {
        folder.join(FITS).exists()
    }

    /// Opens a folder, which is created if it is not there, and locks it.
    ///
    /// # Errors
    /// A folder that cannot be written, that another process holds, or that holds a damaged line.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        create_folder(folder)?;
        let in_use = || format!("`{}` is in use: another process fits there", folder.display());
        let lock = files::lock(&folder.join(LOCK))?.ok_or_else(in_use)?;
        files::remove_temporary(folder)?;
        files::recover_folder(&folder.join(UNFINISHED))?;
        let (fits, text) = read(&folder.join(FITS))?;
        Ok(Self { folder: folder.to_path_buf(), fits, text, _lock: lock })
    }

    /// The result of the fit with these settings, if it is finished.
    ///
    /// # Errors
    /// A result of another form.
    pub fn result<R: DeserializeOwned>(&self, settings: &Value) -> Result<Option<R>, Error> {
        let Some(line) = self.fits.iter().position(|fit| fit.settings == *settings) else { return Ok(None) };
        let result = serde_json::from_value(self.fits[line].result.clone());
        result.map(Some).map_err(|error| damaged(&self.folder.join(FITS), line, &error))
    }

    /// Keeps the result of a fit.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep(&mut self, settings: Value, result: &impl Serialize) -> Result<(), Failure> {
        let fit = Fit { settings, result: serde_json::to_value(result)? };
        let text = format!("{}{}\n", self.text, serde_json::to_string(&fit)?);
        files::replace(&self.folder.join(FITS), text.as_bytes())?;
        self.text = text;
        self.fits.push(fit);
        // A process that dies here leaves a position of a finished fit, which nobody asks for.
        let unfinished = self.unfinished();
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &unfinished)(error).into())
            }
            _ => Ok(()),
        }
    }

    /// Saves the fit under way.
    ///
    /// # Errors
    /// A file that cannot be written, or weights that are not finite; what was saved before is then still there.
    pub fn save<M: Module>(
        &self,
        settings: &Value,
        (step, seconds): (usize, f64),
        model: &M,
        optimiser: &ModuleOptimizer,
    ) -> Result<(), Error> {
        let position = Position { settings: settings.clone(), step, seconds };
        files::replace_folder(&self.unfinished(), |folder| {
            save_weights(model, &folder.join(MODEL))?;
            save_optimiser(optimiser, &folder.join(OPTIMISER))?;
            files::replace_json(&folder.join(POSITION), &position)
        })
    }

    /// Model, optimiser and position of the fit with these settings as they were saved last; as given, at step 0, if it was not.
    ///
    /// # Errors
    /// A damaged file.
    pub fn resume<M: Module>(
        &self,
        settings: &Value,
        model: M,
        optimiser: ModuleOptimizer,
    ) -> Result<(M, ModuleOptimizer, Position), Error> {
        let folder = self.unfinished();
        if folder.exists() {
            let position: Position = files::read_json(&folder.join(POSITION))?;
            if position.settings == *settings {
                let model = load_weights(model, &folder.join(MODEL))?;
                let path = folder.join(OPTIMISER);
                return Ok((model, load_optimiser(optimiser, &Shards::default(), &path)?, position));
            }
        }
        Ok((model, optimiser, Position { settings: settings.clone(), step: 0, seconds: 0.0 }))
    }

    fn unfinished(&self) -> PathBuf {
        self.folder.join(UNFINISHED)
    }
}

/// The fits of a file, which need not exist, and its text.
fn read(path: &Path) -> Result<(Vec<Fit>, String), Error> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((vec![], String::new())),
        read => read.map_err(Error::io("read", path))?,
    };
    let lines = text.lines().enumerate();
    let fits =
        lines.map(|(line, fit)| serde_json::from_str(fit).map_err(|error| damaged(path, line, &error)));
    Ok((fits.collect::<Result<_, _>>()?, text))
}

fn damaged(path: &Path, line: usize, error: &serde_json::Error) -> Error {
    Error::Damaged { path: path.to_path_buf(), reason: format!("line {}: {error}", line + 1) }
}

/// Settings in the form in which they are compared: as they are read back.
///
/// # Errors
/// Settings that are no JSON.
pub fn settings(settings: &impl Serialize) -> Result<Value, Failure> {
    Ok(serde_json::from_str(&serde_json::to_string(settings)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_found_by_all_of_their_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fits");
        let mut kept = Kept::open(&path).unwrap();
        let of = |lr: f64| settings(&json!({"head": "mos", "lr": lr})).unwrap();
        for (lr, kl) in [(0.1, 1.5), (1.0 / 3.0, 2.5)] {
            kept.keep(of(lr), &kl).unwrap();
        }
        assert!(Kept::open(&path).err().unwrap().to_string().ends_with("in use: another process fits there"));
        drop(kept);
        let kept = Kept::open(&path).unwrap();
        let found = |lr| kept.result::<f64>(&of(lr)).unwrap();
        assert_eq!((found(0.1), found(1.0 / 3.0), found(0.2)), (Some(1.5), Some(2.5), None));
        let message = kept.result::<String>(&of(0.1)).unwrap_err().to_string();
        assert!(message.contains("fits.jsonl` is damaged: line 1: invalid type"), "{message}");
        drop(kept);
        fs::write(path.join(FITS), "{\"settings\":{},\"result\":1}\n{\"set").unwrap();
        let message = Kept::open(&path).err().unwrap().to_string();
        assert!(message.contains("fits.jsonl` is damaged: line 2: "), "{message}");
    }
}
