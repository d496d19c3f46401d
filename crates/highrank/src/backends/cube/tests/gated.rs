//! Contexts with gates.

use super::*;

/// The case with gates of its first `words` words.
pub(super) fn gated(case: Case, words: usize) -> Case {
    Case { gates: Some((words, 1.0)), ..case }
}

#[test]
fn contexts_with_gates_agree_with_the_portable_path_with_and_without_fusion() {
    // One word, fewer than share a row, more, and all.
    for words in [1, 20, 270, VOCAB] {
        gated(Case::plain(LogitMapConfig::Identity, 1, Masked::None), words).check();
        gated(Case::plain(PLIF, 1, Masked::Some).all_options(), words).check();
    }
    for map in maps() {
        gated(Case::plain(map, 1, Masked::NoBias), 20).check();
    }
}

#[test]
fn gates_that_are_all_but_shut_agree_with_the_portable_path() {
    for scale in [30.0, 300.0] {
        let plain = Case::plain(LogitMapConfig::Identity, 1, Masked::None);
        let case = Case { gates: Some((20, scale)), ..plain };
        let made = case.by_kernels::<Plain>();
        assert!(made.0.iter().flat_map(|part| &part.values).all(|x| x.is_finite()), "scale {scale}");
        made.assert_close(&case.by_the_portable_path(), &format!("scale {scale}"));
    }
}

#[test]
#[should_panic(expected = "gates of 301 words, but there are 300")]
fn gates_of_more_words_than_there_are_are_refused() {
    let case = gated(Case::plain(LogitMapConfig::Identity, 1, Masked::None), VOCAB + 1);
    Plain::score(case.input(), case.objective(), None);
}

#[test]
#[should_panic(
    expected = "gates' biases: the kernel needs [20, 3] in F32, but the tensor has [19, 3] in F32"
)]
fn gates_of_fewer_biases_are_refused() {
    let case = gated(Case::plain(LogitMapConfig::Identity, 1, Masked::None), 20);
    let mut input = case.input();
    let ContextSource::Gated(args) = &mut input.contexts else { unreachable!("a case with gates") };
    args.inputs.bias = tensor([19, 3], 1);
    Plain::score(input, case.objective(), None);
}
