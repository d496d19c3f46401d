//! The kernel against the portable body: every map, option and float type, masked words, and logits of all sizes.

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::{Floats, Ints, Precision};

use crate::backends::testing::{Model, assert_close, floats, integers, on_threads, tensor, values};
use crate::likelihood::{LikelihoodKernels, portable};
use crate::ops::{
    ContextSource, Gradients, LikelihoodInput, LogitMapConfig, Objective, PerInput, Scores, Statistic,
    Targets, Wanted,
};

mod rounded;

const TOKENS: usize = Model::PLAIN.tokens;
const WIDTH: usize = Model::PLAIN.d;

/// The masked words begin with this one where there are any. None of them is a target.
const MASKED: Option<usize> = Some(1);

type Goal = Objective<Floats<Flex>, Ints<Flex>>;

fn model(map: LogitMapConfig, components: usize, vocab: usize) -> Model {
    Model { map, components, vocab, ..Model::PLAIN }
}

/// The same in another type.
fn of_type(model: Model, dtype: DType) -> Model {
    Model { types: [dtype; 2], ..model }
}

/// Each token's word.
fn words(model: &Model) -> Ints<Flex> {
    let word = |token: usize| (token * 7 % (model.vocab - 2)) as i64 / 2 * 2 % 18;
    integers((0..TOKENS).map(word).collect(), [TOKENS])
}

/// What they are, smoothing, the factor of the z-loss, and whether statistics are asked for.
type Options = (&'static str, f64, f64, bool);

/// Options beside the targets' kind.
const OPTIONS: [Options; 5] = [
    ("nothing", 0.0, 0.0, false),
    ("smoothing", 0.125, 0.0, false),
    ("z-loss", 0.0, 0.25, false),
    ("statistics", 0.0, 0.0, true),
    ("all", 0.125, 0.25, true),
];

fn objective(targets: Targets<Floats<Flex>, Ints<Flex>>, options: Options) -> Goal {
    let (_, label_smoothing, z_loss, statistics) = options;
    Objective { label_smoothing, z_loss, statistics, ..Objective::new(targets) }
}

/// Targets and what they are.
type Named = (&'static str, Targets<Floats<Flex>, Ints<Flex>>);

/// Words, and teachers that list a few words, all of whose probability they have or not, or one word, or every word.
fn all_targets(model: &Model) -> Vec<Named> {
    let (words, dtype) = (|| words(model), model.types[1]);
    let teacher = |listed: &[i64], probs: &[f64]| {
        let count = listed.len();
        let ids: Vec<i64> =
            (0..TOKENS).flat_map(|token| listed.iter().map(move |id| rotate(*id, token))).collect();
        Targets::Teacher {
            words: words(),
            ids: integers(ids, [TOKENS, count]),
            probs: floats(probs.repeat(TOKENS), [TOKENS, count], dtype),
        }
    };
    // Even numbers below 18, of which none is masked.
    fn rotate(id: i64, token: usize) -> i64 {
        if id % 2 == 0 && id < 18 { (id + 2 * token as i64) % 18 } else { id }
    }
    let every: Vec<i64> = (0..model.vocab as i64).collect();
    let masked = model.masked_words();
    let share = 1.0 / (model.vocab - masked.len()) as f64;
    let of_every: Vec<f64> =
        (0..model.vocab).map(|word| if masked.contains(&word) { 0.0 } else { share }).collect();
    vec![
        ("words", Targets::Words(words())),
        ("a whole teacher", teacher(&[0, 6, 14], &[0.5, 0.125, 0.375])),
        ("a teacher with a rest, of a word with probability 0", teacher(&[2, 1, 8], &[0.5, 0.0, 0.25])),
        ("a teacher of one word", teacher(&[4], &[0.625])),
        ("a teacher of every word", teacher(&every, &of_every)),
        ("distributions", Targets::Distributions { words: words(), rows: distributions(model) }),
    ]
}

/// 0, 0.5, 1 and 1.5 in turn.
fn class_weights(model: &Model) -> Floats<Flex> {
    floats((0..model.vocab).map(|word| (word % 4) as f64 / 2.0).collect(), [model.vocab], model.types[1])
}

/// Another distribution for each token: multiples of 2⁻⁵, none of a masked word, and 0 for many others.
fn distributions(model: &Model) -> Floats<Flex> {
    let (vocab, masked) = (model.vocab, model.masked_words());
    let mut rows = vec![0.0; TOKENS * vocab];
    for (token, row) in rows.chunks_exact_mut(vocab).enumerate() {
        let words = (0..).map(|i| (3 + 11 * token + 5 * i) % vocab).filter(|word| !masked.contains(word));
        words.take(32).for_each(|word| row[word] += 1.0 / 32.0);
    }
    floats(rows, [TOKENS, vocab], model.types[1])
}

type Made = (Scores<Floats<Flex>>, Gradients<Floats<Flex>>);

/// Scores and all gradients by the kernel.
fn native(input: &LikelihoodInput<Floats<Flex>>, objective: &Goal) -> Made {
    Flex::score(input.clone(), objective.clone(), Some((upstream(input), Wanted::ALL)))
}

/// The same by the portable body.
fn composed(input: &LikelihoodInput<Floats<Flex>>, objective: &Goal) -> Made {
    portable::score(input, objective, Some((upstream(input), Wanted::ALL)))
}

/// Not all alike, and of both signs.
fn upstream(input: &LikelihoodInput<Floats<Flex>>) -> Floats<Flex> {
    tensor([input.tokens()], 6, 1.0, input.weight.dtype())
}

/// Loss, statistics but for the likeliest words, each gradient; and the likeliest words.
fn parts((scores, gradients): &Made) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut all = vec![values(&scores.loss)];
    let mut words = vec![];
    if let Some(statistics) = &scores.statistics {
        let (mut rest, columns) = (vec![], values(statistics));
        for row in columns.chunks_exact(Statistic::COUNT) {
            for (column, value) in row.iter().enumerate() {
                match column == Statistic::Argmax as usize {
                    true => words.push(*value),
                    false => rest.push(*value),
                }
            }
        }
        all.push(rest);
    }
    all.extend(gradients.clone().into_array().iter().flatten().map(values));
    (all, words)
}

/// Compares everything that a call makes with what the portable body makes in f64, chunk by chunk and, where there are tokens for
/// all threads, as under a [decoder of few dimensions](super::few_dimensions).
fn check(model: Model, dtype: DType, tolerance: f64) {
    let (exact, model) = (of_type(model, DType::F64), of_type(model, dtype));
    let (inputs, exact_input) = (both(model), exact.input());
    for ((kind, targets), (_, exact_targets)) in all_targets(&model).into_iter().zip(all_targets(&exact)) {
        for options in OPTIONS {
            for weighted in [false, true] {
                let goal = |targets, model: &Model| Objective {
                    class_weights: weighted.then(|| class_weights(model)),
                    normaliser: weighted.then(|| tensor([TOKENS], 6, 1.0, model.types[1])),
                    ..objective(targets, options)
                };
                let (goal, exact_goal) = (goal(targets.clone(), &model), goal(exact_targets.clone(), &exact));
                let want = parts(&composed(&exact_input, &exact_goal));
                let weights = if weighted { ", class weights, normaliser" } else { "" };
                let what = format!("{model:?}, {kind}, {}{weights}", options.0);
                for input in &inputs {
                    check_goal(&model, input, &goal, &want, tolerance, &what);
                }
            }
        }
    }
}

/// The likelihood in chunks, and in a single one.
fn both(model: Model) -> [LikelihoodInput<Floats<Flex>>; 2] {
    [model.input(), Model { chunk: 1000, ..model }.input()]
}

fn check_goal(
    model: &Model,
    input: &LikelihoodInput<Floats<Flex>>,
    goal: &Goal,
    (want, exact_words): &(Vec<Vec<f64>>, Vec<f64>),
    tolerance: f64,
    what: &str,
) {
    let got = native(input, goal);
    for (gradient, width) in [(&got.1.weight, WIDTH), (&got.1.bias, 1)] {
        let gradient = values(gradient.as_ref().unwrap());
        for word in model.masked_words() {
            let row = &gradient[word * width..(word + 1) * width];
            assert!(row.iter().all(|x| *x == 0.0), "{what}: masked word {word}: {row:?}");
        }
    }
    let (got, words) = parts(&got);
    assert_eq!(words, *exact_words, "{what}: likeliest words");
    assert_parts(&got, want, tolerance, what);
    // What is made without gradients is the same.
    let (alone, alone_words) = parts(&Flex::score(input.clone(), goal.clone(), None));
    assert_eq!(alone_words, words, "{what}: likeliest words without gradients");
    assert_parts(&alone, &got[..alone.len()], 1e-6f64.min(tolerance), &format!("{what}, without gradients"));
}

/// Checks each of the [`parts`].
fn assert_parts(got: &[Vec<f64>], want: &[Vec<f64>], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_close(&format!("part {i} of {what}"), got, want, tolerance);
    }
}

#[test]
fn every_objective_agrees_with_the_portable_body() {
    for map in LogitMapConfig::examples() {
        for components in [0, 3] {
            for masked in [None, MASKED] {
                for temperature in [1.0, 0.5] {
                    let model = Model { masked, temperature, ..model(map, components, 41) };
                    check(model, DType::F64, 1e-13);
                    check(model, DType::F32, 2e-6);
                }
            }
        }
    }
}

/// Tokens fewer than the threads are dealt row by row.
#[test]
fn few_tokens_agree() {
    for map in LogitMapConfig::examples() {
        for masked in [None, MASKED] {
            let model = Model { masked, temperature: 0.5, ..model(map, 3, 300) };
            on_threads(7, || check(model, DType::F64, 1e-13));
        }
    }
}

/// Each thread has some tokens for itself, in groups.
#[test]
fn few_dimensions_agree_on_any_number_of_threads() {
    for threads in [1, 2] {
        // Four tokens of the largest are a group of their own.
        for (map, components, vocab) in [
            (LogitMapConfig::Identity, 0, 41),
            (LogitMapConfig::SoftCap { cap: 2.5 }, 3, 300),
            (LogitMapConfig::Plif { knots: 6, bound: 1.5 }, 3, 1100),
            (LogitMapConfig::Identity, 3, 9000),
        ] {
            let model = Model { masked: MASKED, temperature: 0.5, ..model(map, components, vocab) };
            on_threads(threads, || check(model, DType::F64, 1e-13));
        }
    }
}

/// The pieces are dealt to threads in runs.
#[test]
fn many_pieces_agree() {
    let model = model(LogitMapConfig::Plif { knots: 10_000, bound: 3.0 }, 3, 300);
    check(model, DType::F64, 1e-12);
    check(model, DType::F32, 1e-5);
}

#[test]
fn several_tiles_agree() {
    for map in [LogitMapConfig::Identity, LogitMapConfig::SoftCap { cap: 2.5 }] {
        for (components, vocab) in [(0, 700), (2, 512), (3, 700)] {
            let model = Model { masked: MASKED, ..model(map, components, vocab) };
            check(model, DType::F64, 1e-13);
            check(model, DType::F32, 3e-6);
        }
    }
}

/// From logits of which some words' probabilities are no numbers any more to those of which all but one are not.
#[test]
fn logits_of_any_size_agree() {
    for map in [LogitMapConfig::Identity, LogitMapConfig::Gss] {
        for components in [0, 3] {
            for (scale, prior_scale) in [(16.0, 1.0), (64.0, 64.0), (1024.0, 16.0), (8192.0, 1024.0)] {
                let model = Model { scale, prior_scale, masked: MASKED, ..model(map, components, 300) };
                // The portable body subtracts a normaliser as large as the logits.
                check(model, DType::F64, 2e-16 * scale.max(64.0) * 8.0);
                check(model, DType::F32, 1e-7 * scale.max(64.0) * 8.0);
            }
        }
    }
}

/// A likelihood in chunks and one in a single chunk, and an objective with everything in it.
fn everything(dtype: DType) -> ([LikelihoodInput<Floats<Flex>>; 2], Goal) {
    let model = Model { masked: MASKED, ..model(LogitMapConfig::Plif { knots: 6, bound: 1.5 }, 3, 300) };
    let model = of_type(model, dtype);
    let (_, targets) = all_targets(&model).swap_remove(2);
    (both(model), objective(targets, OPTIONS[4]))
}

/// The largest logit of a block may be far above those of the blocks before it.
#[test]
fn logits_that_grow_along_a_row_agree() {
    for map in [LogitMapConfig::Identity, LogitMapConfig::Sigsoftmax, LogitMapConfig::Gss] {
        for components in [0, 3] {
            for scale in [64.0, 1024.0] {
                let model = Model { scale, masked: MASKED, ..model(map, components, 1100) };
                check(model, DType::F64, 2e-16 * scale * 8.0);
                check(model, DType::F32, 1e-7 * scale * 8.0);
            }
        }
    }
}

#[test]
fn a_gradient_is_the_same_whichever_others_are_wanted() {
    let (inputs, goal) = everything(DType::F64);
    for input in inputs {
        let all = native(&input, &goal).1.into_array();
        for alone in 0..all.len() {
            let wanted = PerInput::from_array(std::array::from_fn(|i| i == alone));
            let gradient = Some((upstream(&input), wanted));
            let made = Flex::score(input.clone(), goal.clone(), gradient).1.into_array();
            for (i, (made, all)) in made.iter().zip(&all).enumerate() {
                match (made, all) {
                    (Some(made), Some(all)) if i == alone => assert_eq!(values(made), values(all)),
                    (None, all) => assert!(i != alone || all.is_none(), "gradient {i} is missing"),
                    (Some(_), _) => panic!("gradient {i} was not wanted"),
                }
            }
        }
    }
}

#[test]
fn two_runs_give_the_same_bits_and_any_number_of_threads_the_same_numbers() {
    let (inputs, goal) = everything(DType::F32);
    for input in inputs {
        check_threads(&input, &goal, 3e-6, "everything");
    }
}

fn check_threads(input: &LikelihoodInput<Floats<Flex>>, goal: &Goal, tolerance: f64, what: &str) {
    let on = |threads: usize| parts(&on_threads(threads, || native(input, goal)));
    let (one, words) = on(1);
    for threads in [1, 2, 3, 5, 8, 16] {
        let (first, second) = (on(threads), on(threads));
        assert_eq!(first, second, "{what}: two runs on {threads} threads differ");
        assert_eq!(first.1, words, "{what}, {threads} threads: likeliest words");
        assert_parts(&first.0, &one, tolerance, &format!("{what}, {threads} threads"));
    }
}

/// With a z-loss the factor of a row's softmax may be 0 while the target's is not.
#[test]
fn a_softmax_of_no_weight_leaves_the_target_its_gradient() {
    for (dtype, tolerance) in [(DType::F64, 1e-15), (DType::F32, 1e-7)] {
        let model = of_type(Model { scale: 0.0, vocab: 32, ..Model::PLAIN }, dtype);
        let mut input = model.input();
        // log Σ e^b = −2, and 1 + 2 λ (−2) = 0.
        input.bias = Some(floats(vec![-2.0 - 32f64.ln(); 32], [32], dtype));
        let goal = objective(Targets::Words(words(&model)), OPTIONS[2]);
        let (got, _) = parts(&native(&input, &goal));
        let (want, _) = parts(&composed(&input, &goal));
        assert_parts(&got, &want, tolerance, &format!("{dtype:?}"));
        assert!(got[3].iter().any(|x| x.abs() > 0.1), "no gradient of the bias: {:?}", got[3]);
    }
}

/// Be it a masked word, or a distribution that has some of one.
#[test]
fn a_masked_target_has_an_infinite_loss_and_disturbs_no_other() {
    for map in LogitMapConfig::examples() {
        for components in [0, 3] {
            let model = of_type(Model { masked: MASKED, ..model(map, components, 41) }, DType::F32);
            let input = model.input();
            // Of the third token.
            let mut ids: Vec<i64> = words(&model).into_data().iter().collect();
            ids[2] = 20;
            let mut rows = values(&distributions(&model));
            rows[2 * model.vocab + 20] = 1.0 / 64.0;
            let rows = floats(rows, [TOKENS, model.vocab], DType::F32);
            let soft = |rows| Targets::Distributions { words: words(&model), rows };
            let cases = [
                ("word", Targets::Words(words(&model)), Targets::Words(integers(ids, [TOKENS]))),
                ("distribution", soft(distributions(&model)), soft(rows)),
            ];
            for (kind, possible, impossible) in cases {
                for options in OPTIONS {
                    let what = format!("{map:?}, {components}, {kind}, {}", options.0);
                    let mut want = values(&native(&input, &objective(possible.clone(), options)).0.loss);
                    want[2] = f64::INFINITY;
                    let (scores, gradients) = native(&input, &objective(impossible.clone(), options));
                    assert_eq!(values(&scores.loss), want, "{what}");
                    let row = values(gradients.weight.as_ref().unwrap())[20 * WIDTH..21 * WIDTH].to_vec();
                    assert_eq!(row, [0.0; WIDTH], "{what}");
                    let gradients = gradients.into_array();
                    assert!(gradients.iter().flatten().flat_map(values).all(f64::is_finite), "{what}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_a_number_shows_in_its_token_alone() {
    for components in [0, 3] {
        let model = of_type(Model { components, vocab: 300, ..Model::PLAIN }, DType::F32);
        for number in [f64::NAN, f64::INFINITY] {
            let mut input = model.input();
            let ContextSource::Given(contexts) = &mut input.contexts else { unreachable!() };
            let mut broken = values(contexts);
            broken[2 * components.max(1) * WIDTH] = number;
            *contexts = floats(broken, [TOKENS * components.max(1), WIDTH], DType::F32);
            for options in OPTIONS {
                for (kind, targets) in all_targets(&model) {
                    let scores = Flex::score(input.clone(), objective(targets, options), None).0;
                    for (token, loss) in values(&scores.loss).iter().enumerate() {
                        let what = format!("{components} components, {number}, {kind}, {}", options.0);
                        assert_eq!(loss.is_finite(), token != 2, "{what}: token {token} has {loss}");
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "distributions of shape Shape { dims: [5, 40] } for 5 tokens and 41 words")]
fn distributions_over_other_words_are_refused() {
    let rows = tensor([TOKENS, 40], 1, 0.25, DType::F64);
    let targets = Targets::Distributions { words: words(&Model::PLAIN), rows };
    Flex::score(Model::PLAIN.input(), Objective::new(targets), None);
}

#[test]
#[should_panic(expected = "values of bias, of shape")]
fn a_bias_of_another_length_is_refused() {
    let bias = Some(tensor([40], 1, 1.0, DType::F64));
    let input = LikelihoodInput { bias, ..Model::PLAIN.input() };
    Flex::score(input, Objective::new(Targets::Words(words(&Model::PLAIN))), None);
}

#[test]
#[should_panic(expected = "target 41 at token 1 is outside the vocabulary 0..41")]
fn a_listed_word_outside_of_the_vocabulary_is_refused() {
    let targets = Targets::Teacher {
        words: words(&Model::PLAIN),
        ids: integers(vec![0, 1, 2, 41, 4, 5, 6, 7, 8, 9], [TOKENS, 2]),
        probs: tensor([TOKENS, 2], 1, 0.25, DType::F64),
    };
    Flex::score(Model::PLAIN.input(), Objective::new(targets), None);
}
