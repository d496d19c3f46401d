//! What the commands do alike: they open runs, read one text, visit run by run and print a table.

use std::path::Path;

use awd_lstm::LanguageModel;
use burn::tensor::Device;
use serde::Serialize;

use crate::commands::analysis::args::HeldOutArgs;
use crate::commands::analysis::runs::SavedRun;
use crate::commands::analysis::text::{Text, Window};
use crate::device::{self, DeviceName};
use crate::failure::Failure;
use crate::files::create_folder;
use crate::print::print_json;

/// Saved runs over the same words, a text in these words, and the device.
pub struct Analysis {
    /// The runs.
    pub runs: Vec<SavedRun>,
    /// The text.
    pub text: Text,
    /// Where models are loaded and run.
    pub device: Device,
    /// Its name.
    pub device_name: DeviceName,
    json: bool,
}

/// A run's line of a table.
pub trait Row: Serialize {
    /// What a reader has to know about the columns.
    const LEGEND: &'static str;

    /// The names of the columns.
    fn header() -> String;

    /// The values.
    fn line(&self) -> String;
}

impl Analysis {
    /// Reads the text for these runs, at least so many contexts of it, creates the folder for pictures and opens the
    /// device.
    ///
    /// # Errors
    /// Different vocabularies, text that is too short or not covered by them, a folder that cannot be created, a device
    /// that is missing.
    pub fn open(
        runs: Vec<SavedRun>,
        args: &HeldOutArgs,
        contexts: usize,
        out: Option<&Path>,
    ) -> Result<Self, Failure> {
        SavedRun::same_vocabulary(&runs)?;
        let text = Text::load(args, &runs, contexts)?;
        if let Some(out) = out {
            create_folder(out)?;
        }
        let device_name = device::resolve(args.device);
        let device = device::open(device_name)?;
        Ok(Self { runs, text, device, device_name, json: args.json })
    }

    /// Prints the row of every run as soon as it is there: as a table, or as one JSON object a line.
    ///
    /// # Errors
    /// Weights that cannot be read, or what `row` says.
    pub fn print_rows<R: Row>(
        &self,
        mut row: impl FnMut(&SavedRun, &LanguageModel) -> Result<R, Failure>,
    ) -> Result<(), Failure> {
        if !self.json {
            println!("{}", R::header());
        }
        for run in &self.runs {
            let row = row(run, &run.model(&self.device)?)?;
            match self.json {
                true => print_json(&row),
                false => println!("{}", row.line()),
            }
        }
        if !self.json {
            println!("{}", R::LEGEND);
        }
        Ok(())
    }

    /// Walks a run's model through the text, with a bar on standard error.
    pub fn windows<'a>(
        &'a self,
        run: &SavedRun,
        model: &'a LanguageModel,
    ) -> impl Iterator<Item = Window> + use<'a> {
        self.text.windows(model, &self.device, &run.name)
    }
}
