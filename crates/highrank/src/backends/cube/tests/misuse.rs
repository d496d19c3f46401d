//! Tensors that do not fit each other.

use super::*;

fn score(change: impl Fn(&mut LikelihoodInput<Floats<Plain>>, &mut Objective<Floats<Plain>, Ints<Plain>>)) {
    let case = Case::plain(PLIF, 3, Masked::None).all_options();
    let (mut input, mut objective) = (case.input(), case.objective());
    change(&mut input, &mut objective);
    Plain::score(input, objective, None);
}

#[test]
#[should_panic(expected = "bias: the kernel needs [300] in F32, but the tensor has [299] in F32")]
fn a_bias_of_other_words_is_refused() {
    score(|input, _| input.bias = Some(tensor([VOCAB - 1], 1)));
}

#[test]
#[should_panic(expected = "log-priors: the kernel needs [7, 3] in F32, but the tensor has [8, 3] in F32")]
fn priors_of_other_tokens_are_refused() {
    score(|input, _| input.log_prior = Some(tensor([TOKENS + 1, 3], 1)));
}

#[test]
#[should_panic(
    expected = "parameters of the logit map: the kernel needs [13] in F32, but the tensor has [12] in F32"
)]
fn too_few_parameters_of_a_map_are_refused() {
    score(|input, _| input.map_params = Some(tensor([12], 1)));
}

#[test]
#[should_panic(expected = "targets: the kernel needs [7] in I32, but the tensor has [6] in I32")]
fn too_few_targets_are_refused() {
    score(|_, objective| objective.targets = Targets::Words(integers(&[0; TOKENS - 1])));
}

#[test]
#[should_panic(
    expected = "a teacher's probabilities: the kernel needs [7, 5] in F32, but the tensor has [7, 4] in F32"
)]
fn a_teacher_with_too_few_probabilities_is_refused() {
    score(|_, objective| {
        let Targets::Teacher { probs, .. } = &mut objective.targets else { unreachable!("a teacher's case") };
        *probs = tensor([TOKENS, LISTED - 1], 1);
    });
}

#[test]
#[should_panic(expected = "upstream gradient: the kernel needs [7] in F32, but the tensor has [1] in F32")]
fn an_upstream_gradient_of_other_tokens_is_refused() {
    let case = Case::plain(PLIF, 3, Masked::None);
    Plain::score(case.input(), case.objective(), Some((tensor([1], 6), Wanted::ALL)));
}
