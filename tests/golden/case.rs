//! Reading reference cases: a manifest and one safetensors file a case, all reals in float64.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::backends::Setting;

/// The folders in the golden format to be checked: the project's own unless `HIGHRANK_GOLDEN_DIR` names another.
pub fn folders() -> Vec<PathBuf> {
    match std::env::var_os("HIGHRANK_GOLDEN_DIR") {
        Some(dir) => vec![PathBuf::from(dir)],
        None => ["", "options", "logprobs", "mixtape", "doc", "adaptive"].map(own).into(),
    }
}

/// A folder of the project's own.
pub fn own(name: &str) -> PathBuf {
    home().join("golden/data").join(name)
}

/// The folder of this package: where cargo says that it is, or a script that brought the program to another machine, else where it was
/// built.
pub fn home() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

#[derive(Deserialize)]
struct Manifest {
    cases: Vec<Entry>,
}

/// A case's line in the manifest.
#[derive(Deserialize, Clone, Default)]
pub struct Entry {
    pub name: String,
    pub file: String,
    pub kind: String,
    pub head: Option<String>,
    pub hyperparameters: serde_json::Value,
    #[serde(default)]
    pub max_abs_logit: f64,
    #[serde(default)]
    pub knot_margin: Option<f64>,
    /// Between the two largest log-probabilities of a token.
    #[serde(default)]
    pub argmax_margin: Option<f64>,
    #[serde(default)]
    pub float32_deviation: BTreeMap<String, f64>,
    /// Where the manifest says itself what a tensor may be off by.
    #[serde(default)]
    pub tolerance: Option<Stated>,
}

/// What tensors may be off by in each precision: usually, and those that need more.
#[derive(Deserialize, Clone)]
pub struct Stated {
    pub f64: f64,
    pub f32: f64,
    pub f64_of: BTreeMap<String, f64>,
    pub f32_of: BTreeMap<String, f64>,
}

/// A case with its tensors.
#[derive(Clone)]
pub struct Case {
    pub entry: Entry,
    tensors: BTreeMap<String, Array>,
}

/// A tensor as it is stored, integers widened to reals.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

/// All cases of a folder, in the manifest's order.
pub fn read(folder: &Path) -> Vec<Case> {
    let manifest: Manifest = from_json(&folder.join("manifest.json"));
    manifest.cases.into_iter().map(|entry| Case::read(folder, entry)).collect()
}

/// What a JSON file says.
pub fn from_json<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Case {
    fn read(folder: &Path, entry: Entry) -> Self {
        let path = folder.join(&entry.file);
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file =
            SafeTensors::deserialize(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tensors = file
            .iter()
            .map(|(name, view)| {
                let words = view.data().chunks_exact(8).map(|word| word.try_into().unwrap());
                let values = match view.dtype() {
                    Dtype::F64 => words.map(f64::from_le_bytes).collect(),
                    Dtype::I64 => words.map(|word| i64::from_le_bytes(word) as f64).collect(),
                    other => panic!("{}: tensor {name} has type {other:?}", path.display()),
                };
                (name.to_string(), Array { shape: view.shape().to_vec(), values })
            })
            .collect();
        Self { entry, tensors }
    }

    pub fn find(&self, name: &str) -> Option<&Array> {
        self.tensors.get(name)
    }

    #[track_caller]
    pub fn array(&self, name: &str) -> &Array {
        self.find(name).unwrap_or_else(|| panic!("case {} has no tensor {name}", self.entry.name))
    }

    /// Which rows of an input must have a gradient of exactly 0: those of tokens that do not count, and of masked words.
    pub fn without_gradient(&self, name: &str) -> Vec<bool> {
        let rows = |name: &str, has_none: fn(f64) -> bool| {
            self.find(name).map_or(vec![], |array| array.values.iter().map(|x| has_none(*x)).collect())
        };
        let masked = format!("masked.{name}");
        match name {
            _ if self.find(&masked).is_some() => rows(&masked, |masked| masked == 1.0),
            "hidden" => rows("counted", |counted| counted == 0.0),
            "decoder_weight" | "decoder_bias" => rows("param.decoder_bias", |bias| bias == f64::NEG_INFINITY),
            _ => vec![],
        }
    }

    pub fn hidden(&self, on: &Setting) -> Tensor<2> {
        self.tensor("hidden", on).require_grad()
    }

    pub fn targets(&self, on: &Setting) -> Tensor<1, Int> {
        self.ints("targets", &on.device)
    }

    /// The tokens that count.
    pub fn counted(&self) -> Vec<usize> {
        let flags = &self.array("counted").values;
        (0..flags.len()).filter(|token| flags[*token] == 1.0).collect()
    }

    /// The same, to select their rows: others hold anything.
    pub fn rows_that_count(&self, on: &Setting) -> Tensor<1, Int> {
        let rows: Vec<i64> = self.counted().iter().map(|token| *token as i64).collect();
        Tensor::from_data(rows.as_slice(), &on.device)
    }

    /// The words that an adaptive softmax masks by number.
    pub fn masked_words(&self) -> Option<Vec<usize>> {
        let words = self.entry.hyperparameters["masked_words"].as_array()?;
        Some(words.iter().map(|word| word.as_u64().expect("a word") as usize).collect())
    }

    /// The tensors whose names start with `prefix`, without it, as a case of another head.
    pub fn part(&self, prefix: &str, head: &str) -> Self {
        let entry = Entry { head: Some(head.into()), ..self.entry.clone() };
        let named = self.tensors.iter();
        let tensors =
            named.filter_map(|(name, array)| Some((name.strip_prefix(prefix)?.into(), array.clone())));
        Self { entry, tensors: tensors.collect() }
    }

    /// Adds to one number of a tensor.
    pub fn damage(&mut self, name: &str, element: usize, by: f64) {
        self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}")).values[element] += by;
    }

    /// The names of all tensors that start with `prefix`, without it.
    pub fn names_after<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.tensors.keys().filter_map(move |name| name.strip_prefix(prefix))
    }

    #[track_caller]
    pub fn tensor<const D: usize>(&self, name: &str, on: &Setting) -> Tensor<D> {
        self.array(name).tensor(on)
    }

    #[track_caller]
    pub fn ints<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D, Int> {
        let array = self.array(name);
        let values: Vec<i64> = array.values.iter().map(|&value| value as i64).collect();
        Tensor::from_data(TensorData::new(values, array.shape.clone()), device)
    }

    /// A number in the manifest's hyperparameters, by a path such as `plif.t`.
    #[track_caller]
    pub fn number(&self, path: &str) -> f64 {
        let value = path.split('.').fold(&self.entry.hyperparameters, |value, key| &value[key]);
        value.as_f64().unwrap_or_else(|| panic!("case {} has no number {path}", self.entry.name))
    }
}

/// Its values.
impl Deref for Array {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

impl Array {
    #[track_caller]
    pub fn tensor<const D: usize>(&self, on: &Setting) -> Tensor<D> {
        let data = TensorData::new(self.values.clone(), self.shape.clone()).convert_dtype(on.dtype);
        Tensor::from_data(data, (&on.device, on.dtype))
    }

    /// Row `i` of the first dimension.
    pub fn row(&self, i: usize) -> Array {
        let width = self.values.len() / self.shape[0];
        Array { shape: self.shape[1..].to_vec(), values: self.values[i * width..(i + 1) * width].to_vec() }
    }
}
