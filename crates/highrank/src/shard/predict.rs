//! The most probable words, and words drawn at random.

use burn::tensor::{Int, Tensor};
use rand::Rng;

use super::exchange::of_first;
use super::group::ShardError;
use super::head::ShardedHead;
use super::sweep::{NO_WORD, OwnWords, Swept};
use crate::context::Tokens;
use crate::error::{HeadError, in_range};
use crate::head::{
    Inputs, best_first, best_pairs, by_top_k, draw_components, integers, numbers, read, word_of,
};
use crate::likelihood::{self, draw_in_order};
use crate::loss::{in_wide_integers, leading};
use crate::ops::{Draw, Drawn, LikelihoodInput, LogProbs, Prediction};
use crate::{BeamSearch, BeamState, Hypothesis, LiveHypotheses, Sampling, TopK};

/// Words of each token with their log-probabilities, most probable first.
type Lists = Vec<Vec<(f64, usize)>>;

impl ShardedHead {
    /// The `k` most probable words of every token, most probable first: [`OutputHead::top_k`](crate::OutputHead::top_k) of the
    /// whole head, as constants. Each rank selects among its own words.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., k]`
    ///
    /// # Errors
    /// What that panics for, and whatever the group has to say.
    pub fn top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> Result<TopK<D>, ShardError> {
        let (device, mut shape, vocab) = (hidden.device(), hidden.dims(), self.vocab());
        in_range("k", k as f64, format!("1 to the vocabulary's {vocab}"), 1.0..=vocab as f64)?;
        let swept = self.sweep_for_predictions(hidden)?;
        let dtype = swept.normaliser.dtype();
        shape[D - 1] = k;
        Ok(TopK::of_lists(self.best(&swept, k)?, shape, (&device, dtype)))
    }

    /// Searches for the most probable sequences of a decoder that ends in this head:
    /// [`OutputHead::beam_search`](crate::OutputHead::beam_search) of the whole head. All ranks find the same.
    ///
    /// # Errors
    /// Those of [`OutputHead::beam_search`](crate::OutputHead::beam_search), and what the group has to say.
    pub fn beam_search<S: BeamState>(
        &self,
        search: &BeamSearch,
        contexts: usize,
        state: S,
        step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    ) -> Result<Vec<Vec<Hypothesis>>, ShardError> {
        by_top_k(search, self.vocab(), contexts, state, step, |hidden, k| self.top_k(hidden, k))
    }

    /// Draws one word for every token: [`OutputHead::sample`](crate::OutputHead::sample) of the whole head. All ranks get the
    /// words that the numbers of the first rank's `rng` stand for.
    ///
    /// A word of the distribution itself is drawn in three stages: the component, the rank by the part that its words have of it,
    /// and there the word. With a temperature the rank is drawn first, by what its words have of all; the numbers
    /// stand for other words than in the whole head then, which orders them by probability. With a `top_k` the candidates of all
    /// ranks are drawn from. A `top_p` without one would need all words in one place.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - output: `[..]`, T = D − 1 dimensions
    ///
    /// # Errors
    /// Those of [`OutputHead::sample`](crate::OutputHead::sample); [`ShardError::Unsupported`] of `top_p` without `top_k`;
    /// whatever the group has to say.
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Tensor<T, Int>, ShardError> {
        sampling.validate()?;
        let (device, shape) = (hidden.device(), leading::<D, T>(&hidden.dims(), || "the output".into())?);
        let most = sampling.most();
        if most.is_none() && sampling.top_p.is_some_and(|p| p < 1.0) {
            let what = "a draw with top_p over all words";
            return Err(ShardError::Unsupported { what, instead: "set `top_k` as well" });
        }
        let swept = self.sweep_for_predictions(hidden)?;
        let words = match most {
            Some(k) => {
                let numbers = of_first(&**self.group(), sampling.numbers(swept.tokens(), rng))?;
                sampling.draw_of_lists(self.best(&swept, k.min(self.vocab()))?, &numbers)?
            }
            None if sampling.temperature == 1.0 => self.draw(&swept, rng)?,
            None => self.draw_at(&swept, sampling.temperature, rng)?,
        };
        Ok(integers(words, shape, &device))
    }

    fn sweep_for_predictions<const D: usize>(&self, hidden: Tensor<D>) -> Result<Swept, ShardError> {
        self.head.check(&hidden)?;
        let device = hidden.device();
        let tokens = Tokens::all(hidden.detach());
        let count = tokens.leading().iter().product::<usize>();
        let on = (&device, in_wide_integers(Tensor::<1, Int>::empty([0], &device)).dtype());
        self.sweep(tokens, Tensor::full([count, 1], self.shared.safe_word as i64, on))
    }

    /// The best `k` words of all ranks.
    fn best(&self, swept: &Swept, k: usize) -> Result<Lists, ShardError> {
        let (first, own) = (self.rows().start, self.head.decoder.vocab);
        let OwnWords { input, share } = self.own_words(swept);
        let shares = share.as_ref().map_or_else(Vec::new, values);
        // Of a token whose log-probabilities are no numbers, the other ranks hear too.
        let lists = read(Inputs::of(constants(input)), |token, row| {
            let best = match row {
                LogProbs::F32(row) => best_pairs(&row[..own], k, token),
                LogProbs::F64(row) => best_pairs(&row[..own], k, token),
            };
            let share = shares.get(token).copied().unwrap_or(0.0);
            let plus_share = |(log_prob, word)| (log_prob + share, word);
            Ok(best.map(|pairs| pairs.into_iter().map(plus_share).collect::<Vec<_>>()))
        })?;
        let pair = |place: usize| match &lists[place / k] {
            Ok(list) => match list.get(place % k) {
                Some((log_prob, word)) => [*log_prob, (first + word) as f64],
                None => [f64::NEG_INFINITY, f64::INFINITY],
            },
            Err(_) => [f64::NAN; 2],
        };
        let sent: Vec<f64> = (0..swept.tokens() * k).flat_map(pair).collect();
        let all = self.group().gather_f64(&sent)?;
        let of_token = |token: usize| {
            let ranks = all.chunks_exact(sent.len()).map(|of_rank| &of_rank[2 * k * token..][..2 * k]);
            let pairs = ranks.flat_map(|list| list.as_chunks::<2>().0);
            if pairs.clone().any(|[log_prob, _]| log_prob.is_nan()) {
                return Err(HeadError::NotANumber { token });
            }
            let words = pairs.filter(|[_, word]| word.is_finite());
            let mut list: Vec<_> = words.map(|[log_prob, word]| (*log_prob, *word as usize)).collect();
            list.sort_unstable_by(|a, b| best_first(*a, *b));
            list.truncate(k);
            Ok(list)
        };
        Ok((0..swept.tokens()).map(of_token).collect::<Result<_, _>>()?)
    }

    /// A word for each token from the distribution itself.
    fn draw(&self, swept: &Swept, rng: &mut impl Rng) -> Result<Vec<usize>, ShardError> {
        let (tokens, components) = (swept.tokens(), swept.normaliser.dims()[1]);
        let of_components = if swept.log_prior.is_some() { tokens } else { 0 };
        let numbers = of_first(&**self.group(), numbers(of_components + tokens, rng))?;
        let (of_components, of_words) = numbers.split_at(of_components);
        let chosen: Vec<usize> = match &swept.log_prior {
            None => vec![],
            Some(log_prior) => draw_components(log_prior.clone().into(), of_components)?,
        };
        let masses: Vec<Vec<f64>> = swept.of_ranks.iter().map(values).collect();
        let mut own_numbers = vec![];
        let mut is_own = vec![];
        for (token, number) in of_words.iter().enumerate() {
            let row = token * components + chosen.get(token).copied().unwrap_or(0);
            let of_ranks: Vec<f64> = masses.iter().map(|of_rank| of_rank[row]).collect();
            let (rank, number) = rank_of(&of_ranks, *number).ok_or(HeadError::NotANumber { token })?;
            is_own.push(rank == self.group().rank());
            own_numbers.push(number);
        }
        let mut words = vec![Drawn::AllMasked; tokens];
        let draw = Draw { components: &chosen, numbers: &own_numbers, words: &mut words };
        likelihood::predict(constants(self.own_words(swept).input), Prediction::Draw(draw));

        self.agreed(&words, &is_own)
    }

    /// A word for each token from the distribution at a temperature.
    fn draw_at(&self, swept: &Swept, temperature: f64, rng: &mut impl Rng) -> Result<Vec<usize>, ShardError> {
        let numbers = of_first(&**self.group(), numbers(swept.tokens(), rng))?;
        let OwnWords { input, share } = self.own_words(swept);
        let (input, shares) = (constants(input), share.as_ref().map_or_else(Vec::new, values));
        // The largest, and by how much all are below it at the temperature: a difference of quotients might be one of infinities.
        let scaled = |row: LogProbs<'_>| -> (f64, Vec<f64>) {
            let row: Vec<f64> = match row {
                LogProbs::F32(row) => row.iter().map(|x| f64::from(*x)).collect(),
                LogProbs::F64(row) => row.to_vec(),
            };
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let top = if top == f64::NEG_INFINITY { NO_WORD } else { top };
            (top, row.iter().map(|x| (x - top) / temperature).collect())
        };
        // Of each token the largest log-probability of a rank's words, and what they have at the temperature over that of this word.
        let masses = read(Inputs::of(input.clone()), |token, row| {
            let (top, row) = scaled(row);
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            Ok([top + shares.get(token).copied().unwrap_or(0.0), sum.ln()])
        })?;
        let masses = self.group().gather_f64(masses.as_flattened())?;
        let (masses, _) = masses.as_chunks::<2>();
        let places = numbers.iter().enumerate().map(|(token, number)| {
            let of_ranks = masses.iter().skip(token).step_by(numbers.len());
            let best = of_ranks.clone().map(|[top, _]| *top).fold(f64::NEG_INFINITY, f64::max);
            let of_ranks: Vec<f64> = of_ranks.map(|[top, sum]| (top - best) / temperature + sum).collect();
            if of_ranks.iter().all(|mass| *mass == f64::NEG_INFINITY) {
                return Err(HeadError::AllMasked { token });
            }
            rank_of(&of_ranks, *number).ok_or(HeadError::NotANumber { token })
        });
        let places: Vec<(usize, f64)> = places.collect::<Result<_, _>>()?;
        let is_own: Vec<bool> = places.iter().map(|(rank, _)| *rank == self.group().rank()).collect();
        let words = read(Inputs::of(input), |token, row| {
            Ok(match is_own[token] {
                true => draw_in_order(&scaled(row).1, places[token].1),
                false => Drawn::AllMasked,
            })
        })?;
        self.agreed(&words, &is_own)
    }

    /// What the rank that it belongs to has drawn for each token.
    fn agreed(&self, words: &[Drawn], is_own: &[bool]) -> Result<Vec<usize>, ShardError> {
        let first = self.rows().start;
        let code = |(drawn, is_own): (&Drawn, &bool)| match drawn {
            _ if !is_own => 0.0,
            Drawn::Word(word) => (1 + first + word) as f64,
            Drawn::NotANumber => -1.0,
            Drawn::AllMasked => -2.0,
        };
        let mut codes: Vec<f64> = words.iter().zip(is_own).map(code).collect();
        self.group().sum_f64(&mut codes)?;
        let drawn = codes.iter().map(|code| match code {
            -1.0 => Drawn::NotANumber,
            -2.0 => Drawn::AllMasked,
            word => Drawn::Word(*word as usize - 1),
        });
        Ok(drawn.enumerate().map(|(token, drawn)| word_of(drawn, token)).collect::<Result<_, _>>()?)
    }
}

fn constants(input: LikelihoodInput) -> LikelihoodInput {
    input.map(|tensor| tensor.detach())
}

fn values(tensor: &Tensor<2>) -> Vec<f64> {
    tensor.clone().into_data().iter::<f64>().collect()
}

/// The rank in whose part of the sum a number in `[0, 1)` lies, and where in that part, for the logarithms of the parts.
fn rank_of(log_masses: &[f64], number: f64) -> Option<(usize, f64)> {
    let top = log_masses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let masses: Vec<f64> = log_masses.iter().map(|mass| (mass - top).exp()).collect();
    let mut left = number * masses.iter().sum::<f64>();
    if !left.is_finite() {
        return None;
    }
    let mut last = None;
    for (rank, &mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        last = Some((rank, 1.0 - f64::EPSILON));
        if left < mass {
            return Some((rank, left / mass));
        }
        left -= mass;
    }
    // What rounding has left belongs to the last that has any.
    last
}
