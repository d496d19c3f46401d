//! Adam, and its state in a checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::files;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::store::burn_pack::{Error as PackError, Reader, Tensor as PackTensor, Writer};
use burn::tensor::{Bytes, Tensor};

use super::clip::clip_global_norm_among;
use super::moments::{HasMoments, Portable};
use crate::error::{Error, Result, one_line};
use crate::ranks::Ranks;
use crate::shards::Shards;

/// Adam as in Kingma and Ba (arXiv 1412.6980): β 0.9 and 0.999, ε 1e-8.
pub fn adam() -> burn::optim::Adam {
    AdamConfig::new().with_epsilon(1e-8).build()
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

/// The parameters of a module, by their numbers: all of them, and those that are trained.
#[derive(Default)]
struct Numbers {
    all: BTreeSet<u64>,
    trained: BTreeSet<u64>,
}

impl ModuleVisitor for Numbers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.all.insert(param.id.val());
        // On a device without autodiff only training mode shows it.
        if param.clone().train().val().is_require_grad() {
            self.trained.insert(param.id.val());
        }
    }
}

/// The parameters of which an optimiser has moments, by their numbers.
fn parameters(optimiser: &ModuleOptimizer) -> BTreeSet<u64> {
    let tensors = Reader::from_bytes(to_bytes(optimiser)).and_then(Reader::into_tensors);
    let tensors = tensors.expect("what was just written can be read");
    tensors.iter().filter_map(|tensor| tensor.param_id).collect()
}

/// `optimiser`, of no steps yet, with the state in a file that [`save_optimiser`] wrote for a module whose
/// [parameters have the same numbers](number_parameters). The file is of whole parameters, and `shards` says which of their rows this
/// rank holds. Burn makes the state on its default device first, unless [`Adam::load`] calls.
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

/// [`adam`], or another optimiser with moments of every parameter, whose state a checkpoint keeps. Where ranks hold some rows of a
/// parameter each, the file is of whole parameters.
pub struct Adam {
    optimiser: ModuleOptimizer,
    /// Its state of whole parameters, where ranks hold rows of some.
    whole: Vec<u8>,
}

impl Adam {
    /// The optimiser before its first step.
    pub fn new(optimiser: impl HasMoments) -> Self {
        Self { optimiser: Portable(optimiser).into(), whole: vec![] }
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
    /// numbers](number_parameters). Parameters that are not trained need no moments.
    ///
    /// # Errors
    /// As [`load_optimiser`], and [`Error::Damaged`] if the file is of other parameters.
    pub fn load<M: Module>(
        optimiser: impl HasMoments,
        module: &M,
        shards: &Shards,
        path: &Path,
    ) -> Result<Self> {
        let optimiser = load_optimiser(Portable(optimiser).into(), shards, path)?;
        let (mut numbers, moments) = (Numbers::default(), parameters(&optimiser));
        module.visit(&mut numbers);
        if !(moments.is_subset(&numbers.all) && numbers.trained.is_subset(&moments)) {
            return Err(Error::damaged(path, "its moments are not those of the model's parameters"));
        }
        Ok(Self { optimiser, whole: vec![] })
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::super::testing::{Pair, pair, values};
    use super::*;

    fn number<const D: usize>(values: impl Into<TensorData>) -> Tensor<D> {
        Tensor::from_data(values, (&Device::flex().autodiff(), DType::F64))
    }

    /// A module of float64, where the device's own type is float32.
    fn wide() -> Pair {
        let (weight, bias) = (number([[0.1, -2.0]]), number([4.0]));
        number_parameters(Pair { weight: Param::from_tensor(weight), bias: Param::from_tensor(bias) })
    }

    fn step(optimiser: &mut Adam, module: Pair, grad: f64) -> Pair {
        let mut grads = GradientsParams::new();
        grads.register(module.weight.id, number::<2>([[grad, 0.3]]).inner());
        grads.register(module.bias.id, number::<1>([-grad]).inner());
        optimiser.step_clipped(0.1, module, grads, 10.0, &Shards::default()).unwrap().0
    }

    #[test]
    fn a_saved_state_goes_on_to_the_same_bits_in_the_type_of_the_weights() {
        assert_eq!(Tensor::<1>::ones([1], &Device::default()).dtype(), DType::F32);
        let folder = tempfile::tempdir().unwrap();
        let [once, twice] = ["once", "twice"].map(|name| folder.path().join(name));
        let none = Shards::default();
        let mut straight = Adam::new(adam());
        let module = step(&mut straight, wide(), 0.1);
        straight.save(&none, &once).unwrap();
        // Saved again before any step.
        Adam::load(adam(), &module, &none, &once).unwrap().save(&none, &twice).unwrap();
        let mut loaded = Adam::load(adam(), &module, &none, &twice).unwrap();
        let expected = step(&mut straight, module.clone(), -0.7);
        let got = step(&mut loaded, module, -0.7);
        assert_eq!(got.weight.val().dtype(), DType::F64);
        assert_eq!(values(&got), values(&expected));
    }

    #[test]
    fn frozen_parameters_need_no_moments() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adam.bpk");
        let (none, mut optimiser) = (Shards::default(), Adam::new(adam()));
        let module = wide();
        let mut grads = GradientsParams::new();
        grads.register(module.weight.id, number::<2>([[0.1, 0.3]]).inner());
        let module = optimiser.step_clipped(0.1, module, grads, 10.0, &none).unwrap().0;
        optimiser.save(&none, &path).unwrap();
        let frozen = |module: Pair| Pair { bias: module.bias.set_require_grad(false), ..module };
        assert!(Adam::load(adam(), &module, &none, &path).is_err());
        assert!(Adam::load(adam(), &module.valid(), &none, &path).is_err());
        assert!(Adam::load(adam(), &frozen(module), &none, &path).is_ok());
    }

    #[test]
    fn a_state_of_other_parameters_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adam.bpk");
        let (none, mut optimiser) = (Shards::default(), Adam::new(adam()));
        let module = step(&mut optimiser, wide(), 0.1);
        optimiser.save(&none, &path).unwrap();
        assert!(Adam::load(adam(), &module, &none, &path).is_ok());
        // As many parameters, but not the same.
        let message = Adam::load(adam(), &pair(), &none, &path).err().unwrap().to_string();
        let expected =
            format!("`{}` is damaged: its moments are not those of the model's parameters", path.display());
        assert_eq!(message, expected);
    }
}
