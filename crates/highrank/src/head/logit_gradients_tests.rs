use super::*;
use crate::{HeadConfig, OutputHead};
use burn::module::Param;
use burn::tensor::{DType, Device, Distribution};

fn f64s<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Every kind of head: H 5, d 4 or 5, V 9. The bias starts at 0 and PLIF at the identity, which would hide both.
fn heads(device: &Device) -> Vec<OutputHead> {
    let random = |shape: [usize; 1], low: f64, high: f64| {
        Param::from_tensor(Tensor::random(shape, Distribution::Uniform(low, high), device))
    };
    let make = |config: HeadConfig| {
        let mut head = config.init(device);
        head.decoder.bias = head.decoder.bias.map(|bias| random(bias.shape().dims(), -1.0, 1.0));
        if let crate::logit_map::LogitMap::Plif(plif) = &mut head.logit_map {
            plif.raw_slopes = random([plif.knots()], -0.5, 1.5);
        }
        head
    };
    crate::head::examples(5, 4, 9).into_iter().map(make).collect()
}

#[test]
fn gradients_of_logits_sum_to_those_of_bias_decoder_and_hidden_state() {
    let device = Device::flex().autodiff();
    device.seed(3);
    for head in heads(&device) {
        let hidden = Tensor::<3>::random([3, 2, 5], Distribution::Normal(0.0, 2.0), &device).require_grad();
        let targets = Tensor::<2, Int>::from_ints([[0, 8], [3, 3], [7, 1]], &device);
        let gradients = head.nll(hidden.clone(), targets.clone()).sum().backward();
        let head_at = head.at_temperature(1.0);
        let blocks: Vec<_> = head_at.logit_gradient_blocks(hidden.clone(), targets).unwrap().collect();
        let logits = Tensor::cat(blocks, 0);
        let [rows, vocab] = logits.dims();
        assert_eq!((rows, vocab), (6 * head_at.components(), 9));
        let near = |what: &str, got: Vec<f64>, want: Vec<f64>| {
            let apart = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(got.len() == want.len() && apart < 1e-5, "{what} of {head}: {got:?} against {want:?}");
        };
        let bias = head.decoder.bias.as_ref().unwrap().val().grad(&gradients).unwrap();
        near("bias", f64s(logits.clone().sum_dim(0)), f64s(bias));
        if matches!(head.context, crate::context::Context::Direct(_)) {
            let back = logits.matmul(head_at.decoder.matrix().unwrap().inner());
            near("hidden state", f64s(back), f64s(hidden.grad(&gradients).unwrap()));
        }
    }
}

#[test]
fn blocks_and_temperature_are_those_of_the_head() {
    let device = Device::flex();
    device.seed(4);
    let mut head = HeadConfig::mos(5, 4, 9, 3).init(&device);
    let hidden = Tensor::<2>::random([7, 5], Distribution::Normal(0.0, 2.0), &device);
    let targets = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 8, 8, 4], &device);
    let all = |head: &OutputHead, temperature| {
        let blocks = head.at_temperature(temperature).logit_gradient_blocks(hidden.clone(), targets.clone());
        blocks.unwrap().map(f64s).collect::<Vec<_>>()
    };
    let whole = all(&head, 1.0).concat();
    head.memory_budget = Some(1);
    let single = all(&head, 1.0);
    assert_eq!((single.len(), single[0].len()), (7, 3 * 9));
    assert!(whole.iter().zip(single.concat()).all(|(a, b)| (a - b).abs() < 1e-6));
    // Of each component the gradient sums to 0, and at an infinite temperature it vanishes.
    assert!(whole.chunks(9).all(|row| row.iter().sum::<f64>().abs() < 1e-6));
    assert!(all(&head, 1e9).concat().iter().all(|value| value.abs() < 1e-8));
}

#[test]
fn masked_words_have_no_gradient() {
    let device = Device::flex();
    let head = HeadConfig::sigsoftmax(5, 9).with_vocab_multiple(4).init(&device).mask_words(&[2, 5]);
    let masked = head.masked_rows().unwrap();
    assert_eq!(masked, [2, 5, 9, 10, 11]);
    let hidden = Tensor::<2>::random([3, 5], Distribution::Default, &device);
    let blocks = head.logit_gradient_blocks(hidden, Tensor::<1, Int>::from_ints([0, 8, 4], &device));
    for row in blocks
        .unwrap()
        .flat_map(|block| f64s(block.cast(DType::F64)).chunks(12).map(<[f64]>::to_vec).collect::<Vec<_>>())
    {
        assert!(masked.iter().all(|word| row[*word] == 0.0) && row[0] != 0.0, "{row:?}");
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let head = HeadConfig::softmax(5, 9).init(&device);
    let error = |hidden: [usize; 2], targets: &[i64]| {
        let targets = Tensor::<1, Int>::from_data(targets, &device);
        head.logit_gradient_blocks(Tensor::<2>::zeros(hidden, &device), targets).err().unwrap().to_string()
    };
    assert_eq!(error([2, 4], &[0, 1]), "hidden has shape [2, 4], expected [.., 5] with at least one token");
    assert_eq!(error([2, 5], &[0]), "targets has shape [1], expected [2], as the hidden state says");
    assert_eq!(error([2, 5], &[0, 9]), "target 9 at token 1 is outside the vocabulary 0..9");
    let clusters =
        HeadConfig::softmax(5, 50).with_adaptive(crate::AdaptiveConfig::for_vocab(50)).init(&device);
    let hidden = Tensor::<2>::zeros([1, 5], &device);
    let refused = clusters.logit_gradient_blocks(hidden, Tensor::<1, Int>::from_ints([0], &device));
    assert_eq!(refused.err(), Some(HeadError::NoCommonLogits { what: "GradientLoss" }));
}
