//! The decoder: the matrix `W [V, d]` and bias `b [V]` that turn a context into logits.

use burn::module::{Initializer, Module, Param};
use burn::tensor::{Device, Tensor};

use crate::error::HeadError;

/// `W` and `b` of the logits `z = h·Wᵀ + b`.
///
/// `W` is either owned or *tied*: the caller holds it, usually as the model's input embedding, and passes it with every
/// call, so that its gradient reaches that one parameter (Press and Wolf 2017, Inan et al. 2017).
#[derive(Module, Debug)]
pub struct Decoder {
    /// `W`, shape `[V, d]`, uniform in ±0.1 at the start; `None` if tied.
    pub weight: Option<Param<Tensor<2>>>,
    /// `b`, shape `[V]`, zero at the start.
    pub bias: Option<Param<Tensor<1>>>,
    /// `V`.
    pub vocab: usize,
    /// `d`.
    pub d_embedding: usize,
}

/// What a [`Decoder`] is made of.
pub(crate) struct DecoderShape {
    pub(crate) vocab: usize,
    pub(crate) d_embedding: usize,
    pub(crate) bias: bool,
    pub(crate) tied: bool,
}

impl DecoderShape {
    pub(crate) fn init(&self, device: &Device) -> Decoder {
        let uniform = Initializer::Uniform { min: -0.1, max: 0.1 };
        Decoder {
            weight: (!self.tied).then(|| uniform.init([self.vocab, self.d_embedding], device)),
            bias: self.bias.then(|| Initializer::Zeros.init([self.vocab], device)),
            vocab: self.vocab,
            d_embedding: self.d_embedding,
        }
    }
}

impl Decoder {
    /// The decoder's own matrix.
    pub(crate) fn own_weight(&self) -> Result<Tensor<2>, HeadError> {
        self.weight.as_ref().map(|weight| weight.val()).ok_or(HeadError::MissingDecoder)
    }

    /// The caller's matrix, checked.
    pub(crate) fn tied_weight(&self, embedding: Tensor<2>) -> Result<Tensor<2>, HeadError> {
        if self.weight.is_some() {
            return Err(HeadError::SecondDecoder);
        }
        let (got, want) = (embedding.dims(), [self.vocab, self.d_embedding]);
        match got == want {
            true => Ok(embedding),
            false => Err(HeadError::Shape {
                what: "the tied embedding matrix",
                got: got.to_vec(),
                expected: format!("{want:?}, [vocabulary, d_embedding] of the head"),
            }),
        }
    }
}
