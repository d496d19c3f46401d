//! Named tensors in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::names;
use super::pytorch::{self, Fault};
use runs::error::{Error, Result};
use runs::files;

/// The tensors of a model by the names of a PyTorch state dict (see [`weights`](super)), without the levels that
/// weight dropout adds.
#[derive(Debug, Clone)]
pub struct StateDict {
    /// The file it is from, for messages.
    pub(super) source: PathBuf,
    pub(super) tensors: BTreeMap<String, TensorData>,
    /// Further entries of a safetensors file, such as those of [`Noted`](super::Noted).
    pub(super) metadata: BTreeMap<String, String>,
}

impl StateDict {
    /// Reads a safetensors file or a state dict that `torch.save` wrote, whichever `path` holds.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if it is neither or incomplete; [`Error::NotAStateDict`] if it holds a
    /// whole pickled model; [`Error::NonFiniteTensor`] for NaN or infinite values.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(Error::io("read", path))?;
        let damaged = |reason: String| Error::Damaged { path: path.to_path_buf(), reason };
        let (tensors, metadata) = if pytorch::is_pytorch(&bytes) {
            let tensors = pytorch::read(&bytes).map_err(|fault| match fault {
                Fault::Damaged(reason) => damaged(reason),
                Fault::Object(found) => Error::NotAStateDict { path: path.to_path_buf(), found },
            })?;
            (tensors, BTreeMap::new())
        } else {
            (from_safetensors(&bytes).map_err(damaged)?, metadata_of(&bytes))
        };
        for (name, tensor) in &tensors {
            if is_float(tensor.dtype()) && tensor.iter::<f64>().any(|value| !value.is_finite()) {
                return Err(Error::NonFiniteTensor { path: path.to_path_buf(), tensor: name.clone() });
            }
        }
        Ok(Self { source: path.to_path_buf(), tensors: plain_names(tensors).map_err(damaged)?, metadata })
    }

    /// Writes a safetensors file that PyTorch reads with `safetensors.torch.load_file`. A file that is there is replaced as a
    /// whole.
    ///
    /// With `weight_dropout` the LSTMs' tensors have the names of a model that was made with weight dropout
    /// (`rnns.0.module.weight_hh_l0_raw`), otherwise those of plain layers. The same weights make the same bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written; a file that was there before is then unchanged.
    pub fn write(&self, path: &Path, weight_dropout: bool) -> Result<()> {
        let failed = |reason: String| Error::io("write", path)(std::io::Error::other(reason));
        let name = |name: &str| match weight_dropout {
            true => names::under_weight_dropout(name),
            false => name.to_string(),
        };
        let views = self
            .tensors
            .iter()
            .map(|(plain, tensor)| {
                let dtype = tensor.dtype();
                let dtype = dtype_name(dtype).ok_or_else(|| failed(format!("{plain}: {dtype:?}")))?;
                let view = TensorView::new(dtype, tensor.shape().to_vec(), tensor.as_bytes());
                Ok((name(plain), view.map_err(|error| failed(error.to_string()))?))
            })
            .collect::<Result<Vec<_>>>()?;
        let bytes = safetensors::serialize(views, None).map_err(|error| failed(error.to_string()))?;
        let mut metadata = self.metadata.clone();
        // What other programs look for.
        metadata.insert("format".into(), "pt".into());
        files::replace(path, &with_metadata(&bytes, &metadata))
    }

    /// Names and shapes of the tensors, in the order of the names.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.tensors().map(|(name, tensor)| (name, tensor.shape().as_slice()))
    }

    /// Names and values of the tensors, in the order of the names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorData)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

fn from_safetensors(bytes: &[u8]) -> Result<BTreeMap<String, TensorData>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| {
        format!("neither a safetensors file ({error}, {} bytes) nor one of `torch.save`", bytes.len())
    })?;
    file.iter()
        .map(|(name, view)| {
            let dtype = dtype_of(view.dtype())
                .ok_or_else(|| format!("tensor {name} has the element type {}", view.dtype()))?;
            let data = TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype);
            Ok((name.to_string(), data))
        })
        .collect()
}

/// The metadata of a safetensors file.
fn metadata_of(bytes: &[u8]) -> BTreeMap<String, String> {
    let read = SafeTensors::read_metadata(bytes).ok();
    read.and_then(|(_, header)| header.metadata().clone()).into_iter().flatten().collect()
}

/// A safetensors file with metadata, in the order of their names: the library writes them in an order that changes.
fn with_metadata(bytes: &[u8], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (header, tensors) = rest.split_at(length as usize);
    let header = header.trim_ascii_end();
    let entries = serde_json::to_string(metadata).expect("names and texts");
    let between = if header.len() > 2 { "," } else { "" };
    let mut longer = format!("{{\"__metadata__\":{entries}{between}").into_bytes();
    longer.extend_from_slice(&header[1..]);
    // Tensors begin at a multiple of eight bytes.
    longer.resize(longer.len().next_multiple_of(8), b' ');
    let length = (longer.len() as u64).to_le_bytes();
    [length.as_slice(), longer.as_slice(), tensors].concat()
}

/// The tensors without the levels that weight dropout and data-parallel training add to their names.
fn plain_names(tensors: BTreeMap<String, TensorData>) -> Result<BTreeMap<String, TensorData>, String> {
    let parallel = !tensors.is_empty() && tensors.keys().all(|name| name.starts_with("module."));
    let mut plain: BTreeMap<String, (bool, String, TensorData)> = BTreeMap::new();
    for (full, tensor) in tensors {
        let name = if parallel { full.strip_prefix("module.").unwrap_or(&full) } else { &full };
        let (name, raw) = names::plain(name);
        match plain.get(&name) {
            // Beside the raw matrix newer programs also save the one that the last forward pass dropped from it.
            Some((true, ..)) if !raw => {}
            Some((was_raw, other, _)) if *was_raw == raw => {
                return Err(format!("the tensors {other} and {full} are the same parameter"));
            }
            _ => {
                plain.insert(name, (raw, full, tensor));
            }
        }
    }
    Ok(plain.into_iter().map(|(name, (_, _, tensor))| (name, tensor)).collect())
}

/// Element types that both formats have and a model may be of.
const FLOATS: [(Dtype, DType); 4] = [
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
];

pub(super) fn is_float(dtype: DType) -> bool {
    FLOATS.iter().any(|&(_, float)| float == dtype)
}

fn dtype_name(dtype: DType) -> Option<Dtype> {
    FLOATS.iter().find(|(_, burn)| *burn == dtype).map(|&(name, _)| name)
}

fn dtype_of(name: Dtype) -> Option<DType> {
    let integers = [
        (Dtype::I64, DType::I64),
        (Dtype::I32, DType::I32),
        (Dtype::I16, DType::I16),
        (Dtype::I8, DType::I8),
        (Dtype::U8, DType::U8),
    ];
    FLOATS.iter().chain(&integers).find(|(known, _)| *known == name).map(|&(_, burn)| burn)
}
