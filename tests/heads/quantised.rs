//! Heads with quantised weights, as `Module::quantize_weights` leaves them: what is read is dequantised.

use burn::module::{Module, ModuleMapper, Param, Quantizer};
use burn::tensor::quantization::{Calibration, QuantScheme, QuantValue};
use burn::tensor::{DType, Tensor};
use highrank::{HeadConfig, LossOptions, OutputHead, Sampling, linear_cross_entropy};

use crate::support::*;

const VOCAB: usize = 16;

/// All parameters of a quantised head as floats.
fn dequantised(head: OutputHead) -> OutputHead {
    struct Dequantise;
    impl ModuleMapper for Dequantise {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            Param::from_tensor(param.val().dequantize())
        }
    }
    head.map(&mut Dequantise)
}

#[test]
fn every_method_of_a_quantised_head_is_that_of_its_dequantised_weights() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let on = (&cpu(), DType::F32);
    for config in every_head(VOCAB) {
        let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
        let quantised = head(&config, on).quantize_weights(&mut quantizer);
        let plain = dequantised(quantised.clone());
        let hidden = tensor::<2>([5, config.d_hidden], 1, on);
        let what = format!("{config:?}");
        assert_eq!(results(&quantised, hidden.clone()), results(&plain, hidden.clone()), "{what}");
        let words = |head: &OutputHead| head.top_k(hidden.clone(), 3).words.into_data();
        assert_eq!(words(&quantised), words(&plain), "{what}");
        let draw = |head: &OutputHead| drawn(head, hidden.clone(), &Sampling::new(), 1);
        assert_eq!(draw(&quantised), draw(&plain), "{what}");
    }
}

#[test]
fn a_quantised_embedding_is_tied_to() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let device = cpu();
    let embedding = burn::nn::EmbeddingConfig::new(VOCAB, 8).init(&device);
    let head = HeadConfig::mos(6, 8, VOCAB, 2).with_tied(true).init(&device);
    let quantised = embedding.clone().quantize_weights(&mut Quantizer::new(Calibration::MinMax, scheme));
    let hidden = tensor::<2>([3, 6], 1, (&device, DType::F32));
    let words = targets(3, VOCAB, &device);
    let [exact, rounded] = [embedding, quantised]
        .map(|embedding| values(head.tied_to(&embedding).nll(hidden.clone(), words.clone())));
    assert_close(&rounded, &exact, 1e-2, "losses");
}

#[test]
fn a_quantised_layer_or_matrix_is_dequantised() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let quantizer = || Quantizer::new(Calibration::MinMax, scheme);
    let device = cpu();
    let (hidden, words) = (tensor::<2>([3, 8], 1, (&device, DType::F32)), targets(3, VOCAB, &device));
    let linear = burn::nn::LinearConfig::new(8, VOCAB).init(&device);
    let quantised = linear.clone().quantize_weights(&mut quantizer());
    let [exact, rounded] =
        [linear, quantised].map(|linear| values(OutputHead::from(linear).nll(hidden.clone(), words.clone())));
    assert_close(&rounded, &exact, 1e-2, "of a layer");

    let embedding = burn::nn::EmbeddingConfig::new(VOCAB, 8).init(&device);
    let matrix = embedding.quantize_weights(&mut quantizer()).weight.val();
    let [plain, quantised] = [matrix.clone().dequantize(), matrix].map(|matrix| {
        let options = LossOptions::new();
        values(linear_cross_entropy(hidden.clone(), matrix, None, words.clone(), &options).value)
    });
    assert_eq!(quantised, plain);
}
