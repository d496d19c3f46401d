//! A model's weights as a safetensors file.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::store::burn_pack::{Error as PackError, Tensor as PackTensor};
use burn::store::{ModuleSnapshot, ModuleStore, SafetensorsStore, SafetensorsStoreError, bridge};
use burn::tensor::{DType, Tensor, TensorData};

use crate::error::{Error, Result, one_line};
use crate::files;

/// Writes every parameter of `module` to `path` in the safetensors format, under its path in the module.
///
/// The same weights make the same bytes. The file is replaced as a whole, and only by finite weights: those that
/// [`load_weights`] would refuse do not take the place of good ones.
///
/// # Errors
/// [`Error::NonFiniteTensor`], or [`Error::Io`] if the file cannot be written.
pub fn save_weights<M: Module>(module: &M, path: &Path) -> Result<()> {
    files::replace(path, &to_bytes(module, path)?)
}

/// What [`save_weights`] writes to `path`.
pub(crate) fn to_bytes<M: Module>(module: &M, path: &Path) -> Result<Vec<u8>> {
    for (name, tensor) in named(module) {
        finite(&tensor, &name, path)?;
    }
    let failed =
        |error: SafetensorsStoreError| Error::io("write", path)(std::io::Error::other(one_line(&error)));
    // In memory: a file that the store itself replaces is for its owner alone. One entry of metadata: several would be written
    // in an order that changes from process to process.
    let mut store = SafetensorsStore::from_bytes(None).clear_metadata().metadata("producer", "highrank");
    store.collect_from(module).map_err(failed)?;
    store.get_bytes().map_err(failed)
}

/// Reads what [`save_weights`] wrote into `module`, which keeps its parameters' identities.
///
/// Everything is checked before the first weight is replaced: the file must hold exactly the module's tensors,
/// of the module's shapes, with finite values.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`] (a truncated file, say), [`Error::WeightsMismatch`] with every tensor that is missing, left over or of
/// another shape, or [`Error::NonFiniteTensor`].
pub fn load_weights<M: Module>(mut module: M, path: &Path) -> Result<M> {
    let mut store = read(path)?;
    check(&named(&module), tensors(&mut store, path)?, path)?;
    store.apply_to(&mut module).map_err(|error| Error::damaged(path, one_line(&error)))?;
    Ok(module)
}

/// The largest difference between the parameters of two modules, in their order. All must be finite.
///
/// # Panics
/// If they have other numbers of parameters.
pub fn distance<M: Module>(a: &M, b: &M) -> f64 {
    struct Values(Vec<f64>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f64>());
        }
    }
    let values = |module: &M| {
        let mut values = Values(vec![]);
        module.visit(&mut values);
        values.0
    };
    let (a, b) = (values(a), values(b));
    assert_eq!(a.len(), b.len(), "distance: modules of other sizes");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// As [`load_weights`], but of the parameters that `is_cut` names `module` has the rows `rows` alone, and the file all of them.
pub(crate) fn load_rows<M: Module>(
    mut module: M,
    path: &Path,
    is_cut: impl Fn(ParamId) -> bool,
    rows: &Range<usize>,
    all: usize,
) -> Result<M> {
    let mut store = read(path)?;
    let (expected, mut found) = (named(&module), tensors(&mut store, path)?.clone());
    for (name, tensor) in &mut found {
        let id = expected.get(name).and_then(|own| own.param_id);
        if id.is_some_and(|id| is_cut(ParamId::from(id))) && tensor.shape.first() == Some(&all) {
            *tensor = cut(tensor, rows).map_err(|error| unreadable(path, name, &error))?;
        }
    }
    check(&expected, &found, path)?;
    let applied = module.apply(found.into_values().collect(), None, None, false);
    match applied.errors.first() {
        Some(error) => Err(Error::damaged(path, one_line(error))),
        None => Ok(module),
    }
}

/// Some rows of a tensor.
fn cut(tensor: &PackTensor, rows: &Range<usize>) -> Result<PackTensor, PackError> {
    let data = bridge::to_data(tensor)?;
    let mut shape = tensor.shape.to_vec();
    let row = data.as_bytes().len() / shape[0];
    let own = data.as_bytes()[rows.start * row..rows.end * row].to_vec();
    shape[0] = rows.len();
    let own = TensorData::from_bytes_vec(own, shape, tensor.dtype);
    Ok(bridge::from_data(own, tensor.name.clone(), tensor.param_id))
}

/// The file's bytes.
fn read(path: &Path) -> Result<SafetensorsStore> {
    Ok(SafetensorsStore::from_bytes(Some(fs::read(path).map_err(Error::io("read", path))?)))
}

/// The tensors of the file at `path`.
fn tensors<'a>(store: &'a mut SafetensorsStore, path: &Path) -> Result<&'a BTreeMap<String, PackTensor>> {
    store.get_all_tensors().map_err(|error| {
        let size = fs::metadata(path).map_or(0, |file| file.len());
        Error::damaged(path, format!("{} (the file has {size} bytes)", one_line(&error)))
    })
}

/// Whether a file holds exactly the expected tensors, of the expected shapes, with finite values.
fn check(
    expected: &BTreeMap<String, PackTensor>,
    found: &BTreeMap<String, PackTensor>,
    path: &Path,
) -> Result<()> {
    let mut problems = vec![];
    for (name, tensor) in expected {
        let expected = tensor.shape.to_vec();
        match found.get(name).map(|found| found.shape.to_vec()) {
            None => problems.push(format!("{name} is missing (it should be {expected:?})")),
            Some(found) if found != expected => {
                problems.push(format!("{name} is {found:?}, but should be {expected:?}"));
            }
            Some(_) => {}
        }
    }
    let extra = found.iter().filter(|(name, _)| !expected.contains_key(*name));
    problems.extend(
        extra.map(|(name, tensor)| format!("{name} ({:?}) is no tensor of the model", tensor.shape.to_vec())),
    );
    if !problems.is_empty() {
        return Err(Error::WeightsMismatch { path: path.to_path_buf(), problems });
    }
    found.iter().try_for_each(|(name, tensor)| finite(tensor, name, path))
}

/// A module's tensors by their paths in it.
fn named<M: Module>(module: &M) -> BTreeMap<String, PackTensor> {
    module.collect(None, None, false).into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect()
}

/// Whether all values are finite; `path` is the file that holds them, or will.
fn finite(tensor: &PackTensor, name: &str, path: &Path) -> Result<()> {
    let data = bridge::to_data(tensor).map_err(|error| unreadable(path, name, &error))?;
    let finite = match (data.dtype(), data.as_slice::<f32>()) {
        (_, Ok(values)) => values.iter().all(|value| value.is_finite()),
        (DType::F32 | DType::F64 | DType::F16 | DType::BF16, _) => data.iter::<f64>().all(f64::is_finite),
        _ => true,
    };
    match finite {
        true => Ok(()),
        false => Err(Error::NonFiniteTensor { path: path.to_path_buf(), tensor: name.to_string() }),
    }
}

fn unreadable(path: &Path, name: &str, error: &PackError) -> Error {
    Error::damaged(path, format!("tensor {name}: {error}"))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::{Device, Tensor};
    use std::path::PathBuf;

    #[derive(Module, Debug)]
    struct Pair {
        weight: Param<Tensor<2>>,
        bias: Param<Tensor<1>>,
    }

    #[derive(Module, Debug)]
    struct Single {
        weight: Param<Tensor<2>>,
    }

    fn pair(rows: usize, value: f32) -> Pair {
        let device = Device::flex();
        Pair {
            weight: Param::from_tensor(Tensor::full([rows, 3], value, &device)),
            bias: Param::from_tensor(Tensor::from_data([1.0, 2.0], &device)),
        }
    }

    fn saved(module: &impl Module) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_weights(module, &path).unwrap();
        (folder, path)
    }

    fn message(module: Pair, path: &Path) -> String {
        let message = load_weights(module, path).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn weights_come_back_bit_for_bit() {
        let original = pair(2, 0.1);
        let (_folder, path) = saved(&original);
        let fresh = pair(2, 0.0);
        let id = fresh.weight.id;
        let loaded = load_weights(fresh, &path).unwrap();
        assert_eq!(loaded.weight.to_data(), original.weight.to_data());
        assert_eq!(loaded.bias.to_data(), original.bias.to_data());
        assert_eq!(loaded.weight.id, id);
    }

    #[test]
    fn the_same_weights_make_the_same_bytes_and_nothing_else() {
        let (folder, path) = saved(&pair(2, 0.1));
        let first = fs::read(&path).unwrap();
        save_weights(&pair(2, 0.2), &path).unwrap();
        assert_ne!(fs::read(&path).unwrap(), first);
        let training = pair(2, 0.1).train();
        save_weights(&training, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn weights_under_training_are_loaded_as_such() {
        let (_folder, path) = saved(&pair(2, 0.1));
        let loaded = load_weights(pair(2, 0.0).train(), &path).unwrap();
        assert!(loaded.weight.is_require_grad() && loaded.weight.val().is_autodiff());
        assert!(!load_weights(pair(2, 0.0), &path).unwrap().weight.val().is_autodiff());
    }

    #[test]
    fn another_shape_names_both() {
        let (_folder, path) = saved(&pair(2, 0.1));
        let message = message(pair(4, 0.1), &path);
        assert!(
            message.contains("does not fit the model: weight is [2, 3], but should be [4, 3]"),
            "{message}"
        );
    }

    #[test]
    fn missing_and_extra_tensors_are_named() {
        let single = Single { weight: pair(2, 0.1).weight };
        let (_folder, path) = saved(&single);
        let missing = message(pair(2, 0.1), &path);
        assert!(missing.ends_with("does not fit the model: bias is missing (it should be [2])"), "{missing}");
        let (_folder, path) = saved(&pair(2, 0.1));
        let message = load_weights(single, &path).unwrap_err().to_string();
        assert!(
            message.ends_with("does not fit the model: bias ([2]) is no tensor of the model"),
            "{message}"
        );
    }

    #[test]
    fn truncated_files_are_damaged_wherever_they_end() {
        let (_folder, path) = saved(&pair(2, 0.1));
        let bytes = fs::read(&path).unwrap();
        for length in [0, 4, 8, 40, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let message = message(pair(2, 0.1), &path);
            assert!(message.contains("model.safetensors` is damaged"), "{message}");
        }
    }

    #[test]
    fn weights_that_are_not_finite_are_refused() {
        for value in [f32::NAN, f32::INFINITY] {
            let (_folder, path) = saved(&pair(2, 0.1));
            let good = fs::read(&path).unwrap();
            let error = save_weights(&pair(2, value), &path).unwrap_err().to_string();
            assert!(error.contains("tensor weight holds a value that is not finite"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), good);

            // A file of another origin: one of its weights is 0.1.
            let mut bytes = good;
            let place = bytes.windows(4).position(|word| word == 0.1f32.to_le_bytes()).unwrap();
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
            fs::write(&path, bytes).unwrap();
            assert!(message(pair(2, 0.1), &path).contains("tensor weight holds a value that is not finite"));
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nowhere/model.safetensors");
        let message = save_weights(&pair(2, 0.1), &path).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write `{}`: ", path.display())), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn a_missing_file_is_an_io_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nothing.safetensors");
        assert!(matches!(load_weights(pair(2, 0.1), &path), Err(Error::Io { .. })));
    }
}
