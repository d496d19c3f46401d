//! Shared by all head tests: devices, heads by name, reproducible inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Int, Tensor, TensorData};
use highrank::context::{Context, MixtapeConfig};
use highrank::{
    Activation, AdaptiveConfig, ContextConfig, HeadConfig, LogitMapConfig, OutputHead, Sampling,
    TokenStatistics,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;
pub use runs::testing::values;

/// Where the tensors of a check live, and their float type.
pub type On<'a> = (&'a Device, DType);

/// The device of most tests, without autodiff.
pub fn cpu() -> Device {
    Device::flex()
}

/// The device of most tests, for gradients.
pub fn ad() -> Device {
    Device::flex().autodiff()
}

/// The CPU devices that the tests are built with, without autodiff.
pub fn cpus() -> impl Iterator<Item = Device> {
    [
        Device::flex(),
        // Deprecated, but its users are still served.
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        Device::ndarray(),
    ]
    .into_iter()
}

pub const HIDDEN: usize = 6;
pub const EMBEDDING: usize = 5;

pub fn softmax(vocab: usize) -> HeadConfig {
    HeadConfig::softmax(EMBEDDING, vocab)
}

pub fn moc(vocab: usize) -> HeadConfig {
    HeadConfig::moc(HIDDEN, EMBEDDING, vocab, 3)
}

pub fn mos(vocab: usize) -> HeadConfig {
    HeadConfig::mos(HIDDEN, EMBEDDING, vocab, 3)
}

pub fn mos_plif(vocab: usize) -> HeadConfig {
    HeadConfig::mos_plif(HIDDEN, EMBEDDING, vocab, 3, 17)
}

/// Every context with every logit map, but a direct output connection with two of them.
pub fn all_heads(vocab: usize) -> Vec<HeadConfig> {
    let contexts = [softmax(vocab), moc(vocab), mos(vocab), mixtape(vocab, vocab / 2)];
    let combine = |context: &HeadConfig| {
        let context = context.clone();
        LogitMapConfig::examples().into_iter().map(move |map| context.clone().with_logit_map(map))
    };
    // Of a direct output connection the contexts alone differ from a mixture's: two maps show what all would.
    let connected = HeadConfig::direct_output_connection(&[(4, 1), (HIDDEN, 2)], EMBEDDING, vocab);
    let maps = [LogitMapConfig::Identity, LogitMapConfig::Plif { knots: 17, bound: 2.0 }];
    let of_connection = maps.map(|map| connected.clone().with_logit_map(map));
    contexts.iter().flat_map(combine).chain(of_connection).chain(other_activations(vocab)).collect()
}

/// Every context that has an activation, with those that are not the papers'.
fn other_activations(vocab: usize) -> impl Iterator<Item = HeadConfig> {
    let heads = [
        moc(vocab),
        mos(vocab),
        mos_plif(vocab),
        // A residual asks for layers that are no narrower than a context.
        HeadConfig::direct_output_connection(&[(EMBEDDING, 1), (HIDDEN, 2)], EMBEDDING, vocab),
    ];
    [Activation::Linear, Activation::Residual]
        .into_iter()
        .flat_map(move |activation| heads.clone().map(|head| head.with_activation(activation)))
}

/// A softmax and a mixture with two clusters of rare words.
pub fn adaptive_heads(vocab: usize) -> [HeadConfig; 2] {
    let clusters = AdaptiveConfig { cutoffs: vec![vocab / 3, 2 * vocab / 3], division: 2.0 };
    [softmax(vocab), mos(vocab)].map(|config| config.with_adaptive(clusters.clone()))
}

/// Heads with one softmax over all words, and with clusters.
pub fn every_head(vocab: usize) -> impl Iterator<Item = HeadConfig> {
    all_heads(vocab).into_iter().chain(adaptive_heads(vocab))
}

/// A Mixtape with gates of width 3, of which so many words have one of their own.
pub fn mixtape(vocab: usize, frequent: usize) -> HeadConfig {
    let context = ContextConfig::Mixtape(MixtapeConfig::new(frequent, 3));
    HeadConfig::mixtape(HIDDEN, EMBEDDING, vocab).with_context(context)
}

/// Leaves a Mixtape the gates of some words, in ascending order, and the one that all others share; other heads have none.
fn keep_gates(head: &mut OutputHead, kept: &[i64]) {
    if let Context::Mixtape(mixtape) = &mut head.context {
        let shared = mixtape.frequent as i64;
        let rows: Vec<i64> = kept.iter().copied().filter(|word| *word < shared).chain([shared]).collect();
        for param in [&mut mixtape.vectors, &mut mixtape.bias] {
            let places = Tensor::<1, Int>::from_data(rows.as_slice(), &param.val().device());
            *param = Param::from_tensor(param.val().select(0, places).detach());
        }
        mixtape.frequent = rows.len() - 1;
    }
}

/// Values in about ±1 from the index alone, so that every backend and precision starts from the same numbers.
pub fn spread(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| (((i + 31 * seed) * 7919 + 13 * seed) % 1009) as f64 / 504.0 - 1.0).collect()
}

pub fn tensor<const D: usize>(shape: [usize; D], seed: usize, on: On<'_>) -> Tensor<D> {
    floats(&spread(shape.iter().product(), seed), shape, on)
}

pub fn floats<const D: usize>(values: &[f64], shape: [usize; D], on: On<'_>) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape).convert_dtype(on.1), on)
}

/// Targets that reach every word of a small vocabulary.
pub fn targets(tokens: usize, vocab: usize, device: &Device) -> Tensor<1, Int> {
    let words: Vec<i64> = (0..tokens).map(|i| ((i * 7919 + 3) % vocab) as i64).collect();
    Tensor::from_data(words.as_slice(), device)
}

pub fn ints<const D: usize>(values: &[i64], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

pub fn integers<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i64> {
    tensor.into_data().iter::<i64>().collect()
}

/// A head whose parameters are spread values of the given float type: nothing symmetric, nothing at its start value.
pub fn head(config: &HeadConfig, on: On<'_>) -> OutputHead {
    struct Spread<'a>(On<'a>, usize);
    impl ModuleMapper for Spread<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.1 += 1;
            let shape = param.val().dims();
            Param::from_tensor(tensor(shape, self.1, self.0))
        }
    }
    config.init(on.0).map(&mut Spread(on, 100))
}

/// The head with every parameter moved by `step` times its [direction](directions).
fn moved(head: OutputHead, step: f64) -> OutputHead {
    struct Move(f64, usize);
    impl ModuleMapper for Move {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.1 += 1;
            let value = param.val();
            let direction = tensor::<D>(value.dims(), 1000 + self.1, (&value.device(), DType::F64));
            Param::from_tensor(value + direction.mul_scalar(self.0))
        }
    }
    head.map(&mut Move(step, 0))
}

/// The directions of all parameters in the module's order.
fn directions(head: &OutputHead) -> Vec<f64> {
    let sizes = parameters(head, None).into_iter().map(|(value, _)| value.num_elements());
    sizes.zip(1001..).flat_map(|(size, seed)| spread(size, seed)).collect()
}

/// The head with a bias of −∞ for some words, which is a parameter.
pub fn mask_by_bias(mut head: OutputHead, words: &[usize]) -> OutputHead {
    let bias = head.decoder.bias.as_ref().unwrap().val();
    let masked = words.iter().fold(bias, |bias, &word| bias.slice_fill(word..word + 1, f64::NEG_INFINITY));
    head.decoder.bias = Some(Param::from_tensor(masked.detach()));
    head
}

/// The head over some words of another alone, in ascending order, with the same parameters.
///
/// - config: of the other, without masked words or padding
pub fn with_words(full: &OutputHead, config: &HeadConfig, words: &[i64]) -> OutputHead {
    let weight = full.decoder.weight.as_ref().unwrap().val();
    let device = weight.device();
    let rows = Tensor::<1, Int>::from_data(words, &device);
    let mut small = full.clone();
    small.decoder = HeadConfig { vocab: words.len(), ..config.clone() }.init(&device).decoder;
    small.decoder.weight = Some(Param::from_tensor(weight.select(0, rows.clone()).detach()));
    let bias = |bias: &Param<Tensor<1>>| Param::from_tensor(bias.val().select(0, rows.clone()).detach());
    small.decoder.bias = full.decoder.bias.as_ref().map(bias);
    keep_gates(&mut small, words);
    small
}

/// Root of the mean square of the differences, over that of the reference.
pub fn relative_error(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |xs: &mut dyn Iterator<Item = f64>| xs.map(|x| x * x).sum::<f64>();
    (square(&mut got.iter().zip(want).map(|(got, want)| got - want)) / square(&mut want.iter().copied()))
        .sqrt()
}

/// The composed formula, `−log_probs.gather(targets)`: the oracle of the fused form.
pub fn composed_nll(head: &OutputHead, hidden: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let [tokens, _] = hidden.dims();
    head.forward(hidden).gather(1, targets.reshape([tokens, 1])).neg().squeeze_dim(1)
}

/// A parameter's value, and its gradient if there is one.
pub type Parameter = (TensorData, Option<TensorData>);

/// All parameters in the module's order.
pub fn parameters(module: &impl Module, gradients: Option<&Gradients>) -> Vec<Parameter> {
    struct Collect<'a>(Option<&'a Gradients>, Vec<Parameter>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let gradient = self.0.and_then(|gradients| value.grad(gradients)).map(Tensor::into_data);
            self.1.push((value.into_data(), gradient));
        }
    }
    let mut collect = Collect(gradients, vec![]);
    module.visit(&mut collect);
    collect.1
}

/// Losses and log-probabilities.
pub fn results(head: &OutputHead, hidden: Tensor<2>) -> Vec<f64> {
    let words = targets(hidden.dims()[0], head.vocab(), &hidden.device());
    let nll = values(head.nll(hidden.clone(), words.clone()));
    [nll, values(head.loss(hidden.clone(), words)), values(head.forward(hidden))].concat()
}

/// The nll, entropy, likeliest word, its log-probability and the term of the z-loss of each token.
pub fn columns<const T: usize>(made: TokenStatistics<T>) -> [Vec<f64>; 5] {
    let argmax = made.argmax.into_data().iter::<f64>().collect();
    [values(made.nll), values(made.entropy), argmax, values(made.max_log_prob), values(made.z_term)]
}

/// The gradients of all parameters in the module's order, and that of the hidden state; missing ones are zero.
pub fn gradients(module: &impl Module, hidden: &Tensor<2>, loss: Tensor<1>) -> Vec<Vec<f64>> {
    stored_gradients(module, hidden, &loss.backward())
}

fn stored_gradients(module: &impl Module, hidden: &Tensor<2>, store: &Gradients) -> Vec<Vec<f64>> {
    let of_params = parameters(module, Some(store)).into_iter().map(|(value, gradient)| match gradient {
        Some(gradient) => gradient.iter::<f64>().collect::<Vec<_>>(),
        None => vec![0.0; value.num_elements()],
    });
    of_params.chain([values(hidden.grad(store).expect("a gradient of the hidden state"))]).collect()
}

/// The same, one after the other.
pub fn all_gradients(head: &OutputHead, hidden: &Tensor<2>, loss: Tensor<1>) -> Vec<f64> {
    gradients(head, hidden, loss).concat()
}

/// Checks the derivative of a loss along a direction of all parameters, hidden states and weights of tokens against central
/// differences, and returns it.
#[track_caller]
pub fn check_derivative(
    config: &HeadConfig,
    tokens: usize,
    what: &str,
    loss: impl Fn(&OutputHead, Tensor<2>, Tensor<1>) -> Tensor<1>,
) -> f64 {
    let shape = [tokens, config.d_hidden];
    let inputs = |device: &Device| {
        let on = (device, DType::F64);
        (tensor::<2>(shape, 1, on), tensor::<1>([tokens], 7, on).add_scalar(1.5))
    };
    let moved_by = |step: f64| {
        let on = (&cpu(), DType::F64);
        let (hidden, weights) = inputs(on.0);
        let hidden = hidden + tensor(shape, 900, on) * step;
        let weights = weights + tensor([tokens], 901, on) * step;
        values(loss(&moved(head(config, on), step), hidden, weights))[0]
    };
    let numeric = (moved_by(1e-6) - moved_by(-1e-6)) / 2e-6;

    let on = (&ad(), DType::F64);
    let head = head(config, on);
    let (hidden, weights) = inputs(on.0);
    let (hidden, weights) = (hidden.require_grad(), weights.detach().require_grad());
    let store = loss(&head, hidden.clone(), weights.clone()).backward();
    let mut gradient = stored_gradients(&head, &hidden, &store).concat();
    let mut direction = directions(&head);
    direction.extend(spread(tokens * config.d_hidden, 900));
    if let Some(of_weights) = weights.grad(&store) {
        gradient.extend(values(of_weights));
        direction.extend(spread(tokens, 901));
    }
    assert_eq!(gradient.len(), direction.len(), "{what}");
    let exact: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
    let error = (numeric - exact).abs();
    assert!(error < 2e-8 * exact.abs().max(1.0), "{what}: {exact} against {numeric}");
    exact
}

/// Words drawn with the random numbers of a seed.
pub fn drawn(head: &OutputHead, hidden: Tensor<2>, sampling: &Sampling, seed: u64) -> Vec<i64> {
    integers(head.sample::<2, 1>(hidden, sampling, &mut Pcg64::seed_from_u64(seed)).unwrap())
}

/// Compares element by element; errors are over the largest finite number. −∞ must meet −∞.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0, |max: f64, x| max.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let is_close = got == want || (got - want).abs() <= tolerance * scale;
        assert!(is_close, "{what}: element {i} is {got}, expected {want}");
    }
}

/// The panic message of a closure.
pub fn panic_of(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("no panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().expect("a text").to_string(),
    }
}
