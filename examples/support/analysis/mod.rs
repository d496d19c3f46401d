//! Commands that look into saved runs: rank and spectrum, divergence, comparison of two models, learnt functions.

pub mod compare;
pub mod html;
pub mod kl;
pub mod plif;
pub mod rank;
mod runs;
mod spectrum_plot;
mod text;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use awd_lstm::Error;
use clap::Args;

use crate::device::DeviceName;
use crate::exit::Failure;

/// Which text is read, where, and how results are printed.
#[derive(Debug, Clone, Args)]
pub struct HeldOutArgs {
    /// Folder with valid.txt and test.txt [default: the first run's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Which text: valid or test. It is read in one column, from a zero state.
    #[arg(long, default_value = "test")]
    pub split: Split,
    /// Read only the first N contexts of the text.
    #[arg(long, value_name = "N")]
    pub tokens: Option<usize>,
    /// Where to compute: flex, ndarray, wgpu or cuda.
    #[arg(long, default_value = "flex")]
    pub device: DeviceName,
    /// JSON objects on standard output, one a line, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// A held-out text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// `valid.txt`
    Valid,
    /// `test.txt`
    Test,
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "valid" => Ok(Self::Valid),
            "test" => Ok(Self::Test),
            other => Err(Error::unknown_name("split", other, &["valid", "test"])),
        }
    }
}

/// Makes the folder for pictures if need be.
fn output_folder(out: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(out).map_err(|error| format!("cannot create `{}`: {error}", out.display()).into())
}
