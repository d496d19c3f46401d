//! `export`: a run's best model for PyTorch.

use std::path::{Path, PathBuf};

use awd_lstm::train::RunFolder;
use awd_lstm::weights::{Noted, StateDict};
use clap::{Args, ValueEnum};
use program::device;
use program::failure::Failure;
use program::files::Force;
use program::print::print_json;
use program::statistics::grouped;
use runs::{Settings, kind_of_run, load_weights};
use seq2seq::train::Dialogues;
use serde::Serialize;

use crate::commands::dialog;

/// Options of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Safetensors file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Whether the file is replaced.
    #[command(flatten)]
    pub force: Force,
    /// Names of the tensors of a language model's LSTMs: plain (rnns.0.weight_hh_l0), or wrapped as the authors' weight dropout does
    /// (rnns.0.module.weight_hh_l0_raw) [default: plain].
    #[arg(long, value_enum)]
    pub names: Option<Names>,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Names of the LSTMs' tensors. Either are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// Those of PyTorch's own LSTMs.
    Plain,
    /// Those of LSTMs that the authors' programs wrap for weight dropout.
    Wrapped,
}

#[derive(Debug, Serialize)]
struct Exported {
    file: String,
    /// Of a language model of LSTMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<usize>,
    parameters: usize,
}

/// Checks that weights may be written to the file `out`.
fn check_out(out: &Path, force: Force) -> Result<(), Failure> {
    if out.extension().is_none_or(|extension| extension != "safetensors") {
        let out = out.display();
        return Err(format!(
            "`{out}` would not be a safetensors file: give a name that ends in .safetensors, and read it in PyTorch \
             with `safetensors.torch.load_file`"
        )
        .into());
    }
    force.check(out)
}

/// Writes a run's best model as a safetensors file.
pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    check_out(&args.out, args.force)?;
    let (tensors, parameters) = match kind_of_run(&args.run).is_ok_and(|kind| kind == Dialogues::KIND) {
        true if args.names.is_some() => {
            return Err("--names is for language models of LSTMs: leave it out".into());
        }
        true => (None, dialog::export(&args.run, &args.out)?),
        false => language_model(args)?,
    };
    let file = args.out.display().to_string();
    if args.json {
        print_json(&Exported { file, tensors, parameters });
    } else {
        let tensors = tensors.map_or(String::new(), |tensors| format!("{tensors} tensors of "));
        println!("{tensors}{} parameters written to {file}", grouped(parameters));
    }
    Ok(())
}

/// The numbers of tensors and of parameters that were written.
fn language_model(args: &ExportArgs) -> Result<(Option<usize>, usize), Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    // A file is read and written, nothing is computed: the CPU does for every device.
    let device = device::open(device::cpu_or_fastest())?;
    let model = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
    let state = StateDict::of_model(&model).with_notes(&Noted::of(&config.model));
    state.write(&args.out, args.names == Some(Names::Wrapped))?;
    Ok((Some(state.shapes().count()), config.model.num_params()))
}
