//! Properties of the output heads that no table of numbers can show: agreement of the fused with the composed form at
//! every chunk boundary, derivatives against finite differences, identities between heads, numbers at the ends of their
//! types, and the messages of misuse.

mod activation;
mod adaptive;
mod adaptive_losses;
mod configuration;
mod connection;
mod extremes;
mod fused;
mod gradients;
mod half;
mod identities;
mod interface;
mod log_probs;
mod lora;
mod loss_errors;
mod loss_options;
mod masked;
mod masked_decoder;
mod mixtape;
mod precision;
mod prediction;
mod prior_cv;
#[path = "../priors.rs"]
mod priors;
mod properties;
mod quantised;
mod rank;
mod shard;
mod shard_predictions;
mod support;
mod time_axis;
mod transformer;
mod types;
