//! The sweep over this rank's words that every call begins with: log normalisers and the logits of the words asked for.

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Int, Tensor};
use highrank_kernels::Floats;

use super::exchange::{gathered, shared, total, tracked};
use super::group::ShardError;
use super::head::ShardedHead;
use crate::OutputHead;
use crate::context::{ContextPath, Tokens};
use crate::error::HeadError;
use crate::likelihood::{self, Beside};
use crate::loss::safe_words;
use crate::math::{log_softmax_and_normaliser, log_sum_exp_dim};
use crate::ops::{ContextSource, LikelihoodInput, MASKING_BIAS, wide};

/// The log normaliser of a rank all of whose words are masked: far below any other, and finite.
pub(super) const NO_WORD: f64 = -1e30;

/// What the sweep has found.
pub(super) struct Swept {
    /// `log P` of the words that were asked for, `[N, m]`; −∞ for masked ones.
    pub(super) log_probs: Tensor<2>,
    /// `LSE`, `[N, K]`.
    pub(super) normaliser: Tensor<2>,
    /// `LSE^r` of every rank, constants, each `[N, K]`.
    pub(super) of_ranks: Vec<Tensor<2>>,
    /// `log π`, `[N, K]`; `None` means one component.
    pub(super) log_prior: Option<Tensor<2>>,
    /// `log π` of the latent contexts too, where they have been mixed into one.
    pub(super) component_log_prior: Option<Tensor<2>>,
    /// `LSE^r − LSE` of this rank, `[N, K]`, a constant.
    share: Tensor<2>,
    /// `LSE^r` of this rank, `[N, K]`.
    own: Tensor<2>,
    /// Of rows `[N·K]`, each a softmax over this rank's words.
    rows: LikelihoodInput,
}

impl Swept {
    /// `N`.
    pub(super) fn tokens(&self) -> usize {
        self.own.dims()[0]
    }
}

/// This rank's words as those of a head over them alone. The priors of its components are what all of this rank's words have of
/// each.
pub(super) struct OwnWords {
    pub(super) input: LikelihoodInput,
    /// The logarithm of what they have of a single component, which `input` leaves out, `[N, 1]`.
    pub(super) share: Option<Tensor<2>>,
}

/// The words that are asked for, as rows of this rank.
struct Asked {
    /// Of each, or of a word that is not masked, `[N, m]`.
    ids: Tensor<2, Int>,
    /// Whether this rank holds it and it is not masked.
    is_own: Tensor<2, Bool>,
    /// Whether this rank holds it and it is masked.
    is_masked: Tensor<2, Bool>,
}

impl ShardedHead {
    /// `log P` of words `[N, m]` of the vocabulary, by all ranks together.
    pub(super) fn sweep(&self, tokens: Tokens, words: Tensor<2, Int>) -> Result<Swept, ShardError> {
        self.check_head()?;
        let [count, width] = words.dims();
        let head = self.with_common_mask(tokens.leading())?;
        let (input, component_log_prior) = head.likelihood_input(tokens, ContextPath::Native)?;
        let (rank, components) = (self.group().rank(), input.components());
        // Of the contexts' type, which may be narrower than the decoder's.
        let sums = input.wide();
        let log_prior = input.log_prior.clone().map(|prior| prior.cast(sums).tensor::<2>());
        let rows = self.rows_of(input);

        let asked = self.asked(&words)?;
        let beside = Beside { normaliser: true, entropy: false };
        let ids = of_rows(asked.ids, components).into();
        let made = likelihood::listed(rows.clone(), ids, beside).tensor::<2>();
        let own = made.clone().narrow(1, width, 1);
        let own = own.clone().mask_fill(own.lower_equal_elem(NO_WORD), NO_WORD);
        let listed = made.narrow(1, 0, width);
        let listed = listed.mask_fill(of_rows(asked.is_own, components).bool_not(), 0.0);

        let sent = listed.clone().mask_fill(of_rows(asked.is_masked, components), f64::NEG_INFINITY);
        let all = gathered(&**self.group(), &Tensor::cat(vec![own.clone(), sent], 1))?;
        let column = |at, width| move |all: &Tensor<2>| all.clone().narrow(1, at, width);
        let of_ranks: Vec<_> = all.iter().map(column(0, 1)).collect();
        let normalisers = Tensor::cat(tracked(&**self.group(), own.clone(), of_ranks.clone()), 1);
        let (shares, normaliser) = log_softmax_and_normaliser(Floats::from(normalisers));
        let (shares, normaliser) = (shares.tensor::<2>(), normaliser.tensor::<2>());
        let listed = total(tracked(&**self.group(), listed, all.iter().map(column(1, width)).collect()));

        let is_masked = listed.clone().lower_equal_elem(MASKING_BIAS);
        let share = shares.clone().gather(1, of_rows(self.owners(&words), components));
        let joint = (listed.mask_fill(is_masked.clone(), 0.0) + share).reshape([count, components, width]);
        let log_probs = match &log_prior {
            None => joint.reshape([count, width]),
            Some(log_prior) => {
                let joint = joint + log_prior.clone().unsqueeze_dim::<3>(2);
                log_sum_exp_dim(Floats::from(joint), 1).reshape([count, width]).tensor::<2>()
            }
        };
        let is_masked = is_masked.reshape([count, components, width]).narrow(1, 0, 1).reshape([count, width]);
        let last = self.shared.whole.rows() as i64 - 1;
        let is_no_word = words.clone().lower_elem(0).bool_or(words.greater_elem(last));
        let of_tokens = |column: Tensor<2>| column.reshape([count, components]);
        Ok(Swept {
            log_probs: log_probs.mask_fill(is_masked, f64::NEG_INFINITY).mask_fill(is_no_word, f64::NAN),
            normaliser: of_tokens(normaliser),
            of_ranks: of_ranks.into_iter().map(of_tokens).collect(),
            log_prior,
            component_log_prior,
            share: of_tokens(shares.narrow(1, rank, 1).detach()),
            own: of_tokens(own),
            rows,
        })
    }

    /// What the log-probabilities of this rank's words depend on.
    pub(super) fn own_words(&self, swept: &Swept) -> OwnWords {
        let plus_prior = |of_rows: Tensor<2>| match &swept.log_prior {
            Some(log_prior) => log_prior.clone() + of_rows,
            None => of_rows,
        };
        // The value has all digits of the share, and the gradient reaches the normalisers of all ranks.
        let gradient = shared(self.group(), plus_prior(-swept.normaliser.clone())) + swept.own.clone();
        let log_prior = plus_prior(swept.share.clone()).detach() + (gradient.clone() - gradient.detach());
        match log_prior.dims() {
            [_, 1] => OwnWords { input: swept.rows.clone(), share: Some(log_prior) },
            _ => {
                let log_prior = Some(log_prior.into());
                OwnWords { input: LikelihoodInput { log_prior, ..swept.rows.clone() }, share: None }
            }
        }
    }

    /// The rank that holds each word; of what is no word, any.
    fn owners(&self, words: &Tensor<2, Int>) -> Tensor<2, Int> {
        let share = &self.shared.share;
        let is_beyond =
            |rank| words.clone().greater_equal_elem(share.start_of(rank) as i64).int().cast(words.dtype());
        (1..share.group.size()).fold(words.zeros_like(), |owners, rank| owners + is_beyond(rank))
    }

    /// A word of this rank that is not masked, if there is one, in a shape.
    pub(super) fn safe_row<const D: usize>(
        &self,
        like: &Tensor<D, Int>,
    ) -> Result<Tensor<D, Int>, HeadError> {
        Ok(safe_words(self.head.bias()?, like))
    }

    /// The rows of logits as tokens of one component each. What all ranks have alike has a gradient that is summed over ranks, in
    /// one exchange.
    fn rows_of(&self, input: LikelihoodInput) -> LikelihoodInput {
        let (dtype, [_, d]) = (input.wide(), input.weight.dims());
        let contexts = match input.contexts {
            ContextSource::Latent(args) => ContextPath::Native.latent(args),
            ContextSource::Given(contexts) => contexts,
            ContextSource::Gated(_) => unreachable!("a head with gates is refused"),
        };
        let rows = contexts.num_elements() / d;
        let contexts = contexts.cast(dtype);
        let (contexts, map_params) = match input.map_params {
            None => (shared(self.group(), contexts.reshape([rows, d]).tensor::<2>()), None),
            Some(params) => {
                let contexts = contexts.reshape([rows * d]);
                let count = params.num_elements();
                let all = Floats::cat(vec![contexts, params.cast(dtype)], 0);
                let all = shared(self.group(), all.tensor::<1>());
                let contexts = all.clone().narrow(0, 0, rows * d).reshape([rows, d]);
                (contexts, Some(all.narrow(0, rows * d, count).into()))
            }
        };
        let contexts = ContextSource::Given(contexts.into());
        LikelihoodInput { contexts, map_params, log_prior: None, ..input }
    }

    /// The head with one mask of latent dropout on all ranks.
    fn with_common_mask(&self, leading: &[usize]) -> Result<OutputHead, ShardError> {
        let head = self.head.clone();
        if head.latent_mask.is_some() {
            return Ok(head);
        }
        let sequences = head.context.sequences(leading);
        let Some(mask) = head.context.draw_latent_mask(sequences) else { return Ok(head) };
        let dtype = mask.dtype();
        let of_first = gathered(&**self.group(), &mask.cast(wide(dtype)))?.swap_remove(0);
        Ok(head.with_latent_mask(of_first.cast(dtype)))
    }

    fn asked(&self, words: &Tensor<2, Int>) -> Result<Asked, HeadError> {
        let [count, width] = words.dims();
        let (places, is_elsewhere) = self.shared.share.places(words.clone());
        let is_here = is_elsewhere.bool_not();
        let is_low = match self.head.bias()? {
            Some(bias) => {
                let bias = bias.detach().select(0, places.clone().reshape([count * width]));
                bias.lower_equal_elem(MASKING_BIAS).reshape([count, width])
            }
            None => places.zeros_like().bool(),
        };
        let is_own = is_here.clone().bool_and(is_low.clone().bool_not());
        let ids = self.safe_row(words)?.mask_where(is_own.clone(), places);
        Ok(Asked { ids, is_own, is_masked: is_here.bool_and(is_low) })
    }
}

/// For values of tokens, `[N, m]`, those of the tokens' rows, `[N·K, m]`.
fn of_rows<K: Basic>(of_tokens: Tensor<2, K>, components: usize) -> Tensor<2, K> {
    let [tokens, width] = of_tokens.dims();
    of_tokens.unsqueeze_dim::<3>(1).repeat_dim(1, components).reshape([tokens * components, width])
}
