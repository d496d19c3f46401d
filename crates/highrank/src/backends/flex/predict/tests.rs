//! The kernel against the portable body, however its work is dealt to threads.

use std::sync::Mutex;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::{Floats, Precision};

use crate::backends::testing::{Model, assert_each_close, integers, on_threads, tensor, values};
use crate::likelihood::{LikelihoodKernels, portable};
use crate::ops::{ContextSource, Draw, Drawn, LikelihoodInput, LogProbs, LogitMapConfig, Prediction};

const WIDTH: usize = 6;

/// The width of the hidden states that a layer makes contexts of.
const HIDDEN: usize = 5;

/// The masked words begin with this one where there are any.
const MASKED: Option<usize> = Some(0);

fn model(components: usize, tokens: usize, vocab: usize) -> Model {
    Model { components, tokens, vocab, d: WIDTH, chunk: 3, ..Model::PLAIN }
}

impl Model {
    /// The portable body's, in f64 where nothing is rounded.
    fn expected(&self, of: impl Fn(&LikelihoodInput<Floats<Flex>>) -> Floats<Flex>) -> Vec<f64> {
        let input = self.input();
        values(&of(&match self.precision {
            Precision::Full => input.map(|tensor| tensor.cast(DType::F64)),
            _ => input,
        }))
    }

    fn tolerance(&self) -> f64 {
        match self.types[1] {
            DType::F64 => 1e-12,
            _ => 4e-6 * self.scale.max(1.0),
        }
    }

    #[track_caller]
    fn assert_close(&self, got: &[f64], want: &[f64]) {
        assert_each_close(&format!("{self:?}"), got, want, self.tolerance());
    }

    fn log_probs(&self) -> Vec<f64> {
        values(&Flex::predict(self.input(), Prediction::LogProbs).expect("a tensor"))
    }

    /// The log-probabilities that a reader gets, of each token once.
    fn read(&self) -> Vec<f64> {
        let rows = Mutex::new(vec![vec![]; self.tokens]);
        let read = |token: usize, row: LogProbs<'_>| {
            let row: Vec<f64> = match row {
                LogProbs::F32(row) => row.iter().map(|x| f64::from(*x)).collect(),
                LogProbs::F64(row) => row.to_vec(),
            };
            let before = std::mem::replace(&mut rows.lock().unwrap()[token], row);
            assert!(before.is_empty(), "{self:?}: token {token} is read twice");
        };
        assert!(Flex::predict(self.input(), Prediction::Read(&read)).is_none());
        rows.into_inner().unwrap().concat()
    }

    fn draw(&self, of: impl Fn(LikelihoodInput<Floats<Flex>>, Prediction<'_>)) -> Vec<Drawn> {
        let components: Vec<usize> = (0..self.tokens).map(|n| n * 7 % self.components.max(1)).collect();
        let components = if self.components == 0 { &[][..] } else { &components };
        let numbers: Vec<f64> = (0..self.tokens).map(|n| ((n * 7919 + 13) % 1009) as f64 / 1009.0).collect();
        let mut words = vec![Drawn::AllMasked; self.tokens];
        let draw = Draw { components, numbers: &numbers, words: &mut words };
        of(self.input(), Prediction::Draw(draw));
        words
    }

    /// Log-probabilities written and read, and logits, against the portable body.
    fn check(&self) {
        let want = self.expected(portable::log_probs);
        let written = self.log_probs();
        self.assert_close(&written, &want);
        assert_eq!(self.read(), written, "{self:?}: what is read is what is written");
        let logits = values(&Flex::predict(self.input(), Prediction::Logits).expect("a tensor"));
        self.assert_close(&logits, &self.expected(portable::logits));
    }

    /// Drawn words against the portable body.
    fn check_draws(&self) {
        let got = self.draw(|input, prediction| assert!(Flex::predict(input, prediction).is_none()));
        let want = self.draw(|input, prediction| {
            assert!(portable::predict(&input, prediction).is_none());
        });
        assert_eq!(got, want, "{self:?}");
    }
}

#[test]
fn every_map_agrees_with_the_portable_body() {
    for map in LogitMapConfig::examples() {
        for components in [0, 1, 3] {
            for masked in [None, MASKED] {
                for (temperature, d_hidden) in [(1.0, HIDDEN), (1.5, 0)] {
                    let model = Model { map, masked, temperature, d_hidden, ..model(components, 7, 333) };
                    model.check();
                    model.check_draws();
                    Model { types: [DType::F32; 2], ..model }.check();
                }
            }
        }
    }
}

#[test]
fn rows_of_any_length_and_few_or_many_tokens_agree() {
    for tokens in [1, 2, 5, 70] {
        for vocab in [7, 64, 1023, 1024, 1025, 3500] {
            for components in [0, 4] {
                let masked = MASKED.filter(|_| vocab > 7);
                let model = Model { masked, chunk: 32, ..model(components, tokens, vocab) };
                model.check();
                model.check_draws();
            }
        }
    }
}

#[test]
fn large_logits_and_faint_words_agree() {
    for scale in [32.0, 512.0] {
        for dtype in [DType::F32, DType::F64] {
            for components in [0, 3] {
                let types = [dtype; 2];
                Model { scale, types, masked: MASKED, ..model(components, 5, 2500) }.check();
            }
        }
    }
}

#[test]
fn half_precision_and_rounded_products_agree() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
            for components in [0, 3] {
                let types = [dtype; 2];
                Model { types, precision, d_hidden: HIDDEN, ..model(components, 5, 700) }.check();
            }
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_threads() {
    // Few tokens have rows long enough to be dealt to several threads.
    for (components, tokens, vocab) in [(0, 1, 33_000), (0, 5, 7_000), (3, 1, 11_000), (3, 30, 1_100)] {
        for dtype in [DType::F32, DType::F64] {
            let (types, map) = ([dtype; 2], LogitMapConfig::Sigsoftmax);
            let model = Model { types, map, masked: MASKED, chunk: 16, ..model(components, tokens, vocab) };
            let all = |threads| on_threads(threads, || (model.log_probs(), model.read()));
            let (want, read) = all(1);
            assert_eq!(want, read);
            for threads in [2, 5] {
                assert!(all(threads) == (want.clone(), want.clone()), "{model:?} on {threads} threads");
            }
            let draw =
                |threads| on_threads(threads, || model.draw(|input, of| drop(Flex::predict(input, of))));
            assert_eq!(draw(1), draw(3), "{model:?}");
        }
    }
}

#[test]
fn a_row_that_is_no_number_spoils_its_token_alone() {
    for components in [0, 3] {
        for bad in [f64::NAN, f64::INFINITY] {
            let model = Model { masked: MASKED, ..model(components, 4, 1500) };
            let spoil = |input: LikelihoodInput<Floats<Flex>>| {
                let contexts = tensor([4 * components.max(1), WIDTH], 1, 1.0, DType::F64);
                let row = Floats::full([1, WIDTH], bad, &Default::default(), DType::F64);
                let at = 2 * components.max(1);
                let contexts = contexts.assign_rows(at..at + 1, row);
                LikelihoodInput { contexts: ContextSource::Given(contexts), ..input }
            };
            let rows = Flex::predict(spoil(model.input()), Prediction::LogProbs).expect("a tensor");
            let rows = values(&rows);
            for (token, row) in rows.chunks(1500).enumerate() {
                let nans = row.iter().filter(|x| x.is_nan()).count();
                // Masked words stay masked.
                assert_eq!(nans > 0, token == 2, "{model:?}: {nans} of token {token}");
            }
            let drawn = model.draw(|input, of| drop(Flex::predict(spoil(input), of)));
            for (token, drawn) in drawn.into_iter().enumerate() {
                // The drawn component is the spoiled one.
                let spoiled = token == 2 && (components == 0 || token * 7 % components == 0);
                assert_eq!(drawn == Drawn::NotANumber, spoiled, "{model:?}: {drawn:?} of token {token}");
            }
        }
    }
}

#[test]
fn nothing_is_drawn_where_all_words_are_masked() {
    for components in [0, 2] {
        let model = model(components, 3, 1200);
        let masked = |input: LikelihoodInput<Floats<Flex>>| {
            let bias = Floats::full([1200], f64::NEG_INFINITY, &Default::default(), DType::F64);
            LikelihoodInput { bias: Some(bias), ..input }
        };
        let drawn = model.draw(|input, of| drop(Flex::predict(masked(input), of)));
        assert_eq!(drawn, [Drawn::AllMasked; 3]);
        let rows = Flex::predict(masked(model.input()), Prediction::LogProbs).expect("a tensor");
        assert!(values(&rows).iter().all(|x| *x == f64::NEG_INFINITY));
    }
}

#[test]
fn words_are_drawn_as_often_as_they_are_probable() {
    const DRAWS: usize = 20_000;
    let model = Model { masked: MASKED, ..model(0, 1, 40) };
    let probs: Vec<f64> = model.log_probs().iter().map(|x| x.exp()).collect();
    let mut input = model.input();
    let context = tensor([1, WIDTH], 1, 1.0, DType::F64);
    input.contexts = ContextSource::Given(context.select(0, integers(vec![0; DRAWS], [DRAWS])));
    let numbers: Vec<f64> = (0..DRAWS).map(|n| (n as f64 + 0.5) / DRAWS as f64).collect();
    let mut words = vec![Drawn::AllMasked; DRAWS];
    let draw = Draw { components: &[], numbers: &numbers, words: &mut words };
    Flex::predict(input, Prediction::Draw(draw));
    let mut counts = vec![0.0; 40];
    for drawn in words {
        let Drawn::Word(word) = drawn else { panic!("{drawn:?}") };
        counts[word] += 1.0 / DRAWS as f64;
    }
    // Numbers at even distances: each word has its share up to one of them at either end.
    for (word, (count, prob)) in counts.iter().zip(&probs).enumerate() {
        assert!((count - prob).abs() <= 2.0 / DRAWS as f64, "word {word}: {count} of {prob}");
    }
}
