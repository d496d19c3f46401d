//! How much of the logits' gradient is lost on the way through the decoder.

use burn::tensor::{Int, Tensor};

use super::column_space::{ColumnSpace, Squares, check};
use super::error::AnalysisError;
use super::rows::{at_least, expect_size};
use crate::error::OrPanic;
use crate::head::OutputHead;

/// The share of the logits' gradient that lies outside of the decoder's column space, and never reaches the hidden state
/// (Godey and Artzi 2026, arXiv 2603.10145: 95 to 99 % of the norm in large language models).
///
/// For one token with target `y`, `z_k = h_k·Wᵀ + b` are the logits of component `k`, before the logit map `f`, and
///
/// ```text
/// G_kv = ∂nll/∂z_kv = γ_k f'(z_kv) (p_k(v) − [v = y]) / τ                  G [K, V]
/// ∂nll/∂h_k = G_k·W
/// ```
///
/// with the responsibilities `γ_k` of a mixture; `γ = 1` without one, `f' = 1` without a map. `G_k·W` depends on `G_k` only through its
/// projection onto the columns of `W`: with an orthonormal basis `U [V, r]` of these columns,
///
/// ```text
/// P_k = U Uᵀ G_k        reaches the context
/// Q_k = G_k − P_k       is lost
/// ```
///
/// Norms are over all `K·V` entries, so components count by their responsibilities. [`GradientShares`] has what is measured.
///
/// * **Bias.** `b` adds nothing to the column space. It is a parameter with a gradient of its own, all of `G`, but no way to the
///   hidden state.
/// * **Mixtures.** A Mixture of Softmaxes, from one layer or several, sends all `K` gradients through the same `W`; a Mixture of Contexts has one context,
///   hence `K = 1`. What the latent layer does to the gradient after that is not counted.
/// * **Other logits.** A Mixtape's come from gates as well, and those of a head with clusters from several matrices: neither has a share.
/// * **Masked words** have no gradient, and their rows are no part of `W`.
///
/// Gradients come in blocks of any number of tokens, in f64, and are not kept: the memory is that of the basis, of one block, of the
/// sum `[K, V]` and of a number a token. The cost is about that of the logits themselves.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::HeadConfig;
/// use highrank::analysis::GradientLoss;
///
/// let device = Device::default();
/// let head = HeadConfig::mos(8, 4, 100, 3).init(&device); // d = 4, V = 100
/// let mut loss = GradientLoss::of_head(&head)?;
/// let hidden = Tensor::<2>::random([20, 8], Distribution::Default, &device);
/// loss.add(&head, hidden, Tensor::<1, Int>::full([20], 7, &device))?;
/// let shares = loss.finish()?;
/// // Four of a hundred dimensions are kept.
/// assert!((shares.by_chance - 0.96).abs() < 1e-12);
/// assert!(shares.mean_share > 0.9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct GradientLoss {
    space: ColumnSpace,
    components: usize,
    /// Words that are not masked.
    words: usize,
    rows: usize,
    /// `‖Q‖ / ‖G‖` of every token with a gradient.
    shares: Vec<f64>,
    total: Squares,
    /// `Σ_n G_n`, `[K, V]`.
    sum: Vec<f64>,
}

/// The shares of the gradient that a [`GradientLoss`] has found to be lost, each in `[0, 1]`. Letters are as there.
///
/// Tokens without any gradient, whose target has probability 1, are counted but in no mean.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientShares {
    /// Number of tokens read.
    pub rows: usize,
    /// How many of them had no gradient.
    pub without_gradient: usize,
    /// `r`, the dimension of the column space: at most `d`.
    pub dimension: usize,
    /// `‖Q‖ / ‖G‖` of every token with a gradient, in their order.
    pub shares: Vec<f64>,
    /// `1 − r/V`: the expected `‖Q‖² / ‖G‖²` of a direction drawn at random.
    pub by_chance: f64,
    /// Mean over tokens of `‖Q‖ / ‖G‖`.
    pub mean_share: f64,
    /// Mean over tokens of `‖Q‖² / ‖G‖²`.
    pub mean_squared_share: f64,
    /// `Σ_n ‖Q_n‖² / Σ_n ‖G_n‖²`: tokens count by their gradients.
    pub total_squared_share: f64,
    /// `‖Σ_n Q_n‖ / ‖Σ_n G_n‖`: of the gradient summed over the tokens; none if that is 0 exactly.
    pub share_of_sum: Option<f64>,
}

impl GradientLoss {
    /// For a decoder `W [V, d]`, given row by row, and `K` components.
    fn new(decoder: &[f64], d_embedding: usize, components: usize) -> Result<Self, AnalysisError> {
        let space = ColumnSpace::of(decoder, d_embedding)?;
        let words = space.words();
        let sum = vec![0.0; components * words];
        Ok(Self { space, components, words, rows: 0, shares: vec![], total: Squares::default(), sum })
    }

    /// For a head, its masked words left out.
    ///
    /// # Errors
    /// [`AnalysisError::NoColumnSpace`] of a Mixtape, whose gradients also come back through its gates, and of a head with clusters. A decoder with values that are not finite, or a decomposition that does not converge.
    ///
    /// # Panics
    /// If a tied head has been lent no matrix.
    #[track_caller]
    pub fn of_head(head: &OutputHead) -> Result<Self, AnalysisError> {
        if let Some(head) = head.not_linear() {
            return Err(AnalysisError::NoColumnSpace { head });
        }
        let weight = head.decoder.matrix().or_panic("GradientLoss::of_head");
        let [rows, d_embedding] = weight.dims();
        let mut weight: Vec<f64> = weight.detach().into_data().iter::<f64>().collect();
        let masked = head.masked_rows().or_panic("GradientLoss::of_head");
        for row in &masked {
            weight[row * d_embedding..(row + 1) * d_embedding].fill(0.0);
        }
        let made = Self::new(&weight, d_embedding, head.components())?;
        Ok(Self { words: rows - masked.len(), ..made })
    }

    /// Takes in the gradients of some tokens, one after the other, `[N, K, V]`; none if one is not finite.
    fn add_gradients(&mut self, gradients: &[f64]) -> Result<(), AnalysisError> {
        let words = self.space.words();
        let columns = self.components * words;
        self.rows += check("the gradients", gradients, columns, words, self.rows)?;
        for component in gradients.chunks_exact(columns) {
            self.sum.iter_mut().zip(component).for_each(|(sum, value)| *sum += value);
        }
        for components in self.space.squares(gradients).chunks_exact(self.components) {
            let mut token = Squares::default();
            components.iter().for_each(|squares| token += *squares);
            self.shares.extend(token.share());
            self.total += token;
        }
        Ok(())
    }

    /// Takes in a head's gradients at some tokens, in blocks of the head's memory budget.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets: `[..]`, T = D − 1 dimensions
    ///
    /// # Errors
    /// If the head has another number of components. If a gradient is not finite, or over other words than those of the analysis;
    /// the blocks before it are taken in.
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), a target is outside `0..V`, or the head has clusters.
    #[track_caller]
    pub fn add<const D: usize, const T: usize>(
        &mut self,
        head: &OutputHead,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Result<(), AnalysisError> {
        expect_size("the head", "components", head.components(), self.components)?;
        for block in head.logit_gradient_blocks(hidden, targets).or_panic("GradientLoss::add") {
            expect_size("the gradient", "columns", block.dims()[1], self.space.words())?;
            let values: Vec<f64> = block.into_data().iter::<f64>().collect();
            self.add_gradients(&values)?;
        }
        Ok(())
    }

    /// The shares over the tokens read so far.
    ///
    /// # Errors
    /// Without any token that has a gradient; then none of these numbers can be read.
    pub fn finish(&self) -> Result<GradientShares, AnalysisError> {
        let Self { rows, total, .. } = *self;
        let shares = self.shares.clone();
        let tokens = at_least("a share of the gradient", shares.len(), 1)?;
        let dimension = self.space.dimension();
        let mut sum = Squares::default();
        self.space.squares(&self.sum).into_iter().for_each(|squares| sum += squares);
        Ok(GradientShares {
            rows,
            without_gradient: rows - shares.len(),
            dimension,
            by_chance: 1.0 - dimension as f64 / self.words as f64,
            mean_share: shares.iter().sum::<f64>() / tokens,
            mean_squared_share: shares.iter().map(|share| share * share).sum::<f64>() / tokens,
            total_squared_share: total.outside / total.whole,
            share_of_sum: sum.share(),
            shares,
        })
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "gradient_loss_tests.rs"]
mod tests;
