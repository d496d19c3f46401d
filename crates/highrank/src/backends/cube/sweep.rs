//! A call of the likelihood: chunk by chunk, launch by launch.

use std::ops::Range;

use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use highrank_kernels::gpu::{
    self, CubeBackend, CubeTensor, contiguous, contiguous_ints, empty, expect, one_cube_each, one_unit_each,
};
use highrank_kernels::{Floats, Ints, launch};

use super::kernels::{self, Options, WeightsLaunch, row, token};
use super::map::{Form, NumbersLaunch};
use super::mixed;
use super::pieces::{OUTER_VALUES, PieceSums};
use crate::likelihood::gated;
use crate::likelihood::parts::ScoreParts;
use crate::likelihood::portable::{self, GradientParts};
use crate::likelihood::{SparseTargets, Vocabulary};
use crate::logit_map::{MapNumbers, MapNumbersLaunch};
use crate::ops::gated::{COMPONENTS, GATES};
use crate::ops::{
    ContextSource, GatedArgs, GatedInputs, Gradients, LikelihoodInput, Objective, Scores, Statistic, Targets,
    Wanted, runs,
};

/// One call of the likelihood.
pub(super) struct Sweep {
    /// All but the contexts and the weight in f32.
    input: LikelihoodInput<Floats<CubeBackend>>,
    /// `W` as the product with the contexts reads it: it is rounded once a call.
    forward: Floats<CubeBackend>,
    /// The input with `W` as the products with gradients read it, and with the precision that is left to those of rounded matrices.
    backward: LikelihoodInput<Floats<CubeBackend>>,
    /// `W` as it is, in f32, where words have gates.
    gate_decoder: Option<Floats<CubeBackend>>,
    words: Ints<CubeBackend>,
    /// What every unmasked word has of a token's target distribution, `[N, 1]`, where it has any.
    level: Option<Floats<CubeBackend>>,
    /// Of a teacher, or those whose log-probabilities are asked for.
    listed: Option<Listed>,
    /// What each token's entropy is multiplied with, `[N, 1]`.
    entropy: Option<Floats<CubeBackend>>,
    options: Options,
    label_smoothing: f64,
    z_loss: f64,
    form: Form,
    map_numbers: MapNumbers,
    /// The map's table and the bias, one after the other; of either nothing where there is none.
    constants: CubeTensor,
}

/// Words in place of one a token.
struct Listed {
    /// `[N, m]`
    ids: Ints<CubeBackend>,
    /// What their log-probabilities are multiplied with, `[N, m]`.
    factors: Floats<CubeBackend>,
    /// Whether their log-probabilities are asked for.
    are_results: bool,
}

impl Listed {
    /// `m`.
    fn width(&self) -> usize {
        self.ids.dims::<2>()[1]
    }
}

/// A run of tokens that is worked on at a time.
struct Chunk {
    /// `[tokens·K, V]`, later the gradient of the logits.
    products: CubeTensor,
    /// `[tokens·K, row::VALUES]`
    rows: CubeTensor,
    /// `[tokens, token::VALUES]`
    token_values: CubeTensor,
    /// `log π_k`, `[tokens, K]`
    log_prior: CubeTensor,
    /// Where words mix the contexts by gates.
    gates: Option<gated::Chunk<CubeBackend>>,
    /// `log P(v)`, `[tokens, V]`, of a mixture; then of listed words, `[tokens·K, m]`, what they are assigned, and their
    /// log-probabilities, `[tokens, m]`: see [`mixed::shares`].
    of_words: CubeTensor,
    /// The words that are not only part of the level: listed ones, `[tokens, m]`, otherwise the target, `[tokens]`.
    words: CubeTensor,
    /// `[tokens]`
    loss: CubeTensor,
    /// `[tokens, Statistic::COUNT]`
    statistics: CubeTensor,
}

/// The tensor as a kernel reads it.
fn checked<const D: usize>(
    tensor: Floats<CubeBackend>,
    what: &str,
    shape: [usize; D],
) -> Floats<CubeBackend> {
    let tensor = contiguous(tensor);
    expect(&tensor, what, shape, DType::F32);
    Floats::new(tensor)
}

/// As [`checked`], of integers of any type.
fn checked_ints<const D: usize>(
    tensor: Ints<CubeBackend>,
    what: &str,
    shape: [usize; D],
) -> Ints<CubeBackend> {
    let tensor = contiguous_ints(tensor);
    expect(&tensor, what, shape, tensor.dtype);
    Ints::new(tensor)
}

/// A range of the tensor's rows, or memory that no kernel touches.
fn rows_or_none(tensor: Option<&Floats<CubeBackend>>, range: &Range<usize>, like: &CubeTensor) -> CubeTensor {
    match tensor {
        Some(tensor) => contiguous(tensor.clone().rows(range.clone())),
        None => empty(like, [1], DType::F32),
    }
}

impl Sweep {
    /// None if there are no kernels for the input.
    pub(super) fn new(
        input: &LikelihoodInput<Floats<CubeBackend>>,
        objective: &Objective<Floats<CubeBackend>, Ints<CubeBackend>>,
        gradients: bool,
    ) -> Option<Self> {
        let (map, map_numbers) = input.map.on_gpu()?;
        let ids = match &objective.targets {
            Targets::Words(_) => None,
            Targets::Teacher { ids, .. } | Targets::Listed { ids, .. } => Some(ids),
            Targets::Distributions { .. } | Targets::Model { .. } => return None,
        };
        // The kernels know one level for all words.
        let has_weights = objective.class_weights.is_some() || objective.normaliser.is_some();
        let is_empty = ids.is_some_and(|ids| ids.dims::<2>()[1] == 0);
        if input.wide() != DType::F32 || is_empty || has_weights {
            return None;
        }
        let input = as_read(input);
        let tokens = input.tokens();
        let words = match &objective.targets {
            // Nothing is asked of a target beside them.
            Targets::Listed { ids, .. } => Ints::zeros([tokens], &ids.device(), DType::I32),
            targets => targets.words().clone(),
        };
        let words = checked_ints(words, "targets", [tokens]);
        let (level, listed) = listed_and_level(&input, objective)?;
        let entropy = objective.entropy.clone().map(|factors| {
            checked(factors.cast(DType::F32), "factors of entropies", [tokens]).reshape([tokens, 1])
        });
        let pieces = map_numbers.pieces as usize;
        let table = input.map_params.clone().filter(|_| pieces > 0).map(|params| input.map.table(params));
        assert!(
            pieces == 0 || table.is_some(),
            "parameters of the logit map: the kernel needs {pieces} pieces, but there are no parameters"
        );
        let table = table.map(|table| checked(table, "table of the logit map", [2 * pieces]));
        let parts: Vec<_> = table.into_iter().chain(input.bias.clone()).collect();
        let constants = match parts.is_empty() {
            true => Floats::zeros([1], &input.weight.device(), DType::F32),
            false => Floats::cat(parts, 0),
        };
        let (forward, backward) = rounded_weights(&input, gradients);
        let left = gpu::left_to_round(backward.primitive(), input.precision);
        let has_gates = matches!(input.contexts, ContextSource::Gated(_));
        let options = Options {
            prior: input.log_prior.is_some(),
            masked: input.bias.is_some(),
            level: level.is_some(),
            listed: listed.is_some(),
            entropy: entropy.is_some(),
            z_loss: objective.z_loss != 0.0,
            statistics: objective.statistics,
        };
        Some(Self {
            gate_decoder: has_gates.then(|| input.weight.clone().cast(DType::F32)),
            forward,
            backward: LikelihoodInput { precision: left, weight: backward, ..input.clone() },
            words,
            level,
            listed,
            entropy,
            options,
            label_smoothing: objective.label_smoothing,
            z_loss: objective.z_loss,
            form: Form { map, bias: input.bias.is_some(), temperature: input.temperature != 1.0 },
            map_numbers,
            constants: contiguous(constants),
            input,
        })
    }

    /// The scores, and the gradients that are wanted for an upstream gradient.
    pub(super) fn score(
        &self,
        gradient: Option<(Floats<CubeBackend>, Wanted)>,
    ) -> (Scores<Floats<CubeBackend>>, Gradients<Floats<CubeBackend>>) {
        let wanted = gradient.as_ref().map(|(_, wanted)| *wanted).unwrap_or_default();
        let upstream = gradient.map(|(upstream, _)| {
            checked(upstream.cast(DType::F32), "upstream gradient", [self.input.tokens()])
        });
        let pieces = if wanted.map_params { self.map_numbers.pieces as usize } else { 0 };
        let mut scores = ScoreParts::default();
        let mut gradients = GradientParts::default();
        let mut piece_sums = upstream.clone().map(|upstream| {
            let unit = match pieces {
                0 => upstream.rows(0..1),
                _ => upstream.abs().max() * self.teacher_factor(),
            };
            PieceSums::new(unit, pieces)
        });
        let of_one = (pieces > 0).then(|| self.largest_factor()).flatten();
        for block in portable::blocks(&self.input) {
            for (start, end) in runs(block.end - block.start, self.chunk_tokens()) {
                let contexts = self.rounded(block.contexts(start, end));
                let tokens = block.start + start..block.start + end;
                let mut chunk = self.visit(contexts.clone(), tokens.clone(), upstream.as_ref());
                self.add_scores(&chunk, &mut scores);
                let (Some(upstream), Some(piece_sums)) = (&upstream, &mut piece_sums) else { continue };
                let gates = chunk.gates.take();
                let d_log_prior = Floats::new(chunk.rows.clone()).narrow(1, row::PRIOR..row::PRIOR + 1);
                let d_log_prior = d_log_prior.reshape([tokens.len(), self.input.components()]);
                let d_logits = if let Some(of_one) = &of_one {
                    let of_probs = Floats::new(chunk.rows.clone()).narrow(1, row::PROBS..row::PROBS + 1);
                    let unit = of_probs.abs().max() + upstream.clone().abs().max() * of_one.clone();
                    let mut own = PieceSums::new(unit, pieces);
                    let d_logits = self.gradient(chunk, &mut own);
                    own.finish(self.numbers()).into_iter().for_each(|part| gradients.add_table(part));
                    d_logits
                } else {
                    self.gradient(chunk, piece_sums)
                };
                if let Some(gates) = gates {
                    gradients.add_gated(gates, &d_logits, wanted);
                }
                gradients.add_bias(&self.backward, &d_logits, wanted);
                gradients.add(&self.backward, contexts, self.rounded(d_logits), d_log_prior, wanted);
            }
            gradients.add_block(block, wanted);
        }
        let d_table = piece_sums.and_then(|sums| sums.finish(self.numbers()));
        d_table.into_iter().for_each(|part| gradients.add_table(part));
        (scores.finish(), gradients.finish(&self.input))
    }

    /// What the rows of a teacher sum to at most, and at least 1, `[1]`: nobody may have looked at them.
    fn teacher_factor(&self) -> Floats<CubeBackend> {
        let one = Floats::full([1], 1.0, &self.input.weight.device(), DType::F32);
        let Some(listed) = self.listed.as_ref().filter(|listed| !listed.are_results) else { return one };
        let sum = listed.factors.clone().abs().sum_dim(1).max();
        let is_more = sum.clone().at_least(1.0);
        sum.keep_where(is_more, one)
    }

    /// What a word adds at most to a gradient beside its probability's part, over the upstream gradient, `[1]`, where the objective has
    /// something that has no bound before the chunk: `1 + max Σ_i |factor_i| + max |e|`, as `π_k p_k |log P|` is below 1.
    fn largest_factor(&self) -> Option<Floats<CubeBackend>> {
        let results = self.listed.as_ref().filter(|listed| listed.are_results);
        let factors = results.map(|listed| listed.factors.clone().abs().sum_dim(1).max());
        let entropy = self.entropy.clone().map(|factors| factors.abs().max());
        let sum = factors.into_iter().chain(entropy).reduce(|a, b| a + b);
        match sum {
            None if self.z_loss == 0.0 => None,
            None => Some(Floats::full([1], 1.0, &self.input.weight.device(), DType::F32)),
            Some(sum) => Some(sum.add_scalar(1.0)),
        }
    }

    /// A matrix as products read it: what enters several of them is rounded once.
    fn rounded(&self, matrix: Floats<CubeBackend>) -> Floats<CubeBackend> {
        gpu::rounded(matrix, self.input.precision)
    }

    fn add_scores(&self, chunk: &Chunk, scores: &mut ScoreParts<CubeBackend>) {
        let statistics = self.options.statistics.then(|| Floats::new(chunk.statistics.clone()));
        scores.add(Scores { loss: Floats::new(chunk.loss.clone()), statistics, listed: self.results(chunk) });
    }

    /// The log-probabilities of listed words, `[tokens, m]`, and after them the entropies if the objective has them.
    fn results(&self, chunk: &Chunk) -> Option<Floats<CubeBackend>> {
        let listed = self.listed.as_ref().filter(|listed| listed.are_results)?;
        let of_words = Floats::new(chunk.of_words.clone());
        let ([tokens], [count]) = (chunk.loss.meta.shape().dims(), chunk.of_words.meta.shape().dims());
        let log_probs = of_words.narrow(0, count - tokens * listed.width()..count);
        // A copy: a view would keep all of this memory until the scores are joined.
        let mut columns = vec![log_probs.reshape([tokens, listed.width()]).add_scalar(0.0)];
        columns.extend(self.entropy.as_ref().map(|_| {
            let of_tokens = Floats::new(chunk.token_values.clone());
            of_tokens.narrow(1, token::ENTROPY..token::ENTROPY + 1)
        }));
        Some(Floats::cat(columns, 1))
    }

    /// Tokens of a chunk whose numbers can all be indexed.
    fn chunk_tokens(&self) -> usize {
        let of_gates = match &self.input.contexts {
            ContextSource::Gated(args) => GATES * args.words(),
            _ => 0,
        };
        let width = (self.input.vocab() + 2 * self.listed_width()).max(row::VALUES).max(of_gates);
        self.input.chunk_tokens().min(gpu::most_rows(self.input.components() * width))
    }

    fn numbers(&self) -> NumbersLaunch {
        let MapNumbers { bound, delta, pieces } = self.map_numbers;
        let map = MapNumbersLaunch::new(bound, delta, pieces);
        NumbersLaunch::new(map, self.input.temperature as f32, f32::NAN, f32::INFINITY)
    }

    /// `m`, 0 where no words are listed.
    fn listed_width(&self) -> usize {
        self.listed.as_ref().map_or(0, Listed::width)
    }

    /// The product, what is known of its rows and tokens, and the scores of tokens whose rounded contexts are given.
    fn visit(
        &self,
        contexts: Floats<CubeBackend>,
        tokens: Range<usize>,
        upstream: Option<&Floats<CubeBackend>>,
    ) -> Chunk {
        let (vocab, components) = (self.input.vocab(), self.input.components());
        let (length, count) = (tokens.len(), tokens.len() * components);
        let weight = self.forward.clone().transpose();
        let product = gpu::product(contexts, weight, self.backward.precision);
        let gates = self.gates(&tokens);
        let products = contiguous(match &gates {
            Some(gates) => gates.offset(product),
            None => product,
        });
        expect(&products, "logits", [count, vocab], DType::F32);
        let memory = |is_there: bool, shape: [usize; 2]| {
            empty(&products, if is_there { shape } else { [1, 1] }, DType::F32)
        };
        let is_mixed = self.options.prior && (self.options.has_sums() || self.options.listed);
        let of_words = usize::from(is_mixed) * length * vocab + (count + length) * self.listed_width();
        let mut chunk = Chunk {
            rows: memory(true, [count, row::VALUES]),
            token_values: memory(self.options.has_sums(), [length, token::VALUES]),
            log_prior: rows_or_none(self.input.log_prior.as_ref(), &tokens, &products),
            gates,
            of_words: empty(&products, [of_words.max(1)], DType::F32),
            words: contiguous_ints(self.words.clone().rows(tokens.clone())),
            loss: empty(&products, [length], DType::F32),
            statistics: memory(self.options.statistics, [length, Statistic::COUNT]),
            products,
        };
        self.log_sum_exps(&chunk);
        if is_mixed {
            self.mix(&chunk);
        }
        self.shares(&mut chunk, &tokens, upstream.is_some());
        self.scores(&chunk, &tokens, upstream);
        chunk
    }

    /// Those of a run of tokens, if words have any.
    fn gates(&self, tokens: &Range<usize>) -> Option<gated::Chunk<CubeBackend>> {
        let ContextSource::Gated(args) = &self.input.contexts else { return None };
        Some(gated::Chunk::new(args.slice(tokens.start, tokens.end), self.gate_decoder.as_ref()?))
    }

    /// Log-sum-exps and the targets' log-probabilities; without a mixture also the sums over words.
    fn log_sum_exps(&self, chunk: &Chunk) {
        let [count, vocab] = chunk.products.meta.shape().dims();
        let sums = if self.options.prior { Options::default() } else { self.options.of_sums() };
        // SAFETY: rows, words of the vocabulary, and what belongs to either, are the shapes of the memory, which was checked
        // where it is not made here; a target outside of the vocabulary is not read at.
        unsafe {
            launch!(
                chunk.products, one_cube_each(&chunk.products, count), kernels::log_sum_exps;
                chunk.products, self.constants, chunk.words, chunk.rows, chunk.token_values;
                count as u32, vocab as u32, self.input.components() as u32, self.numbers(), self.form,
                sums, dtype_to_elem_type(chunk.words.dtype)
            );
        }
    }

    /// A mixture's log-probabilities and the sums over them.
    fn mix(&self, chunk: &Chunk) {
        let [count, vocab] = chunk.products.meta.shape().dims();
        let components = self.input.components();
        let tokens = count / components;
        // SAFETY: as above.
        unsafe {
            launch!(
                chunk.products, one_unit_each(&chunk.products, tokens * vocab), mixed::mixed_log_probs;
                chunk.products, self.constants, chunk.rows, chunk.log_prior, chunk.of_words;
                (tokens * vocab) as u32, vocab as u32, components as u32, self.numbers(), self.form
            );
            if self.options.has_sums() {
                launch!(
                    chunk.products, one_cube_each(&chunk.products, tokens), mixed::token_sums;
                    chunk.of_words, self.constants, chunk.token_values;
                    tokens as u32, vocab as u32, self.numbers(), self.form, self.options.of_sums()
                );
            }
        }
    }

    /// The components' shares of all words and of listed ones, which then are the chunk's words, what these add to the
    /// log-likelihood of each token, and what the gradient of its entropy needs.
    fn shares(&self, chunk: &mut Chunk, tokens: &Range<usize>, gradients: bool) {
        let [count, vocab] = chunk.products.meta.shape().dims();
        let Options { prior, level, listed, entropy, .. } = self.options;
        let is_of_all = gradients && prior;
        let (level, entropy) = (is_of_all && level, is_of_all && entropy);
        if !listed && !level && !entropy {
            return;
        }
        let options = Options { prior, level, listed, entropy, ..Options::default() };
        if let Some(listed) = &self.listed {
            chunk.words = contiguous_ints(listed.ids.clone().rows(tokens.clone()));
        }
        let extra = rows_or_none(self.listed.as_ref().map(|listed| &listed.factors), tokens, &chunk.products);
        // SAFETY: as above; listed words are read at as targets are.
        unsafe {
            launch!(
                chunk.products, one_cube_each(&chunk.products, count), mixed::shares;
                chunk.products, self.constants, chunk.words, extra, chunk.log_prior, chunk.of_words, chunk.rows;
                count as u32, vocab as u32, self.input.components() as u32, self.listed_width().max(1) as u32,
                self.numbers(), self.form, options, dtype_to_elem_type(chunk.words.dtype)
            );
        }
    }

    /// Losses and statistics, and where there is an upstream gradient the weights of the rows.
    fn scores(&self, chunk: &Chunk, tokens: &Range<usize>, upstream: Option<&Floats<CubeBackend>>) {
        let components = self.input.components();
        let has_upstream = upstream.is_some();
        let like = &chunk.products;
        let factors =
            self.level.iter().chain(&self.entropy).map(|factors| factors.clone().rows(tokens.clone()));
        let factors: Vec<_> = factors.collect();
        let factors = match factors.is_empty() {
            true => empty(like, [1], DType::F32),
            false => contiguous(Floats::cat(factors, 0)),
        };
        let upstream = rows_or_none(upstream, tokens, like);
        let keep = (1.0 - self.label_smoothing) as f32;
        // SAFETY: tokens and components are the shapes of the memory.
        unsafe {
            launch!(
                chunk.products, one_unit_each(&chunk.products, tokens.len()), kernels::scores;
                chunk.rows, chunk.log_prior, upstream, chunk.token_values, factors, chunk.loss,
                chunk.statistics;
                tokens.len() as u32, components as u32,
                WeightsLaunch::new(keep, self.z_loss as f32, f32::INFINITY), self.options, has_upstream
            );
        }
    }

    /// The gradient of the logits, in the memory of their product.
    fn gradient(&self, chunk: Chunk, pieces: &mut PieceSums) -> Floats<CubeBackend> {
        let [count, vocab] = chunk.products.meta.shape().dims();
        let options = Options { masked: false, z_loss: false, statistics: false, ..self.options };
        // SAFETY: as above; the product has no other owner, and a piece's number is below that of the pieces.
        unsafe {
            launch!(
                chunk.products, one_cube_each(&chunk.products, count), kernels::gradient;
                chunk.products, self.constants, chunk.words, chunk.rows, chunk.of_words, pieces.unit,
                pieces.inner;
                count as u32, vocab as u32, self.input.components() as u32, self.listed_width().max(1) as u32,
                self.numbers(), self.form, options, pieces.are_there(), dtype_to_elem_type(chunk.words.dtype)
            );
        }
        if pieces.are_there() {
            let outer = row::OUTER..row::OUTER + OUTER_VALUES;
            pieces.add_outer(Floats::new(chunk.rows).narrow(1, outer));
        }
        Floats::new(chunk.products)
    }
}

/// The input with all that the kernels read themselves in f32.
///
/// # Panics
/// If a tensor's shape is not what the others' say.
fn as_read(input: &LikelihoodInput<Floats<CubeBackend>>) -> LikelihoodInput<Floats<CubeBackend>> {
    let (tokens, components) = (input.tokens(), input.components());
    let contexts = match input.contexts.clone() {
        ContextSource::Given(contexts) => {
            let [rows, _] = contexts.dims();
            assert_eq!(
                rows,
                tokens * components,
                "contexts: rows against {components} for each of {tokens} tokens"
            );
            ContextSource::Given(contexts)
        }
        latent @ ContextSource::Latent(_) => latent,
        ContextSource::Gated(args) => ContextSource::Gated(checked_gates(args, input.weight.shape()[1])),
    };
    let wide = |x: &Option<Floats<CubeBackend>>| x.clone().map(|x| x.cast(DType::F32));
    LikelihoodInput {
        contexts,
        log_prior: wide(&input.log_prior).map(|x| checked(x, "log-priors", [tokens, components])),
        bias: wide(&input.bias).map(|x| checked(x, "bias", [input.vocab()])),
        map_params: wide(&input.map_params)
            .map(|x| checked(x, "parameters of the logit map", [input.map.num_params()])),
        ..input.clone()
    }
}

/// Contexts of width `d` and their gates in f32: the backend's own operations look at no shapes.
///
/// # Panics
/// If a tensor's shape is not what the others' say.
fn checked_gates(args: GatedArgs<Floats<CubeBackend>>, d: usize) -> GatedArgs<Floats<CubeBackend>> {
    let (tokens, words, d_gate) = (args.tokens(), args.words(), args.d_gate());
    let read = |x: Floats<CubeBackend>, what, shape| checked(x.cast(DType::F32), what, shape);
    let GatedInputs { prior, latent, features, base, vectors, bias } = args.inputs;
    let inputs = GatedInputs {
        prior: read(prior, "priors of words without gates", [tokens, COMPONENTS]),
        latent: read(latent, "contexts with gates", [tokens, COMPONENTS * d]),
        features: read(features, "gates' features of a token", [tokens, GATES * d_gate]),
        base: read(base, "gates' part of a token", [tokens, GATES]),
        vectors: read(vectors, "gates' vectors", [words, d_gate]),
        bias: read(bias, "gates' biases", [words, GATES]),
    };
    GatedArgs { inputs, ..args }
}

/// What target distributions of more than one word a token, or listed words, are made of.
///
/// # Panics
/// If words or their factors have not a row for each token.
fn listed_and_level(
    input: &LikelihoodInput<Floats<CubeBackend>>,
    objective: &Objective<Floats<CubeBackend>, Ints<CubeBackend>>,
) -> Option<(Option<Floats<CubeBackend>>, Option<Listed>)> {
    let rows_of = |ids: &Ints<CubeBackend>, factors: &Floats<CubeBackend>, what: [&str; 2]| {
        let shape = [input.tokens(), ids.dims::<2>()[1]];
        let ids = checked_ints(ids.clone(), what[0], shape);
        (ids, checked(factors.clone().cast(DType::F32), what[1], shape))
    };
    match &objective.targets {
        Targets::Listed { ids, factors } => {
            let (ids, factors) = rows_of(ids, factors, ["listed words", "factors of listed words"]);
            Some((None, Some(Listed { ids, factors, are_results: true })))
        }
        Targets::Teacher { words, ids, probs } => {
            let (ids, probs) = rows_of(ids, probs, ["a teacher's words", "a teacher's probabilities"]);
            // Only the kernels look where a word lies before they read at it.
            let within = ids.clone().clamp(0, input.vocab() as i64 - 1);
            let targets = Targets::Teacher { words: words.clone(), ids: within, probs };
            let objective = Objective { targets, ..objective.clone() };
            let sparse = SparseTargets::new(input, &objective, &Vocabulary::new(input))?;
            let listed = Listed { ids, factors: sparse.extra, are_results: false };
            Some((Some(sparse.level), Some(listed)))
        }
        _ if objective.label_smoothing == 0.0 => Some((None, None)),
        _ => Some((Some(SparseTargets::new(input, objective, &Vocabulary::new(input))?.level), None)),
    }
}

/// `W` as the product with the contexts reads it, and as those with gradients do. Only matrices of one type can be
/// multiplied, so it is in f32 where it does not meet contexts of its own type.
fn rounded_weights(
    input: &LikelihoodInput<Floats<CubeBackend>>,
    gradients: bool,
) -> (Floats<CubeBackend>, Floats<CubeBackend>) {
    let weight = &input.weight;
    let meets_its_own = match &input.contexts {
        ContextSource::Given(contexts) => contexts.dtype() == weight.dtype(),
        ContextSource::Latent(_) | ContextSource::Gated(_) => weight.dtype() == DType::F32,
    };
    let wide = || gpu::rounded(weight.clone().cast(DType::F32), input.precision);
    if weight.dtype() == DType::F32 || !meets_its_own {
        let weight = wide();
        return (weight.clone(), weight);
    }
    let own = gpu::rounded(weight.clone(), input.precision);
    let backward = if gradients { wide() } else { own.clone() };
    (own, backward)
}
