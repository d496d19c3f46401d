//! Properties of the output heads that no table of numbers can show: agreement of the fused with the composed form at
//! every chunk boundary, derivatives against finite differences, identities between heads, and the messages of misuse.

mod fused;
mod gradients;
mod identities;
mod interface;
mod precision;
mod rank;
mod support;
