//! Losses and gradients: what scoring does with the rows of a chunk.
//!
//! What each product reads is rounded as [`Precision`](highrank_kernels::Precision) says. Rows of logits become their gradient up to a factor
//! ([`token`](super::token)), which at full precision the products' small factors take. Where gradients are rounded it is
//! applied before that ([`GradientForm`]).

use core::ops::Range;

use burn::backend::Flex;
use highrank_kernels::cpu::{self, Buffer, Factor, Matrix, Real, in_pool, multiply, share};
use highrank_kernels::{Floats, Ints};

use super::call::{Call, as_read, gradient_buffers, gradient_tensors};
use super::contexts::TokenContexts;
use super::few_dimensions::FewDimensions;
use super::gradient_form::GradientForm;
use super::sweep::{self, Visitor};
use super::target::TargetTable;
use super::teacher::Teacher;
use super::tensors::{assert_length, row_major, values};
use super::workers::{TokenRows, Workers};
use crate::ops::{Gradients, LikelihoodInput, Objective, Scores, Statistic, Targets, Wanted};

/// Values that a thread scales at a time: some microseconds' work.
const GRAIN: usize = 1 << 14;

/// [`LikelihoodKernels::score`](crate::likelihood::LikelihoodKernels::score) with sums of type `T`.
pub(super) fn run<T: Real>(
    input: LikelihoodInput<Floats<Flex>>,
    objective: &Objective<Floats<Flex>, Ints<Flex>>,
    gradient: Option<(Floats<Flex>, Wanted)>,
) -> (Scores<Floats<Flex>>, Gradients<Floats<Flex>>) {
    let (upstream, wanted) = gradient.unzip();
    let (upstream, wanted) = (upstream.map(|x| row_major(x.cast(T::dtype()))), wanted.unwrap_or_default());
    let input = &as_read(input);
    let call = Call::<T>::new(input, &[]);
    assert_length("upstream gradient", upstream.as_ref(), call.tokens);
    // A map makes the gradient of its parameters in the same pass.
    let buffers = |_: &_| gradient_buffers(input, Wanted { map_params: true, ..wanted });
    let mut gradients: Option<Gradients<Buffer<T>>> = upstream.as_ref().map(buffers);
    let mut loss = vec![T::ZERO; call.tokens];
    let mut statistics = vec![T::ZERO; if objective.statistics { call.tokens * Statistic::COUNT } else { 0 }];
    let columns = objective.listed_columns();
    let mut log_probs = vec![T::ZERO; call.tokens * columns];
    match call.logits.unmasked() {
        0 => {
            no_word_left(&mut loss, &mut statistics);
            gradients = gradients.map(|all| all.map(|gradient| Some(Buffer::zeros(gradient?.len()))));
            log_probs.fill(T::LOWEST);
            if let (Targets::Listed { ids, .. }, Some(_)) = (&objective.targets, &objective.entropy) {
                let listed = ids.dims::<2>()[1];
                log_probs.chunks_mut(columns).for_each(|row| row[listed] = T::ZERO);
            }
        }
        _ => {
            let targets = TargetTable::new(input, objective, &call.logits);
            let upstream = upstream.as_ref().map(values);
            let model = match &objective.targets {
                Targets::Model { teacher, .. } => Some(&**teacher),
                _ => None,
            };
            // Another head's logits are made chunk by chunk.
            let few_dimensions = match model {
                Some(_) => None,
                None => FewDimensions::new(input, &call, gradients.as_ref()),
            };
            let mut d_log_prior = gradients.as_mut().and_then(|gradients| gradients.log_prior.take());
            let all = TokenRows {
                start: 0,
                rows: &mut [],
                scales: &mut [],
                loss: &mut loss,
                statistics: &mut statistics,
                log_probs: &mut log_probs,
                model: &[],
                d_log_prior: d_log_prior.as_deref_mut().unwrap_or_default(),
                gates: None,
                components: call.components,
            };
            let made = gradients.as_mut();
            in_pool(|| {
                let mut score = Score::new(&call, &targets, model, upstream, all, made, few_dimensions);
                sweep::run(&call, &mut score);
                score.finish();
            });
            if let Some(gradients) = &mut gradients {
                gradients.log_prior = d_log_prior;
            }
        }
    }
    let mut gradients = gradients.map(|gradients| gradient_tensors(input, gradients)).unwrap_or_default();
    gradients.map_params = gradients.map_params.filter(|_| wanted.map_params);
    let scores = Scores {
        loss: Floats::new(cpu::tensor(loss, [call.tokens])),
        statistics: objective
            .statistics
            .then(|| Floats::new(cpu::tensor(statistics, [call.tokens, Statistic::COUNT]))),
        listed: (columns > 0).then(|| Floats::new(cpu::tensor(log_probs, [call.tokens, columns]))),
    };
    (scores, gradients)
}

/// Where every word is masked, all have probability 0: losses are +∞.
fn no_word_left<T: Real>(loss: &mut [T], statistics: &mut [T]) {
    loss.fill(T::of(f64::INFINITY));
    for of_token in statistics.chunks_exact_mut(Statistic::COUNT) {
        of_token[Statistic::Nll as usize] = T::of(f64::INFINITY);
        of_token[Statistic::MaxLogProb as usize] = T::of(f64::NEG_INFINITY);
    }
}

/// Scores all tokens that it is shown.
struct Score<'c, T> {
    call: &'c Call<'c, T>,
    workers: Workers<'c, T>,
    /// The other head whose distributions are the targets.
    model: Option<&'c LikelihoodInput<Floats<Flex>>>,
    /// The tokens that are still to come, without rows.
    rest: TokenRows<'c, T>,
    /// The gradients that are wanted, but for that of the log-priors; none without an upstream gradient.
    gradients: Option<&'c mut Gradients<Buffer<T>>>,
    form: GradientForm,
    /// Where the decoder has few; then there are no chunks.
    few_dimensions: Option<FewDimensions<T>>,
    /// Of a chunk, `[chunk·K, V]`.
    logits: Buffer<T>,
    /// What each row of logits must be multiplied with to be its gradient.
    scales: Vec<T>,
    /// The contexts times their scales, where gradients are [unscaled](GradientForm::Unscaled).
    scaled: Buffer<T>,
}

impl<'c, T: Real> Score<'c, T> {
    fn new(
        call: &'c Call<'c, T>,
        targets: &'c TargetTable<T>,
        model: Option<&'c LikelihoodInput<Floats<Flex>>>,
        upstream: Option<&'c [T]>,
        rest: TokenRows<'c, T>,
        gradients: Option<&'c mut Gradients<Buffer<T>>>,
        few_dimensions: Option<FewDimensions<T>>,
    ) -> Self {
        let chunk = if few_dimensions.is_some() { 0 } else { call.chunk };
        let (form, rows) = (GradientForm::at::<T>(call.precision), chunk * call.components);
        let has_d_decoder = gradients.as_ref().is_some_and(|gradients| gradients.weight.is_some());
        let has_scaled = form == GradientForm::Unscaled && has_d_decoder;
        let has_d_bias = gradients.as_ref().is_some_and(|gradients| gradients.bias.is_some());
        Self {
            call,
            workers: Workers::new(call, targets, upstream, has_d_bias, form),
            model,
            rest,
            gradients,
            form,
            few_dimensions,
            logits: Buffer::new(rows * call.logits.vocab),
            scales: vec![T::ZERO; rows],
            scaled: Buffer::new(if has_scaled { rows * call.d } else { 0 }),
        }
    }

    /// After the last chunk: makes the gradients that are sums over all rows.
    fn finish(self) {
        if let Some(gradients) = self.gradients {
            if let (Some(few), Some(d_decoder)) = (&self.few_dimensions, &mut gradients.weight) {
                few.finish(d_decoder);
            }
            self.workers.finish(gradients.bias.as_deref_mut(), gradients.map_params.as_deref_mut());
        }
    }
}

impl<T: Real> Visitor<T> for Score<'_, T> {
    fn logits(&mut self, tokens: Range<usize>) -> &mut [T] {
        &mut self.logits[..tokens.len() * self.call.components * self.call.logits.vocab]
    }

    fn takes_blocks(&self) -> bool {
        self.few_dimensions.is_some()
    }

    fn visit(&mut self, tokens: Range<usize>, contexts: TokenContexts<'_, T>) {
        let Self { call, form, .. } = *self;
        let Call { components, d, precision, .. } = *call;
        let (vocab, rows) = (call.logits.vocab, tokens.len() * components);
        let masked = self.workers.targets.has_teacher.then_some(&*call.logits.masked);
        let teacher =
            self.model.map(|model| Teacher::new(model.slice(tokens.start, tokens.end), vocab, masked));
        let model = teacher.as_ref().map_or(&[][..], Teacher::rows);
        let of_tokens = TokenRows { model, ..self.rest.take(tokens.len()) };
        if let Some(few) = &mut self.few_dimensions {
            return few.score(&mut self.workers, of_tokens, contexts);
        }
        let (logits, scales) = (&mut self.logits[..rows * vocab], &mut self.scales[..rows]);
        self.workers.score(TokenRows {
            rows: &mut *logits,
            scales: &mut *scales,
            loss: &mut *of_tokens.loss,
            gates: contexts.gates,
            ..of_tokens
        });
        if let Some(teacher) = &teacher {
            teacher.finish(of_tokens.loss);
        }

        let Some(gradients) = &mut self.gradients else { return };
        let gradient = form.factor(logits, rows, vocab);
        if let Some(d_contexts) = contexts.d_contexts {
            multiply(d_contexts, gradient, call.decoder, false, precision);
            if form == GradientForm::Unscaled {
                scale(d_contexts, scales, d);
            }
        }
        if let Some(d_decoder) = &mut gradients.weight {
            let contexts = match form {
                GradientForm::Unscaled => {
                    let scaled = &mut self.scaled[..rows * d];
                    scale_to(scaled, contexts.contexts, scales);
                    Matrix::new(&*scaled, rows, d).into()
                }
                _ => contexts.contexts,
            };
            let is_added = tokens.start > 0;
            multiply(d_decoder, gradient.t(), contexts, is_added, precision);
        }
    }

    fn gradients(&mut self) -> Option<&mut Gradients<Buffer<T>>> {
        self.gradients.as_deref_mut()
    }
}

/// Rows of `d` values times a number each.
fn scale<T: Real>(rows: &mut [T], scales: &[T], d: usize) {
    let each = GRAIN.div_ceil(d.max(1));
    let parts = rows.chunks_mut(each * d).zip(scales.chunks(each));
    share(parts, |(rows, scales)| {
        for (row, scale) in rows.chunks_exact_mut(d).zip(scales) {
            row.iter_mut().for_each(|x| *x *= *scale);
        }
    });
}

/// As [`scale`], out of place.
fn scale_to<T: Real>(out: &mut [T], rows: Factor<'_, T>, scales: &[T]) {
    let d = rows.columns();
    let each = GRAIN.div_ceil(d.max(1));
    let parts = out.chunks_mut(each * d).zip(scales.chunks(each)).enumerate();
    share(parts, |(part, (out, scales))| {
        for (row, (out, scale)) in out.chunks_exact_mut(d).zip(scales).enumerate() {
            rows.write_row(part * each + row, out, |x| x * *scale);
        }
    });
}
