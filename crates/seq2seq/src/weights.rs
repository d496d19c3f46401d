//! Weights in and out: this crate's models and the state dicts of a PyTorch program.
//!
//! Files are read as [`awd_lstm::weights`] reads them: safetensors, or what `torch.save` wrote of a `state_dict()`. The
//! names are those of a PyTorch module of the same parts; V is the vocabulary, e the embedding, U, S and H the sizes of utterance
//! encoder, context encoder and decoder, K the number of components, d the width of the decoder matrix:
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `embed.weight` | V, e | |
//! | `utterance.weight_ih_l0`, `utterance.weight_hh_l0` | 4·U, e and 4·U, U | gates in the order input, forget, cell, output |
//! | `utterance.bias_ih_l0`, `utterance.bias_hh_l0` | 4·U | |
//! | the same names with `_reverse` | | from the last word to the first |
//! | `context.weight_ih_l0`, … | 4·S, 2·U + 2 | |
//! | `start.weight`, `start.bias` | H, S and H | |
//! | `decoder.weight_ih_l0`, … | 4·H, e | |
//! | `head.prior.weight` | K, H | mixtures |
//! | `head.latent.weight`, `head.latent.bias` | K·d, H and K·d | mixtures |
//! | `head.decoder.weight`, `head.decoder.bias` | V, d and V | |
//! | `head.plif.raw_slopes`, `head.plif.offset` | P and 1 | PLIF of P pieces |
//! | `head.gss.center`, `head.gss.slope` | 1 | generalised sigsoftmax |

use std::path::Path;

use awd_lstm::weights::{Noted, StateDict, TensorName};
use burn::tensor::{DType, Device};
use runs::error::Result;

use crate::config::ModelConfig;
use crate::model::Seq2Seq;

/// The model of the given configuration with the weights in a file, in the device's own float type.
///
/// # Errors
/// Those of [`StateDict::read`] and [`ModelConfig::validate`]; [`WeightsMismatch`](runs::Error::WeightsMismatch) with every
/// tensor that is missing, left over, of another shape or not of real numbers.
pub fn read(path: &Path, config: &ModelConfig, device: &Device) -> Result<Seq2Seq> {
    read_as(path, config, device, device.settings().float_dtype.into())
}

/// As [`read`], with weights of the float type `dtype`.
///
/// # Errors
/// As [`read`].
pub fn read_as(path: &Path, config: &ModelConfig, device: &Device, dtype: DType) -> Result<Seq2Seq> {
    config.validate()?;
    of_state(&StateDict::read(path)?, config, device, dtype)
}

/// The model of the given configuration with these weights, of the float type `dtype`.
///
/// # Errors
/// Those of [`ModelConfig::validate`], and [`WeightsMismatch`](runs::Error::WeightsMismatch) as [`read`].
pub fn of_state(state: &StateDict, config: &ModelConfig, device: &Device, dtype: DType) -> Result<Seq2Seq> {
    config.validate()?;
    state.check_size(config.num_params())?;
    state.fill(config.try_init(device)?, tensor_name, &[], config.head.name(), dtype)
}

/// Writes a model's weights to a safetensors file that PyTorch reads with `safetensors.torch.load_file`. A file that is there is
/// replaced as a whole.
///
/// # Errors
/// [`Io`](runs::Error::Io) if the file cannot be written.
pub fn write(model: &Seq2Seq, path: &Path) -> Result<()> {
    StateDict::of_module(model, tensor_name).write(path, false)
}

/// As [`write()`], with what no tensor tells of a model of this configuration: its head, and T of a PLIF.
///
/// # Errors
/// As [`write()`].
pub fn write_noted(model: &Seq2Seq, config: &ModelConfig, path: &Path) -> Result<()> {
    let plif_bound = config.head.has_plif().then_some(config.plif_bound);
    let noted = Noted { head: Some(config.head), plif_bound, start_spread: None };
    StateDict::of_module(model, tensor_name).with_notes(&noted).write(path, false)
}

/// The tensor for the parameter at `path` in the model; none if the path is unknown.
fn tensor_name(path: &str) -> Option<TensorName> {
    let parts: Vec<&str> = path.split('.').collect();
    let (name, transposed) = match parts.as_slice() {
        ["embedding"] => ("embed.weight".into(), false),
        ["forward", parameter] => (format!("utterance.{}", lstm_parameter(parameter)?), false),
        ["backward", parameter] => (format!("utterance.{}_reverse", lstm_parameter(parameter)?), false),
        ["start", parameter] => (format!("start.{parameter}"), *parameter == "weight"),
        ["head", "decoder", parameter] => (format!("head.decoder.{parameter}"), false),
        ["head", "context", _, layer @ ("prior" | "latent"), parameter] => {
            (format!("head.{layer}.{parameter}"), *parameter == "weight")
        }
        ["head", "logit_map", map, parameter] => (format!("head.{}.{parameter}", map.to_lowercase()), false),
        [lstm @ ("context" | "decoder"), parameter] => {
            (format!("{lstm}.{}", lstm_parameter(parameter)?), false)
        }
        _ => return None,
    };
    Some(TensorName { name, transposed })
}

fn lstm_parameter(name: &str) -> Option<&'static str> {
    Some(match name {
        "w_ih" => "weight_ih_l0",
        "w_hh" => "weight_hh_l0",
        "b_ih" => "bias_ih_l0",
        "b_hh" => "bias_hh_l0",
        _ => return None,
    })
}
