//! The kernels against the portable path on the same backend, on any adapter there is.

use burn::tensor::DType;
use highrank_kernels::gpu::CubeDevice;
use highrank_kernels::gpu::testing::{Fused, Plain, device, integers, spread as tensor, values};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::portable;
use crate::ops::{ContextSource, Gradients, Kernels, Likelihood, MapFunction, Targets, Wanted};

const MAPS: [MapFunction; 6] = [
    MapFunction::Identity,
    MapFunction::Sigsoftmax,
    MapFunction::SoftCap { cap: 2.0 },
    // Narrower than the logits, so that the outer pieces are reached.
    MapFunction::Plif { pieces: 12, bound: 1.5 },
    MapFunction::Plif { pieces: 2, bound: 1.5 },
    MapFunction::Plif { pieces: 1, bound: 1.5 },
];

const TOKENS: usize = 7;
const VOCAB: usize = 300;

/// More words than units share a row; chunks of three tokens that do not divide the tokens.
fn input<B>(map: MapFunction, components: usize, bias: bool) -> Likelihood<Floats<B>>
where
    B: Kernels<Device = CubeDevice>,
{
    let d = 5;
    Likelihood {
        contexts: ContextSource::Given(tensor([TOKENS * components, d], 1)),
        log_prior: (components > 1).then(|| tensor([TOKENS, components], 2)),
        weight: tensor([VOCAB, d], 3),
        bias: bias.then(|| tensor([VOCAB], 4)),
        map,
        map_params: (map.num_params() > 0).then(|| tensor([map.num_params()], 5)),
        chunk_bytes: 3 * components * VOCAB * size_of::<f32>(),
        precision: Precision::Full,
    }
}

fn words<B: Kernels<Device = CubeDevice>>() -> Ints<B> {
    let words: Vec<i32> = (0..TOKENS).map(|i| (i * 7919 % VOCAB) as i32).collect();
    integers(&words)
}

/// Cross-entropies and all gradients, each with its name.
fn listed<B: Kernels>((nll, gradients): (Floats<B>, Gradients<Floats<B>>)) -> Vec<(&'static str, Vec<f32>)> {
    let Gradients { contexts, log_prior, weight, bias, map_params, .. } = gradients;
    let parts = [
        ("nll", Some(values(nll))),
        ("contexts", contexts.map(values)),
        ("log_prior", log_prior.map(values)),
        ("weight", weight.map(values)),
        ("bias", bias.map(values)),
        ("map_params", map_params.map(values)),
    ];
    parts.into_iter().filter_map(|(name, values)| Some((name, values?))).collect()
}

#[track_caller]
fn assert_close(got: &[(&str, Vec<f32>)], want: &[(&str, Vec<f32>)], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "{what}: {name}");
        let scale = want.iter().fold(1.0, |max: f32, x| max.max(x.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= 1e-5 * scale, "{what}: {name}[{i}] is {got}, expected {want}");
        }
    }
}

fn by_kernels<B>(map: MapFunction, components: usize, bias: bool) -> Vec<(&'static str, Vec<f32>)>
where
    B: Kernels<Device = CubeDevice>,
{
    let result = B::nll_and_gradients(
        input(map, components, bias),
        Targets::Words(words()),
        tensor([TOKENS], 6),
        Wanted::ALL,
    );
    listed(result)
}

#[test]
fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
    for map in MAPS {
        for (components, bias) in [(1, false), (3, true)] {
            let what = format!("{map:?}, {components} components, bias: {bias}");
            let want = listed(portable::nll_and_gradients::<Plain>(
                &input(map, components, bias),
                &Targets::Words(words()),
                tensor([TOKENS], 6),
                Wanted::ALL,
            ));
            assert_close(&by_kernels::<Plain>(map, components, bias), &want, &what);
            assert_close(&by_kernels::<Fused>(map, components, bias), &want, &format!("fused: {what}"));
            let nll = Plain::nll(input(map, components, bias), Targets::Words(words()));
            assert_close(&[("nll", values(nll))], &want[..1], &what);
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_bits() {
    let map = MapFunction::Plif { pieces: 12, bound: 1.5 };
    let bits = || {
        by_kernels::<Plain>(map, 3, true)
            .into_iter()
            .flat_map(|(_, v)| v)
            .map(f32::to_bits)
            .collect::<Vec<_>>()
    };
    let first = bits();
    for _ in 0..5 {
        assert_eq!(bits(), first);
    }
}

#[test]
fn a_target_outside_of_the_vocabulary_has_no_probability() {
    let targets = integers(&[VOCAB as i32; TOKENS]);
    let nll = values(Plain::nll(input(MapFunction::Identity, 3, true), Targets::Words(targets)));
    assert!(nll.iter().all(|nll| *nll > 1e30), "{nll:?}");
}

#[test]
fn gradients_that_are_not_numbers_stay_so() {
    let map = MapFunction::Plif { pieces: 12, bound: 1.5 };
    let upstream = Floats::full([TOKENS], f64::NAN, &device(), DType::F32);
    let (_, gradients) =
        Plain::nll_and_gradients(input(map, 3, true), Targets::Words(words()), upstream, Wanted::ALL);
    let d_params = values(gradients.map_params.unwrap());
    assert!(d_params.iter().any(|x| x.is_nan()), "{d_params:?}");
}
