//! The decoder: the matrix `W [V, d]` and bias `b [V]` that turn a context into logits.

use std::ops::Range;

use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param, ParamId};
use burn::nn::Linear;
use burn::tensor::{Bool, Device, Int, Tensor, TensorCreationOptions};

use crate::checks::TensorChecks;
use crate::error::{HeadError, expect_shape};
use crate::parameters::{changed, in_context, is_trained, value};

/// `W` and `b` of the logits `z = h·Wᵀ + b`, and which words are masked.
///
/// `W` is either owned or *tied*: the caller holds it, usually as the model's input embedding, and lends it in every forward
/// pass, so that its gradient reaches that one parameter (Press and Wolf 2017, Inan et al. 2017).
///
/// # Masked words
/// A word whose bias is −∞ has probability 0, whatever the logit map, and its row of `W` and its entry of `b` get gradients of
/// exactly 0. The words masked by [`OutputHead::mask_words`](crate::OutputHead::mask_words) and the rows that pad the vocabulary are kept apart
/// from the bias, which stays finite, and take its place at use: no optimiser, weight decay or averaging of weights turns −∞ into
/// NaN, and a decoder without a bias can have them as well. They are no parameters, so no record holds them: they come
/// from the [configuration](crate::HeadConfig) or from a call.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Decoder {
    /// `W`, shape `[rows, d]`; `None` if the head is tied and has been lent none.
    pub weight: Option<Param<Tensor<2>>>,
    /// `b`, shape `[rows]`, zero at the start.
    pub bias: Option<Param<Tensor<1>>>,
    /// `V`, the number of words: those of targets and samples are `0..V`.
    pub vocab: usize,
    /// `d`.
    pub d_embedding: usize,
    /// Number of masked rows after those of the words.
    pub padding: usize,
    /// Whether the caller holds `W`.
    pub tied: bool,
    /// The masked words in ascending order, without the padding.
    pub(crate) masked_words: Vec<usize>,
    /// True for masked words and padding, shape `[rows]`; `None` if there are neither.
    mask: Option<Tensor<1, Bool>>,
    /// Says where a decoder was made that has no other tensor of its own, and goes wherever the module goes.
    place: Option<Tensor<1, Bool>>,
}

/// What a [`Decoder`] is made of.
pub(crate) struct DecoderShape<'a> {
    pub(crate) vocab: usize,
    pub(crate) padding: usize,
    pub(crate) d_embedding: usize,
    pub(crate) bias: bool,
    pub(crate) masked_words: &'a [usize],
}

impl DecoderShape<'_> {
    fn rows(&self) -> usize {
        self.vocab + self.padding
    }

    /// A decoder with a new matrix, or without an initialiser one whose matrix is the caller's.
    pub(crate) fn init(
        &self,
        initializer: Option<&Initializer>,
        device: &Device,
    ) -> Result<Decoder, HeadError> {
        let (d, rows) = (self.d_embedding, self.rows());
        let weight = initializer.map(|of| of.init_with([rows, d], Some(d), Some(rows), device));
        let bias = self.bias.then(|| Initializer::Zeros.init([rows], device));
        self.decoder(weight, bias, device)
    }

    /// A decoder with the parameters of a linear layer, padded where need be.
    pub(crate) fn of_linear(&self, linear: Linear) -> Result<Decoder, HeadError> {
        let (shape, rows) = (linear.weight.shape(), self.rows());
        let [d, columns] = shape.dims();
        if d != self.d_embedding || (columns != self.vocab && columns != rows) {
            let expected = match self.padding {
                0 => format!("[{}, {rows}]", self.d_embedding),
                _ => format!("[{0}, {1}] or, padded, [{0}, {rows}]", self.d_embedding, self.vocab),
            };
            return Err(HeadError::Shape {
                what: "the linear layer's weight",
                got: shape.to_vec(),
                expected: expected + ", [d_embedding, vocabulary] of the head",
            });
        }
        if linear.bias.is_some() != self.bias {
            return Err(HeadError::LinearBias { linear: linear.bias.is_some() });
        }
        if let Some(bias) = &linear.bias {
            expect_shape("the linear layer's bias", &bias.shape(), &[columns], "as its weight says")?;
        }
        let weight = padded(contiguous(value(&linear.weight).transpose()), rows);
        let device = weight.device();
        let weight = Param::initialized(ParamId::new(), weight).set_require_grad(is_trained(&linear.weight));
        let bias = linear.bias.map(|bias| match columns == rows {
            true => bias,
            false => {
                let values = padded(value(&bias).reshape([columns, 1]), rows).reshape([rows]).detach();
                Param::initialized(ParamId::new(), values).set_require_grad(is_trained(&bias))
            }
        });
        self.decoder(Some(weight), bias, &device)
    }

    fn decoder(
        &self,
        weight: Option<Param<Tensor<2>>>,
        bias: Option<Param<Tensor<1>>>,
        device: &Device,
    ) -> Result<Decoder, HeadError> {
        let place = (weight.is_none() && bias.is_none()).then(|| Tensor::from_data([false], device));
        let decoder = Decoder {
            tied: weight.is_none(),
            weight,
            bias,
            vocab: self.vocab,
            d_embedding: self.d_embedding,
            padding: self.padding,
            masked_words: vec![],
            mask: None,
            place,
        };
        decoder.masking_on(self.masked_words, device)
    }
}

impl Decoder {
    /// Number of rows of `W`: the words and the padding. The last dimension of log-probabilities.
    pub fn rows(&self) -> usize {
        self.vocab + self.padding
    }

    /// Masks words in addition to those that are masked already.
    ///
    /// # Errors
    /// [`HeadError::Range`] or [`HeadError::NoWordLeft`].
    pub(crate) fn masking(self, words: &[usize]) -> Result<Self, HeadError> {
        // If no tensor says where the head is, the mask moves to the caller's matrix when it is used.
        let device = self.device();
        self.masking_on(words, &device)
    }

    /// Where its tensors are, the default device if there are none.
    pub(crate) fn device(&self) -> Device {
        match (&self.weight, &self.bias, self.mask.as_ref().or(self.place.as_ref())) {
            (Some(weight), _, _) => weight.lazy_device(),
            (None, Some(bias), _) => bias.lazy_device(),
            (None, None, Some(tensor)) => tensor.device(),
            (None, None, None) => Device::default(),
        }
    }

    /// The device and the float type of its parameters; the device's default type if there are none.
    pub(crate) fn creation_options(&self) -> TensorCreationOptions {
        let weight = self.weight.as_ref().map(|weight| value(weight).dtype());
        let dtype = weight.or_else(|| self.bias.as_ref().map(|bias| value(bias).dtype()));
        TensorCreationOptions { device: self.device(), dtype }
    }

    fn masking_on(mut self, words: &[usize], device: &Device) -> Result<Self, HeadError> {
        self.masked_words = merged_masks(&self.masked_words, words, self.vocab)?;
        if self.padding + self.masked_words.len() > 0 {
            let mut rows = vec![false; self.vocab];
            self.masked_words.iter().for_each(|word| rows[*word] = true);
            rows.resize(self.rows(), true);
            self.mask = Some(Tensor::from_data(rows.as_slice(), device));
        }
        Ok(self)
    }

    /// The bias with −∞ for masked rows, shape `[rows]`; `None` means 0. Without a bias a mask has the type of sums.
    ///
    /// # Errors
    /// As [`checks`](Self::checks).
    pub(crate) fn masked_bias(&self) -> Result<Option<Tensor<1>>, HeadError> {
        let sums = self.checks()?.sums();
        let bias = self.bias.as_ref().map(value);
        let Some(mask) = &self.mask else { return Ok(bias) };
        let bias = bias.unwrap_or_else(|| Tensor::zeros([self.rows()], (&self.device(), sums)));
        let mask = beside(mask.clone(), &bias.device());
        Ok(Some(bias.mask_fill(mask, f64::NEG_INFINITY)))
    }

    /// `W`.
    ///
    /// # Errors
    /// [`HeadError::MissingDecoder`] if none has been lent.
    pub(crate) fn matrix(&self) -> Result<Tensor<2>, HeadError> {
        self.weight.as_ref().map(value).ok_or(HeadError::MissingDecoder)
    }

    /// What tensors must agree with.
    ///
    /// # Errors
    /// [`HeadError::MissingDecoder`] if no matrix has been lent.
    pub(crate) fn checks(&self) -> Result<TensorChecks, HeadError> {
        let weight = self.weight.as_ref().ok_or(HeadError::MissingDecoder)?;
        Ok(TensorChecks::of_param(weight))
    }

    /// Checks the parameters.
    pub(crate) fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
        let what = if self.tied { "the tied embedding matrix" } else { "the decoder's weight" };
        checks.optional(what, self.weight.as_ref(), [self.rows(), self.d_embedding])?;
        checks.optional("the decoder's bias", self.bias.as_ref(), [self.rows()])
    }

    /// The decoder with the caller's matrix.
    ///
    /// # Errors
    /// [`HeadError::SecondDecoder`], [`HeadError::Shape`] or [`HeadError::Device`].
    pub(crate) fn tied_to(&self, matrix: Param<Tensor<2>>) -> Result<Self, HeadError> {
        if !self.tied {
            return Err(HeadError::SecondDecoder);
        }
        let decoder = Self { weight: Some(matrix), ..self.clone() };
        decoder.check(&decoder.checks()?)?;
        Ok(decoder)
    }

    /// Some of the rows as a decoder with parameters of its own, which keep their ids.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        let vocab = self.vocab.clamp(rows.start, rows.end) - rows.start;
        let masked = self.masked_words.iter().filter(|word| rows.contains(word));
        let part = rows.clone();
        Self {
            weight: self
                .weight
                .as_ref()
                .map(|weight| changed(weight, |weight| weight.slice_dim(0, part.clone()))),
            bias: self.bias.as_ref().map(|bias| changed(bias, |bias| bias.slice_dim(0, part.clone()))),
            vocab,
            padding: rows.len() - vocab,
            masked_words: masked.map(|word| word - rows.start).collect(),
            mask: self.mask.clone().map(|mask| mask.slice_dim(0, part)),
            ..self.clone()
        }
    }

    /// The decoder without its parameters.
    pub(crate) fn bare(&self) -> Self {
        Self { weight: None, bias: None, ..self.clone() }
    }

    /// The rows of some words, in their order, as a decoder of its own.
    ///
    /// - log_q: subtracted from their bias, in the type of sums
    pub(crate) fn restricted_to(
        &self,
        words: Tensor<1, Int>,
        log_q: Option<Tensor<1>>,
    ) -> Result<Self, HeadError> {
        let matrix = self.matrix()?;
        let bias = self.masked_bias()?.map(|bias| bias.select(0, words.clone()));
        let bias = match (bias, log_q) {
            (Some(bias), Some(log_q)) => Some(bias.cast(log_q.dtype()) - log_q),
            (None, Some(log_q)) => Some(-log_q),
            (bias, None) => bias,
        };
        let [vocab] = words.dims();
        Ok(Self {
            weight: Some(Param::initialized(ParamId::new(), matrix.select(0, words))),
            bias: bias.map(|bias| Param::initialized(ParamId::new(), bias)),
            vocab,
            padding: 0,
            tied: false,
            masked_words: vec![],
            mask: None,
            ..self.clone()
        })
    }
}

impl ModuleDisplay for Decoder {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content.add("d_embedding", &self.d_embedding).add("vocab", &self.vocab);
        let content = if self.padding > 0 { content.add("padding", &self.padding) } else { content };
        let masked = self.masked_words.len();
        let content = if masked > 0 { content.add("masked_words", &masked) } else { content };
        content.add("bias", &self.bias.is_some()).add("tied", &self.tied).optional()
    }
}

/// Masked words and others, in ascending order, if all are in the vocabulary and leave one unmasked.
pub(crate) fn merged_masks(masked: &[usize], words: &[usize], vocab: usize) -> Result<Vec<usize>, HeadError> {
    let mut all = [masked, words].concat();
    all.sort_unstable();
    all.dedup();
    match all.iter().find(|word| **word >= vocab) {
        Some(&word) => {
            let expected = format!("a word of the vocabulary 0..{vocab}");
            Err(HeadError::Range { name: "a masked word", value: word as f64, expected })
        }
        None if all.len() == vocab => Err(HeadError::NoWordLeft { vocab }),
        None => Ok(all),
    }
}

/// The mask where a tensor of the device can meet it: on its hardware, and in its autodiff context.
fn beside(mask: Tensor<1, Bool>, device: &Device) -> Tensor<1, Bool> {
    let mask = mask.without_autodiff();
    let mask = if mask.device() == *device { mask } else { mask.to_device(device) };
    in_context(mask, device)
}

/// The same values, row after row in memory: kernels need not gather a transposed view in every call.
fn contiguous(matrix: Tensor<2>) -> Tensor<2> {
    let (device, dtype) = (matrix.device(), matrix.dtype());
    Tensor::from_data(matrix.detach().into_data(), (&device, dtype))
}

/// The matrix with zeros below, `rows` in all, for a new parameter.
fn padded(matrix: Tensor<2>, rows: usize) -> Tensor<2> {
    match rows - matrix.dims()[0] {
        0 => matrix,
        more => matrix.pad([(0, more), (0, 0)], 0.0).detach(),
    }
}
