//! The latent layer of a mixture as one operation, with an [`Activation`] `a`:
//!
//! ```text
//! h = a(g·W + b) ∘ mask
//! ```
//!
//! Written in tensor operations its forward and backward pass visit the `[N, K·d]` matrix a dozen times, on
//! most CPU backends on one thread with the tanh of the standard library: a sixth of a Mixture of Softmaxes'
//! time. As one operation it is a product and one visit forward, one visit and two products backward.
//!
//! [`latent`] and [`latent_backward`] are the portable bodies: they run on every backend, and native kernels
//! are checked against them.

use std::sync::Arc;

use burn::backend::Backend;
use burn::tensor::TensorData;
use highrank_kernels::precision::{product, wide};
use highrank_kernels::{Floats, Ints, Precision, Rounding};

use super::activation::Activation;
use super::inputs::per_input;

/// Inputs of the latent layer `h = a(g·W + b) ∘ mask`.
#[derive(Debug, Clone)]
pub struct LatentArgs<F = Floats> {
    /// `a`.
    pub activation: Activation,
    /// `d`, width of a context. Only a [residual](Activation::Residual) depends on it.
    pub d: usize,
    /// `g`, shape `[N, H]`.
    pub hidden: F,
    /// `W`, shape `[H, F]`, `F = K·d`.
    pub weight: F,
    /// `b`, shape `[F]`; `None` means 0.
    pub bias: Option<F>,
    /// Dropout; `None` means that all features are kept.
    pub mask: Option<LatentMask<F>>,
    /// Of the products.
    pub precision: Precision,
}

/// A locked dropout mask. A constant: no gradient flows to it.
#[derive(Debug, Clone)]
pub struct LatentMask<F = Floats> {
    /// 0 or the inverse of the probability of keeping a feature, shape `[M, F]`.
    pub values: F,
    /// The row of each token, `[N]`.
    pub rows: Arc<[u32]>,
}

impl<F> LatentArgs<F> {
    /// The same layer with each tensor changed by `f`.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LatentArgs<G> {
        LatentArgs {
            activation: self.activation,
            d: self.d,
            hidden: f(self.hidden),
            weight: f(self.weight),
            bias: self.bias.map(&mut f),
            mask: self.mask.map(|mask| LatentMask { values: f(mask.values), rows: mask.rows }),
            precision: self.precision,
        }
    }

    /// The inputs that may be differentiated.
    pub fn inputs(&self) -> LatentInputs<Option<&F>> {
        LatentInputs { hidden: Some(&self.hidden), weight: Some(&self.weight), bias: self.bias.as_ref() }
    }
}

impl<B: Backend> LatentArgs<Floats<B>> {
    /// The same layer with all tensors in the type of sums.
    pub fn widened(self) -> Self {
        let dtype = wide(self.weight.dtype());
        self.map(|tensor| tensor.cast(dtype))
    }

    /// The layer for tokens `start .. end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let mask = self.mask.clone().map(|mask| LatentMask { rows: mask.rows[start..end].into(), ..mask });
        Self { hidden: self.hidden.clone().rows(start..end), mask, ..self.clone() }
    }
}

per_input! {
    /// A value for each input of the latent layer that may be differentiated.
    pub struct LatentInputs {
        /// Of the hidden state, `[N, H]`.
        hidden,
        /// Of the weight, `[H, F]`.
        weight,
        /// Of the bias, `[F]`.
        bias,
    }
    /// Gradients of the latent layer, each of its tensor's shape; `None` where not wanted or without such an
    /// input.
    pub type LatentGradients;
    /// Which gradients of the latent layer are asked for.
    pub type LatentWanted;
}

/// `a(g·W + b) ∘ mask`, shape `[N, F]`; differentiable by composition.
pub fn latent<B: Rounding>(args: LatentArgs<Floats<B>>) -> Floats<B> {
    let args = args.widened();
    let sum = pre_activations(&args);
    let latent = match args.activation {
        Activation::Tanh => sum.tanh(),
        Activation::Linear => sum,
        Activation::Residual => {
            let components = sum.shape()[1] / args.d;
            sum.tanh() + Floats::cat(vec![args.hidden.narrow(1, 0..args.d); components], 1)
        }
    };
    times(latent, args.mask)
}

/// `g·W + b` of a [widened](LatentArgs::widened) layer.
fn pre_activations<B: Rounding>(args: &LatentArgs<Floats<B>>) -> Floats<B> {
    let product = product(args.hidden.clone(), args.weight.clone(), args.precision);
    match args.bias.clone() {
        Some(bias) => {
            let features = bias.num_elements();
            product + bias.reshape([1, features])
        }
        None => product,
    }
}

/// Gradients of `Σ grad ∘ h`, where `output` is `h`.
///
/// The gradient of the pre-activations is `grad ∘ mask ∘ (1 − t²)`, `t` their tanh, which is `h/mask` where a feature is kept. Where
/// the hidden state has been added to it, the difference of the two would have lost digits: `t` is computed again. Linear
/// contexts have no last factor.
pub fn latent_backward<B: Rounding>(
    args: LatentArgs<Floats<B>>,
    output: Floats<B>,
    grad: Floats<B>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<B>> {
    let mut args = args.widened();
    let tanh = match args.activation {
        Activation::Tanh => Some(match &args.mask {
            Some(mask) => {
                let dropped = mask.values.clone().at_most(0.0);
                let inverse =
                    mask.values.zeros_like().add_scalar(1.0) / mask.values.clone().fill_where(dropped, 1.0);
                times(output, Some(LatentMask { values: inverse, ..mask.clone() }))
            }
            None => output,
        }),
        Activation::Linear => None,
        Activation::Residual => Some(pre_activations(&args).tanh()),
    };
    let grad = times(grad, args.mask.take());
    let past = (args.activation == Activation::Residual && wanted.hidden).then(|| grad.clone());
    let grad = match tanh {
        Some(tanh) => grad * (-tanh.square()).add_scalar(1.0),
        None => grad,
    };
    gradients(args, grad, past, wanted, product)
}

/// The gradients of the inputs for that of the pre-activations, and for what comes past them to the hidden states, of contexts
/// that have the first `d` features added: the gradient of these contexts, `[N, K·d]`.
pub(crate) fn gradients<B: Backend>(
    args: LatentArgs<Floats<B>>,
    grad: Floats<B>,
    past: Option<Floats<B>>,
    wanted: LatentWanted,
    product: impl Fn(Floats<B>, Floats<B>, Precision) -> Floats<B>,
) -> LatentGradients<Floats<B>> {
    let LatentArgs { d, hidden, weight, bias, precision, .. } = args;
    let [tokens, features] = grad.dims();
    let d_hidden = wanted.hidden.then(|| product(grad.clone(), weight.transpose(), precision));
    let d_weight = wanted.weight.then(|| product(hidden.transpose(), grad.clone(), precision));
    let d_bias = bias.filter(|_| wanted.bias).map(|_| grad.sum_dim(0).reshape([features]));
    let with_past = |d_hidden: Floats<B>| {
        let Some(past) = past else { return d_hidden };
        let sum = past.reshape([tokens, features / d, d]).sum_dim(1).reshape([tokens, d]);
        match d_hidden.dims() {
            [_, width] if width == d => d_hidden + sum,
            [_, width] => {
                let [first, rest] = [0..d, d..width].map(|columns| d_hidden.clone().narrow(1, columns));
                Floats::cat(vec![first + sum, rest], 1)
            }
        }
    };
    LatentGradients { hidden: d_hidden.map(with_past), weight: d_weight, bias: d_bias }
}

/// Row n of `[N, F]` times its row of the mask, if there is one.
fn times<B: Backend>(x: Floats<B>, mask: Option<LatentMask<Floats<B>>>) -> Floats<B> {
    let Some(mask) = mask else { return x };
    let tokens = x.shape()[0];
    let rows: Vec<i64> = mask.rows.iter().map(|row| i64::from(*row)).collect();
    let rows = Ints::<B>::converted(TensorData::new(rows, [tokens]), &x.device());
    x * mask.values.select(0, rows)
}
