//! Dynamic evaluation of a language model: every chunk of a text is scored, and then learned from.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use hmac_sha256::Hash as Sha256;

use crate::data::Batches;
use crate::model::{LanguageModel, StepLoss};
use crate::regularisation::Penalties;
use runs::data::Fingerprint;
use runs::error::{Error, Result};
use runs::optim::{DynamicConfig, DynamicUpdate, GradientStatistics};
use runs::{load_weights, save_weights};

/// Squared gradients of the mean nll over windows of `bptt` rows of `batches`, the training text, with a carried hidden state.
///
/// The model must be on an autodiff device, where dropout would act: make it with
/// [`Dropouts::NONE`](crate::config::Dropouts::NONE). `progress` receives the share of the work that is done.
///
/// # Errors
/// [`Error::NonFiniteDynamicLoss`] if a loss is not finite.
///
/// # Panics
/// If `bptt` is 0.
pub fn gradient_statistics(
    model: &LanguageModel,
    batches: &Batches,
    bptt: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<GradientStatistics> {
    let mut statistics = GradientStatistics::new();
    score_and_learn(model.clone(), ("the training text", batches), bptt, progress, |model, grads| {
        statistics.add(&model, &grads);
        model
    })?;
    Ok(statistics)
}

/// Mean nll of all predicted tokens of `batches`, in nats, where the model learns from each window of `bptt` rows after it was
/// scored (Krause et al., arXiv 1709.07432). The given model does not change.
///
/// The model must be on an autodiff device and without dropout, as for [`gradient_statistics`].
///
/// # Errors
/// What [`DynamicUpdate::new`] says; [`Error::NonFiniteDynamicLoss`] if a loss or the perplexity is not finite.
///
/// # Panics
/// If `bptt` is 0, or the statistics are another model's.
pub fn dynamic_nll(
    model: &LanguageModel,
    statistics: &GradientStatistics,
    config: &DynamicConfig,
    (what, batches): (&'static str, &Batches),
    bptt: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<f64> {
    let update = DynamicUpdate::new(model, statistics, config)?;
    let learn = |model: LanguageModel, grads| update.step(model, grads);
    let nll = score_and_learn(model.clone(), (what, batches), bptt, progress, learn)?;
    // A model that diverged may be wrong by any finite number of nats.
    if nll.exp().is_finite() { Ok(nll) } else { Err(Error::NonFiniteDynamicLoss { what }) }
}

/// Mean nll of all predicted tokens of a text, each window of `bptt` rows scored by the model that `learn` made with the gradients
/// of the window before it.
fn score_and_learn(
    mut model: LanguageModel,
    (what, batches): (&'static str, &Batches),
    bptt: usize,
    progress: &mut dyn FnMut(f64),
    mut learn: impl FnMut(LanguageModel, GradientsParams) -> LanguageModel,
) -> Result<f64> {
    assert!(bptt > 0, "bptt must be at least 1");
    let device = model.device();
    let mut state = model.zero_state(batches.batch());
    let (mut sum, mut tokens) = (0.0, 0);
    let count = batches.rows().saturating_sub(1).div_ceil(bptt);
    for (index, window) in batches.windows(bptt, &device).enumerate() {
        let of_window = window.targets.shape().num_elements();
        // Nothing of the graph outlives the backward pass: weights that it shares would be copied to be updated.
        let (StepLoss { nll, total, .. }, next) =
            model.loss(window.tokens, window.targets, state, Penalties::default());
        let nll = nll.into_data().iter::<f64>().next().unwrap_or(f64::NAN);
        if !nll.is_finite() {
            return Err(Error::NonFiniteDynamicLoss { what });
        }
        sum += nll * of_window as f64;
        tokens += of_window;
        state = next.detach();
        let grads = GradientsParams::from_grads(total.backward(), &model);
        model = learn(model, grads);
        progress((index + 1) as f64 / count as f64);
    }
    Ok(sum / tokens as f64)
}

/// The weights and the text that gradient statistics were made from. They are of no use for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatisticsOrigin {
    /// A few bytes of a hash, each as one number that f32 holds exactly.
    digest: Vec<u8>,
}

impl StatisticsOrigin {
    /// Bytes of the hash.
    const BYTES: usize = 12;

    /// Statistics of the weights in the file `weights`, on the training text of `corpus` in `batch` columns and windows of
    /// `bptt` rows.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn new(weights: &Path, corpus: &Fingerprint, batch: usize, bptt: usize) -> Result<Self> {
        let bytes = fs::read(weights).map_err(Error::io("read", weights))?;
        let mut hash = Sha256::new();
        hash.update(&bytes);
        hash.update(&corpus.train.sha256);
        hash.update(format!(" {batch} {bptt}"));
        Ok(Self { digest: hash.finalize()[..Self::BYTES].to_vec() })
    }
}

/// Statistics as a module, the form in which they are saved.
#[derive(Module, Debug)]
struct Saved {
    /// Sums of squares in the place of the weights.
    squares: LanguageModel,
    /// `[1]`
    batches: Param<Tensor<1>>,
    /// Bytes of the origin's hash.
    origin: Param<Tensor<1>>,
    /// Bytes of the SHA-256 of the values of all others.
    sha256: Param<Tensor<1>>,
}

impl Saved {
    /// SHA-256 of all values but its own, each as a little-endian f32.
    fn hash(&self) -> Vec<u8> {
        struct Values(Sha256);
        impl ModuleVisitor for Values {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let data = param.val().into_data();
                let bytes: Vec<u8> = data.iter::<f32>().flat_map(f32::to_le_bytes).collect();
                self.0.update(&bytes);
            }
        }
        let mut values = Values(Sha256::new());
        self.squares.visit(&mut values);
        values.visit_float(&self.batches);
        values.visit_float(&self.origin);
        values.0.finalize().to_vec()
    }
}

/// Whether a vector holds these bytes, each as a number.
fn holds(vector: &Param<Tensor<1>>, bytes: &[u8]) -> bool {
    let found: Vec<f32> = vector.val().into_data().iter().collect();
    found.len() == bytes.len() && found.iter().zip(bytes).all(|(found, byte)| *found == f32::from(*byte))
}

/// Writes statistics of `model` to the file `path`, in the safetensors format.
///
/// # Errors
/// As [`save_weights`].
pub fn save_statistics(
    statistics: &GradientStatistics,
    model: &LanguageModel,
    origin: &StatisticsOrigin,
    path: &Path,
) -> Result<()> {
    // On a plain device whatever the model's: these are no weights under training.
    let model = model.valid();
    let device = model.device();
    let vector = |values: Vec<f32>| Param::from_tensor(Tensor::from_data(values.as_slice(), &device));
    let bytes = |bytes: &[u8]| vector(bytes.iter().map(|byte| f32::from(*byte)).collect());
    let mut saved = Saved {
        squares: model.map(&mut Replace { statistics }),
        batches: vector(vec![statistics.batches() as f32]),
        origin: bytes(&origin.digest),
        sha256: bytes(&[0]),
    };
    saved.sha256 = bytes(&saved.hash());
    save_weights(&saved, path)
}

/// Reads what [`save_statistics`] wrote for the same model and origin.
///
/// # Errors
/// What [`load_weights`] says; [`Error::Damaged`] if they are not what was written; [`Error::Settings`] if they are of another origin.
pub fn load_statistics(
    model: &LanguageModel,
    origin: &StatisticsOrigin,
    path: &Path,
) -> Result<GradientStatistics> {
    let model = model.valid();
    let device = model.device();
    let zeros = |count| Param::from_tensor(Tensor::zeros([count], &device));
    let origins = zeros(StatisticsOrigin::BYTES);
    let empty = Saved { squares: model, batches: zeros(1), origin: origins, sha256: zeros(32) };
    let saved = load_weights(empty, path)?;
    if !holds(&saved.sha256, &saved.hash()) {
        let reason = "its values are not those that were written; their SHA-256 is not the one in it";
        return Err(Error::Damaged { path: path.to_path_buf(), reason: reason.to_string() });
    }
    if !holds(&saved.origin, &origin.digest) {
        let reason = format!(
            "`{}` holds statistics of other weights, of another training text, or of another batch or bptt: name another file, or give \
             these as they were",
            path.display()
        );
        return Err(Error::Settings { reason });
    }
    let batches: f64 = saved.batches.val().into_data().iter().next().unwrap_or(0.0);
    let mut collect = Collect { sums: HashMap::new() };
    saved.squares.visit(&mut collect);
    Ok(GradientStatistics::from_sums(collect.sums, batches as usize))
}

struct Replace<'a> {
    statistics: &'a GradientStatistics,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let sum = self.statistics.sum(param.id).expect("the statistics are this model's");
        param.map(|value| sum.reshape(value.shape()))
    }
}

struct Collect {
    sums: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for Collect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let count = value.shape().num_elements();
        self.sums.insert(param.id, value.reshape([count]));
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::config::{HeadKind, ModelConfig};
    use crate::testing::corpus_of;
    use crate::train::evaluate::mean_nll;
    use burn::tensor::Device;
    use runs::data::Corpus;
    use runs::optim::DynamicForm;

    fn corpus() -> Corpus {
        corpus_of(2000, 600)
    }

    fn model() -> LanguageModel {
        let device = Device::flex().autodiff();
        device.seed(1);
        ModelConfig::tiny(HeadKind::Mos, 30).try_init(&device).unwrap()
    }

    fn text(ids: &[u32], batch: usize) -> Batches {
        Batches::new("the text", ids, batch, 2).unwrap()
    }

    fn train_text(corpus: &Corpus) -> Batches {
        Batches::of("the training text", corpus.train(), 20, 2).unwrap()
    }

    const CONFIG: DynamicConfig =
        DynamicConfig { form: DynamicForm::Program, lr: 0.01, eps: 0.001, lambda: 0.05 };

    #[test]
    fn learning_from_what_was_scored_lowers_the_loss_of_what_follows() {
        let (model, corpus) = (model(), corpus());
        let mut shares = vec![];
        let statistics =
            gradient_statistics(&model, &train_text(&corpus), 5, &mut |share| shares.push(share)).unwrap();
        assert_eq!((statistics.batches(), shares.len()), (20, 20));
        assert_eq!(shares.last(), Some(&1.0));
        let valid = text(corpus.valid(), 1);
        let fixed = mean_nll(&model.valid(), &valid);
        let dynamic = |config: &DynamicConfig| {
            dynamic_nll(&model, &statistics, config, ("the validation text", &valid), 5, &mut |_| {}).unwrap()
        };
        // A model that was never trained has a lot to learn.
        let learned = dynamic(&CONFIG);
        assert!(learned < fixed - 0.05, "{learned} against {fixed}");
        // At a negligible rate nothing is learned; every token is scored once.
        let still = dynamic(&DynamicConfig { lr: 1e-12, ..CONFIG });
        assert!((still - fixed).abs() < 1e-4, "{still} against {fixed}");
        assert_eq!(dynamic(&CONFIG), learned);
    }

    #[test]
    fn a_chunk_is_scored_before_it_is_learned_from() {
        let (model, corpus) = (model(), corpus());
        let statistics = gradient_statistics(&model, &train_text(&corpus), 5, &mut |_| {}).unwrap();
        // A single chunk: learning from it comes too late.
        let short = text(&corpus.valid()[..6], 1);
        let wild = DynamicConfig { lr: 10.0, ..CONFIG };
        let dynamic =
            dynamic_nll(&model, &statistics, &wild, ("the validation text", &short), 5, &mut |_| {}).unwrap();
        assert!((dynamic - mean_nll(&model.valid(), &short)).abs() < 1e-6);
    }

    #[test]
    fn statistics_come_back_bit_for_bit_and_only_where_they_belong() {
        let (model, corpus) = (model(), corpus());
        let statistics = gradient_statistics(&model, &train_text(&corpus), 5, &mut |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (weights, path) = (folder.path().join("weights"), folder.path().join("statistics"));
        save_weights(&model.valid(), &weights).unwrap();
        let print = Fingerprint::of(&corpus);
        let origin = |batch| StatisticsOrigin::new(&weights, &print, batch, 5).unwrap();
        let inner = model.valid();
        save_statistics(&statistics, &inner, &origin(20), &path).unwrap();
        let loaded = load_statistics(&inner, &origin(20), &path).unwrap();
        assert_eq!(loaded.batches(), 20);
        let mut collect = Collect { sums: HashMap::new() };
        inner.visit(&mut collect);
        assert!(collect.sums.len() > 8);
        for id in collect.sums.into_keys() {
            let data = |statistics: &GradientStatistics| statistics.sum(id).unwrap().into_data();
            assert_eq!(data(&loaded), data(&statistics));
        }
        // The device of the model makes no difference.
        let (bytes, tracked) =
            (fs::read(&path).unwrap(), load_statistics(&model, &origin(20), &path).unwrap());
        save_statistics(&tracked, &model, &origin(20), &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let message = load_statistics(&inner, &origin(10), &path).unwrap_err().to_string();
        assert!(message.contains("of another batch or bptt") && !message.contains("damaged"), "{message}");
        // One bit of the last value.
        let mut flipped = bytes;
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&path, flipped).unwrap();
        let message = load_statistics(&inner, &origin(20), &path).unwrap_err().to_string();
        assert!(message.contains("statistics` is damaged: its values are not those"), "{message}");
    }
}
