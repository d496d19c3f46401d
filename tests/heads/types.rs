//! Words and weights of other types than the head's.

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Int, Tensor};
use highrank::logit_map::LogitMap;
use highrank::{AdaptiveConfig, HeadConfig, HeadError, LogProbOptions, LossOptions, Reduction, Sampling};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 8;
const IGNORED: i64 = -100;

#[test]
fn words_may_be_of_any_integer_type() {
    let on = (&ad(), DType::F64);
    let given = [3, IGNORED, 10, 0, 5, 9, IGNORED, 1];
    for config in every_head(VOCAB) {
        let head = head(&config, on);
        let all = |dtype: DType| {
            let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on);
            let words = ints(&given, [TOKENS], on.0).cast(dtype);
            let ignoring = LossOptions::new().with_ignore_index(IGNORED);
            let counted = head.loss_with(hidden(), words.clone(), &ignoring).value;
            let nothing = Tensor::<1, Int>::full([TOKENS], IGNORED, on.0).cast(dtype);
            let nothing = head.loss_with(hidden(), nothing, &ignoring.with_reduction(Reduction::Sum)).value;
            let words = words.clamp(0, 10).reshape([TOKENS, 1]);
            let listed = head.token_log_probs(hidden(), words, &LogProbOptions::default()).log_probs;
            [values(counted), values(nothing), values(listed)].concat()
        };
        let want = all(DType::I64);
        assert_eq!(all(DType::I32), want, "{config:?}");
        assert_eq!(want[1], 0.0);
    }
}

/// Types that do not hold the number of the last word.
#[test]
fn words_may_be_of_a_type_that_does_not_hold_all_words() {
    let on = (&ad(), DType::F64);
    for (vocab, narrow) in [(300, DType::U8), (256, DType::I8)] {
        let (head, hidden) = (head(&softmax(vocab), on), tensor::<2>([3, EMBEDDING], 1, on));
        let all = |dtype: DType| {
            let words = ints(&[3, 100, 7], [3], on.0).cast(dtype);
            let candidates = ints(&[3, 100, 7, 0, 1, 2], [3, 2], on.0).cast(dtype);
            let options = LossOptions::new().with_class_weights(tensor::<1>([vocab], 3, on).add_scalar(1.5));
            let weighted = head.loss_with(hidden.clone(), words, &options).value;
            let asked = LogProbOptions::default();
            let listed = head.token_log_probs(hidden.clone(), candidates.clone(), &asked).log_probs;
            let restricted = head.candidate_log_probs(hidden.clone(), candidates, None);
            [values(weighted), values(listed), values(restricted)].concat()
        };
        assert_eq!(all(narrow), all(DType::I32), "{narrow:?}");
    }
}

#[test]
fn an_ignored_number_that_the_words_cannot_hold_is_none_of_them() {
    let on = (&ad(), DType::F64);
    let (head, hidden) = (head(&softmax(VOCAB), on), tensor::<2>([3, EMBEDDING], 1, on));
    let options = LogProbOptions { ignored: vec![1 << 32, i64::MIN, IGNORED], entropy: false };
    for dtype in [DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64] {
        let words = ints(&[0, 1, 2], [3, 1], on.0).cast(dtype);
        let all = |options| values(head.token_log_probs(hidden.clone(), words.clone(), options).log_probs);
        assert_eq!(all(&options), all(&LogProbOptions::default()), "{dtype:?}");
    }
}

#[test]
fn a_teacher_may_be_rounded_to_half_precision() {
    let on = (&ad(), DType::F64);
    for config in every_head(VOCAB) {
        let (head, hidden) = (head(&config, on), tensor::<2>([1, config.d_hidden], 1, on));
        let loss = |probs: &[f64], dtype: DType| {
            let ids: Vec<i64> = (1..=probs.len() as i64).collect();
            let probs = Tensor::<1>::from_data(probs, on).reshape([1, probs.len()]).cast(dtype);
            let options = LossOptions::new().with_teacher(ints(&ids, [1, ids.len()], on.0), probs);
            head.try_loss_with(hidden.clone(), targets(1, VOCAB, on.0), &options)
                .map(|loss| values(loss.value)[0])
        };
        // Rounded, they sum to 1.0029.
        let rounded = [0.251, 0.251, 0.251, 0.247];
        let (got, want) = (loss(&rounded, DType::BF16).unwrap(), loss(&rounded, DType::F64).unwrap());
        assert!((got / want - 1.0).abs() < 4e-3, "{config:?}: {got} against {want}");
        // No number of the type is off, and the other words share what is left.
        let exact = [0.5, 0.25, 0.125, 0.0625, 0.031_25];
        let (got, want) = (loss(&exact, DType::BF16).unwrap(), loss(&exact, DType::F64).unwrap());
        assert!((got / want - 1.0).abs() < 1e-12, "{config:?}: {got} against {want}");
        let error = loss(&[0.5, 0.75], DType::BF16).unwrap_err();
        assert!(matches!(error, HeadError::TeacherRow { token: 0, .. }), "{error}");
    }
}

#[test]
fn weights_of_less_digits_leave_the_others_theirs() {
    let on = (&ad(), DType::F64);
    for config in every_head(VOCAB) {
        let (head, hidden) = (head(&config, on), tensor::<2>([TOKENS, config.d_hidden], 1, on));
        let loss = |dtype: DType, divisor: f64| {
            let weights = Tensor::<1>::ones([TOKENS], (on.0, dtype));
            let options =
                LossOptions::new().with_token_weights(weights).with_reduction(Reduction::Divisor(divisor));
            values(head.loss_with(hidden.clone(), targets(TOKENS, VOCAB, on.0), &options).value)[0]
        };
        // No number of f32 is a third, and none is as large.
        for divisor in [3.0, 1e39] {
            let (got, want) = (loss(DType::F32, divisor), loss(DType::F64, divisor));
            assert!(want > 0.0 && (got / want - 1.0).abs() < 1e-14, "{config:?}: {got} against {want}");
        }
        let thirds = |dtype: DType| {
            let weights = Tensor::<1>::full([TOKENS], 1.0 / 3.0, (on.0, DType::F64));
            let classes = Tensor::<1>::ones([VOCAB], (on.0, dtype));
            let options = LossOptions::new().with_reduction(Reduction::Sum);
            let options = options.with_token_weights(weights).with_class_weights(classes);
            values(head.loss_with(hidden.clone(), targets(TOKENS, VOCAB, on.0), &options).value)[0]
        };
        let (got, want) = (thirds(DType::F32), thirds(DType::F64));
        assert!((got / want - 1.0).abs() < 1e-14, "{config:?}: {got} against {want}");
    }
}

#[test]
fn parameters_of_a_map_may_have_types_of_their_own() {
    for (config, types) in [
        (HeadConfig::plif(8, VOCAB, 5), [DType::F32, DType::BF16]),
        (HeadConfig::generalised_sigsoftmax(8, VOCAB), [DType::F32, DType::BF16]),
        (HeadConfig::plif(8, VOCAB, 5), [DType::F64, DType::F32]),
        (HeadConfig::generalised_sigsoftmax(8, VOCAB), [DType::F64, DType::F32]),
    ] {
        let on = (&ad(), types[0]);
        let whole = head(&config, on);
        let mut mixed = whole.clone();
        // Offset and centre: zero in either type.
        let param = match &mut mixed.logit_map {
            LogitMap::Plif(map) => &mut map.offset,
            LogitMap::Gss(map) => &mut map.center,
            other => panic!("{other:?}"),
        };
        let zero = |dtype| Param::from_tensor(Tensor::<1>::zeros([1], (on.0, dtype)));
        *param = zero(types[1]);
        let id = param.id;
        let state = || tensor::<2>([TOKENS, 8], 1, on);
        let loss = mixed.try_loss_with(state(), targets(TOKENS, VOCAB, on.0), &LossOptions::new()).unwrap();
        let gradients = GradientsParams::from_grads(loss.value.clone().backward(), &mixed);
        assert_eq!(gradients.get::<1>(id).unwrap().dtype(), types[1], "{config:?}");
        let mut same = whole;
        match &mut same.logit_map {
            LogitMap::Plif(map) => map.offset = zero(types[0]),
            LogitMap::Gss(map) => map.center = zero(types[0]),
            other => panic!("{other:?}"),
        }
        let want = same.loss(state(), targets(TOKENS, VOCAB, on.0));
        assert_eq!(values(loss.value), values(want), "{config:?}");
    }
}

#[test]
fn tails_of_fewer_digits_than_the_head_are_refused() {
    let device = ad();
    for (dtype, refused) in [(DType::F64, true), (DType::BF16, false)] {
        let clusters = AdaptiveConfig::new(vec![4, 8]);
        let config = HeadConfig::softmax(8, 12).with_tied(true).with_adaptive(clusters);
        let rows = config.decoder_rows();
        let matrix = Param::from_tensor(tensor::<2>([rows, 8], 2, (&device, dtype)));
        let head = config.init(&device).tied_to(&matrix);
        let state = tensor::<2>([TOKENS, 8], 1, (&device, DType::BF16));
        let made = head.try_loss_with(state.clone(), targets(TOKENS, 12, &device), &LossOptions::new());
        let error = HeadError::FloatType { what: "a tail's decoder", got: DType::F32, sums: DType::F64 };
        assert_eq!(made.err(), refused.then(|| error.clone()), "{dtype:?}");
        if refused {
            let sampling = Sampling::new();
            let drawn = head.sample::<2, 1>(state.clone(), &sampling, &mut Pcg64::seed_from_u64(1));
            assert_eq!(drawn.err(), Some(error.clone()));
            for forward in [true, false] {
                let predict = || match forward {
                    true => drop(head.forward::<2>(state.clone())),
                    false => drop(head.top_k::<2>(state.clone(), 1)),
                };
                assert!(panic_of(predict).contains(&error.to_string()));
            }
        }
    }
}

/// LoRA may have another float type in some of the layers.
#[test]
fn a_layer_of_contexts_may_be_of_a_shorter_type_than_the_head() {
    struct Shorten<'a> {
        number: usize,
        shortened: usize,
        kept: &'a Param<Tensor<2>>,
        back: bool,
    }
    impl ModuleMapper for Shorten<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.number += 1;
            if self.number - 1 != self.shortened || param.id == self.kept.id {
                return param;
            }
            param.map(|value| {
                let short = value.detach().cast(DType::F32);
                let value = if self.back { short.cast(DType::F64) } else { short };
                value.detach().require_grad()
            })
        }
    }
    let on = (&ad(), DType::F64);
    for config in all_heads(VOCAB) {
        let head = head(&config, on);
        let hidden = tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let decoder = head.decoder.weight.clone().unwrap();
        for shortened in 0..parameters(&head, None).len() {
            let [got, want] = [false, true].map(|back| {
                let head = head.clone().map(&mut Shorten { number: 0, shortened, kept: &decoder, back });
                results(&head, hidden.clone())
            });
            assert_close(&got, &want, 1e-6, &format!("{config:?}, parameter {shortened}"));
        }
    }
}
