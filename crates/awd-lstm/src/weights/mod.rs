//! Weights in and out: this crate's models and the state dicts of the authors' PyTorch programs.
//!
//! A [`StateDict`] is a set of named tensors, read from a safetensors file or from what `torch.save` wrote of a
//! `state_dict()`; nothing in such a file is ever run. The names are those of the programs for AWD-LSTM
//! (arXiv 1708.02182), Mixture of Softmaxes (arXiv 1711.03953) and direct output connection (arXiv 1808.10143); V is the
//! vocabulary, d the embedding, H_l the size of LSTM l (its input I_l), K the number of components, P the number of pieces:
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `encoder.weight` | V, d | the embedding |
//! | `rnns.l.weight_ih_l0` | 4·H_l, I_l | gates in the order input, forget, cell, output |
//! | `rnns.l.weight_hh_l0` | 4·H_l, H_l | under weight dropout `rnns.l.module.weight_hh_l0_raw` |
//! | `rnns.l.bias_ih_l0`, `rnns.l.bias_hh_l0` | 4·H_l | |
//! | `prior.weight` | K, H_last | mixtures |
//! | `latent.0.weight`, `latent.0.bias` | K·d, H_last and K·d | mixtures |
//! | `latent.weight`, `latent.bias` | K_last·d, H_last and K_last·d | in their place under a direct output connection, from the last LSTM |
//! | `weight4embed.weight`, `.bias` | K_l·d, d and K_l·d | the same from the embedding |
//! | `weight4first`, `weight4second`, `weight4layer3`, .. | K_l·d, H_l and K_l·d | from the first, second, third, .. LSTM |
//! | `gates.features.weight`, `gates.base.weight` | 3·G, H_last and 3, H_last | Mixtape, beside `latent.0` with K = 4 |
//! | `gates.vectors`, `gates.bias` | S + 1, G and S + 1, 3 | a row for each frequent word, then the shared one |
//! | `decoder.weight` | V, d | the same as `encoder.weight` in a tied model, where it may be left out; V, H_last if neither tied nor a mixture |
//! | `decoder.bias` | V | |
//! | `tail.i.0.weight` | d_i, H_last | clusters of rare words: the projection of cluster i |
//! | `tail.i.1.weight` | words, d_i | the decoder of cluster i; `decoder.weight` and `.bias` have a row for each word below the first cutoff and then for each cluster, a tied `decoder.weight` the latter alone |
//! | `plif.raw_slopes`, `plif.offset` | P and 1 | PLIF, as in [`Plif`](highrank::logit_map::Plif) |
//! | `gss.center`, `gss.slope` | 1 | generalised sigsoftmax, as in [`Gss`](highrank::logit_map::Gss) |
//!
//! PyTorch's `AdaptiveLogSoftmaxWithLoss` (with `head_bias=True`) calls the decoder `head`; its names are read as they are and under
//! `decoder.`.
//!
//! The level `module.` that weight dropout adds to the names of an LSTM is read with and without.
//!
//! ```no_run
//! use awd_lstm::weights::StateDict;
//! use burn::tensor::Device;
//!
//! # fn main() -> Result<(), runs::Error> {
//! let state = StateDict::read("model.pt".as_ref())?;
//! let config = state.model_config(&state.noted()?)?;
//! let model = state.model(&config, &Device::default())?;
//! # Ok(()) }
//! ```

mod infer;
mod model;
mod names;
mod notes;
mod pickle;
mod pytorch;
mod state_dict;

pub use names::TensorName;
pub use notes::Noted;
pub use state_dict::StateDict;
