//! What the tests of backends share: numbers as tensors, most of them on Flex, likelihoods, comparisons, and pools of threads.

use burn::backend::{Backend, Flex};
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank_kernels::{Floats, Ints, Precision};
use rayon::ThreadPoolBuilder;

use crate::ops::{Activation, ContextSource, LatentArgs, LatentMask, LikelihoodInput, LogitMapConfig, wide};

/// Multiples of 1/512 in about ±1 times `scale`, a power of 2: numbers that every float type but the shortest has.
pub(super) fn tensor<const D: usize>(
    shape: [usize; D],
    seed: usize,
    scale: f64,
    dtype: DType,
) -> Floats<Flex> {
    let number = |i: usize| (((i + 31 * seed) * 7919 + 13 * seed) % 1009) as f64 / 512.0 - 1.0;
    floats((0..shape.iter().product()).map(|i| number(i) * scale).collect(), shape, dtype)
}

/// A tensor of these numbers.
pub(super) fn floats<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType) -> Floats<Flex> {
    Floats::from_data(TensorData::new(values, shape).convert_dtype(dtype), &Default::default())
}

/// A tensor of these integers.
pub(super) fn integers<const D: usize>(values: Vec<i64>, shape: [usize; D]) -> Ints<Flex> {
    Ints::from_data(TensorData::new(values, shape), &Default::default())
}

/// The numbers of a tensor.
pub(super) fn values<B: Backend>(x: &Floats<B>) -> Vec<f64> {
    x.clone().into_data().iter::<f64>().collect()
}

/// A tensor that users see, of numbers in ±1 from `first` on in a sequence.
pub(super) fn spread<const D: usize>(
    shape: [usize; D],
    first: usize,
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i + first) * 7919 % 1009) as f64 / 504.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, dtype))
}

/// A tensor that users see on Flex.
pub(super) fn primitive<const D: usize>(tensor: Tensor<D>) -> Floats<Flex> {
    Floats::new(tensor.try_into_primitive::<Flex>().unwrap())
}

/// Checks each number against the one that is expected, relative to the largest of these or 1.
#[track_caller]
pub(super) fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * scale, "{what}, element {i}: {got} against {want}");
    }
}

/// As [`assert_close`], each relative to the number that is expected of it or 1.
#[track_caller]
pub(super) fn assert_each_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let near = got == want || (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(near, "{what}, element {i}: {got} against {want}");
    }
}

/// What a likelihood is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    pub(super) tokens: usize,
    /// 0 for one component without a prior.
    pub(super) components: usize,
    pub(super) vocab: usize,
    pub(super) d: usize,
    /// Of the hidden state that a latent layer makes the contexts of, or 0 where they are given.
    pub(super) d_hidden: usize,
    /// Of that layer.
    pub(super) activation: Activation,
    pub(super) map: LogitMapConfig,
    /// Of the decoder, and so of the logits.
    pub(super) scale: f64,
    /// Of the log-priors.
    pub(super) prior_scale: f64,
    /// The first masked word, if there is any.
    pub(super) masked: Option<usize>,
    pub(super) temperature: f64,
    /// Of the contexts or all of their layer, and of everything else.
    pub(super) types: [DType; 2],
    pub(super) precision: Precision,
    /// Tokens of a chunk.
    pub(super) chunk: usize,
}

impl Model {
    pub(super) const PLAIN: Self = Self {
        tokens: 5,
        components: 0,
        vocab: 41,
        d: 4,
        d_hidden: 0,
        activation: Activation::Tanh,
        map: LogitMapConfig::Identity,
        scale: 1.0,
        prior_scale: 1.0,
        masked: None,
        temperature: 1.0,
        types: [DType::F64; 2],
        precision: Precision::Full,
        chunk: 2,
    };

    /// The masked words. In a large vocabulary they are all words of one run of a row, too.
    pub(super) fn masked_words(&self) -> Vec<usize> {
        let Some(first) = self.masked else { return vec![] };
        let run = if self.vocab > 2100 { 1000..2100 } else { 0..0 };
        [first, 20].into_iter().chain(run).chain([self.vocab - 2, self.vocab - 1]).collect()
    }

    pub(super) fn input(&self) -> LikelihoodInput<Floats<Flex>> {
        let Self { tokens, vocab, d, d_hidden, map, types: [hidden, dtype], precision, .. } = *self;
        let components = self.components.max(1);
        let features = components * d;
        let contexts = match d_hidden {
            0 => ContextSource::Given(tensor([tokens * components, d], 1, 1.0, hidden)),
            _ => ContextSource::Latent(LatentArgs {
                activation: self.activation,
                d,
                hidden: tensor([tokens, d_hidden], 1, 1.0, hidden),
                weight: tensor([d_hidden, features], 7, 0.5, hidden),
                bias: Some(tensor([features], 8, 1.0, hidden)),
                mask: Some(LatentMask {
                    values: mask(features, hidden),
                    rows: [1, 0, 0, 1, 1, 0, 1, 0].into_iter().cycle().take(tokens).collect(),
                }),
                precision,
            }),
        };
        let mut bias = values(&tensor([vocab], 4, 1.0, dtype));
        self.masked_words().iter().for_each(|word| bias[*word] = f64::NEG_INFINITY);
        let log_prior = || tensor([tokens, components], 2, self.prior_scale, dtype);
        LikelihoodInput {
            contexts,
            // Not normalised, which nothing needs, but below 0.
            log_prior: (self.components > 0).then(|| log_prior().sub_scalar(self.prior_scale)),
            weight: tensor([vocab, d], 3, self.scale, dtype),
            bias: Some(floats(bias, [vocab], dtype)),
            map,
            map_params: (map.num_params() > 0).then(|| tensor([map.num_params()], 5, 1.0, dtype)),
            temperature: self.temperature,
            chunk_bytes: self.chunk * components * vocab * wide(dtype).size(),
            precision,
        }
    }
}

/// A dropout mask of two rows, of 0 and 2.
fn mask(features: usize, dtype: DType) -> Floats<Flex> {
    let x = tensor([2, features], 9, 1.0, dtype);
    x.zeros_like().fill_where(x.at_least(-0.25), 2.0)
}

/// Does work on so many threads.
pub(super) fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}
