//! From a model to a state dict and back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use burn::store::{ModuleSnapshot, TensorSnapshot};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Element, TensorData};

use super::names::{self, Name};
use super::state_dict::{StateDict, is_float};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::model::LanguageModel;

impl StateDict {
    /// The weights of a model. A tied model has its matrix under both names, as PyTorch's state dicts do.
    ///
    /// # Panics
    /// If the model has a parameter that no state dict has a name for. No [`ModelConfig`] makes one.
    pub fn of_model<B: Backend>(model: &LanguageModel<B>) -> Self {
        let mut tensors: BTreeMap<String, TensorData> = parameters(model)
            .map(|(snapshot, Name { name, transposed })| {
                let data = snapshot.to_data().expect("a model's own tensors can be read");
                (name, if transposed { transpose(&data) } else { data })
            })
            .collect();
        if model.decoder.is_none() {
            tensors.insert("decoder.weight".into(), tensors["encoder.weight"].clone());
        }
        Self { source: PathBuf::new(), tensors }
    }

    /// The model of the given configuration with these weights, in the backend's own float type.
    ///
    /// # Errors
    /// What [`ModelConfig::try_init`] says; [`Error::WeightsMismatch`] with every tensor that is missing, left over, of
    /// another shape or not of real numbers.
    pub fn model<B: Backend>(&self, config: &ModelConfig, device: &B::Device) -> Result<LanguageModel<B>> {
        self.model_of_dtype(config, device, B::FloatElem::dtype())
    }

    /// As [`model`](Self::model), with weights of the float type `dtype`.
    ///
    /// # Errors
    /// As [`model`](Self::model).
    pub fn model_of_dtype<B: Backend>(
        &self,
        config: &ModelConfig,
        device: &B::Device,
        dtype: DType,
    ) -> Result<LanguageModel<B>> {
        let mut model = config.try_init::<B>(device)?;
        let (mut problems, mut known, mut snapshots) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (parameter, Name { name, transposed }) in parameters(&model) {
            let mut expected = parameter.shape.to_vec();
            if transposed {
                expected.reverse();
            }
            match self.tensors.get(&name) {
                None => problems.push(format!("{name} is missing (it should be {expected:?})")),
                Some(tensor) if tensor.shape.as_slice() != expected => {
                    problems
                        .push(format!("{name} is {:?}, but should be {expected:?}", tensor.shape.as_slice()));
                }
                Some(tensor) if !is_float(tensor.dtype) => {
                    problems.push(format!("{name} holds {:?} instead of real numbers", tensor.dtype));
                }
                Some(tensor) => {
                    let data = if transposed { transpose(tensor) } else { tensor.clone() };
                    let path = parameter.full_path().split('.').map(String::from).collect();
                    let id = parameter.tensor_id.unwrap_or_default();
                    snapshots.push(TensorSnapshot::from_data(data.convert_dtype(dtype), path, vec![], id));
                }
            }
            known.insert(name);
        }
        if config.tied {
            known.insert("decoder.weight".into());
        }
        let extra = self.tensors.iter().filter(|(name, _)| !known.contains(*name));
        problems.extend(extra.map(|(name, tensor)| {
            format!("{name} ({:?}) is no tensor of a {} model", tensor.shape.as_slice(), config.head)
        }));
        if !problems.is_empty() {
            return Err(Error::WeightsMismatch { path: self.source.clone(), problems });
        }
        let result = model.apply(snapshots, None, None, false);
        assert!(result.is_success() && result.unused.is_empty(), "checked weights do not apply: {result}");
        Ok(model)
    }
}

/// The parameters of a model with their names in a state dict.
fn parameters<B: Backend>(model: &LanguageModel<B>) -> impl Iterator<Item = (TensorSnapshot, Name)> {
    model.collect(None, None, false).into_iter().map(|parameter| {
        let path = parameter.full_path();
        let name =
            names::of_parameter(&path).unwrap_or_else(|| panic!("no state dict has a name for {path}"));
        (parameter, name)
    })
}

/// A transposed matrix, bit for bit.
fn transpose(matrix: &TensorData) -> TensorData {
    let (rows, columns) = (matrix.shape[0], matrix.shape[1]);
    let width = matrix.dtype.size();
    let bytes = matrix.as_bytes();
    let mut transposed = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row in 0..rows {
            let at = (row * columns + column) * width;
            transposed.extend_from_slice(&bytes[at..at + width]);
        }
    }
    TensorData::from_bytes_vec(transposed, [columns, rows], matrix.dtype)
}

#[cfg(all(test, feature = "flex"))]
mod tests;
