//! Heads with LoRA, as `Module::apply_lora` leaves them: what is read is `W + a·b`, and `a` and `b` alone are trained.

use burn::module::{Lora, Module, ModuleMapper, Param, QLora, Quantizer};
use burn::nn::{EmbeddingConfig, LinearConfig};
use burn::tensor::quantization::{Calibration, QuantScheme, QuantValue};
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank::{HeadConfig, OutputHead};

use crate::support::*;

const VOCAB: usize = 12;
const TOKENS: usize = 7;

/// The module with spread values added to what is trained: adapters as they are made add nothing.
fn trained<M: Module>(module: M) -> M {
    struct Train(usize);
    impl ModuleMapper for Train {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            param.map(|value| match value.is_require_grad() {
                true => {
                    let step = tensor(value.dims(), self.0, (&value.device(), value.dtype()));
                    (value + step).detach().require_grad()
                }
                false => value,
            })
        }
    }
    module.map(&mut Train(50))
}

#[test]
fn results_are_those_of_the_sum_and_adapters_alone_are_trained() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        for config in every_head(VOCAB) {
            let what = format!("{config:?}, {device:?}");
            let head = trained(head(&config, on).apply_lora(Lora::new(2, 3.0)));
            let state = || tensor::<2>([TOKENS, config.d_hidden], 1, on).require_grad();
            let summed = head.clone().materialize();
            assert_eq!(results(&head, state()), results(&summed, state()), "{what}");
            let before = self::head(&config, on);
            assert_ne!(results(&head, state()), results(&before, state()), "{what}");

            let words = || targets(TOKENS, VOCAB, &device);
            let weights = tensor::<1>([TOKENS], 3, on);
            let of = |nll: Tensor<1>| (nll * weights.clone()).sum();
            let (fused, composed) = (state(), state());
            let got = of(head.nll(fused.clone(), words())).backward();
            let want = of(composed_nll(&head, composed.clone(), words())).backward();
            assert_close(
                &values(fused.grad(&got).unwrap()),
                &values(composed.grad(&want).unwrap()),
                1e-10,
                &what,
            );
            let (got, want) = (parameters(&head, Some(&got)), parameters(&head, Some(&want)));
            for ((value, got), (_, want)) in got.into_iter().zip(want) {
                assert_eq!(got.is_some(), want.is_some(), "{what}: {value:?}");
                if let (Some(got), Some(want)) = (&got, &want) {
                    let of = |data: &TensorData| data.iter::<f64>().collect::<Vec<_>>();
                    assert_close(&of(got), &of(want), 1e-10, &what);
                    // A rank of 2, on either side.
                    assert!(value.shape().contains(&2), "{what}: {:?} is trained", value.shape());
                }
            }
        }
    }
}

#[test]
fn an_embedding_with_lora_is_tied_to() {
    let device = ad();
    let on = (&device, DType::F32);
    let embedding = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&device).apply_lora(Lora::new(2, 3.0));
    let embedding = trained(embedding);
    let head = mos(VOCAB).with_tied(true).init(&device);
    let hidden = tensor::<2>([TOKENS, HIDDEN], 1, on);
    let of = |head: OutputHead, is_fused: bool| {
        let words = targets(TOKENS, VOCAB, &device);
        let nll = match is_fused {
            true => head.nll(hidden.clone(), words),
            false => composed_nll(&head, hidden.clone(), words),
        };
        let adapter = embedding.weight.adapter().unwrap();
        let gradients = nll.sum().backward();
        [&adapter.a, &adapter.b].map(|factor| values(factor.val().grad(&gradients).unwrap())).concat()
    };
    let [fused, composed] = [true, false].map(|is_fused| of(head.tied_to(&embedding), is_fused));
    assert_close(&fused, &composed, 1e-5, "adapters of the embedding");
    assert!(fused.iter().any(|x| *x != 0.0));
}

#[test]
fn a_quantised_decoder_takes_adapters() {
    let device = ad();
    let on = (&device, DType::F32);
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let lora = QLora::new(Lora::new(2, 3.0), Quantizer::new(Calibration::MinMax, scheme));
    let head = trained(head(&HeadConfig::softmax(8, 16), on).apply_qlora(lora));
    let state = || tensor::<2>([TOKENS, 8], 1, on).require_grad();
    let summed = head.clone().materialize();
    assert_close(&results(&head, state()), &results(&summed, state()), 1e-6, "losses");
    let gradients = head.loss(state(), targets(TOKENS, 16, &device)).backward();
    let adapter = head.decoder.weight.as_ref().unwrap().adapter().unwrap();
    assert!(adapter.b.val().grad(&gradients).is_some());
}

#[test]
fn a_layer_with_lora_makes_a_decoder_that_is_trained_if_its_base_is() {
    let layer = || LinearConfig::new(EMBEDDING, VOCAB).init(&ad()).apply_lora(Lora::new(2, 3.0));
    for (layer, is_trained) in [(layer(), false), (layer().unfreeze(), true)] {
        let head = OutputHead::from(layer);
        assert_eq!(head.decoder.weight.as_ref().unwrap().val().is_require_grad(), is_trained);
    }
}
