//! State dicts in PyTorch's own file formats: the zip archive since 1.6 and the sequence of pickles before it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use burn::tensor::{BoolStore, DType, TensorData};
use rawzip::{CompressionMethod, ZipArchive};

use super::pickle::{Id, Pickle, Value};

/// Why a file could not be read.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It is damaged or uses something unknown.
    Damaged(String),
    /// It holds an object of this class instead of a state dict.
    Object(String),
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Self::Damaged(reason.into())
    }
}

/// First pickle of a file older than the zip format: a number of ten bytes.
const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// Largest total of the tensors' bytes, as a multiple of the file's. A tied matrix is in a file once and in the state dict twice; a
/// file made to do harm has one storage under any number of names.
const EXPANSION: usize = 8;
/// Largest number of dimensions of a tensor. A model's parameters have two.
const MAX_DIMENSIONS: usize = 8;
/// Keys under which training programs put the state dict beside other things.
const NESTED_KEYS: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// Whether `bytes` start as a file of `torch.save` does.
pub(super) fn is_pytorch(bytes: &[u8]) -> bool {
    // Safetensors begin with the length of their header in eight bytes: one of 640 begins as the magic does.
    let is_length = bytes.get(4..8) == Some(&[0; 4][..]);
    bytes.starts_with(b"PK\x03\x04") || (bytes.starts_with(&LEGACY_MAGIC[..2]) && !is_length)
}

/// The tensors of a state dict by their names.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, TensorData>, Fault> {
    let file = if bytes.starts_with(b"PK") { zipped(bytes)? } else { legacy(bytes)? };
    file.tensors()
}

/// A file's pickle, and where in the file its storages lie.
struct File<'a> {
    bytes: &'a [u8],
    pickle: Pickle,
    storages: HashMap<String, Range<usize>>,
}

fn zipped(bytes: &[u8]) -> Result<File<'_>, Fault> {
    let fault = |error: rawzip::Error| Fault::Damaged(format!("not a whole zip archive: {error}"));
    let archive = ZipArchive::from_slice(bytes).map_err(fault)?;
    let (mut data, mut big_endian, mut storages) = (None, false, HashMap::new());
    let mut entries = archive.entries();
    while let Some(entry) = entries.next_entry().map_err(fault)? {
        let path = entry.file_path();
        let path = String::from_utf8_lossy(path.as_ref()).into_owned();
        if entry.compression_method() != CompressionMethod::STORE {
            return Err(format!("its entry {path} is compressed, which PyTorch never does").into());
        }
        let (start, end) = archive.get_entry(entry.wayfinder()).map_err(fault)?.compressed_data_range();
        let range = start as usize..end as usize;
        // Every path begins with the name of the archive.
        let name = path.split_once('/').map_or(path.as_str(), |(_, name)| name);
        if name == "data.pkl" {
            data = Some(range);
        } else if name == "byteorder" {
            big_endian = bytes[range].starts_with(b"big");
        } else if let Some(key) = name.strip_prefix("data/") {
            storages.insert(key.to_string(), range);
        }
    }
    if big_endian {
        return Err("it was written on a big-endian machine".into());
    }
    let data = data.ok_or("the archive has no data.pkl, so it is not from `torch.save`")?;
    Ok(File { bytes, pickle: Pickle::read(&bytes[data])?, storages })
}

fn legacy(bytes: &[u8]) -> Result<File<'_>, Fault> {
    if !bytes.starts_with(LEGACY_MAGIC) {
        return Err("it is a pickle, but not from `torch.save`".into());
    }
    let mut at = LEGACY_MAGIC.len();
    let mut next = || -> Result<Pickle, Fault> {
        let pickle = Pickle::read(&bytes[at..])?;
        at += pickle.length;
        Ok(pickle)
    };
    // The protocol's version and the machine's properties, what was saved, and the storages' keys in file order.
    next()?;
    let system = next()?;
    let (pickle, keys) = (next()?, next()?);
    if let Value::Dict(entries) = system.root()
        && entries.iter().any(|&(key, value)| {
            system.value(key) == &Value::Text("little_endian".into())
                && system.value(value) == &Value::Bool(false)
        })
    {
        return Err("it was written on a big-endian machine".into());
    }
    let Value::List(items) = keys.root() else { return Err("it has no list of storages".into()) };
    let widths = storage_widths(&pickle);
    let mut storages = HashMap::new();
    for &item in items {
        let Value::Text(key) = keys.value(item) else { return Err("a storage's key is not text".into()) };
        let count = bytes.get(at..at + 8).ok_or("it ends before its last storage")?;
        let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
        let width = *widths.get(key.as_str()).ok_or_else(|| format!("nothing uses the storage {key}"))?;
        let start = at + 8;
        at = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(width)?.checked_add(start))
            .filter(|&end| end <= bytes.len())
            .ok_or("it ends before its last storage")?;
        storages.insert(key.clone(), start..at);
    }
    Ok(File { bytes, pickle, storages })
}

/// Bytes of an element of each storage in a pickle.
fn storage_widths(pickle: &Pickle) -> HashMap<&str, usize> {
    let storages = pickle.values().filter_map(|value| match value {
        Value::Storage(items) => Some((items.get(1)?, items.get(2)?)),
        _ => None,
    });
    storages
        .filter_map(|(&class, &key)| match (pickle.value(class), pickle.value(key)) {
            (Value::Global(class), Value::Text(key)) => Some((key.as_str(), element(class)?.size())),
            _ => None,
        })
        .collect()
}

/// Type of the elements of a storage class.
fn element(class: &str) -> Option<DType> {
    Some(match class.strip_prefix("torch.")? {
        "FloatStorage" => DType::F32,
        "DoubleStorage" => DType::F64,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "LongStorage" => DType::I64,
        "IntStorage" => DType::I32,
        "ShortStorage" => DType::I16,
        "CharStorage" => DType::I8,
        "ByteStorage" => DType::U8,
        "BoolStorage" => DType::Bool(BoolStore::Native),
        _ => return None,
    })
}

impl File<'_> {
    fn tensors(&self) -> Result<BTreeMap<String, TensorData>, Fault> {
        let entries = match self.pickle.root() {
            Value::Dict(entries) => self.nested(entries).unwrap_or(entries),
            Value::Object(class) => return Err(Fault::Object(format!("a whole pickled object ({class})"))),
            Value::Tensor(_) => return Err(Fault::Object("a single tensor".into())),
            _ => return Err(Fault::Object("something without tensors".into())),
        };
        let mut tensors = BTreeMap::new();
        let mut room = self.bytes.len().saturating_mul(EXPANSION);
        for &(key, value) in entries {
            let Value::Text(name) = self.pickle.value(key) else {
                return Err(Fault::Object("a dictionary with keys that are no names".into()));
            };
            match self.pickle.value(value) {
                Value::Tensor(args) => {
                    let tensor =
                        self.tensor(args, &mut room).map_err(|reason| format!("tensor {name}: {reason}"))?;
                    tensors.insert(name.clone(), tensor);
                }
                Value::Object(class) => {
                    return Err(Fault::Object(format!("a dictionary with `{name}`, an object of {class}")));
                }
                _ => return Err(Fault::Object(format!("a dictionary with `{name}`, which is no tensor"))),
            }
        }
        Ok(tensors)
    }

    /// The state dict inside a training program's checkpoint.
    fn nested(&self, entries: &[(Id, Id)]) -> Option<&[(Id, Id)]> {
        entries.iter().find_map(|&(key, value)| match (self.pickle.value(key), self.pickle.value(value)) {
            (Value::Text(key), Value::Dict(inner)) if NESTED_KEYS.contains(&key.as_str()) => {
                Some(inner.as_slice())
            }
            _ => None,
        })
    }

    /// The tensor with these arguments, whose bytes are taken from `room`.
    fn tensor(&self, args: &[Id], room: &mut usize) -> Result<TensorData, String> {
        let [storage, offset, sizes, strides, ..] = args else { return Err("it lacks a part".into()) };
        let Value::Storage(storage) = self.pickle.value(*storage) else {
            return Err("it has no storage".into());
        };
        let [_, class, key, rest @ ..] = storage.as_slice() else {
            return Err("its storage lacks a part".into());
        };
        let (Value::Global(class), Value::Text(key)) = (self.pickle.value(*class), self.pickle.value(*key))
        else {
            return Err("its storage has no name".into());
        };
        if rest.get(2).is_some_and(|&view| self.pickle.value(view) != &Value::None) {
            return Err("its storage is a part of another, as PyTorch before 0.4 wrote it".into());
        }
        let dtype = element(class).ok_or_else(|| format!("its storage is of the unknown type {class}"))?;
        let range = self.storages.get(key).ok_or_else(|| format!("the file lacks its storage {key}"))?;
        let (sizes, strides) = (self.sizes(*sizes)?, self.sizes(*strides)?);
        let offset = self.size(*offset)?;
        gather(&self.bytes[range.clone()], dtype, offset, sizes, &strides, room)
    }

    fn size(&self, id: Id) -> Result<usize, String> {
        match self.pickle.value(id) {
            Value::Int(size) => usize::try_from(*size).map_err(|_| format!("a size of {size}")),
            _ => Err("a size that is no number".into()),
        }
    }

    fn sizes(&self, id: Id) -> Result<Vec<usize>, String> {
        match self.pickle.value(id) {
            Value::Tuple(items) if items.len() > MAX_DIMENSIONS => {
                Err(format!("a shape of {} dimensions", items.len()))
            }
            Value::Tuple(items) => items.iter().map(|&item| self.size(item)).collect(),
            _ => Err("its shape is no tuple".into()),
        }
    }
}

/// A view of a storage, as a tensor in row-major order, whose bytes are taken from `room`.
fn gather(
    storage: &[u8],
    dtype: DType,
    offset: usize,
    sizes: Vec<usize>,
    strides: &[usize],
    room: &mut usize,
) -> Result<TensorData, String> {
    let width = dtype.size();
    let available = storage.len() / width;
    let count = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    // The furthest element; a view that repeats elements would be larger than its storage.
    let last = sizes.iter().zip(strides).try_fold(offset, |sum, (&size, &stride)| {
        sum.checked_add(size.saturating_sub(1).checked_mul(stride)?)
    });
    let (Some(count), Some(last)) = (count, last) else {
        return Err(format!("its shape {sizes:?} is too large"));
    };
    if sizes.len() != strides.len() || (count > 0 && (count > available || last >= available)) {
        return Err(format!("its shape {sizes:?} does not fit its storage of {available} elements"));
    }
    *room = room.checked_sub(count * width).ok_or_else(|| {
        format!("with it the tensors are more than {EXPANSION} times the file, which repeats its storages")
    })?;
    let mut bytes = Vec::with_capacity(count * width);
    let mut index = vec![0; sizes.len()];
    for _ in 0..count {
        let at = offset + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        bytes.extend_from_slice(&storage[at * width..(at + 1) * width]);
        for (i, size) in index.iter_mut().zip(&sizes).rev() {
            *i += 1;
            if *i < *size {
                break;
            }
            *i = 0;
        }
    }
    Ok(TensorData::from_bytes_vec(bytes, sizes, dtype))
}

#[cfg(test)]
#[path = "pytorch_tests.rs"]
mod tests;
