//! From a model to a state dict and back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use burn::module::{Module, ModuleMapper, Param};
use burn::store::burn_pack::Tensor as PackTensor;
use burn::store::{ModuleSnapshot, bridge};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::names::{self, TensorName};
use super::state_dict::{StateDict, is_float};
use crate::config::ModelConfig;
use crate::model::LanguageModel;
use runs::error::{Error, Result};

/// Largest number of parameters that a model is made with, as a multiple of the numbers in a state dict. No model of more fits the
/// state dict, and its other tensors are named as long as the model is small enough to be made.
const EXPANSION: usize = 64;

impl StateDict {
    /// The weights of a model. A tied model has its matrix under both names, as PyTorch's state dicts do.
    ///
    /// # Panics
    /// If the model has a parameter that no state dict has a name for. No [`ModelConfig`] makes one.
    pub fn of_model(model: &LanguageModel) -> Self {
        let mut state = Self::of_module(model, |path| names::of_parameter(path, model.connected()));
        if model.decoder.is_none() {
            state.tensors.insert("decoder.weight".into(), state.tensors["encoder.weight"].clone());
        }
        state
    }

    /// The weights of any module, under the names that `name` gives the parameters' paths in it.
    ///
    /// # Panics
    /// If a parameter has no name.
    pub fn of_module<M: Module>(module: &M, name: impl Fn(&str) -> Option<TensorName>) -> Self {
        let named = |parameter: PackTensor| {
            let TensorName { name, transposed } = named(&name, &parameter.name);
            let data = values(&parameter);
            (name, if transposed { transpose(&data) } else { data })
        };
        let tensors = parameters(module).into_iter().map(named).collect();
        Self { source: PathBuf::new(), tensors, metadata: BTreeMap::new() }
    }

    /// The model of the given configuration with these weights, in the device's own float type.
    ///
    /// # Errors
    /// Those of [`ModelConfig::try_init`]; [`Error::WeightsMismatch`] with every tensor that is missing, left over, of
    /// another shape, not of real numbers or with one beyond the float type.
    pub fn model(&self, config: &ModelConfig, device: &Device) -> Result<LanguageModel> {
        self.model_of_dtype(config, device, device.settings().float_dtype.into())
    }

    /// As [`model`](Self::model), with weights of the float type `dtype`.
    ///
    /// # Errors
    /// As [`model`](Self::model).
    pub fn model_of_dtype(
        &self,
        config: &ModelConfig,
        device: &Device,
        dtype: DType,
    ) -> Result<LanguageModel> {
        self.check_size(config.num_params())?;
        let also: &[&str] = if config.tied { &["decoder.weight"] } else { &[] };
        let model = config.try_init(device)?;
        let connected = model.connected().to_vec();
        let name = |path: &str| names::of_parameter(path, &connected);
        self.fill(model, name, also, config.head.name(), dtype)
    }

    /// Refuses to make a model of so many parameters that the tensors cannot be all of its weights.
    ///
    /// # Errors
    /// [`Error::WeightsMismatch`].
    pub fn check_size(&self, parameters: usize) -> Result<()> {
        let held = self.tensors.values().map(TensorData::num_elements).sum::<usize>();
        if parameters / EXPANSION > held {
            let problem = format!("the model has {parameters} parameters, but the file holds {held} numbers");
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems: vec![problem] });
        }
        Ok(())
    }

    /// Any module with these weights in the place of its own, of the float type `dtype`. `name` gives the tensors for the
    /// parameters' paths in the module; `also` names tensors that may be there besides, and `kind` the model in messages.
    ///
    /// # Errors
    /// [`Error::WeightsMismatch`] with every tensor that is missing, left over, of another shape or not of real numbers.
    ///
    /// # Panics
    /// If a parameter has no name.
    pub fn fill<M: Module>(
        &self,
        module: M,
        name: impl Fn(&str) -> Option<TensorName>,
        also: &[&str],
        kind: &str,
        dtype: DType,
    ) -> Result<M> {
        let (mut problems, mut known, mut values) = (Vec::new(), BTreeSet::new(), HashMap::new());
        for PackTensor { name: path, shape, param_id, .. } in parameters(&module) {
            let TensorName { name, transposed } = named(&name, &path);
            let mut expected = shape.to_vec();
            if transposed {
                expected.reverse();
            }
            match self.tensors.get(&name) {
                None => problems.push(format!("{name} is missing (it should be {expected:?})")),
                Some(tensor) if tensor.shape().as_slice() != expected => {
                    let found = tensor.shape().as_slice();
                    problems.push(format!("{name} is {found:?}, but should be {expected:?}"));
                }
                Some(tensor) if !is_float(tensor.dtype()) => {
                    problems.push(format!("{name} holds {:?} instead of real numbers", tensor.dtype()));
                }
                Some(tensor) => {
                    let data = if transposed { transpose(tensor) } else { tensor.clone() };
                    let data = data.convert_dtype(dtype);
                    // Finite as it was read, but a narrower type may have no such number.
                    if data.iter::<f64>().any(|value| !value.is_finite()) {
                        problems.push(format!("{name} holds a number beyond {}", float_name(dtype)));
                    }
                    values.insert(param_id, data);
                }
            }
            known.insert(name);
        }
        known.extend(also.iter().map(|name| name.to_string()));
        let extra = self.tensors.iter().filter(|(name, _)| !known.contains(*name));
        problems.extend(extra.map(|(name, tensor)| {
            format!("{name} ({:?}) is no tensor of a {kind} model", tensor.shape().as_slice())
        }));
        if !problems.is_empty() {
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems });
        }
        Ok(module.map(&mut Replace { values }))
    }
}

/// A float type in messages: `f32`.
fn float_name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}

/// The tensor of a state dict for the parameter at `path`.
fn named(name: impl Fn(&str) -> Option<TensorName>, path: &str) -> TensorName {
    name(path).unwrap_or_else(|| panic!("no state dict has a name for {path}"))
}

/// The parameters of a model, each under its path in it.
fn parameters<M: Module>(model: &M) -> Vec<PackTensor> {
    model.collect(None, None, false)
}

/// Waits for the device.
fn values(parameter: &PackTensor) -> TensorData {
    bridge::to_data(parameter).expect("a tensor can be read back")
}

/// Replaces the values of all parameters.
struct Replace {
    /// By the parameters' numbers, which all have.
    values: HashMap<Option<u64>, TensorData>,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let data = self.values.remove(&Some(param.id.val())).expect("every parameter was looked up");
        param.map(|old| {
            let dtype = data.dtype();
            Tensor::from_data(data, (&old.device(), dtype)).set_require_grad(old.is_require_grad())
        })
    }
}

/// A transposed matrix, bit for bit.
fn transpose(matrix: &TensorData) -> TensorData {
    let [rows, columns] = matrix.shape().dims();
    let width = matrix.dtype().size();
    let bytes = matrix.as_bytes();
    let mut transposed = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row in 0..rows {
            let at = (row * columns + column) * width;
            transposed.extend_from_slice(&bytes[at..at + width]);
        }
    }
    TensorData::from_bytes_vec(transposed, [columns, rows], matrix.dtype())
}

#[cfg(all(test, feature = "flex"))]
mod tests;
