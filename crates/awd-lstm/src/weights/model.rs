//! From a model to a state dict and back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank_kernels::Floats;

use super::names::{self, Name};
use super::state_dict::{StateDict, is_float};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::model::LanguageModel;

/// Largest number of parameters that a model is made with, as a multiple of the numbers in a state dict. No model of more fits the
/// state dict, and its other tensors are named as long as the model is small enough to be made.
const EXPANSION: usize = 64;

impl StateDict {
    /// The weights of a model. A tied model has its matrix under both names, as PyTorch's state dicts do.
    ///
    /// # Panics
    /// If the model has a parameter that no state dict has a name for. No [`ModelConfig`] makes one.
    pub fn of_model(model: &LanguageModel) -> Self {
        let mut tensors: BTreeMap<String, TensorData> = parameters(model)
            .into_iter()
            .map(|(path, values)| {
                let Name { name, transposed } = name(&path);
                let data = values.into_data();
                (name, if transposed { transpose(&data) } else { data })
            })
            .collect();
        if model.decoder.is_none() {
            tensors.insert("decoder.weight".into(), tensors["encoder.weight"].clone());
        }
        Self { source: PathBuf::new(), tensors }
    }

    /// The model of the given configuration with these weights, in the device's own float type.
    ///
    /// # Errors
    /// Those of [`ModelConfig::try_init`]; [`Error::WeightsMismatch`] with every tensor that is missing, left over, of
    /// another shape or not of real numbers.
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
        let (needed, held) =
            (config.num_params(), self.tensors.values().map(TensorData::num_elements).sum::<usize>());
        if needed / EXPANSION > held {
            let problem = format!("the model has {needed} parameters, but the file holds {held} numbers");
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems: vec![problem] });
        }
        let model = config.try_init(device)?;
        let (mut problems, mut known, mut values) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        for (path, parameter) in parameters(&model) {
            let Name { name, transposed } = name(&path);
            let mut expected = parameter.shape().to_vec();
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
                    values.insert(path, data.convert_dtype(dtype));
                }
            }
            known.insert(name);
        }
        if config.tied {
            known.insert("decoder.weight".into());
        }
        let extra = self.tensors.iter().filter(|(name, _)| !known.contains(*name));
        problems.extend(extra.map(|(name, tensor)| {
            format!("{name} ({:?}) is no tensor of a {} model", tensor.shape().as_slice(), config.head)
        }));
        if !problems.is_empty() {
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems });
        }
        Ok(model.map(&mut Replace { path: Vec::new(), values }))
    }
}

/// The tensor of a state dict for the parameter at `path`.
fn name(path: &str) -> Name {
    names::of_parameter(path).unwrap_or_else(|| panic!("no state dict has a name for {path}"))
}

/// The parameters of a model by their paths in it.
fn parameters(model: &LanguageModel) -> Vec<(String, Floats)> {
    let mut collect = Collect { path: Vec::new(), found: Vec::new() };
    model.visit(&mut collect);
    collect.found
}

struct Collect {
    path: Vec<String>,
    found: Vec<(String, Floats)>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.join("."), param.val().into()));
    }
}

/// Replaces the values of all parameters.
struct Replace {
    path: Vec<String>,
    /// By the parameters' paths.
    values: BTreeMap<String, TensorData>,
}

impl ModuleMapper for Replace {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let data = self.values.remove(&self.path.join(".")).expect("every parameter was looked up");
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
