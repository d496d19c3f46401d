//! `ptb_mos export`: a run's best model for PyTorch.

use std::path::PathBuf;

use awd_lstm::LmBackend;
use awd_lstm::train::{RunConfig, RunFolder, load_weights};
use awd_lstm::weights::StateDict;
use burn::tensor::backend::AutodiffBackend;
use clap::Args;
use serde::Serialize;

use crate::device::{DeviceName, Task, on_device};
use crate::exit::Failure;
use crate::progress::print_json;

/// Options of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Folder of the run.
    #[arg(long, value_name = "RUN")]
    pub run: PathBuf,
    /// Safetensors file to write, under the names of the authors' PyTorch programs.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Exported {
    file: PathBuf,
    tensors: usize,
    parameters: usize,
}

/// Writes a run's best model as a safetensors file.
///
/// # Errors
/// Bad input: no run, a damaged one, a file that exists or that is to be of another format.
pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    if args.out.extension().is_none_or(|extension| extension != "safetensors") {
        let out = args.out.display();
        return Err(format!(
            "`{out}` would not be a safetensors file: give a name that ends in .safetensors, and read it in PyTorch \
             with `safetensors.torch.load_file`"
        )
        .into());
    }
    if args.out.exists() {
        return Err(format!("`{}` exists already; choose another file", args.out.display()).into());
    }
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let exported = on_device(DeviceName::any_cpu(), ExportTask { args, run, config })?;
    if args.json {
        print_json(&exported);
    } else {
        println!(
            "{} tensors of {} parameters written to {}",
            exported.tensors,
            exported.parameters,
            exported.file.display()
        );
    }
    Ok(())
}

struct ExportTask<'a> {
    args: &'a ExportArgs,
    run: RunFolder,
    config: RunConfig,
}

impl Task for ExportTask<'_> {
    type Output = Exported;

    fn run<B>(self, device: B::Device) -> Result<Exported, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let model = self.config.model.try_init::<B::InnerBackend>(&device)?;
        let model = load_weights(model, &self.run.best_weights()?)?;
        let state = StateDict::of_model(&model);
        state.write(&self.args.out, self.config.model.dropouts.weight > 0.0)?;
        Ok(Exported {
            file: self.args.out.clone(),
            tensors: state.shapes().count(),
            parameters: self.config.model.num_params(),
        })
    }
}
