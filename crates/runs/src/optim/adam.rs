//! Adam, and its state in a checkpoint.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::files;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::store::burn_pack::{Error as PackError, Reader, Tensor as PackTensor, Writer};
use burn::tensor::{Bytes, Tensor};

use super::clip::clip_global_norm_among;
use crate::error::{Error, Result, one_line};
use crate::ranks::Ranks;
use crate::shards::Shards;

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
    files::write(path, &to_bytes(optimiser))
}

fn to_bytes(optimiser: &ModuleOptimizer) -> Bytes {
    optimiser.into_bytes().expect("tensors in memory are written to memory")
}

/// What [`save_optimiser`] writes, of whole parameters, at the first of the ranks that hold rows of some, and nothing at the others. All
/// of them call it.
fn gathered(optimiser: &ModuleOptimizer, shards: &Shards) -> Result<Vec<u8>> {
    let mut result = Ok(());
    let whole = map_rows(to_bytes(optimiser), shards, |row, own| {
        let rows = |rows: Range<usize>| own[rows.start * row..rows.end * row].to_vec();
        match shards.gathered(row, rows) {
            Ok(all) if shards.ranks().is_first() => all,
            gathered => {
                result = std::mem::replace(&mut result, Ok(())).and(gathered.map(drop));
                own.to_vec()
            }
        }
    });
    result?;
    let whole = whole.expect("what was just written can be read");
    Ok(if shards.ranks().is_first() { whole.to_vec() } else { vec![] })
}

/// A state of an optimiser with others in place of the moments of what `shards` holds: `f` makes their rows from theirs, given the bytes
/// of a row. It is called in the order of the tensors' names.
fn map_rows(
    bytes: Bytes,
    shards: &Shards,
    mut f: impl FnMut(usize, &[u8]) -> Vec<u8>,
) -> Result<Bytes, PackError> {
    let reader = Reader::from_bytes(bytes)?;
    let (scalars, metadata) = (reader.scalars().clone(), reader.metadata().clone());
    let mut tensors = reader.into_tensors()?;
    // Burn writes them in an order of its own, which is another at every rank.
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mapped = tensors.into_iter().map(|tensor| {
        let (name, dtype, shape, id, bytes) = tensor.into_parts()?;
        let (mut shape, mut bytes) = (shape.to_vec(), bytes);
        if id.is_some_and(|id| shards.hold(ParamId::from(id))) && !shape.is_empty() {
            let row = shape[1..].iter().product::<usize>() * dtype.size();
            let made = f(row, &bytes);
            (shape[0], bytes) = (made.len() / row, Bytes::from_bytes_vec(made));
        }
        Ok(PackTensor::new(name, dtype, shape, id, bytes))
    });
    let mut writer = Writer::new(mapped.collect::<Result<_, PackError>>()?);
    for (key, value) in &scalars {
        writer = writer.with_scalar(key, *value);
    }
    for (key, value) in &metadata {
        writer = writer.with_metadata(key, value);
    }
    writer.into_bytes()
}

/// `optimiser`, of no steps yet, with the state in a file that [`save_optimiser`] wrote for a module whose
/// [parameters have the same numbers](number_parameters). The file is of whole parameters, and `shards` says which of their rows this
/// rank holds.
///
/// # Errors
/// [`Error::Io`]; [`Error::Damaged`] if the file is not whole.
pub fn load_optimiser(optimiser: ModuleOptimizer, shards: &Shards, path: &Path) -> Result<ModuleOptimizer> {
    let bytes = Bytes::from_bytes_vec(fs::read(path).map_err(Error::io("read", path))?);
    let bytes = match shards.are_none() {
        true => bytes,
        false => {
            let (own, all) = (shards.rows(), shards.all());
            let cut = |row: usize, whole: &[u8]| match whole.len() == all * row {
                true => whole[own.start * row..own.end * row].to_vec(),
                // Of another vocabulary: the weights beside it say so.
                false => whole.to_vec(),
            };
            map_rows(bytes, shards, cut).map_err(|error| Error::damaged(path, one_line(&error)))?
        }
    };
    optimiser.from_bytes(bytes).map_err(|error| Error::damaged(path, one_line(&error)))
}

/// [`adam`], or another optimiser with two moments of every parameter, whose state a checkpoint keeps. Where ranks hold some rows of a
/// parameter each, the file is of whole parameters.
pub struct Adam {
    optimiser: ModuleOptimizer,
    /// Its state of whole parameters, where ranks hold rows of some.
    whole: Vec<u8>,
}

impl Adam {
    /// The optimiser before its first step.
    pub fn new(optimiser: ModuleOptimizer) -> Self {
        Self { optimiser, whole: vec![] }
    }

    /// Clips the gradients to their norm over all parameters together, as [`clip_global_norm`](super::clip_global_norm), and makes an
    /// update. Returns the norm before clipping, `[1]`; `None` if no parameter has a gradient. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Communication`].
    ///
    /// # Panics
    /// If `max_norm` is not a positive number.
    pub fn step_clipped<M: Module>(
        &mut self,
        lr: f64,
        module: M,
        grads: GradientsParams,
        max_norm: f64,
        shards: &Shards,
    ) -> Result<(M, Option<Tensor<1>>)> {
        self.whole = vec![];
        let (grads, norm) = clip_global_norm_among(&module, grads, max_norm, shards)?;
        Ok((self.optimiser.step(lr, module, grads), norm))
    }

    /// Brings the state of whole parameters together for [`save`](Self::save), at the first of the ranks that share the batch with this
    /// one: all of their groups have the same.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn gather(&mut self, ranks: &Ranks, shards: &Shards) -> Result<()> {
        if ranks.is_first() && !shards.are_none() {
            self.whole = gathered(&self.optimiser, shards)?;
        }
        Ok(())
    }

    /// Writes the state to a new file, after it was [brought together](Self::gather).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, shards: &Shards, path: &Path) -> Result<()> {
        match shards.are_none() {
            true => save_optimiser(&self.optimiser, path),
            false => files::write(path, &self.whole),
        }
    }

    /// `optimiser`, of no steps yet, with the state in a file of a module whose [parameters have the same
    /// numbers](number_parameters).
    ///
    /// # Errors
    /// As [`load_optimiser`], and [`Error::Damaged`] if the file is of other parameters.
    pub fn load<M: Module>(
        optimiser: ModuleOptimizer,
        module: &M,
        shards: &Shards,
        path: &Path,
    ) -> Result<Self> {
        let optimiser = load_optimiser(optimiser, shards, path)?;
        let mut count = Count { parameters: 0 };
        module.visit(&mut count);
        let (found, expected) = (optimiser.to_record().len(), MOMENTS * count.parameters);
        if found != expected {
            let reason = format!("it holds {found} moments, but the model needs {expected}");
            return Err(Error::damaged(path, reason));
        }
        Ok(Self::new(optimiser))
    }
}

struct Count {
    parameters: usize,
}

impl ModuleVisitor for Count {
    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.parameters += 1;
    }
}
