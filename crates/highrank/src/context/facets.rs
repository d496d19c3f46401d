//! What the contexts of a multi-facet softmax read beside the last hidden state: a module in front of a head, no context itself.

use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param};
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::parameters::value;

/// Configuration of [`Facets`]. Three layers and three positions are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FacetsConfig {
    /// Layers that are read, the last among them.
    pub layers: usize,
    /// Positions that are read: a token's own and those before it.
    pub window: usize,
}

impl Default for FacetsConfig {
    fn default() -> Self {
        Self { layers: 3, window: 3 }
    }
}

/// What the contexts of a multi-facet softmax read: the hidden state `h`, and a summary of several layers' states at the last
/// positions (Chang & McCallum, ACL 2022, section 3.1):
///
/// ```text
/// g_t = [h_t ; GELU(L s_t + b)]            s_t: the states of all layers read at t, t - 1, .. t - W + 1, and 0 before the first
/// ```
///
/// `g` has twice the model's width `D`, and is the hidden state of a mixture that
/// [starts at the softmax](crate::HeadConfig::starting_at_softmax): its contexts start as `h`, so the model starts as the plain
/// softmax.
///
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::context::FacetsConfig;
/// use highrank::{HeadConfig, Start};
///
/// let device = Device::default();
/// let d = 32; // width of the model
/// let facets = FacetsConfig { layers: 2, window: 3 }.init(d, &device);
/// let head = HeadConfig::mos(2 * d, d, 1000, 4).starting_at_softmax(Start::SPREAD).init(&device);
///
/// let state = || Tensor::<3>::random([2, 7, d], Distribution::Default, &device); // [batch, time, D]
/// let (below, last) = (state(), state());
/// let hidden = facets.forward(&[below, last]); // [batch, time, 2 D]
/// let loss = head.loss(hidden, Tensor::<2, Int>::ones([2, 7], &device));
/// # let _ = loss;
/// ```
///
/// Should be created with [`FacetsConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Facets {
    /// `L`, `[layers·D, window·D]`: the columns `w·D .. (w + 1)·D` are for the position `w` before a token's own.
    pub weight: Param<Tensor<2>>,
    /// `b`, `[D]`.
    pub bias: Param<Tensor<1>>,
}

impl ModuleDisplay for Facets {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [layers, window, d_model] = self.sizes();
        content.add("d_model", &d_model).add("layers", &layers).add("window", &window).optional()
    }
}

impl FacetsConfig {
    /// Facets under a model of width `d_model`, weights uniform in `±1/√(layers·window·D)` and biases 0.
    ///
    /// # Panics
    /// If a size is 0.
    #[track_caller]
    pub fn init(&self, d_model: usize, device: &Device) -> Facets {
        let Self { layers, window } = *self;
        let all = layers * window * d_model;
        assert!(
            all > 0,
            "FacetsConfig::init: {layers} layers, {window} positions and width {d_model}, but each must be at least 1"
        );
        let bound = 1.0 / (all as f64).sqrt();
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        Facets {
            weight: uniform.init([layers * d_model, window * d_model], device),
            bias: Initializer::Zeros.init([d_model], device),
        }
    }
}

impl Facets {
    /// How many layers' states are read.
    pub fn layers(&self) -> usize {
        self.sizes()[0]
    }

    /// `[layers, window, D]`.
    fn sizes(&self) -> [usize; 3] {
        let [rows, columns] = self.weight.shape().dims();
        let [d_model] = self.bias.shape().dims();
        [rows / d_model, columns / d_model, d_model]
    }

    /// What the contexts read at each token. It depends on states at the token and before it alone.
    ///
    /// # Shapes
    /// - states: the layers read, lowest first and `h` last, each `[batch, time, D]`
    /// - output: `g`, `[batch, time, 2·D]`
    ///
    /// # Panics
    /// If the states are not as many as the layers read, not all of one shape with features of width `D`, or not of the weights'
    /// float type.
    #[track_caller]
    pub fn forward(&self, states: &[Tensor<3>]) -> Tensor<3> {
        let [layers, window, d_model] = self.sizes();
        assert!(states.len() == layers, "Facets::forward: {} states of {layers} layers", states.len());
        let hidden = states[layers - 1].clone();
        let [batch, time, _] = hidden.dims();
        let (weight, bias) = (value(&self.weight), value(&self.bias));
        for (layer, state) in states.iter().enumerate() {
            let (dims, expected) = (state.dims(), [batch, time, d_model]);
            assert!(dims == expected, "Facets::forward: state {layer} is {dims:?}, but must be {expected:?}");
            let (dtype, expected) = (state.dtype(), weight.dtype());
            assert!(
                dtype == expected,
                "Facets::forward: state {layer} is {dtype:?}, but must be {expected:?} as the weights"
            );
        }
        let all = Tensor::cat(states.to_vec(), 2);
        // One product for all positions; what belongs to an earlier one then moves to the token that reads it.
        let all = all.reshape([batch * time, layers * d_model]);
        let parts = all.matmul(weight).reshape([batch, time, window * d_model]);
        let mut sum = parts.clone().narrow(2, 0, d_model);
        for back in 1..window.min(time) {
            let part = parts.clone().narrow(2, back * d_model, d_model).narrow(1, 0, time - back);
            let before = Tensor::zeros([batch, back, d_model], (&part.device(), part.dtype()));
            sum = sum + Tensor::cat(vec![before, part], 1);
        }
        // Below, GELU is 0 to all digits beside 1, but its derivatives are subnormal numbers, which slow products down fivefold.
        let sum = (sum + bias.unsqueeze()).clamp_min(-9.0);
        Tensor::cat(vec![hidden, gelu(sum)], 2)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::{HeadConfig, Start};
    use burn::tensor::{DType, Distribution, Int, Tolerance};

    const SIZES: [usize; 3] = [2, 5, 4]; // batch, time, D

    fn device() -> Device {
        let device = Device::flex();
        device.seed(3);
        device
    }

    fn states(layers: usize, device: &Device) -> Vec<Tensor<3>> {
        let options = (device, DType::F64);
        (0..layers).map(|_| Tensor::random(SIZES, Distribution::Normal(0.0, 1.0), options)).collect()
    }

    fn facets(layers: usize, window: usize, device: &Device) -> Facets {
        let mut facets = FacetsConfig { layers, window }.init(SIZES[2], device);
        let wide = |width| Tensor::<1>::random([width], Distribution::Normal(0.0, 1.0), (device, DType::F64));
        facets.weight = facets.weight.map(|weight| weight.cast(DType::F64));
        facets.bias = Param::from_tensor(wide(SIZES[2]));
        facets
    }

    /// The error function by its power series, good to 1e-12 for |x| up to 3.
    fn erf(x: f64) -> f64 {
        let mut power = x;
        let terms = (0..60).map(|n| {
            let term = power / (2 * n + 1) as f64;
            power *= -x * x / (n + 1) as f64;
            term
        });
        terms.sum::<f64>() * std::f64::consts::FRAC_2_SQRT_PI
    }

    /// The formula read off token by token.
    #[test]
    fn every_feature_is_that_of_the_formula() {
        let (device, [batch, time, d]) = (device(), SIZES);
        for (layers, window) in [(1, 1), (3, 3), (2, 5), (2, 7)] {
            let (facets, states) = (facets(layers, window, &device), states(layers, &device));
            let values = |tensor: Tensor<3>| tensor.into_data().iter().collect();
            let of_layers: Vec<Vec<f64>> = states.iter().cloned().map(values).collect();
            let weight: Vec<f64> = facets.weight.val().into_data().iter().collect();
            let bias: Vec<f64> = facets.bias.val().into_data().iter().collect();
            let mut expected = vec![];
            for (b, t) in (0..batch).flat_map(|b| (0..time).map(move |t| (b, t))) {
                let at = |layer: usize, t: usize, i: usize| of_layers[layer][(b * time + t) * d + i];
                expected.extend((0..d).map(|i| at(layers - 1, t, i)));
                for (feature, bias) in bias.iter().enumerate() {
                    let mut sum = *bias;
                    for back in 0..window.min(t + 1) {
                        for (layer, i) in (0..layers).flat_map(|layer| (0..d).map(move |i| (layer, i))) {
                            let column = back * d + feature;
                            sum += at(layer, t - back, i) * weight[(layer * d + i) * window * d + column];
                        }
                    }
                    expected.push(0.5 * sum * (1.0 + erf(sum / 2.0_f64.sqrt())));
                }
            }
            let out = facets.forward(&states);
            assert_eq!(out.dims(), [batch, time, 2 * d]);
            let expected = burn::tensor::TensorData::new(expected, [batch, time, 2 * d]);
            out.into_data().assert_approx_eq(&expected, Tolerance::<f64>::absolute(1e-10));
        }
    }

    #[test]
    fn a_mixture_of_them_starts_as_the_softmax() {
        let (device, [batch, time, d]) = (device(), SIZES);
        let (facets, states) = (facets(2, 3, &device), states(2, &device));
        let softmax = HeadConfig::softmax(d, 11).init(&device);
        let mut mixture = HeadConfig::mos(2 * d, d, 11, 3).starting_at_softmax(0.0).init(&device);
        mixture.decoder = softmax.decoder.clone();
        let targets = Tensor::<2, Int>::full([batch, time], 7, &device);
        let narrow = |states: Tensor<3>| states.cast(DType::F32);
        let of_mixture = mixture.loss(narrow(facets.forward(&states)), targets.clone());
        let of_softmax = softmax.loss(narrow(states[1].clone()), targets);
        let difference: f32 = (of_mixture - of_softmax).abs().into_scalar();
        assert!(difference < 1e-6, "{difference}");
        assert!(HeadConfig::moc(2 * d, d, 11, 3).starting_at_softmax(Start::SPREAD).validate().is_ok());
    }

    #[test]
    fn they_start_with_sums_of_order_one_third() {
        let facets = FacetsConfig::default().init(64, &device());
        let (least, most) = (facets.weight.val().min(), facets.weight.val().max());
        let bound = 1.0 / 24.0;
        let (least, most) = (least.into_scalar::<f64>(), most.into_scalar::<f64>());
        assert!((-bound..-0.9 * bound).contains(&least) && (0.9 * bound..=bound).contains(&most));
    }

    #[test]
    #[should_panic(expected = "state 0 is [2, 5, 4], but must be [2, 4, 4]")]
    fn states_of_other_sizes_are_refused() {
        let device = device();
        let mut states = states(2, &device);
        states[1] = states[1].clone().narrow(1, 0, 4);
        facets(2, 3, &device).forward(&states);
    }

    #[test]
    #[should_panic(expected = "state 0 is F32, but must be F64 as the weights")]
    fn states_of_another_type_are_refused() {
        let device = device();
        let states: Vec<_> = states(2, &device).into_iter().map(|state| state.cast(DType::F32)).collect();
        facets(2, 3, &device).forward(&states);
    }

    #[test]
    #[should_panic(expected = "1 states of 2 layers")]
    fn too_few_states_are_refused() {
        let device = device();
        facets(2, 3, &device).forward(&states(1, &device));
    }
}
