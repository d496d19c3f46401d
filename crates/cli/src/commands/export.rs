//! `export`: a run's best model for PyTorch.

use std::path::{Path, PathBuf};

use awd_lstm::train::RunFolder;
use awd_lstm::weights::{Noted, StateDict};
use clap::{Args, ValueEnum};
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::files::Force;
use program::print::{path_text, print_json};
use program::statistics::grouped;
use runs::load_weights;
use serde::Serialize;

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
    /// Names of the LSTMs' tensors: plain (rnns.0.weight_hh_l0), or wrapped as the authors' weight dropout does
    /// (rnns.0.module.weight_hh_l0_raw).
    #[arg(long, value_enum, default_value_t)]
    pub names: Names,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Names of the LSTMs' tensors. Either are imported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// Those of PyTorch's own LSTMs.
    #[default]
    Plain,
    /// Those of LSTMs that the authors' programs wrap for weight dropout.
    Wrapped,
}

#[derive(Debug, Serialize)]
struct Exported {
    #[serde(serialize_with = "path_text")]
    file: PathBuf,
    tensors: usize,
    parameters: usize,
}

/// Checks that weights may be written to the file `out`.
pub fn check_out(out: &Path, force: Force) -> Result<(), Failure> {
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
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    // A file is read and written, nothing is computed: the CPU does for every device.
    let device = device::open(DeviceName::any_cpu())?;
    let model = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
    let state = StateDict::of_model(&model).with_notes(&Noted::of(&config.model));
    state.write(&args.out, args.names == Names::Wrapped)?;
    let exported = Exported {
        file: args.out.clone(),
        tensors: state.shapes().count(),
        parameters: config.model.num_params(),
    };
    if args.json {
        print_json(&exported);
    } else {
        println!(
            "{} tensors of {} parameters written to {}",
            exported.tensors,
            grouped(exported.parameters),
            exported.file.display()
        );
    }
    Ok(())
}
