//! The contexts of a Mixtape with the gates of its words, and which gradients they have.

use burn::backend::Backend;
use highrank_kernels::{Floats, Precision};

use super::inputs::per_input;

/// Four contexts `h_k` of every token, which each word `x` mixes by probabilities of its own:
///
/// ```text
/// z_{n,x} = Σ_k π_{n,x,k} h_{n,k}ᵀ w_x + b_x
/// π = (γ₁γ₂, γ₁(1 − γ₂), (1 − γ₁)γ₃, (1 − γ₁)(1 − γ₃))      γ_j = σ(l_j)
/// l_{n,x,j} = v_xᵀ t_{n,j} + a_{n,j} + c_{x,j}               x < S
/// ```
///
/// All words from `S` on mix by one `π̄`. As both `π` sum to 1, the logits are those of one mixed context plus an offset of the
/// first `S` words:
///
/// ```text
/// z_{n,x} = h̄_nᵀ w_x + b_x + e_{n,x}      h̄ = Σ_k π̄_k h_k
/// e_{n,x} = Σ_{j ≤ 3} (π_{n,x,j} − π̄_{n,j}) (h_{n,j} − h_{n,4})ᵀ w_x
/// ```
///
/// One product with the mixed context makes the logits of all words, and only the first `S` take three rows more.
#[derive(Debug, Clone)]
pub struct GatedArgs<F = Floats> {
    /// `π̄`, what words without a gate of their own mix by, shape `[N, 4]`.
    pub prior: F,
    /// `h`, shape `[N, 4·d]`.
    pub latent: F,
    /// `t`, shape `[N, 3·G]`.
    pub features: F,
    /// `a`, shape `[N, 3]`.
    pub base: F,
    /// `v`, shape `[S, G]`, at least one row.
    pub vectors: F,
    /// `c`, shape `[S, 3]`.
    pub bias: F,
    /// Of the products that make `e`.
    pub precision: Precision,
}

impl<F> GatedArgs<F> {
    /// `K`, the leaves of the tree of gates.
    pub const COMPONENTS: usize = 4;
    /// Its inner nodes.
    pub const GATES: usize = 3;

    /// The same arguments with each tensor changed by `f`.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> GatedArgs<G> {
        GatedArgs {
            prior: f(self.prior),
            latent: f(self.latent),
            features: f(self.features),
            base: f(self.base),
            vectors: f(self.vectors),
            bias: f(self.bias),
            precision: self.precision,
        }
    }

    /// The inputs, all of which may be differentiated.
    pub fn inputs(&self) -> GatedInputs<&F> {
        GatedInputs {
            prior: &self.prior,
            latent: &self.latent,
            features: &self.features,
            base: &self.base,
            vectors: &self.vectors,
            bias: &self.bias,
        }
    }
}

impl<B: Backend> GatedArgs<Floats<B>> {
    /// `N`.
    pub fn tokens(&self) -> usize {
        self.prior.shape()[0]
    }

    /// `S`.
    pub fn words(&self) -> usize {
        self.vectors.shape()[0]
    }

    /// `G`.
    pub fn d_gate(&self) -> usize {
        self.vectors.shape()[1]
    }

    /// `d`.
    pub fn d_embedding(&self) -> usize {
        self.latent.shape()[1] / Self::COMPONENTS
    }

    /// Tokens `start .. end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let rows = |tensor: &Floats<B>| tensor.clone().rows(start..end);
        Self {
            prior: rows(&self.prior),
            latent: rows(&self.latent),
            features: rows(&self.features),
            base: rows(&self.base),
            ..self.clone()
        }
    }
}

per_input! {
    /// A value for each input of a Mixtape's contexts and gates.
    pub struct GatedInputs {
        /// Of `π̄`, `[N, 4]`.
        prior,
        /// Of the contexts, `[N, 4·d]`.
        latent,
        /// Of the gates' features, `[N, 3·G]`.
        features,
        /// Of the gates' part that all words share, `[N, 3]`.
        base,
        /// Of the words' gate vectors, `[S, G]`.
        vectors,
        /// Of their biases, `[S, 3]`.
        bias,
    }
    /// Gradients of a Mixtape's contexts and gates, each of its tensor's shape; `None` where not wanted.
    pub type GatedGradients;
    /// Which gradients of a Mixtape's contexts and gates are asked for.
    pub type GatedWanted;
}

impl GatedWanted {
    /// Whether the gradient of the mixed context is needed.
    pub fn mixed_context(&self) -> bool {
        self.prior || self.latent
    }
}
