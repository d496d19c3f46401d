//! The contexts of a Mixtape with the gates of its words, and which gradients they have.

use burn::backend::Backend;
use highrank_kernels::{Floats, Precision};

use super::inputs::per_input;

/// `K`, the leaves of the tree of gates.
pub const COMPONENTS: usize = 4;

/// Its inner nodes.
pub const GATES: usize = 3;

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
    /// The tensors, all of which may be differentiated.
    pub inputs: GatedInputs<F>,
    /// Of the products that make `e`.
    pub precision: Precision,
}

impl<F> GatedArgs<F> {
    /// The same arguments with each tensor changed by `f`.
    pub fn map<G>(self, f: impl FnMut(F) -> G) -> GatedArgs<G> {
        GatedArgs { inputs: self.inputs.map(f), precision: self.precision }
    }
}

impl<B: Backend> GatedArgs<Floats<B>> {
    /// `N`.
    pub fn tokens(&self) -> usize {
        self.inputs.prior.shape()[0]
    }

    /// `S`.
    pub fn words(&self) -> usize {
        self.inputs.vectors.shape()[0]
    }

    /// `G`.
    pub fn d_gate(&self) -> usize {
        self.inputs.vectors.shape()[1]
    }

    /// `d`.
    pub fn d_embedding(&self) -> usize {
        self.inputs.latent.shape()[1] / COMPONENTS
    }

    /// Tokens `start .. end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let GatedInputs { prior, latent, features, base, .. } = self.inputs.each_ref();
        let [prior, latent, features, base] =
            [prior, latent, features, base].map(|tensor| tensor.clone().rows(start..end));
        let inputs = GatedInputs { prior, latent, features, base, ..self.inputs.clone() };
        Self { inputs, precision: self.precision }
    }
}

per_input! {
    /// A value for each input of a Mixtape's contexts and gates.
    pub struct GatedInputs {
        /// `π̄`, what words without a gate of their own mix by, shape `[N, 4]`.
        prior,
        /// `h`, shape `[N, 4·d]`.
        latent,
        /// `t`, shape `[N, 3·G]`.
        features,
        /// `a`, shape `[N, 3]`.
        base,
        /// `v`, shape `[S, G]`, at least one row.
        vectors,
        /// `c`, shape `[S, 3]`.
        bias,
    }
    /// Gradients of a Mixtape's contexts and gates, each of its tensor's shape; `None` where not wanted.
    pub type GatedGradients;
    /// Which gradients of a Mixtape's contexts and gates are asked for.
    pub type GatedWanted;
}
