//! The kernels against the portable path on the same backend, on any adapter there is.

use burn::backend::Backend;
use burn::tensor::{DType, TensorData};
use highrank_kernels::gpu::CubeDevice;
use highrank_kernels::gpu::testing::{Fused, Plain, device, integers, launches, spread as tensor, values};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::{LikelihoodKernels, portable};
use crate::math::log_softmax;
use crate::ops::{
    Activation, ContextSource, GatedArgs, GatedInputs, Gradients, LatentArgs, LikelihoodInput,
    LogitMapConfig, Objective, PerInput, Scores, Statistic, Targets, Wanted,
};

mod gated;
mod limits;
mod misuse;

const PLIF: LogitMapConfig = LogitMapConfig::Plif { knots: 12, bound: 1.5 };

/// Every map with a body for kernels, and numbers that ask most of one: a low cap, few knots. Bounds are narrower than the
/// logits, so that the outer pieces are reached.
fn maps() -> impl Iterator<Item = LogitMapConfig> {
    let on_gpu = LogitMapConfig::examples().into_iter().filter(|map| map.on_gpu().is_some());
    let few_knots = [2, 1].map(|knots| LogitMapConfig::Plif { knots, bound: 1.5 });
    on_gpu.chain([LogitMapConfig::SoftCap { cap: 2.0 }, PLIF]).chain(few_knots)
}

const TOKENS: usize = 7;
const VOCAB: usize = 300;
const LISTED: usize = 5;

/// Which words are masked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Masked {
    NoBias,
    None,
    Some,
    AllButOne,
    All,
}

impl Masked {
    fn contains(self, word: usize) -> bool {
        match self {
            Self::NoBias | Self::None => false,
            Self::Some => word % 7 == 3,
            Self::AllButOne => word != 290,
            Self::All => true,
        }
    }

    /// An unmasked word for any number, if there is one.
    fn word(self, number: usize) -> usize {
        let mut words = (0..VOCAB).map(|i| (number + i) % VOCAB);
        words.find(|word| !self.contains(*word)).unwrap_or(number % VOCAB)
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    map: LogitMapConfig,
    components: usize,
    masked: Masked,
    temperature: f64,
    teacher: bool,
    /// Log-probabilities of several words, in place of targets.
    listed: bool,
    entropy: bool,
    label_smoothing: f64,
    z_loss: f64,
    statistics: bool,
    /// The number of words with gates, and a factor of the gate logits that all words share.
    gates: Option<(usize, f64)>,
    /// Of contexts, weight and all else.
    dtypes: [DType; 3],
}

impl Case {
    const fn plain(map: LogitMapConfig, components: usize, masked: Masked) -> Self {
        Self {
            map,
            components,
            masked,
            temperature: 1.0,
            teacher: false,
            listed: false,
            entropy: false,
            label_smoothing: 0.0,
            z_loss: 0.0,
            statistics: false,
            gates: None,
            dtypes: [DType::F32; 3],
        }
    }

    const fn all_options(self) -> Self {
        Self {
            temperature: 1.7,
            teacher: true,
            entropy: true,
            label_smoothing: 0.2,
            z_loss: 0.5,
            statistics: true,
            ..self
        }
    }

    /// More words than units share a row; chunks of three tokens that do not divide the tokens.
    fn input<B: LikelihoodKernels<Device = CubeDevice>>(&self) -> LikelihoodInput<Floats<B>> {
        let (d, d_gate, components) = (5, 3, self.components);
        let [contexts, weight, other] = self.dtypes;
        let bias = values::<B>(tensor([VOCAB], 4)).into_iter().enumerate();
        let bias = bias.map(|(word, x)| if self.masked.contains(word) { f32::NEG_INFINITY } else { x });
        let bias = Floats::from_data(TensorData::new(bias.collect::<Vec<_>>(), [VOCAB]), &device());
        let contexts = match self.gates {
            None => ContextSource::Given(tensor([TOKENS * components, d], 1).cast(contexts)),
            Some((words, scale)) => ContextSource::Gated(GatedArgs {
                inputs: GatedInputs {
                    prior: tensor([TOKENS, 4], 7).cast(other),
                    latent: tensor([TOKENS, 4 * d], 8).cast(contexts),
                    features: tensor([TOKENS, 3 * d_gate], 9).cast(contexts),
                    base: tensor([TOKENS, 3], 10).mul_scalar(scale).cast(other),
                    vectors: tensor([words, d_gate], 11).cast(other),
                    bias: tensor([words, 3], 12).cast(other),
                },
                precision: Precision::Full,
            }),
        };
        LikelihoodInput {
            contexts,
            log_prior: (components > 1).then(|| log_softmax(tensor([TOKENS, components], 2)).cast(other)),
            weight: tensor([VOCAB, d], 3).cast(weight),
            bias: (self.masked != Masked::NoBias).then(|| bias.cast(other)),
            map: self.map,
            map_params: (self.map.num_params() > 0).then(|| tensor([self.map.num_params()], 5).cast(other)),
            temperature: self.temperature,
            chunk_bytes: 3 * components * VOCAB * size_of::<f32>(),
            precision: Precision::Full,
        }
    }

    fn objective<B: LikelihoodKernels<Device = CubeDevice>>(&self) -> Objective<Floats<B>, Ints<B>> {
        let words: Vec<i32> = (0..TOKENS).map(|i| self.masked.word(i * 7919) as i32).collect();
        let words = integers(&words);
        let targets = if self.listed {
            // Twice in a row, and none that is masked.
            let ids = (0..TOKENS * LISTED).map(|i| self.masked.word(i % 4 * 61 + i / LISTED * 53) as i32);
            Targets::Listed {
                ids: integers(&ids.collect::<Vec<_>>()).reshape([TOKENS, LISTED]),
                factors: tensor([TOKENS, LISTED], 8).mul_scalar(3.0),
            }
        } else if self.teacher {
            let ids: Vec<usize> =
                (0..TOKENS * LISTED).map(|i| (i / LISTED * 53 + i % LISTED * 61) % VOCAB).collect();
            let prob = |(i, id): (usize, &usize)| match self.masked.contains(*id) {
                true => 0.0,
                // A row that leaves something, and one that does not.
                false if i < LISTED => 1.0 / LISTED as f32,
                false => (1 + i % 4) as f32 / 32.0,
            };
            let probs: Vec<f32> = ids.iter().enumerate().map(prob).collect();
            let ids: Vec<i32> = ids.into_iter().map(|id| id as i32).collect();
            Targets::Teacher {
                words,
                ids: integers(&ids).reshape([TOKENS, LISTED]),
                probs: Floats::from_data(TensorData::new(probs, [TOKENS, LISTED]), &device()),
            }
        } else {
            Targets::Words(words)
        };
        Objective {
            label_smoothing: self.label_smoothing,
            z_loss: self.z_loss,
            statistics: self.statistics,
            entropy: self.entropy.then(|| tensor([TOKENS], 9).mul_scalar(2.0)),
            ..Objective::new(targets)
        }
    }

    fn by_kernels<B: LikelihoodKernels<Device = CubeDevice>>(&self) -> Made {
        by_kernels::<B>(self.input(), self.objective())
    }

    fn scored_by_kernels<B: LikelihoodKernels<Device = CubeDevice>>(&self) -> Made {
        Made::new(B::score(self.input(), self.objective(), None))
    }

    fn by_the_portable_path(&self) -> Made {
        by_the_portable_path(&self.input(), &self.objective())
    }

    #[track_caller]
    fn check(&self) {
        let want = self.by_the_portable_path();
        let of_gates = want.0.iter().filter(|part| part.name.starts_with("gate"));
        assert_eq!(of_gates.clone().count(), if self.gates.is_some() { 6 } else { 0 }, "{self:?}");
        for Part { name, values } in of_gates {
            let is_made = values.iter().any(|x| *x != 0.0) && values.iter().all(|x| x.is_finite());
            assert!(is_made, "{self:?}: {name} is {values:?}");
        }
        self.by_kernels::<Plain>().assert_close(&want, &format!("{self:?}"));
        self.by_kernels::<Fused>().assert_close(&want, &format!("fused, {self:?}"));
        let scores = Made(want.0.into_iter().filter(|part| part.is_score()).collect());
        self.scored_by_kernels::<Plain>().assert_close(&scores, &format!("score, {self:?}"));
        self.scored_by_kernels::<Fused>().assert_close(&scores, &format!("fused score, {self:?}"));
    }
}

/// Scores and gradients by the kernels.
fn by_kernels<B>(input: LikelihoodInput<Floats<B>>, objective: Objective<Floats<B>, Ints<B>>) -> Made
where
    B: LikelihoodKernels<Device = CubeDevice>,
{
    Made::new(B::score(input, objective, Some((tensor([TOKENS], 6), Wanted::ALL))))
}

/// The same without kernels.
fn by_the_portable_path(
    input: &LikelihoodInput<Floats<Plain>>,
    objective: &Objective<Floats<Plain>, Ints<Plain>>,
) -> Made {
    Made::new(portable::score(input, objective, Some((tensor([TOKENS], 6), Wanted::ALL))))
}

/// A tensor that a call made.
#[derive(Debug)]
struct Part {
    name: &'static str,
    values: Vec<f32>,
}

impl Part {
    fn is_score(&self) -> bool {
        ["loss", "statistics", "listed"].contains(&self.name)
    }
}

/// Scores and all gradients.
#[derive(Debug)]
struct Made(Vec<Part>);

impl Made {
    fn new<B: LikelihoodKernels>((scores, gradients): (Scores<Floats<B>>, Gradients<Floats<B>>)) -> Self {
        let scores =
            [("loss", Some(scores.loss)), ("statistics", scores.statistics), ("listed", scores.listed)];
        let gradients = PerInput::<()>::NAMES.into_iter().zip(gradients.into_array());
        let part = |(name, tensor): (_, Option<Floats<B>>)| Some(Part { name, values: values(tensor?) });
        Self(scores.into_iter().chain(gradients).filter_map(part).collect())
    }

    #[track_caller]
    fn part(&self, name: &str) -> &[f32] {
        &self.0.iter().find(|part| part.name == name).expect("the part was made").values
    }

    #[track_caller]
    fn assert_close(&self, want: &Self, what: &str) {
        self.assert_within(1e-5, want, what);
    }

    #[track_caller]
    fn assert_within(&self, tolerance: f32, want: &Self, what: &str) {
        assert_eq!(self.0.len(), want.0.len(), "{what}");
        for (got, want) in self.0.iter().zip(&want.0) {
            let name = want.name;
            assert_eq!((got.name, got.values.len()), (name, want.values.len()), "{what}");
            let scale = want.values.iter().fold(1.0, |max: f32, x| max.max(x.abs()));
            for (i, (got, want)) in got.values.iter().zip(&want.values).enumerate() {
                // A whole number is right or wrong.
                let is_word = name == "statistics" && i % Statistic::COUNT == Statistic::Argmax as usize;
                let tolerance = if is_word { 0.0 } else { tolerance * scale };
                assert!((got - want).abs() <= tolerance, "{what}: {name}[{i}] is {got}, expected {want}");
            }
        }
    }
}

#[test]
fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
    for map in maps() {
        Case::plain(map, 1, Masked::NoBias).check();
        Case::plain(map, 3, Masked::None).check();
    }
}

#[test]
fn each_option_agrees_with_the_portable_path() {
    for map in [LogitMapConfig::Identity, PLIF] {
        for components in [1, 3] {
            let plain = Case::plain(map, components, Masked::None);
            Case { temperature: 0.4, ..plain }.check();
            Case { label_smoothing: 0.1, ..plain }.check();
            Case { z_loss: 0.5, ..plain }.check();
            Case { teacher: true, ..plain }.check();
            Case { statistics: true, ..plain }.check();
            Case { entropy: true, ..plain }.check();
            Case { listed: true, ..plain }.check();
            Case { masked: Masked::Some, ..plain }.check();
        }
    }
}

#[test]
fn all_options_together_agree_with_the_portable_path() {
    for map in maps() {
        Case::plain(map, 1, Masked::Some).all_options().check();
        Case::plain(map, 3, Masked::Some).all_options().check();
        for components in [1, 3] {
            let plain = Case::plain(map, components, Masked::Some);
            Case { temperature: 1.7, listed: true, entropy: true, ..plain }.check();
        }
    }
    Case::plain(PLIF, 1, Masked::NoBias).all_options().check();
    Case::plain(PLIF, 2, Masked::NoBias).all_options().check();
}

/// The logits are so large that a log-probability by way of their log-sum-exp would have three digits.
#[test]
fn large_logits_leave_log_probabilities_their_digits() {
    // Sixteenths, so that 8192 more is exact in f32.
    let coarse = |x: Floats<Plain>| x.mul_scalar(16.0).floor().mul_scalar(1.0 / 16.0);
    for components in [1, 3] {
        let plain = Case::plain(LogitMapConfig::Identity, components, Masked::None);
        for case in [plain, Case { label_smoothing: 0.1, ..plain }] {
            let made = |shift: f64| {
                let mut input = case.input();
                input.contexts = input.contexts.map(coarse);
                input.weight = coarse(input.weight);
                input.bias = input.bias.map(|bias| coarse(bias).add_scalar(shift));
                by_kernels::<Plain>(input, case.objective())
            };
            made(8192.0).assert_close(&made(0.0), &format!("{case:?}"));
        }
    }
}

#[test]
fn masked_words_have_no_gradient() {
    for components in [1, 3] {
        for map in [LogitMapConfig::SoftCap { cap: 2.0 }, PLIF] {
            for case in [
                Case::plain(map, components, Masked::Some),
                Case::plain(map, components, Masked::Some).all_options(),
            ] {
                let made = case.by_kernels::<Plain>();
                assert!(made.0.iter().flat_map(|part| &part.values).all(|x| x.is_finite()), "{case:?}");
                for word in (0..VOCAB).filter(|word| case.masked.contains(*word)) {
                    assert_eq!(made.part("bias")[word], 0.0, "{case:?}: word {word}");
                    assert_eq!(made.part("weight")[5 * word..][..5], [0.0; 5], "{case:?}: word {word}");
                }
            }
        }
    }
}

#[test]
fn the_only_word_left_is_certain() {
    for components in [1, 3] {
        let case = Case::plain(PLIF, components, Masked::AllButOne);
        for case in [case, Case { label_smoothing: 0.3, statistics: true, ..case }] {
            let made = case.by_kernels::<Plain>();
            let near = |x: &f32| x.abs() < 1e-5;
            assert!(made.part("loss").iter().all(near), "{case:?}: {:?}", made.part("loss"));
            assert!(made.part("weight").iter().all(near), "{case:?}: {:?}", made.part("weight"));
            if case.statistics {
                for row in made.part("statistics").chunks(Statistic::COUNT) {
                    assert_eq!(row[Statistic::Argmax as usize], 290.0);
                    assert!(near(&row[Statistic::Entropy as usize]), "{row:?}");
                }
            }
        }
    }
}

#[test]
fn a_masked_target_has_an_infinite_loss() {
    for components in [1, 3] {
        for label_smoothing in [0.0, 0.1] {
            let case = Case::plain(PLIF, components, Masked::Some);
            let targets = Targets::Words(integers(&[3; TOKENS]));
            let objective = Objective { label_smoothing, statistics: true, ..Objective::new(targets) };
            let made = Made::new(Plain::score(case.input(), objective, None));
            assert_eq!(made.part("loss"), [f32::INFINITY; TOKENS]);
            for row in made.part("statistics").chunks(Statistic::COUNT) {
                assert_eq!(row[Statistic::Nll as usize], f32::INFINITY);
                assert!(row[1..].iter().all(|x| x.is_finite()), "{row:?}");
            }
        }
    }
}

#[test]
fn where_every_word_is_masked_nothing_is_left() {
    for components in [1, 3] {
        for label_smoothing in [0.0, 0.1] {
            let case = Case {
                label_smoothing,
                z_loss: 0.25,
                statistics: true,
                ..Case::plain(PLIF, components, Masked::All)
            };
            let made = case.by_kernels::<Plain>();
            assert_eq!(made.part("loss"), [f32::INFINITY; TOKENS]);
            for row in made.part("statistics").chunks(Statistic::COUNT) {
                assert_eq!(row[..4], [f32::INFINITY, 0.0, 0.0, f32::NEG_INFINITY]);
            }
            for part in ["bias", "weight"] {
                assert!(made.part(part).iter().all(|x| *x == 0.0), "{part} of {case:?}");
            }
        }
    }
}

#[test]
fn logits_as_low_as_their_type_allows_are_not_masked() {
    for components in [1, 3] {
        let case =
            Case { temperature: 1e-31, ..Case::plain(LogitMapConfig::Identity, components, Masked::Some) };
        case.check();
    }
}

/// Of short numbers: a matrix that enters several products is rounded for all of them at once.
#[test]
fn each_matrix_is_rounded_once() {
    let case = Case::plain(LogitMapConfig::Identity, 3, Masked::None);
    for precision in [Precision::Tf32, Precision::Bf16] {
        let input = || LikelihoodInput { precision, ..case.input() };
        let want = by_the_portable_path(&input(), &case.objective());
        let (made, launches) = launches(|| by_kernels::<Plain>(input(), case.objective()));
        // A number that rounding cuts may lie on either side of a half.
        made.assert_within(2e-3, &want, &format!("{precision}"));
        if !cfg!(feature = "wgpu") {
            continue; // whose units may read what they are given
        }
        let rounded = launches.iter().filter(|kernel| kernel.contains("nearest")).count();
        // The weight, and of each of three chunks the contexts and the gradient of the logits.
        assert_eq!(rounded, 1 + 3 * 2, "{precision}: {launches:?}");
    }
}

#[test]
fn half_precision_is_multiplied_as_it_is_and_makes_f32() {
    // What comes to a kernel in half precision, where the adapter has it at all.
    for half in [DType::F16, DType::BF16].into_iter().filter(|half| Plain::supports_dtype(&device(), *half)) {
        for dtypes in [[half; 3], [DType::F32, half, half], [half, DType::F32, DType::F32]] {
            let case = Case { dtypes, ..Case::plain(PLIF, 3, Masked::Some) };
            case.check();
            case.all_options().check();
            gated::gated(Case { components: 1, ..case }, 20).check();
        }
        let case = Case { dtypes: [half; 3], ..Case::plain(PLIF, 3, Masked::Some).all_options() };
        let (scores, gradients) =
            Fused::score(case.input(), case.objective(), Some((tensor([TOKENS], 6), Wanted::ALL)));
        let made = gradients.into_array().into_iter().chain([Some(scores.loss), scores.statistics]);
        assert!(made.flatten().all(|x| x.dtype() == DType::F32));
    }
}

#[test]
fn contexts_may_come_from_a_latent_layer_of_any_float_type() {
    let dtypes = [DType::F32, DType::F16, DType::BF16];
    for dtype in dtypes.into_iter().filter(|dtype| Plain::supports_dtype(&device(), *dtype)) {
        fn input<B: LikelihoodKernels<Device = CubeDevice>>(case: Case) -> LikelihoodInput<Floats<B>> {
            let dtype = case.dtypes[0];
            let layer = LatentArgs {
                activation: Activation::Tanh,
                d: 5,
                hidden: tensor([TOKENS, 4], 7).cast(dtype),
                weight: tensor([4, 15], 8).cast(dtype),
                bias: Some(tensor([15], 9).cast(dtype)),
                mask: None,
                precision: Precision::Full,
            };
            LikelihoodInput { contexts: ContextSource::Latent(layer), ..case.input() }
        }
        let case = Case { dtypes: [dtype; 3], ..Case::plain(PLIF, 3, Masked::Some).all_options() };
        let want = by_the_portable_path(&input(case), &case.objective());
        assert!(want.part("latent weight").iter().any(|x| *x != 0.0));
        by_kernels::<Plain>(input(case), case.objective()).assert_close(&want, &format!("{dtype:?}"));
        by_kernels::<Fused>(input(case), case.objective()).assert_close(&want, &format!("fused, {dtype:?}"));
    }
}

#[test]
fn the_same_inputs_give_the_same_bits() {
    let gated = Case { gates: Some((270, 1.0)), ..Case::plain(PLIF, 1, Masked::Some).all_options() };
    let mixture = Case::plain(PLIF, 3, Masked::Some);
    for case in [mixture, mixture.all_options(), gated] {
        let bits = || {
            let made = case.by_kernels::<Plain>();
            made.0.into_iter().flat_map(|part| part.values).map(f32::to_bits).collect::<Vec<_>>()
        };
        let first = bits();
        for _ in 0..5 {
            assert_eq!(bits(), first, "{case:?}");
        }
    }
}

#[test]
fn a_word_outside_of_the_vocabulary_makes_its_token_nan() {
    for components in [1, 3] {
        for outside in [VOCAB as i32, -1, i32::MAX, i32::MIN] {
            let case = Case { label_smoothing: 0.1, ..Case::plain(PLIF, components, Masked::None) };
            let mut words: Vec<i32> = (0..TOKENS as i32).collect();
            words[4] = outside;
            let ids: Vec<i32> = words.iter().flat_map(|word| [7, *word]).collect();
            let words = || Targets::Words(integers(&words));
            let teacher = || Targets::Teacher {
                words: integers(&[0; TOKENS]),
                ids: integers(&ids).reshape([TOKENS, 2]),
                probs: Floats::full([TOKENS, 2], 0.25, &device(), DType::F32),
            };
            for objective in [
                Objective::new(words()),
                Objective { label_smoothing: 0.1, ..Objective::new(words()) },
                Objective::new(teacher()),
            ] {
                let what = format!("{components} components, {outside}, {objective:?}");
                let made = by_kernels::<Plain>(case.input(), objective);
                let row = 5 * components;
                for token in 0..TOKENS {
                    let is_nan = made.part("loss")[token].is_nan();
                    assert_eq!(is_nan, token == 4, "{what}: token {token}");
                    let contexts = &made.part("contexts")[token * row..][..row];
                    assert!(token == 4 || contexts.iter().all(|x| x.is_finite()), "{what}: token {token}");
                }
            }
        }
    }
}

/// Of rows that nobody has read, the gradients may be far above those of a distribution.
#[test]
fn a_teacher_beyond_1_moves_the_pieces_of_its_words() {
    for components in [1, 3] {
        let case = Case { teacher: true, ..Case::plain(PLIF, components, Masked::None) };
        let Targets::Teacher { words, ids, probs } = case.objective::<Plain>().targets else {
            unreachable!()
        };
        let objective = Objective::new(Targets::Teacher { words, ids, probs: probs.mul_scalar(16.0) });
        let want = by_the_portable_path(&case.input(), &objective);
        by_kernels::<Plain>(case.input(), objective).assert_close(&want, &format!("{case:?}"));
    }
}

#[test]
fn gradients_that_are_not_numbers_stay_so() {
    for case in [Case::plain(PLIF, 3, Masked::None), Case::plain(PLIF, 3, Masked::None).all_options()] {
        let upstream = Floats::full([TOKENS], f64::NAN, &device(), DType::F32);
        let (_, gradients) = Plain::score(case.input(), case.objective(), Some((upstream, Wanted::ALL)));
        let d_params = values(gradients.map_params.unwrap());
        assert!(d_params.iter().any(|x| x.is_nan()), "{case:?}: {d_params:?}");
    }
}

/// Burn's fusion may merge what is done to the only row of logits with what is done to the bias, which is as long.
#[test]
#[cfg(feature = "wgpu")]
fn a_single_row_is_what_it_is_among_others() {
    use burn::module::Param;
    use burn::tensor::{Device, Int, Tensor};
    let device = Device::wgpu(Default::default()).autodiff();
    let own = |shape: [usize; 2], seed| {
        let data = TensorData::new(values::<Plain>(tensor(shape, seed)), shape);
        Tensor::<2>::from_data(data, &device)
    };
    let mut head = crate::HeadConfig::softmax(4, 7).init(&device);
    head.decoder.weight = Some(Param::from_tensor(own([7, 4], 2)));
    head.decoder.bias = Some(Param::from_tensor(own([1, 7], 3).reshape([7])));
    let read = |log_probs: Tensor<2>| log_probs.into_data().iter::<f32>().collect::<Vec<_>>();
    let of_all = read(head.forward(own([9, 4], 1)));
    for row in 0..9 {
        let place = Tensor::<1, Int>::from_data([row as i64].as_slice(), &device);
        let of_one = read(head.forward(own([9, 4], 1).select(0, place)));
        for (got, want) in of_one.iter().zip(&of_all[7 * row..]) {
            assert!((got - want).abs() < 1e-5, "row {row}: {got}, expected {want}");
        }
    }
}
