//! Heads of random shapes, maps and options, at ordinary and at extreme sizes of the hidden states: native kernels against the
//! portable body in f64.
//!
//! `HIGHRANK_SEED=N` draws others, `HIGHRANK_CASES=N` more. A failure is shrunk to a smallest case, which is printed with the seed.

use burn::tensor::{DType, Device, Int, Tensor};
use highrank::{AdaptiveConfig, ContextConfig, HeadConfig, LogitMapConfig, LossOptions};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::support::*;

/// What is drawn.
#[derive(Debug, Clone)]
struct Case {
    config: HeadConfig,
    tokens: usize,
    /// Bound of the hidden states' magnitude.
    magnitude: f64,
    smoothing: f64,
    z_loss: f64,
    temperature: f64,
    /// Every so manieth token does not count, from the second one on.
    ignored: usize,
}

impl Case {
    /// Bound of a logit: a sum of so many products of hidden states up to [`magnitude`](Self::magnitude) with weights up to 1. A tail's
    /// are sums of such sums, and so are the logits that a word mixes by gates.
    fn largest(&self) -> f64 {
        let HeadConfig { d_hidden, d_embedding, ref context, ref adaptive, .. } = self.config;
        let terms = d_hidden.max(d_embedding) as f64;
        let twice = adaptive.is_some() || matches!(context, ContextConfig::Mixtape { .. });
        self.magnitude.max(1.0) * if twice { terms * terms } else { terms }
    }

    /// By how much results in f64 may differ, of the largest of them.
    fn tolerance(&self) -> f64 {
        (1e-15 * self.largest()).max(1e-9)
    }
}

fn maps() -> impl Strategy<Value = LogitMapConfig> {
    prop_oneof![
        2 => Just(LogitMapConfig::Identity),
        1 => Just(LogitMapConfig::Sigsoftmax),
        1 => Just(LogitMapConfig::Gss),
        1 => (0.5..40.0_f64).prop_map(|cap| LogitMapConfig::SoftCap { cap }),
        1 => (1..40_usize, 0.5..25.0_f64).prop_map(|(knots, bound)| LogitMapConfig::Plif { knots, bound }),
        1 => (1..6_usize).prop_map(|units| LogitMapConfig::MonotonicNet { units }),
    ]
}

fn heads() -> impl Strategy<Value = HeadConfig> {
    let sizes = (1..9_usize, 1..34_usize, 1..40_usize, 1..5_usize);
    let layers = prop::collection::vec((1..9_usize, 1..4_usize), 1..4);
    let gates = (any::<Index>(), 1..6_usize);
    let head = (0..5_usize, sizes, layers, gates, clusters()).prop_map(
        |(context, (hidden, embedding, vocab, components), layers, (frequent, d_gate), clusters)| {
            let head = match context {
                0 => HeadConfig::softmax(embedding, vocab),
                1 => HeadConfig::moc(hidden, embedding, vocab, components),
                2 => HeadConfig::mos(hidden, embedding, vocab, components),
                3 => HeadConfig::doc(&layers, embedding, vocab),
                _ => HeadConfig::mixtape(hidden, embedding, vocab),
            };
            let head = match clusters {
                Some(clusters) if vocab > 1 => head.with_adaptive(clusters.of(vocab)),
                _ => head,
            };
            // All words of the head's own decoder but one may have a gate of their own.
            let words = head.adaptive.as_ref().map_or(vocab, AdaptiveConfig::head_words);
            match head.context {
                ContextConfig::Mixtape { .. } => {
                    let frequent = frequent.index(words);
                    head.with_context(ContextConfig::Mixtape { frequent, d_gate })
                }
                _ => head,
            }
        },
    );
    let rest = (maps(), any::<bool>(), 1..9_usize, 1..6_usize, 1..12_usize);
    (head, rest).prop_map(|(head, (map, bias, multiple, masked, chunk))| {
        // Every so manieth word is masked, but never the first.
        let masked = (1..head.vocab).filter(|word| word % 7 == masked).collect();
        let row = head.context.components() * head.vocab.next_multiple_of(multiple) * size_of::<f64>();
        head.with_logit_map(map)
            .with_bias(bias)
            .with_vocab_multiple(multiple)
            .with_masked_words(masked)
            .with_memory_budget(Some(chunk * row))
    })
}

/// Clusters of a vocabulary that is not known yet.
#[derive(Debug, Clone)]
struct Drawn {
    cutoffs: Vec<Index>,
    division: f64,
}

impl Drawn {
    /// Of at least two words.
    fn of(&self, vocab: usize) -> AdaptiveConfig {
        let mut cutoffs: Vec<usize> = self.cutoffs.iter().map(|cutoff| 1 + cutoff.index(vocab - 1)).collect();
        cutoffs.sort_unstable();
        cutoffs.dedup();
        AdaptiveConfig::new(cutoffs).with_division(self.division)
    }
}

/// One to three clusters, for one head of three.
fn clusters() -> impl Strategy<Value = Option<Drawn>> {
    let drawn = (prop::collection::vec(any::<Index>(), 1..4), 1.0..5.0_f64)
        .prop_map(|(cutoffs, division)| Some(Drawn { cutoffs, division }));
    prop_oneof![2 => Just(None), 1 => drawn]
}

fn cases() -> impl Strategy<Value = Case> {
    let or_none = |range: std::ops::Range<f64>, none: f64| prop_oneof![Just(none), range];
    let options = (or_none(0.0..0.9, 0.0), or_none(0.0..0.1, 0.0), or_none(0.3..3.0, 1.0), 2..6_usize);
    (heads(), 1..14_usize, -3..5_i32, options).prop_map(
        |(config, tokens, power, (smoothing, z_loss, temperature, ignored))| {
            let magnitude = 10_f64.powi(power);
            Case { config, tokens, magnitude, smoothing, z_loss, temperature, ignored }
        },
    )
}

/// Tries a property on drawn cases; the same ones each time unless the environment says otherwise.
fn try_cases(property: impl Fn(&Case)) {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
        Err(_) => default,
    };
    let (seed, count) = (number("HIGHRANK_SEED", 28), number("HIGHRANK_CASES", 96));
    println!("HIGHRANK_SEED={seed} HIGHRANK_CASES={count}");
    let config = Config { cases: count as u32, failure_persistence: None, ..Config::default() };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &key));
    let tried = runner.run(&cases(), |case| {
        property(&case);
        Ok(())
    });
    if let Err(error) = tried {
        panic!("HIGHRANK_SEED={seed}: {error}");
    }
}

/// The hidden states of a case.
fn hidden(case: &Case, on: On<'_>) -> Tensor<2> {
    tensor([case.tokens, case.config.d_hidden], 1, on).mul_scalar(case.magnitude)
}

/// Words that are not masked.
fn words(case: &Case, device: &Device) -> Tensor<1, Int> {
    let HeadConfig { vocab, ref masked_words, .. } = case.config;
    let open: Vec<usize> = (0..vocab).filter(|word| !masked_words.contains(word)).collect();
    let words: Vec<i64> = (0..case.tokens).map(|n| open[(n * 7919 + 3) % open.len()] as i64).collect();
    Tensor::from_data(words.as_slice(), device)
}

/// The CPU with native kernels, and the one that has only the portable body.
fn native_and_portable() -> [Device; 2] {
    cpus().collect::<Vec<_>>().try_into().expect("Flex and NdArray")
}

#[test]
fn losses_with_options_are_those_of_the_portable_body() {
    const IGNORED: i64 = -1;
    let [native, portable] = native_and_portable().map(Device::autodiff);
    try_cases(|case| {
        let run = |device: &Device| {
            let on = (device, DType::F64);
            let head = head(&case.config, on);
            let hidden = hidden(case, on).require_grad();
            let counts: Vec<bool> = (0..case.tokens).map(|n| n % case.ignored == 1).collect();
            let ignored = Tensor::<1, burn::tensor::Bool>::from_data(counts.as_slice(), device);
            let targets = words(case, device).mask_fill(ignored, IGNORED);
            let options = LossOptions::new()
                .with_ignore_index(IGNORED)
                .with_label_smoothing(case.smoothing)
                .with_z_loss(case.z_loss)
                .with_temperature(case.temperature);
            let loss = head.loss_with(hidden.clone(), targets, &options).loss;
            [values(loss.clone()), all_gradients(&head, &hidden, loss.mul_scalar(-1.7))]
        };
        let ([loss, gradients], [want_loss, want_gradients]) = (run(&native), run(&portable));
        assert!(want_loss[0].is_finite(), "the portable loss is {}", want_loss[0]);
        assert_close(&loss, &want_loss, case.tolerance(), "loss");
        assert_close(&gradients, &want_gradients, case.tolerance(), "gradients");
    });
}

#[test]
fn predictions_are_those_of_the_portable_body() {
    let [native, portable] = native_and_portable();
    try_cases(|case| {
        let rows = |device: &Device| {
            let on = (device, DType::F64);
            values(head(&case.config, on).log_probs(hidden(case, on)))
        };
        let (got, want) = (rows(&native), rows(&portable));
        // Masked words have the same −∞ in both, which no difference shows.
        let finite =
            |row: &[f64]| row.iter().map(|p| if *p == f64::NEG_INFINITY { 1.0 } else { *p }).collect();
        let (got_finite, want_finite): (Vec<f64>, Vec<f64>) = (finite(&got), finite(&want));
        assert_close(&got_finite, &want_finite, case.tolerance(), "log-probabilities");
        for row in got.chunks(case.config.rows()) {
            let sum: f64 = row.iter().map(|p| p.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-9, "a row's probabilities sum to {sum}");
            let impossible = row.iter().enumerate().filter(|(_, p)| **p == f64::NEG_INFINITY);
            let masked = |word: usize| word >= case.config.vocab || case.config.masked_words.contains(&word);
            assert!(impossible.map(|(word, _)| word).eq((0..row.len()).filter(|word| masked(*word))));
        }
    });
}

#[test]
fn single_precision_is_as_good_as_its_logits() {
    let [native, portable] = native_and_portable();
    try_cases(|case| {
        let nll = |device: &Device, dtype: DType| {
            let on = (device, dtype);
            values(head(&case.config, on).nll(hidden(case, on), words(case, device)))
        };
        let (got, want) = (nll(&native, DType::F32), nll(&portable, DType::F64));
        // Rounding a logit, of a word, a gate or a component, costs 6e-8 of it.
        let tolerance = 3e-6 * (1.0 + case.largest());
        for (n, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(
                (got - want).abs() <= tolerance,
                "nll of token {n} is {got}, expected {want} ± {tolerance}"
            );
        }
    });
}
