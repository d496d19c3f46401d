//! Distributions over given candidates in place of the whole vocabulary.
//!
//! ```text
//! log P_C(c) = logsumexp_k [ log π_k + log softmax over C of ( f(h_k·W_cᵀ + b_c) / τ − log Q(c) ) ]
//! ```
//!
//! With the probability `Q(c)` of drawing c, a mean over drawn candidates is near the loss over all words (Bengio and Senécal
//! 2003, Jean et al., ACL 2015); without, it is the exact distribution of the candidates against each other.

use burn::tensor::{Int, Tensor};
use highrank_kernels::Floats;

use super::output::OutputHead;
use crate::checks::TensorChecks;
use crate::context::{ContextPath, Tokens};
use crate::error::{HeadError, OrPanic, at_least_one, expect_shape};
use crate::likelihood::portable;
use crate::logit_map::LogitMapConfig;
use crate::loss::{ListedWords, check_words, is_cpu, validate_targets};
use crate::math::{log_softmax, log_sum_exp_dim};

impl OutputHead {
    /// The same head over some of the words: word i of the result is `words[i]`. Everything works with it, losses and predictions,
    /// at the cost of that many rows: a loss over one set of candidates that a whole batch shares, for vocabularies whose
    /// products would be too large.
    ///
    /// The result shares the parameters, so gradients reach the rows of the candidates; make it in every forward pass. Words that
    /// are masked here are masked there, but [`masked_words`](Self::masked_words) of the result does not list them.
    ///
    /// # Shapes
    /// - words: `[m]`
    /// - log_q: `[m]`, finite: the logarithm of how often each candidate is expected among those that are drawn; it is subtracted from
    ///   the candidates' logits. `None` where candidates are not drawn. It goes with the temperature that the head has now: set that before
    ///
    /// # Panics
    /// If the head has clusters or gates, there is no candidate, `log_q` is of another shape than the words, or either is on another
    /// device than the head. If a `log_q` is given for another logit map than the identity, which logits pass before they could be
    /// corrected. On CPU backends, if a word is outside `0..V` or a `log_q` is not finite.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::{Device, Distribution, Int, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default().autodiff();
    /// let head = HeadConfig::softmax(16, 1_000_000).init(&device);
    /// let hidden = Tensor::<2>::random([3, 16], Distribution::Default, &device);
    /// // The words of the batch, and others that were drawn evenly.
    /// let candidates = Tensor::<1, Int>::from_ints([15, 900_000, 7, 31_415, 926_535], &device);
    /// let loss = head.restricted_to(candidates, None).loss(hidden, Tensor::<1, Int>::from_ints([0, 1, 2], &device));
    /// loss.backward();
    /// ```
    #[track_caller]
    pub fn restricted_to(&self, words: Tensor<1, Int>, log_q: Option<Tensor<1>>) -> Self {
        self.try_restricted_to(words, log_q).or_panic("restricted_to")
    }

    fn try_restricted_to(&self, words: Tensor<1, Int>, log_q: Option<Tensor<1>>) -> Result<Self, HeadError> {
        self.check_candidates("restricted_to")?;
        let [candidates] = words.dims();
        at_least_one("the number of candidates", candidates)?;
        let checks = self.decoder.checks()?;
        checks.device("words", &words.device())?;
        if let Some(log_q) = &log_q {
            check_log_q(log_q, &[candidates], &checks)?;
            if self.logit_map.function() != LogitMapConfig::Identity {
                let reason = "a bias stands for it, which another logit map than the identity changes: use candidate_log_probs";
                return Err(HeadError::Unused { option: "log_q", reason });
            }
        }
        if is_cpu(&words.device()) {
            validate_targets(&words, self.vocab())?;
        }
        // The bias is divided by the temperature.
        let log_q = log_q.map(|log_q| log_q.cast(checks.sums()) * self.temperature);
        Ok(Self { decoder: self.decoder.restricted_to(words, log_q)?, ..self.clone() })
    }

    /// The log-probabilities of m candidates of each token against each other, in nats: every row's exponentials sum to 1.
    ///
    /// For candidates that differ from token to token; [`restricted_to`](Self::restricted_to) is for those that are shared. The rows of
    /// the decoder are gathered, `[.., m, d]`, so it is meant for some hundreds of candidates.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - candidates: `[.., m]`, m at least 1
    /// - log_q: `[.., m]`, finite, as in [`restricted_to`](Self::restricted_to)
    /// - output: `[.., m]`
    ///
    /// # Panics
    /// If shapes or devices do not fit, or the head has clusters or gates. On CPU backends, if a candidate is outside `0..V` or `log_q` is not
    /// finite; on others such a row is NaN.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::{Device, Distribution, Int, Tensor};
    /// use highrank::HeadConfig;
    ///
    /// let device = Device::default().autodiff();
    /// let head = HeadConfig::mos(16, 8, 1000, 3).init(&device);
    /// let hidden = Tensor::<2>::random([2, 16], Distribution::Default, &device);
    /// let bought_and_drawn = Tensor::<2, Int>::from_ints([[15, 4, 900], [7, 31, 15]], &device);
    /// let log_probs = head.candidate_log_probs(hidden, bought_and_drawn, None);
    /// let loss = -log_probs.narrow(1, 0, 1).mean(); // the first candidate is the right one
    /// loss.backward();
    /// ```
    #[track_caller]
    pub fn candidate_log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
        candidates: Tensor<D, Int>,
        log_q: Option<Tensor<D>>,
    ) -> Tensor<D> {
        self.try_candidate_log_probs(hidden, candidates, log_q).or_panic("candidate_log_probs")
    }

    fn try_candidate_log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
        candidates: Tensor<D, Int>,
        log_q: Option<Tensor<D>>,
    ) -> Result<Tensor<D>, HeadError> {
        let checks = self.check(&hidden)?;
        self.check_candidates("candidate_log_probs")?;
        let shape = candidates.dims();
        check_words(&hidden.dims(), &shape)?;
        checks.device("candidates", &candidates.device())?;
        if let Some(log_q) = &log_q {
            check_log_q(log_q, &shape, &checks)?;
        }
        let width = shape[D - 1];
        let tokens = shape.iter().product::<usize>() / width;
        let listed =
            ListedWords::new(candidates.reshape([tokens, width]), &[], self.vocab(), self.bias()?, false)?;
        let (input, _) = self.likelihood_input(Tokens::all(hidden), ContextPath::Composed)?;
        let (components, [_, d], sums) = (input.components(), input.weight.dims(), input.wide());
        let ids = listed.ids().reshape([tokens * width]);

        let contexts = portable::context_tensor(input.contexts.clone(), d).reshape([tokens, components, d]);
        let weight = input.weight.clone().select(0, ids.clone().into()).reshape([tokens, width, d]);
        let [contexts, weight] = [contexts, weight].map(|factor| input.precision.rounded(factor).cast(sums));
        let input = input.widened();
        let mut logits = contexts.matmul(weight.transpose());
        if let Some(bias) = input.bias {
            // That of masked words stands for nothing: they are set apart afterwards.
            let bias = bias.select(0, ids.into()).clamp(f32::MIN.into(), f32::MAX.into());
            logits = logits + bias.reshape([tokens, 1, width]);
        }
        let table = input.map_params.map(|params| input.map.table(params));
        let mapped = input.map.apply(logits.reshape([tokens * components, width]), table.as_ref());
        let mut mapped = mapped.mul_scalar(1.0 / input.temperature).reshape([tokens, components, width]);
        if let Some(log_q) = log_q {
            let log_q = Floats::from(log_q).cast(mapped.dtype());
            mapped = mapped - log_q.reshape([tokens, 1, width]);
        }
        let mut log_probs = log_softmax(Floats::from(listed.left_out(mapped.tensor())));
        if let Some(log_prior) = input.log_prior {
            log_probs = log_sum_exp_dim(log_probs + log_prior.reshape([tokens, components, 1]), 1);
        }
        let log_probs = log_probs.reshape([tokens, width]).tensor::<2>();
        Ok(listed.among_all(log_probs).reshape(shape))
    }

    /// Checks that the logits of a word depend on its own row alone, and on one normaliser.
    fn check_candidates(&self, what: &'static str) -> Result<(), HeadError> {
        self.has_common_logits(what)?;
        if self.context.not_linear().is_some() {
            let reason = "its words have gates of their own: use a head whose words have none";
            return Err(HeadError::Unused { option: "mixtape", reason });
        }
        Ok(())
    }
}

/// Checks a correction: a number for each candidate and, where it can be read at once, a finite one.
fn check_log_q<const D: usize>(
    log_q: &Tensor<D>,
    candidates: &[usize; D],
    checks: &TensorChecks,
) -> Result<(), HeadError> {
    expect_shape("log_q", &log_q.dims(), candidates, "a number for each candidate")?;
    checks.floats("log_q", log_q)?;
    if is_cpu(&log_q.device())
        && let Some(value) = log_q.to_data().iter::<f64>().find(|value| !value.is_finite())
    {
        return Err(HeadError::Range { name: "log_q", value, expected: "a finite number".into() });
    }
    Ok(())
}
