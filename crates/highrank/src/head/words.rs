//! Log-probabilities of given words, with gradients.

use burn::tensor::{Int, Tensor};

use super::input::with_last;
use super::output::OutputHead;
use crate::context::{ContextPath, Tokens};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::{self, Beside};
use crate::loss::{ListedWords, check_words, read};
use crate::ops::{Objective, Targets};

/// Which places ask for a log-probability, and what is asked for beside. By default every place asks, and nothing else is made.
///
/// ```
/// use highrank::LogProbOptions;
///
/// let options = LogProbOptions { ignored: vec![-100], entropy: true };
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogProbOptions {
    /// A place with one of these numbers asks for nothing: its result is 0. A token all of whose places do is left out before any
    /// product, and its gradient is exactly 0, whatever its hidden state holds. Any integers; none by default.
    pub ignored: Vec<i64>,
    /// Whether [`TokenLogProbs::entropy`] is made, in the same sweep. False by default.
    pub entropy: bool,
}

/// Log-probabilities of given words, and what else was asked for. Everything is differentiable, and one backward pass serves all.
#[derive(Debug, Clone)]
pub struct TokenLogProbs<const D: usize> {
    /// `log P(w)` in nats, of the shape of the words. 0 in ignored places; −∞ for masked words, through which no gradient flows.
    pub log_probs: Tensor<D>,
    /// The entropy `H = −Σ_v P(v) log P(v)` of each token in nats, `[.., 1]`, if
    /// [asked for](LogProbOptions::entropy). 0 for tokens that are ignored.
    pub entropy: Option<Tensor<D>>,
}

impl<const D: usize> TokenLogProbs<D> {
    /// Of rows `[N, m]` and `[N, 1]`, for words of a shape.
    pub(crate) fn of_rows(log_probs: Tensor<2>, entropy: Option<Tensor<2>>, shape: [usize; D]) -> Self {
        let entropy = entropy.map(|entropy| entropy.reshape(with_last(shape, 1)));
        Self { log_probs: log_probs.reshape(shape), entropy }
    }
}

impl OutputHead {
    /// The log-probabilities of m words of each token, in nats, and what else the options ask for: for policy gradients and
    /// preferences (m = 1), lists of likely words or several right answers.
    ///
    /// They equal `forward(hidden).gather(words)` without the `[.., V]` tensor, and take any upstream gradient: one sweep over the
    /// logits forward and one backward, whatever m. A row may list a word several times.
    ///
    /// A head with [clusters](crate::HeadConfig::with_adaptive) sweeps its head cluster, and each tail for those tokens that ask for
    /// one of its words; for an entropy each tail for all tokens.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - words: `[.., m]`, m at least 1
    /// - output: log-probabilities `[.., m]`, entropies `[.., 1]`
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), or a tensor is on another device than the head. On CPU backends, if a
    /// word that is not ignored is outside `0..V`; on others its log-probability is NaN then.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::{Device, Distribution, Int, Tensor};
    /// use highrank::{HeadConfig, LogProbOptions};
    ///
    /// let device = Device::default().autodiff();
    /// let head = HeadConfig::mos(16, 8, 100, 3).init(&device);
    /// let hidden = Tensor::<3>::random([2, 3, 16], Distribution::Default, &device);
    /// let taken = Tensor::<3, Int>::from_data([[[5], [7], [1]], [[3], [0], [-100]]], &device); // −100: padding
    /// let advantages = Tensor::<3>::ones([2, 3, 1], &device);
    /// let options = LogProbOptions { ignored: vec![-100], entropy: true };
    /// let made = head.token_log_probs(hidden, taken, &options);
    /// let gain = (made.log_probs * advantages).mean(); // REINFORCE
    /// let loss = -gain - made.entropy.unwrap().mean() * 0.01;
    /// loss.backward();
    /// ```
    #[track_caller]
    pub fn token_log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<D, Int>,
        options: &LogProbOptions,
    ) -> TokenLogProbs<D> {
        self.checked_log_probs(hidden, words, options).or_panic("token_log_probs")
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
            None => self.listed(words, options, false, |listed| listed.of_hidden(hidden))?,
            Some(adaptive) => adaptive.log_probs_of_words(hidden, &read(&words), width, options)?,
        };
        Ok(TokenLogProbs::of_rows(log_probs, entropy, shape))
    }

    /// Log-probabilities `[N, m]` and entropies `[N, 1]`, of a head without clusters.
    ///
    /// - read_back: whether the host finds out which tokens words are asked of, on a GPU too
    /// - hidden: of the tokens that words are asked of
    pub(super) fn listed(
        &self,
        words: Tensor<2, Int>,
        options: &LogProbOptions,
        read_back: bool,
        hidden: impl FnOnce(&ListedWords) -> Tokens,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let listed = ListedWords::new(words, &options.ignored, self.vocab(), self.bias()?, read_back)?;
        let (input, _) = self.likelihood_input(hidden(&listed), ContextPath::Native)?;
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
