//! Log-probabilities of given words, with gradients.

use burn::tensor::{Bool, Int, Tensor, TensorData};

use super::output::OutputHead;
use crate::context::ContextOps;
use crate::error::{HeadError, OrPanic};
use crate::likelihood;
use crate::loss::{ListedWords, LossOptions};
use crate::ops::{Objective, Targets};

/// Which words' log-probabilities are asked for, and what else. The default asks for all, and for nothing else.
#[derive(Debug, Clone, Default)]
pub struct LogProbOptions {
    ignored: Vec<i64>,
    entropy: bool,
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
    /// A head with [clusters](crate::HeadConfig::with_adaptive) makes a sweep for each of the m, and for an entropy all
    /// log-probabilities.
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
        self.try_token_log_probs_with(hidden, words, &LogProbOptions::new())
            .or_panic("token_log_probs")
            .log_probs
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
        self.try_token_log_probs_with(hidden, words, options).or_panic("token_log_probs_with")
    }

    /// [`token_log_probs_with`](Self::token_log_probs_with) with an error in place of a panic, for a program whose words come from a
    /// file.
    ///
    /// # Errors
    /// Whatever [`token_log_probs_with`](Self::token_log_probs_with) panics for.
    pub fn try_token_log_probs_with<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<D, Int>,
        options: &LogProbOptions,
    ) -> Result<TokenLogProbs<D>, HeadError> {
        let checks = self.check(&hidden)?;
        let (shape, of_hidden) = (words.dims(), hidden.dims());
        if shape[..D - 1] != of_hidden[..D - 1] || shape[D - 1] == 0 {
            let expected = format!("{:?} of the hidden state and then m, at least 1", &of_hidden[..D - 1]);
            return Err(HeadError::Shape { what: "words", got: shape.to_vec(), expected });
        }
        checks.device("words", &words.device())?;
        let width = shape[D - 1];
        let words = words.reshape([shape.iter().product::<usize>() / width, width]);
        let (log_probs, entropy) = match self.clusters {
            None => self.listed(hidden, words, options)?,
            Some(_) => self.listed_of_clusters(hidden, words, options)?,
        };
        let mut of_tokens = shape;
        of_tokens[D - 1] = 1;
        Ok(TokenLogProbs {
            log_probs: log_probs.reshape(shape),
            entropy: entropy.map(|entropy| entropy.reshape(of_tokens)),
        })
    }

    /// Log-probabilities `[N, m]` and entropies `[N, 1]`.
    fn listed<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<2, Int>,
        options: &LogProbOptions,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let listed = ListedWords::new(words, &options.ignored, self.vocab(), self.bias()?)?;
        let (input, _) = self.likelihood(listed.of_hidden(hidden), ContextOps::Native)?;
        let ids = listed.ids();
        let [tokens, width] = ids.dims();
        if width == 1 && !options.entropy {
            // Every backend has kernels for one word.
            let words = ids.reshape([tokens]).into();
            let nll = likelihood::loss(input, Objective::new(Targets::Words(words)), None).loss;
            return Ok((listed.among_all(-nll.reshape([tokens, 1]).tensor()), None));
        }
        let made = likelihood::listed(input, ids.into(), options.entropy).tensor::<2>();
        let log_probs = listed.among_all(made.clone().narrow(1, 0, width));
        let entropy = options.entropy.then(|| listed.of_tokens(made.narrow(1, width, 1)));
        Ok((log_probs, entropy))
    }

    /// The same of a head with clusters, by its losses and predictions.
    fn listed_of_clusters<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<2, Int>,
        options: &LogProbOptions,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let [tokens, width] = words.dims();
        let adaptive = self.adaptive().expect("a head with clusters");
        let unmasked = adaptive.unmasked()?;
        let (device, of_all) = (words.device(), words.to_data().iter::<i64>().collect::<Vec<_>>());
        let ignored: Vec<bool> = of_all.iter().map(|word| options.ignored.contains(word)).collect();
        let is_masked =
            |word: &i64| usize::try_from(*word).is_ok_and(|word| unmasked.get(word) == Some(&false));
        let masked = of_all
            .iter()
            .zip(&ignored)
            .map(|(word, ignored)| !ignored && is_masked(word))
            .collect::<Vec<_>>();
        // Neither asks the losses for anything.
        const NOTHING: i64 = i32::MIN as i64;
        let asked = of_all.iter().zip(ignored.iter().zip(&masked));
        let asked: Vec<_> = asked
            .map(|(word, (ignored, masked))| if *ignored || *masked { NOTHING } else { *word })
            .collect();
        let of_column = LossOptions::new().with_ignore_index(NOTHING).with_per_token(true);
        let mut columns = vec![];
        for column in 0..width {
            let words: Vec<_> = asked.iter().skip(column).step_by(width).copied().collect();
            let words = Tensor::<1, Int>::from_data(words.as_slice(), &device);
            let made = adaptive.loss_with(hidden.clone(), words, &of_column)?;
            columns.push(-made.per_token.expect("values of tokens are asked for").reshape([tokens, 1]));
        }
        let masked = Tensor::<2, Bool>::from_data(TensorData::new(masked, [tokens, width]), &device);
        let log_probs = Tensor::cat(columns, 1).mask_fill(masked, f64::NEG_INFINITY);
        let entropy = options.entropy.then(|| {
            let blank: Vec<bool> =
                ignored.chunks(width).map(|places| places.iter().all(|blank| *blank)).collect();
            let blank = Tensor::<2, Bool>::from_data(TensorData::new(blank, [tokens, 1]), &device);
            let [wide, features] = [hidden.dims().iter().product::<usize>(), hidden.dims()[D - 1]];
            let rows = hidden.clone().reshape([wide / features, features]);
            let rows = rows.clone().mask_fill(blank.clone().expand(rows.dims()), 0.0);
            let log_probs = adaptive.log_probs(rows.reshape(hidden.dims()))?.reshape([tokens, self.rows()]);
            let counted = log_probs.clone().mask_fill(log_probs.is_inf(), 0.0);
            let terms = counted.clone() * counted.clone().exp();
            // e^0 times 0 of a masked word is 0.
            Ok::<_, HeadError>((-terms.sum_dim(1)).mask_fill(blank, 0.0))
        });
        Ok((log_probs, entropy.transpose()?))
    }
}
