//! Adam, and its state in a checkpoint.

use std::fs;
use std::path::Path;

use crate::files;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{AdamConfig, ModuleOptimizer};
use burn::tensor::{Bytes, Tensor};

use crate::error::{Error, Result};

/// Tensors that Adam keeps for a parameter: two moments.
const MOMENTS: usize = 2;

/// Adam as in Kingma and Ba (arXiv 1412.6980): β 0.9 and 0.999, ε 1e-8.
pub fn adam() -> ModuleOptimizer {
    AdamConfig::new().with_epsilon(1e-8).init()
}

/// Numbers the parameters in their order in the module. The optimiser's state belongs to parameters by their identities, which are
/// drawn at random otherwise.
pub fn number_parameters<M: Module>(module: M) -> M {
    module.map(&mut Number { next: 1 })
}

struct Number {
    next: u64,
}

impl ModuleMapper for Number {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (_, value, mapper) = param.consume();
        let id = ParamId::from(self.next);
        self.next += 1;
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Writes the optimiser's state to a new file.
///
/// # Errors
/// [`Error::Io`].
pub fn save_optimiser(optimiser: &ModuleOptimizer, path: &Path) -> Result<()> {
    let bytes = optimiser
        .into_bytes()
        .map_err(|error| Error::io("write", path)(std::io::Error::other(error.to_string())))?;
    files::write(path, &bytes)
}

/// `optimiser`, of no steps yet, with the state in a file that [`save_optimiser`] wrote for a module whose
/// [parameters have the same numbers](number_parameters).
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] if the file is not whole.
pub fn load_optimiser(optimiser: ModuleOptimizer, path: &Path) -> Result<ModuleOptimizer> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    optimiser
        .from_bytes(Bytes::from_bytes_vec(bytes))
        .map_err(|error| damaged(path, error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// As [`load_optimiser`] of an optimiser that keeps two moments of every parameter of `module`, such as [`adam`].
///
/// # Errors
/// As [`load_optimiser`], and [`Error::Damaged`] if the file is of other parameters.
pub fn load_adam<M: Module>(optimiser: ModuleOptimizer, module: &M, path: &Path) -> Result<ModuleOptimizer> {
    let optimiser = load_optimiser(optimiser, path)?;
    let mut count = Count { parameters: 0 };
    module.visit(&mut count);
    let (found, expected) = (optimiser.to_record().len(), MOMENTS * count.parameters);
    if found != expected {
        let reason = format!("it holds {found} moments, but the model needs {expected}");
        return Err(damaged(path, reason));
    }
    Ok(optimiser)
}

fn damaged(path: &Path, reason: String) -> Error {
    Error::Damaged { path: path.to_path_buf(), reason }
}

struct Count {
    parameters: usize,
}

impl ModuleVisitor for Count {
    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.parameters += 1;
    }
}
