//! The gated logits of a Mixtape: by how much the logits of words with a gate of their own differ from those of the mixed
//! context.
//!
//! ```text
//! z_{n,x} = Σ_k π_{n,x,k} h_{n,k}ᵀ w_x = h̄_nᵀ w_x + e_{n,x}      h̄ = Σ_k π̄_k h_k
//! e_{n,x} = Σ_{j ≤ 3} (π_{n,x,j} − π̄_{n,j}) (h_{n,j} − h_{n,4})ᵀ w_x
//! ```
//!
//! because both `π` sum to 1. A word that shares its gate has `π = π̄` and `e = 0`, so one product with the mixed context
//! makes the logits of all words, and only the `S` words with a gate of their own take three rows more. With `p_j = ∂/∂π_j`,
//! which is `(h_j − h_4)ᵀ w_x` times the gradient of `e`:
//!
//! ```text
//! ∂γ₁ = γ₂ p₁ + (1 − γ₂) p₂ − γ₃ p₃      ∂γ₂ = γ₁ (p₁ − p₂)      ∂γ₃ = (1 − γ₁) p₃      ∂l = γ (1 − γ) ∂γ
//! ```
//!
//! These are the portable bodies: they run on every backend, and native kernels are checked against them. Tokens are worked
//! through in chunks; the backward pass makes each chunk's products again.

use burn::backend::{Dispatch, TensorMetadata};
use highrank_kernels::Floats;

use crate::math::sigmoid;
use crate::ops::{GatedArgs, GatedCall, GatedGradients, GatedWanted, Kernels, OutputOps, has_kernels, runs};

/// The inner nodes of the tree of gates.
const GATES: usize = GatedArgs::<()>::GATES;

/// Its leaves.
const COMPONENTS: usize = GatedArgs::<()>::COMPONENTS;

/// The gated logits, by the native operation of their device where it has one.
pub(crate) fn native_gated(args: GatedArgs) -> Floats {
    match has_kernels(&args.weight.primitive().device()) {
        true => Floats::new(<Dispatch as OutputOps>::gated(GatedCall(args))),
        false => gated(args),
    }
}

/// `e`, `[N, S]`; differentiable by composition.
pub fn gated<B: Kernels>(args: GatedArgs<Floats<B>>) -> Floats<B> {
    let args = args.widened();
    let parts = runs(args.tokens(), args.chunk_tokens()).map(|(start, end)| {
        let chunk = Chunk::new(args.slice(start, end));
        let [first, second, third] = [0, 1, 2].map(|j| chunk.delta(j) * chunk.product(j));
        first + second + third
    });
    Floats::cat(parts.collect(), 0)
}

/// Gradients of `Σ grad ∘ e`.
pub fn gated_backward<B: Kernels>(
    args: GatedArgs<Floats<B>>,
    grad: Floats<B>,
    wanted: GatedWanted,
) -> GatedGradients<Floats<B>> {
    let args = args.widened();
    let grad = grad.cast(args.weight.dtype());
    let mut sums = Sums::default();
    for (start, end) in runs(args.tokens(), args.chunk_tokens()) {
        sums.add(Chunk::new(args.slice(start, end)), grad.clone().rows(start..end), wanted);
    }
    let joined = |parts: Vec<Floats<B>>| (!parts.is_empty()).then(|| Floats::cat(parts, 0));
    GatedGradients {
        prior: joined(sums.prior),
        latent: joined(sums.latent),
        features: joined(sums.features),
        base: joined(sums.base),
        vectors: sums.vectors,
        bias: sums.bias,
        weight: sums.weight,
    }
}

/// A run of tokens with its products.
struct Chunk<B: Kernels> {
    args: GatedArgs<Floats<B>>,
    /// `h_j − h_4`, `[tokens·3, d]`
    differences: Floats<B>,
    /// `t`, `[tokens·3, G]`
    features: Floats<B>,
    /// `(h_j − h_4)ᵀ w_x`, `[tokens, 3, S]`
    products: Floats<B>,
    /// `γ_j` and `1 − γ_j`, `[tokens, 3, S]`
    open: Floats<B>,
    closed: Floats<B>,
}

impl<B: Kernels> Chunk<B> {
    fn new(args: GatedArgs<Floats<B>>) -> Self {
        let (tokens, words, d) = (args.tokens(), args.words(), args.d_embedding());
        let latent = args.latent.clone().reshape([tokens, COMPONENTS, d]);
        let last = latent.clone().narrow(1, GATES..COMPONENTS);
        let differences = (latent.narrow(1, 0..GATES) - last).reshape([tokens * GATES, d]);
        let features = args.features.clone().reshape([tokens * GATES, args.d_gate()]);
        let product = |rows: &Floats<B>, matrix: &Floats<B>| {
            let product = B::product(rows.clone(), matrix.clone().transpose(), args.precision);
            product.reshape([tokens, GATES, words])
        };
        let products = product(&differences, &args.weight);
        let logits = product(&features, &args.vectors)
            + args.base.clone().reshape([tokens, GATES, 1])
            + args.bias.clone().transpose().reshape([1, GATES, words]);
        let (open, closed) = (sigmoid(logits.clone()), sigmoid(-logits));
        Self { args, differences, features, products, open, closed }
    }

    /// A gate's part of `[tokens, 3, S]`.
    fn part(&self, all: &Floats<B>, j: usize) -> Floats<B> {
        let [tokens, _, words] = all.dims();
        all.clone().narrow(1, j..j + 1).reshape([tokens, words])
    }

    /// `(h_j − h_4)ᵀ w_x`, `[tokens, S]`.
    fn product(&self, j: usize) -> Floats<B> {
        self.part(&self.products, j)
    }

    /// `π_j − π̄_j`, `[tokens, S]`.
    fn delta(&self, j: usize) -> Floats<B> {
        let leaf = match j {
            0 => self.part(&self.open, 0) * self.part(&self.open, 1),
            1 => self.part(&self.open, 0) * self.part(&self.closed, 1),
            _ => self.part(&self.closed, 0) * self.part(&self.open, 2),
        };
        leaf - self.args.prior.clone().narrow(1, j..j + 1)
    }
}

/// Gradients summed or joined over the chunks so far.
struct Sums<B: Kernels> {
    prior: Vec<Floats<B>>,
    latent: Vec<Floats<B>>,
    features: Vec<Floats<B>>,
    base: Vec<Floats<B>>,
    vectors: Option<Floats<B>>,
    bias: Option<Floats<B>>,
    weight: Option<Floats<B>>,
}

impl<B: Kernels> Default for Sums<B> {
    fn default() -> Self {
        Self {
            prior: vec![],
            latent: vec![],
            features: vec![],
            base: vec![],
            vectors: None,
            bias: None,
            weight: None,
        }
    }
}

impl<B: Kernels> Sums<B> {
    /// What a chunk adds for the gradient of its logits, `[tokens, S]`.
    fn add(&mut self, chunk: Chunk<B>, grad: Floats<B>, wanted: GatedWanted) {
        let [tokens, words] = grad.dims();
        let (d, precision) = (chunk.args.d_embedding(), chunk.args.precision);
        let rows = |parts: [Floats<B>; GATES]| {
            let parts = parts.map(|part| part.reshape([tokens, 1, words])).to_vec();
            Floats::cat(parts, 1)
        };
        let flat = |x: Floats<B>| x.reshape([tokens * GATES, words]);

        let pulls = [0, 1, 2].map(|j| grad.clone() * chunk.product(j));
        if wanted.prior {
            let mut columns: Vec<_> = pulls.iter().map(|pull| -pull.clone().sum_dim(1)).collect();
            columns.push(columns[0].zeros_like());
            self.prior.push(Floats::cat(columns, 1));
        }
        let d_products = flat(rows([0, 1, 2].map(|j| grad.clone() * chunk.delta(j))));
        if wanted.latent {
            let d_rows = B::product(d_products.clone(), chunk.args.weight.clone(), precision);
            let d_rows = d_rows.reshape([tokens, GATES, d]);
            let d_last = -d_rows.clone().sum_dim(1);
            self.latent.push(Floats::cat(vec![d_rows, d_last], 1).reshape([tokens, COMPONENTS * d]));
        }
        if wanted.weight {
            let part = B::product(d_products.transpose(), chunk.differences.clone(), precision);
            accumulate(&mut self.weight, part);
        }

        let [one, two, three] = pulls;
        let [open, closed] = [&chunk.open, &chunk.closed].map(|all| [0, 1, 2].map(|j| chunk.part(all, j)));
        let d_open = rows([
            open[1].clone() * one.clone() + closed[1].clone() * two.clone() - open[2].clone() * three.clone(),
            open[0].clone() * (one - two),
            closed[0].clone() * three,
        ]);
        let d_logits = d_open * chunk.open * chunk.closed;
        if wanted.base {
            self.base.push(d_logits.clone().sum_dim(2).reshape([tokens, GATES]));
        }
        if wanted.bias {
            accumulate(&mut self.bias, d_logits.clone().sum_dim(0).reshape([GATES, words]).transpose());
        }
        let d_logits = flat(d_logits);
        if wanted.features {
            let d_features = B::product(d_logits.clone(), chunk.args.vectors.clone(), precision);
            self.features.push(d_features.reshape([tokens, GATES * chunk.args.d_gate()]));
        }
        if wanted.vectors {
            accumulate(&mut self.vectors, B::product(d_logits.transpose(), chunk.features, precision));
        }
    }
}

fn accumulate<B: Kernels>(sum: &mut Option<Floats<B>>, part: Floats<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
