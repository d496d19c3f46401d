//! What the gated logits of a Mixtape read and which gradients they have.

use burn::backend::Backend;
use highrank_kernels::precision::wide;
use highrank_kernels::{Floats, Precision};

/// Inputs of the gated logits: by how much the logit of a word with a gate of its own differs from that of the mixed context,
///
/// ```text
/// e_{n,x} = Σ_k (π_{n,x,k} − π̄_{n,k}) h_{n,k}ᵀ w_x
/// l_{n,x,j} = v_xᵀ t_{n,j} + a_{n,j} + c_{x,j}      γ_j = σ(l_j)
/// π = (γ₁γ₂, γ₁(1 − γ₂), (1 − γ₁)γ₃, (1 − γ₁)(1 − γ₃))
/// ```
///
/// for `S` words `x` and the [four](Self::COMPONENTS) contexts of every token.
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
    /// `v`, shape `[S, G]`.
    pub vectors: F,
    /// `c`, shape `[S, 3]`.
    pub bias: F,
    /// `w`, shape `[S, d]`.
    pub weight: F,
    /// Size in bytes of the largest matrix that may exist at a time beside inputs and output.
    pub chunk_bytes: usize,
    /// Of the products.
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
            weight: f(self.weight),
            chunk_bytes: self.chunk_bytes,
            precision: self.precision,
        }
    }

    /// The same arguments with references to their tensors.
    pub fn as_ref(&self) -> GatedArgs<&F> {
        GatedArgs {
            prior: &self.prior,
            latent: &self.latent,
            features: &self.features,
            base: &self.base,
            vectors: &self.vectors,
            bias: &self.bias,
            weight: &self.weight,
            chunk_bytes: self.chunk_bytes,
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
            weight: &self.weight,
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
        self.weight.shape()[0]
    }

    /// `G`.
    pub fn d_gate(&self) -> usize {
        self.vectors.shape()[1]
    }

    /// `d`.
    pub fn d_embedding(&self) -> usize {
        self.weight.shape()[1]
    }

    /// The same arguments with all tensors in the type of sums.
    pub fn widened(self) -> Self {
        let dtype = wide(self.weight.dtype());
        self.map(|tensor| tensor.cast(dtype))
    }

    /// Tokens whose six rows, three of products and three of gates, fit a quarter of [`chunk_bytes`](Self::chunk_bytes), so that they
    /// stay in cache from one visit to the next; at least one.
    pub fn chunk_tokens(&self) -> usize {
        let token_bytes = 2 * Self::GATES * self.words() * wide(self.weight.dtype()).size();
        (self.chunk_bytes / 4 / token_bytes.max(1)).max(1)
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

/// A value for each input of the gated logits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatedInputs<T> {
    /// Of `π̄`, `[N, 4]`.
    pub prior: T,
    /// Of the contexts, `[N, 4·d]`.
    pub latent: T,
    /// Of the gates' features, `[N, 3·G]`.
    pub features: T,
    /// Of the gates' part that all words share, `[N, 3]`.
    pub base: T,
    /// Of the words' gate vectors, `[S, G]`.
    pub vectors: T,
    /// Of their biases, `[S, 3]`.
    pub bias: T,
    /// Of the words' decoder rows, `[S, d]`.
    pub weight: T,
}

/// Gradients of the gated logits, each of its tensor's shape; `None` where not wanted.
pub type GatedGradients<F = Floats> = GatedInputs<Option<F>>;

/// Which gradients of the gated logits are asked for.
pub type GatedWanted = GatedInputs<bool>;

impl<T> GatedInputs<T> {
    /// The values in the order of the fields.
    pub fn into_array(self) -> [T; 7] {
        let Self { prior, latent, features, base, vectors, bias, weight } = self;
        [prior, latent, features, base, vectors, bias, weight]
    }

    /// The inverse of [`into_array`](Self::into_array).
    pub fn from_array(values: [T; 7]) -> Self {
        let [prior, latent, features, base, vectors, bias, weight] = values;
        Self { prior, latent, features, base, vectors, bias, weight }
    }
}
