//! What a head may be asked to predict.

/// What is predicted of every token of a likelihood. No gradient flows through it.
pub enum Prediction<'a> {
    /// A tensor of log-probabilities, `[N, V]`; −∞ for masked words.
    LogProbs,
    /// A tensor of the logits `z` of all components, `[N·K, V]`, before the logit map; −∞ for masked words.
    Logits,
    /// The log-probabilities of each token, given to a function with the token's number while they are in cache: once a
    /// token, in any order, by several threads at a time. `[N, V]` never exists.
    Read(&'a (dyn Fn(usize, LogProbs<'_>) + Sync)),
    /// A word a token, drawn from its distribution. `[N, V]` never exists.
    Draw(Draw<'a>),
}

/// Log-probabilities of all words, in the [type of sums](super::wide). If one of them is no number, none is.
#[derive(Debug, Clone, Copy)]
pub enum LogProbs<'a> {
    /// `[V]`
    F32(&'a [f32]),
    /// `[V]`
    F64(&'a [f64]),
}

/// How words are drawn.
#[derive(Debug)]
pub struct Draw<'a> {
    /// The component that each token's word is drawn from, `[N]`; nothing where there is one component only.
    pub components: &'a [usize],
    /// Where the drawn words end in the sums of the probabilities, in the vocabulary's order: a number in `[0, 1)` for each
    /// token, `[N]`.
    pub numbers: &'a [f64],
    /// Takes what is drawn, `[N]`.
    pub words: &'a mut [Drawn],
}

/// What has been drawn for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// A word, not a masked one.
    Word(usize),
    /// Nothing: its probabilities are no numbers.
    NotANumber,
    /// Nothing: all words are masked.
    AllMasked,
}
