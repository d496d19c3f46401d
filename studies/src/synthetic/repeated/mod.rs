//! A language in which each sequence repeats one symbol (after Godey and Artzi 2026, arXiv 2603.10145).
//!
//! A sequence is `s, s, s, …` with `s` drawn evenly from `V` symbols. Its first symbol costs any model `ln V` nats; after it nothing is
//! left to guess, so the floor of the loss is 0, and weights that reach it exist for any `d` above 1. The authors train Transformers of
//! about a hundred million parameters on it and find that, as `V` grows, they do not: the decoder passes too little of the logits'
//! gradient on.
//!
//! Ours is the smallest network with the same head. The next symbol depends on the last one alone, so attention has nothing to add
//! and a sequence says the same at each of its places; what is trained on are pairs of a symbol and itself:
//!
//! ```text
//! e = E[s]                              embedding, free of the decoder, d numbers a symbol
//! h = LayerNorm(e + B gelu(A e + a) + b)     a Transformer's residual block without attention, 4d units
//! P(· | s) = head(h)
//! ```
//!
//! Width `d` throughout, Adam, and the same number of steps for every head and size; a larger vocabulary sees each symbol less often,
//! as in the paper, unless `--visits` asks for more steps.

mod args;
mod command;
mod network;
mod outcome;

pub use args::RepeatedArgs;
pub use command::run;
