//! Log-probabilities of given words, with gradients.

use burn::tensor::{Int, Tensor};

use super::output::OutputHead;
use crate::context::{ContextOps, Tokens};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::{self, Beside};
use crate::loss::{ListedWords, check_words, read};
use crate::ops::{Objective, Targets};

/// Which words' log-probabilities are asked for, and what else. The default asks for all, and for nothing else.
#[derive(Debug, Clone, Default)]
pub struct LogProbOptions {
    pub(super) ignored: Vec<i64>,
    pub(super) entropy: bool,
    /// Whether the host finds out which tokens words are asked of, on a GPU too.
    pub(super) read_back: bool,
}

impl LogProbOptions {
    /// The log-probabilities of all words.
    pub fn new() -> Self {
        Self::default()
    }

    /// A place with this number asks for nothing: its result is 0. A token all of whose places do is left out before any
    /// product, and its gradient is exactly 0, whatever its hidden state holds. Any integer; further calls add further numbers.
    pub fn with_ignore_index(mut self, index: i64) -> Self {
        self.ignored.push(index);
        self
    }

    /// Whether [`TokenLogProbs::entropy`] is made, in the same sweep.
    pub fn with_entropy(mut self, entropy: bool) -> Self {
        self.entropy = entropy;
        self
    }
}

/// Log-probabilities of given words, and what else was asked for. Everything is differentiable, and one backward pass serves all.
#[derive(Debug, Clone)]
pub struct TokenLogProbs<const D: usize> {
    /// `log P(w)` in nats, of the shape of the words. 0 in ignored places; −∞ for masked words, through which no gradient flows.
    pub log_probs: Tensor<D>,
    /// The entropy `H = −Σ_v P(v) log P(v)` of each token in nats, `[.., 1]`, if
    /// [asked for](LogProbOptions::with_entropy). 0 for tokens that are ignored.
    pub entropy: Option<Tensor<D>>,
}

impl OutputHead {
    /// The log-probabilities of m words of each token, in nats, for policy gradients and preferences (m = 1), lists of likely words or
    /// several right answers.
    ///
    /// Equals `forward(hidden).gather(words)` without the `[.., V]` tensor, and takes any upstream gradient: one sweep over the
    /// logits forward and one backward, whatever m. A row may list a word several times.
    ///
    /// A head with [clusters](crate::HeadConfig::with_adaptive) sweeps its head cluster, and each tail for those tokens that ask for
    /// one of its words; for an entropy each tail for all tokens.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - words: `[.., m]`, m at least 1
    /// - output: `[.., m]`
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), or a tensor is on another device than the head. On CPU backends, if a
    /// word is outside `0..V`; on others its log-probability is NaN then.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::{Device, Distribution, Int, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default().autodiff();
    /// let head = HeadConfig::mos(16, 8, 100, 3).init(&device);
    /// let hidden = Tensor::<3>::random([2, 3, 16], Distribution::Default, &device);
    /// let taken = Tensor::<3, Int>::from_data([[[5], [7], [1]], [[3], [0], [99]]], &device);
    /// let advantages = Tensor::<3>::ones([2, 3, 1], &device);
    /// let loss = -(head.token_log_probs(hidden, taken) * advantages).mean(); // REINFORCE
    /// loss.backward();
    /// ```
    #[track_caller]
    pub fn token_log_probs<const D: usize>(&self, hidden: Tensor<D>, words: Tensor<D, Int>) -> Tensor<D> {
        self.checked_log_probs(hidden, words, &LogProbOptions::new()).or_panic("token_log_probs").log_probs
    }

    /// The log-probabilities that the [options](LogProbOptions) describe.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - words: `[.., m]`, m at least 1
    ///
    /// # Panics
    /// As [`token_log_probs`](Self::token_log_probs), where a place is not ignored.
    #[track_caller]
    pub fn token_log_probs_with<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<D, Int>,
        options: &LogProbOptions,
    ) -> TokenLogProbs<D> {
        self.checked_log_probs(hidden, words, options).or_panic("token_log_probs_with")
    }

    fn checked_log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<D, Int>,
        options: &LogProbOptions,
    ) -> Result<TokenLogProbs<D>, HeadError> {
        let checks = self.check(&hidden)?;
        let shape = words.dims();
        check_words(&hidden.dims(), &shape)?;
        checks.device("words", &words.device())?;
        let width = shape[D - 1];
        let words = words.reshape([shape.iter().product::<usize>() / width, width]);
        let (log_probs, entropy) = match self.adaptive() {
            None => self.listed(words, options, |listed| listed.of_hidden(hidden))?,
            Some(adaptive) => adaptive.log_probs_of_words(hidden, &read(&words), width, options)?,
        };
        let mut of_tokens = shape;
        of_tokens[D - 1] = 1;
        Ok(TokenLogProbs {
            log_probs: log_probs.reshape(shape),
            entropy: entropy.map(|entropy| entropy.reshape(of_tokens)),
        })
    }

    /// Log-probabilities `[N, m]` and entropies `[N, 1]`, of a head without clusters.
    ///
    /// - hidden: of the tokens that words are asked of
    pub(super) fn listed(
        &self,
        words: Tensor<2, Int>,
        options: &LogProbOptions,
        hidden: impl FnOnce(&ListedWords) -> Tokens,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let listed =
            ListedWords::new(words, &options.ignored, self.vocab(), self.bias()?, options.read_back)?;
        let (input, _) = self.likelihood(hidden(&listed), ContextOps::Native)?;
        let ids = listed.ids();
        let [tokens, width] = ids.dims();
        if width == 1 && !options.entropy {
            // Every backend has kernels for one word.
            let words = ids.reshape([tokens]).into();
            let nll = likelihood::loss(input, Objective::new(Targets::Words(words)), None).loss;
            return Ok((listed.among_all(-nll.reshape([tokens, 1]).tensor()), None));
        }
        let beside = Beside { entropy: options.entropy, normaliser: false };
        let made = likelihood::listed(input, ids.into(), beside).tensor::<2>();
        let log_probs = listed.among_all(made.clone().narrow(1, 0, width));
        let entropy = options.entropy.then(|| listed.of_tokens(made.narrow(1, width, 1)));
        Ok((log_probs, entropy))
    }
}
