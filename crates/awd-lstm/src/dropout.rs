//! Locked dropout and word dropout, as in AWD-LSTM (arXiv 1708.02182, sections 4.2 and 4.3). DropConnect is
//! [`lstm::weight_mask`](crate::lstm::weight_mask).
//!
//! Both act in training only, that is on tensors of an autodiff device. What they keep is scaled by `1/(1-p)`, so the mean does
//! not change. Masks are constants of the autodiff graph.

use burn::tensor::{DType, Device, Distribution, Gradients, Int, Tensor};
use runs::WordRows;

/// Locked (variational) dropout of a sequence `[T, B, F]` by a mask `[B, F]`, which all T time steps share.
pub(crate) fn locked(x: Tensor<3>, mask: Option<Tensor<2>>) -> Tensor<3> {
    let Some(mask) = mask else { return x };
    let [steps, batch, features] = x.dims();
    // As rows of one step: multiplying each row by the same one is a fast path of the CPU backend.
    let mask = mask.reshape([1, batch * features]);
    (x.reshape([steps, batch * features]) * mask).reshape([steps, batch, features])
}

/// Looks tokens `[T, B]` up in an embedding of which whole words are dropped by a mask `[V]`: a dropped word is zero wherever it
/// occurs in this pass.
///
/// The result `[T, B, d]` is that of a lookup in `embedding ∘ mask`, without making that matrix.
pub(crate) fn embed(
    vocabulary: &WordRows,
    embedding: Tensor<2>,
    tokens: Tensor<2, Int>,
    mask: Option<Tensor<1>>,
) -> Tensor<3> {
    let kept = mask.map(|mask| kept_words(mask, &tokens));
    times(vocabulary.lookup(embedding, tokens), kept)
}

/// The mask of each token's word, `[T, B, 1]`.
fn kept_words(mask: Tensor<1>, tokens: &Tensor<2, Int>) -> Tensor<3> {
    let [steps, batch] = tokens.dims();
    mask.select(0, tokens.clone().reshape([steps * batch])).reshape([steps, batch, 1])
}

fn times(rows: Tensor<3>, kept: Option<Tensor<3>>) -> Tensor<3> {
    match kept {
        Some(kept) => rows * kept,
        None => rows,
    }
}

/// The masks of one training step. Each is 0 where something is dropped and `1/(1-p)` elsewhere; none drops nothing.
///
/// [`LanguageModel::draw_masks`](crate::LanguageModel::draw_masks) draws them. Given ones make a step that another program can
/// repeat: [`train::step_by`](crate::train::step_by).
#[derive(Clone, Debug)]
pub struct Masks {
    /// Of the words of the embedding, `[V]`.
    pub words: Option<Tensor<1>>,
    /// Of the embedded tokens, `[B, d]`, the same in all time steps.
    pub input: Option<Tensor<2>>,
    /// Of the LSTM layers, first to last.
    pub layers: Vec<LayerMasks>,
    /// Of the contexts of a mixture, `[B, K·d]`. Without it, the output layer draws its own.
    pub latent: Option<Tensor<2>>,
}

impl Masks {
    /// The masks of `count` columns of the batch from `start` on. Masks of words and weights are the whole batch's.
    ///
    /// # Panics
    /// If the batch has fewer columns.
    pub fn columns(&self, start: usize, count: usize) -> Self {
        let rows = |mask: &Option<Tensor<2>>| mask.clone().map(|mask| mask.narrow(0, start, count));
        let layer =
            |layer: &LayerMasks| LayerMasks { weights: layer.weights.clone(), output: rows(&layer.output) };
        Self {
            words: self.words.clone(),
            input: rows(&self.input),
            layers: self.layers.iter().map(layer).collect(),
            latent: rows(&self.latent),
        }
    }
}

/// The masks of one LSTM layer.
#[derive(Clone, Debug)]
pub struct LayerMasks {
    /// Of the recurrent weights, `[4H, H]` (DropConnect).
    pub weights: Option<Tensor<2>>,
    /// Of the output, `[B, H]`, the same in all time steps: hidden dropout, or output dropout for the last layer.
    pub output: Option<Tensor<2>>,
}

/// The lookup of [`embed`] beside the graph: its gradient is added to that of the embedding after the backward pass.
///
/// As an operation in the graph it makes a gradient of the whole embedding, `[V, d]`, which is zero but for the words looked
/// up, and adds it to the one by the output layer that is tied to it: three visits of the matrix for a few rows.
#[derive(Debug)]
pub(crate) struct Lookup {
    vocabulary: WordRows,
    embedding: Tensor<2>,
    tokens: Tensor<2, Int>,
    kept: Option<Tensor<3>>,
    rows: Tensor<3>,
}

impl Lookup {
    /// As [`embed`], for an embedding on an autodiff device.
    pub(crate) fn new(
        vocabulary: &WordRows,
        embedding: Tensor<2>,
        tokens: Tensor<2, Int>,
        mask: Option<Tensor<1>>,
    ) -> Self {
        let kept = mask.map(|mask| kept_words(mask, &tokens));
        let rows = vocabulary.lookup(embedding.clone().inner(), tokens.clone());
        let mut rows = Tensor::from_inner(times(rows, kept.clone()));
        if let Some(strategy) = embedding.gradient_checkpointing_strategy() {
            rows = rows.with_gradient_checkpointing_strategy(strategy);
        }
        let rows = rows.set_require_grad(embedding.is_require_grad());
        Self { vocabulary: vocabulary.clone(), embedding, tokens, kept, rows }
    }

    /// What was looked up, `[T, B, d]`: a leaf of the graph.
    pub(crate) fn rows(&self) -> Tensor<3> {
        self.rows.clone()
    }

    /// Moves the gradient of the rows to that of the embedding.
    pub(crate) fn finish(self, grads: &mut Gradients) {
        let Some(rows) = self.rows.grad_remove(grads) else { return };
        let [steps, batch, width] = rows.dims();
        let rows = times(rows, self.kept);
        // Taken out, not borrowed: the only owner of its memory is added to in place.
        let all =
            self.embedding.grad_remove(grads).unwrap_or_else(|| self.embedding.clone().inner().zeros_like());
        let (tokens, rows) = (self.tokens.reshape([steps * batch]), rows.reshape([steps * batch, width]));
        self.embedding.grad_replace(grads, self.vocabulary.add(all, tokens, rows));
    }
}

/// Whether there is anything to drop: in training, and if `p` is not 0.
///
/// # Panics
///
/// If `p` is not in [0, 1).
pub(crate) fn acts(p: f64, device: &Device) -> bool {
    assert!((0.0..1.0).contains(&p), "dropout: the probability is {p}, but must be at least 0 and below 1");
    p != 0.0 && device.is_autodiff()
}

/// A mask of the given shape for `like`, if there is anything to drop.
///
/// # Panics
///
/// If `p` is not in [0, 1).
pub(crate) fn mask<const D: usize, const E: usize>(
    like: &Tensor<D>,
    shape: [usize; E],
    p: f64,
) -> Option<Tensor<E>> {
    let device = like.device();
    acts(p, &device).then(|| drawn(shape, p, &device.without_autodiff(), like.dtype()))
}

/// A mask on a device without autodiff.
pub(crate) fn drawn<const D: usize>(shape: [usize; D], p: f64, device: &Device, dtype: DType) -> Tensor<D> {
    let kept = Tensor::random(shape, Distribution::Bernoulli(1.0 - p), (device, dtype));
    kept * (1.0 / (1.0 - p))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use runs::testing::values;

    use super::*;

    fn training() -> Device {
        Device::flex().autodiff()
    }

    fn locked(x: Tensor<3>, p: f64) -> Tensor<3> {
        let [_, batch, features] = x.dims();
        let mask = mask(&x, [batch, features], p);
        super::locked(x, mask)
    }

    fn embed(embedding: Tensor<2>, tokens: Tensor<2, Int>, p: f64) -> Tensor<3> {
        let mask = mask(&embedding, [embedding.dims()[0]], p);
        super::embed(&WordRows::Whole, embedding, tokens, mask)
    }

    #[test]
    fn a_locked_mask_is_shared_by_all_steps() {
        let x = Tensor::<3>::ones([7, 20, 50], &training());
        let dropped = values(locked(x, 0.3));
        let (first, rest) = dropped.split_at(20 * 50);
        assert!(rest.chunks(20 * 50).all(|step| step == first));
        for value in first {
            assert!(*value == 0.0 || (value - 1.0 / 0.7).abs() < 1e-6, "{value}");
        }
        // 1000 draws with standard deviation 0.655 each: the mean is within 0.1 of 1 but once in a million.
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn a_locked_mask_differs_between_sequences_and_between_calls() {
        let ones = || Tensor::<3>::ones([1, 2, 64], &training());
        let (a, b) = (values(locked(ones(), 0.5)), values(locked(ones(), 0.5)));
        assert_ne!(a[..64], a[64..]);
        assert_ne!(a, b);
    }

    #[test]
    fn a_mask_keeps_the_float_type() {
        let x = Tensor::<3>::ones([2, 3, 4], (&training(), DType::F64));
        assert_eq!(locked(x, 0.5).dtype(), DType::F64);
        let embedding = Tensor::<2>::ones([4, 4], (&training(), DType::F64));
        let ids = Tensor::<2, Int>::from_ints([[0, 3]], &training());
        assert_eq!(embed(embedding, ids, 0.5).dtype(), DType::F64);
    }

    #[test]
    fn a_dropped_word_is_dropped_everywhere_and_whole() {
        let embedding = Tensor::<2>::ones([40, 8], &training());
        let tokens: Vec<i32> = (0..120).map(|n| n * 7 % 40).collect();
        let ids = Tensor::<1, Int>::from_ints(tokens.as_slice(), &training()).reshape([30, 4]);
        let looked_up = values(embed(embedding, ids, 0.5));
        let mut of_word = vec![None; 40];
        for (row, token) in looked_up.chunks(8).zip(&tokens) {
            assert!(row.iter().all(|value| value == &row[0]), "{row:?}");
            assert!(row[0] == 0.0 || row[0] == 2.0, "{row:?}");
            let seen = of_word[*token as usize].get_or_insert(row[0]);
            assert_eq!(*seen, row[0], "word {token}");
        }
        assert!(of_word.contains(&Some(0.0)) && of_word.contains(&Some(2.0)));
    }

    #[test]
    fn the_gradient_of_a_lookup_is_scaled_by_the_mask() {
        let embedding = Tensor::<2>::ones([20, 3], &training()).require_grad();
        let ids = Tensor::<1, Int>::arange(0..20, &training()).reshape([20, 1]);
        let looked_up = embed(embedding.clone(), ids, 0.5);
        let grads = looked_up.clone().sum().backward();
        // With an embedding of ones the result is the mask, and so is the gradient.
        let grad = embedding.grad(&grads).unwrap();
        assert_eq!(values(grad), values(looked_up));
    }

    #[test]
    fn nothing_is_dropped_outside_of_training() {
        let device = Device::flex();
        let x = Tensor::<3>::ones([2, 3, 4], &device);
        assert_eq!(locked(x.clone(), 0.9).into_data(), x.into_data());
        let weights = Tensor::<2>::ones([4, 4], &device);
        let ids = Tensor::<2, Int>::from_ints([[0, 3]], &device);
        assert!(embed(weights, ids, 0.9).into_data().iter::<f32>().all(|value| value == 1.0));
    }

    #[test]
    #[should_panic(expected = "dropout: the probability is 1, but must be at least 0 and below 1")]
    fn a_probability_of_one_is_refused() {
        locked(Tensor::<3>::ones([1, 1, 1], &Device::flex()), 1.0);
    }
}
