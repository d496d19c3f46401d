//! Heads of random shapes, maps and options, at ordinary and at extreme sizes of the hidden states: native kernels against the
//! same heads composed of Burn's operations in f64, and against the portable bodies where a backend is built that has no others.
//!
//! `HIGHRANK_SEED=N` draws others, `HIGHRANK_CASES=N` more. A failure is shrunk to a smallest case, which is printed with the seed.

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use highrank::context::{Context, MixtapeConfig};
use highrank::{
    Activation, AdaptiveConfig, ContextConfig, HeadConfig, LogitMapConfig, LossOptions, OutputHead,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::priors::priors;
use crate::support::*;

const IGNORED: i64 = -1;

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
    /// are sums of such sums, and so are the logits that a word mixes by gates and those of contexts that no tanh bounds.
    fn largest(&self) -> f64 {
        let HeadConfig { d_hidden, d_embedding, ref context, ref adaptive, .. } = self.config;
        let terms = d_hidden.max(d_embedding) as f64;
        let twice = adaptive.is_some()
            || match context {
                ContextConfig::MixtureOfContexts(mixture) | ContextConfig::MixtureOfSoftmaxes(mixture) => {
                    mixture.activation != Activation::Tanh
                }
                ContextConfig::DirectOutputConnection(connection) => {
                    connection.activation != Activation::Tanh
                }
                ContextConfig::Mixtape(_) => true,
                _ => false,
            };
        self.magnitude.max(1.0) * if twice { terms * terms } else { terms }
    }

    /// By how much results in f64 may differ, of the largest of them.
    fn tolerance(&self) -> f64 {
        (1e-15 * self.largest()).max(1e-9)
    }
}

fn maps() -> impl Strategy<Value = LogitMapConfig> {
    prop_oneof![
        4 => prop::sample::select(LogitMapConfig::examples()),
        1 => (0.5..40.0_f64).prop_map(|cap| LogitMapConfig::SoftCap { cap }),
        1 => (1..40_usize, 0.5..25.0_f64).prop_map(|(knots, bound)| LogitMapConfig::Plif { knots, bound }),
        1 => (1..6_usize).prop_map(|units| LogitMapConfig::MonotonicNet { units }),
    ]
}

fn heads() -> impl Strategy<Value = HeadConfig> {
    let sizes = (1..9_usize, 1..34_usize, 1..40_usize, 1..5_usize);
    let layers = prop::collection::vec((1..9_usize, 1..4_usize), 1..4);
    let gates = (any::<Index>(), 1..6_usize);
    let activations = prop::sample::select(vec![Activation::Tanh, Activation::Linear, Activation::Residual]);
    let head = (0..5_usize, activations, sizes, layers, gates, clusters()).prop_map(
        |(context, activation, sizes, mut layers, (frequent, d_gate), clusters)| {
            let (mut hidden, embedding, vocab, components) = sizes;
            if activation == Activation::Residual {
                // Of which the first features are a context's.
                hidden += embedding;
                layers.iter_mut().for_each(|(width, _)| *width += embedding);
            }
            let head = match context {
                0 => HeadConfig::softmax(embedding, vocab),
                1 => HeadConfig::moc(hidden, embedding, vocab, components).with_activation(activation),
                2 => HeadConfig::mos(hidden, embedding, vocab, components).with_activation(activation),
                3 => HeadConfig::direct_output_connection(&layers, embedding, vocab)
                    .with_activation(activation),
                _ => HeadConfig::mixtape(hidden, embedding, vocab),
            };
            let head = match clusters {
                Some(clusters) if vocab > 1 => head.with_adaptive(clusters.of(vocab)),
                _ => head,
            };
            // All words of the head's own decoder but one may have a gate of their own.
            let words = head.decoder_rows();
            match head.context {
                ContextConfig::Mixtape(_) => {
                    let mixtape = MixtapeConfig::new(frequent.index(words), d_gate);
                    head.with_context(ContextConfig::Mixtape(mixtape))
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
        AdaptiveConfig { cutoffs, division: self.division }
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

/// Which tokens do not count.
fn ignored(case: &Case) -> Vec<bool> {
    (0..case.tokens).map(|n| n % case.ignored == 1).collect()
}

/// Which rows of the decoder have probability 0.
fn masked(case: &Case) -> Vec<bool> {
    let HeadConfig { vocab, ref masked_words, .. } = case.config;
    // Clusters do not list their padding.
    let rows = if case.config.adaptive.is_some() { vocab } else { case.config.decoder_rows() };
    (0..rows).map(|word| word >= vocab || masked_words.contains(&word)).collect()
}

/// The [masked](masked) rows, for so many rows of logits.
fn mask(case: &Case, rows: usize, device: &Device) -> Tensor<2, Bool> {
    let row = masked(case);
    let shape = [rows, row.len()];
    Tensor::from_data(TensorData::new(row.repeat(rows), shape), device)
}

/// Devices of which a head's log-probabilities are composed of Burn's operations: where they are tracked, and where there are no
/// kernels.
fn composing() -> impl Iterator<Item = Device> {
    std::iter::once(ad()).chain(cpus().skip(1))
}

/// A loss of the case's head, and all gradients of a multiple of it.
fn with_gradients(
    case: &Case,
    device: &Device,
    loss: impl FnOnce(&OutputHead, Tensor<2>) -> Tensor<1>,
) -> [Vec<f64>; 2] {
    let on = (device, DType::F64);
    let head = head(&case.config, on).at_temperature(case.temperature);
    let hidden = hidden(case, on).require_grad();
    let loss = loss(&head, hidden.clone());
    [values(loss.clone()), all_gradients(&head, &hidden, loss.mul_scalar(-1.7))]
}

fn fused(case: &Case, device: &Device, z_loss: f64) -> [Vec<f64>; 2] {
    with_gradients(case, device, |head, hidden| {
        let ignored = Tensor::<1, Bool>::from_data(ignored(case).as_slice(), device);
        let targets = words(case, device).mask_fill(ignored, IGNORED);
        let options = LossOptions::new()
            .with_ignore_index(IGNORED)
            .with_label_smoothing(case.smoothing)
            .with_z_loss(z_loss);
        head.loss_with(hidden, targets, &options).value
    })
}

/// The same from the log-probabilities, differentiated by Burn.
fn composed(case: &Case, device: &Device, z_loss: f64) -> [Vec<f64>; 2] {
    with_gradients(case, device, |head, hidden| {
        let log_probs = head.forward(hidden.clone()).mask_fill(mask(case, case.tokens, device), 0.0);
        let nll = -log_probs.clone().gather(1, words(case, device).reshape([case.tokens, 1]));
        let open = masked(case).iter().filter(|masked| !**masked).count() as f64;
        let even = -log_probs.sum_dim(1) * (1.0 / open);
        let mut losses = nll * (1.0 - case.smoothing) + even * case.smoothing;
        if z_loss > 0.0 {
            losses = losses + z_terms(case, head, hidden) * z_loss;
        }
        let counted = ignored(case).iter().filter(|ignored| !**ignored).count() as f64;
        let ignored = Tensor::<1, Bool>::from_data(ignored(case).as_slice(), device);
        losses.squeeze_dim::<1>(1).mask_fill(ignored, 0.0).sum() * (1.0 / counted)
    })
}

/// `Σ_k π_k LSE_k²` of each token, `[N, 1]`, for a head without clusters.
fn z_terms(case: &Case, head: &OutputHead, hidden: Tensor<2>) -> Tensor<2> {
    let logits = Tensor::cat(head.logit_blocks(hidden.clone()).collect(), 0);
    let masked = mask(case, logits.dims()[0], &logits.device());
    // No map has a slope at −∞.
    let mapped = head.logit_map.forward(logits.mask_fill(masked.clone(), 0.0)) * (1.0 / case.temperature);
    let mapped = mapped.mask_fill(masked, f64::NEG_INFINITY);
    let max = mapped.clone().detach().max_dim(1);
    let normaliser = (mapped - max.clone()).exp().sum_dim(1).log() + max;
    let squares = normaliser.clone() * normaliser;
    match head.context {
        Context::MixtureOfSoftmaxes(_) | Context::DirectOutputConnection(_) => {
            (squares.reshape([case.tokens, head.components()]) * priors(head, hidden)).sum_dim(1)
        }
        _ => squares,
    }
}

#[test]
fn losses_with_options_are_those_of_the_composed_program() {
    try_cases(|case| {
        // The normalisers of clusters cannot be read.
        let z_loss = if case.config.adaptive.is_none() { case.z_loss } else { 0.0 };
        let mut pairs = vec![[fused(case, &ad(), z_loss), composed(case, &ad(), z_loss)]];
        pairs.extend(
            cpus()
                .skip(1)
                .map(|portable| [ad(), portable.autodiff()].map(|device| fused(case, &device, case.z_loss))),
        );
        for [[loss, gradients], [want_loss, want_gradients]] in pairs {
            assert!(want_loss[0].is_finite(), "the expected loss is {}", want_loss[0]);
            assert_close(&loss, &want_loss, case.tolerance(), "loss");
            assert_close(&gradients, &want_gradients, case.tolerance(), "gradients");
        }
    });
}

#[test]
fn predictions_are_those_of_the_composed_program() {
    try_cases(|case| {
        let rows = |device: &Device| {
            let on = (device, DType::F64);
            values(head(&case.config, on).forward(hidden(case, on)))
        };
        let got = rows(&cpu());
        for device in composing() {
            assert_close(&got, &rows(&device), case.tolerance(), "log-probabilities");
        }
        for row in got.chunks(masked(case).len()) {
            let sum: f64 = row.iter().map(|p| p.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-9, "a row's probabilities sum to {sum}");
            assert!(row.iter().map(|p| *p == f64::NEG_INFINITY).eq(masked(case)));
        }
    });
}

#[test]
fn single_precision_is_as_good_as_its_logits() {
    try_cases(|case| {
        let on = (&cpu(), DType::F32);
        let got = values(head(&case.config, on).nll(hidden(case, on), words(case, on.0)));
        // Rounding a logit, of a word, a gate or a component, costs 6e-8 of it.
        let tolerance = 3e-6 * (1.0 + case.largest());
        for device in composing() {
            let on = (&device, DType::F64);
            let want = values(composed_nll(&head(&case.config, on), hidden(case, on), words(case, on.0)));
            for (n, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (got - want).abs() <= tolerance,
                    "nll of token {n} is {got}, expected {want} ± {tolerance}"
                );
            }
        }
    });
}
