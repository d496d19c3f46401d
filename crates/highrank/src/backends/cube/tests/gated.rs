//! Contexts with gates.

use super::*;
use crate::ops::{GatedArgs, GatedInputs};

/// The input of a case whose first `words` words have gates, with what all words share of them multiplied by `scale`.
fn gated<B>(case: Case, words: usize, scale: f64) -> Likelihood<Floats<B>>
where
    B: LikelihoodKernels<Device = CubeDevice>,
{
    let (d, d_gate) = (5, 3);
    let [contexts, _, other] = case.dtypes;
    let inputs = GatedInputs {
        prior: tensor([TOKENS, 4], 7).cast(other),
        latent: tensor([TOKENS, 4 * d], 8).cast(contexts),
        features: tensor([TOKENS, 3 * d_gate], 9).cast(contexts),
        base: tensor([TOKENS, 3], 10).mul_scalar(scale).cast(other),
        vectors: tensor([words, d_gate], 11).cast(other),
        bias: tensor([words, 3], 12).cast(other),
    };
    let args = GatedArgs { inputs, precision: Precision::Full };
    Likelihood { contexts: ContextSource::Gated(args), ..case.input() }
}

fn of_gated<B>(case: Case, words: usize, scale: f64) -> Made
where
    B: LikelihoodKernels<Device = CubeDevice>,
{
    by_kernels::<B>(gated(case, words, scale), case.objective())
}

fn of_the_portable_path(case: Case, words: usize, scale: f64) -> Made {
    by_the_portable_path(&gated(case, words, scale), &case.objective())
}

#[track_caller]
fn check_gated(case: Case, words: usize, scale: f64) {
    let what = format!("{words} words with gates, scale {scale}, {case:?}");
    let want = of_the_portable_path(case, words, scale);
    for part in
        ["gated prior", "gated contexts", "gate features", "gate logits", "gate vectors", "gate biases"]
    {
        let part = want.part(part);
        assert!(part.iter().any(|x| *x != 0.0) && part.iter().all(|x| x.is_finite()), "{what}: {part:?}");
    }
    of_gated::<Plain>(case, words, scale).assert_close(&want, &what);
    of_gated::<Fused>(case, words, scale).assert_close(&want, &format!("fused, {what}"));
    let scores = Made(want.0.into_iter().filter(|part| part.is_score()).collect());
    let scored = Plain::score(gated(case, words, scale), case.objective(), None);
    Made::new(scored).assert_close(&scores, &format!("score, {what}"));
}

#[test]
fn contexts_with_gates_agree_with_the_portable_path_with_and_without_fusion() {
    // One word, fewer than share a row, more, and all.
    for words in [1, 20, 270, VOCAB] {
        check_gated(Case::plain(MapFunction::Identity, 1, Masked::None), words, 1.0);
        check_gated(Case::plain(PLIF, 1, Masked::Some).all_options(), words, 1.0);
    }
    for map in MAPS {
        check_gated(Case::plain(map, 1, Masked::NoBias), 20, 1.0);
    }
}

#[test]
fn gates_that_are_all_but_shut_agree_with_the_portable_path() {
    for scale in [30.0, 300.0] {
        let case = Case::plain(MapFunction::Identity, 1, Masked::None);
        let want = of_the_portable_path(case, 20, scale);
        let made = of_gated::<Plain>(case, 20, scale);
        assert!(made.0.iter().flat_map(|part| &part.values).all(|x| x.is_finite()), "scale {scale}");
        made.assert_close(&want, &format!("scale {scale}"));
    }
}

#[test]
fn gates_in_half_precision_are_read_in_f32() {
    for half in [DType::F16, DType::BF16].into_iter().filter(|half| Plain::supports_dtype(&device(), *half)) {
        for dtypes in [[half; 3], [DType::F32, half, half], [half, DType::F32, DType::F32]] {
            check_gated(Case { dtypes, ..Case::plain(PLIF, 1, Masked::Some) }, 20, 1.0);
        }
    }
}

#[test]
fn gates_of_the_same_inputs_give_the_same_bits() {
    let case = Case::plain(PLIF, 1, Masked::Some).all_options();
    let bits = || {
        let made = of_gated::<Plain>(case, 270, 1.0);
        made.0.into_iter().flat_map(|part| part.values).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(), bits());
}

#[test]
#[should_panic(expected = "gates of 301 words, but there are 300")]
fn gates_of_more_words_than_there_are_are_refused() {
    let case = Case::plain(MapFunction::Identity, 1, Masked::None);
    Plain::score(gated(case, VOCAB + 1, 1.0), case.objective(), None);
}

#[test]
#[should_panic(
    expected = "gates' biases: the kernel needs [20, 3] in F32, but the tensor has [19, 3] in F32"
)]
fn gates_of_fewer_biases_are_refused() {
    let case = Case::plain(MapFunction::Identity, 1, Masked::None);
    let mut input = gated(case, 20, 1.0);
    let ContextSource::Gated(args) = &mut input.contexts else { unreachable!("a case with gates") };
    args.inputs.bias = tensor([19, 3], 1);
    Plain::score(input, case.objective(), None);
}
