//! What the equations say of one head in terms of another.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};
use highrank::context::Context;
use highrank::logit_map::LogitMap;
use highrank::{HeadConfig, LogitMapConfig, LossOptions, linear_cross_entropy};

use crate::support::*;

const VOCAB: usize = 11;

fn hidden(device: &Device) -> Tensor<2> {
    tensor([4, HIDDEN], 1, (device, DType::F64))
}

#[test]
fn rows_are_distributions() {
    let on = (&cpu(), DType::F64);
    for config in all_heads(VOCAB) {
        let hidden = tensor([4, config.d_hidden], 1, on);
        let log_probs = head(&config, on).forward(hidden);
        assert_close(&values(log_probs.exp().sum_dim(1)), &[1.0; 4], 1e-13, &format!("{config:?}"));
    }
}

#[test]
fn one_component_is_the_softmax_of_its_latent_context() {
    let on = (&cpu(), DType::F64);
    for config in [HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 1), HeadConfig::moc(HIDDEN, EMBEDDING, VOCAB, 1)]
    {
        let mixture = head(&config, on);
        let mut single = head(&softmax(VOCAB), on);
        single.decoder = mixture.decoder.clone();
        let (Context::MixtureOfSoftmaxes(parts) | Context::MixtureOfContexts(parts)) = &mixture.context
        else {
            panic!("not a mixture")
        };
        let latent = parts.latent.forward(hidden(on.0)).tanh();
        let want = values(single.forward(latent));
        assert_close(&values(mixture.forward(hidden(on.0))), &want, 1e-13, "K = 1");
    }
}

#[test]
fn a_linear_cross_entropy_is_the_loss_of_a_softmax() {
    let on = (&ad(), DType::F64);
    let options = LossOptions::new().with_label_smoothing(0.1).with_z_loss(0.01).with_per_token(true);
    for with_bias in [true, false] {
        let head = head(&softmax(VOCAB).with_bias(with_bias), on);
        // The last word, no target here, is masked.
        let head = if with_bias { mask_by_bias(head, &[VOCAB - 1]) } else { head };
        let weight = || head.decoder.weight.as_ref().unwrap().val();
        let bias = || head.decoder.bias.as_ref().map(|bias| bias.val());
        let [want, got] = [false, true].map(|is_function| {
            let hidden = tensor([6, EMBEDDING], 1, on).require_grad();
            let state = hidden.clone().reshape([2, 3, EMBEDDING]);
            let words = targets(6, VOCAB - 1, on.0).reshape([2, 3]);
            let made = match is_function {
                true => linear_cross_entropy(state, weight(), bias(), words, &options),
                false => head.loss_with(state, words, &options),
            };
            let numbers = [values(made.value.clone()), values(made.per_token.expect("asked for"))].concat();
            [numbers, all_gradients(&head, &hidden, made.value)].concat()
        });
        assert_close(&got, &want, 1e-14, &format!("with bias: {with_bias}"));
    }
}

#[test]
fn unit_slopes_are_no_map_at_all() {
    let on = (&cpu(), DType::F64);
    let state = || tensor([4, EMBEDDING], 1, on);
    let plain = head(&softmax(VOCAB), on);
    let unit = LogitMapConfig::Plif { knots: 33, bound: 1.0 };
    let mut plif = head(&softmax(VOCAB).with_logit_map(unit), on);
    plif.decoder = plain.decoder.clone();
    let LogitMap::Plif(map) = &mut plif.logit_map else { panic!("not a PLIF") };
    let ones = tensor([33], 0, on).mul_scalar(0.0).add_scalar((1f64.exp() - 1.0).ln());
    map.raw_slopes = Param::from_tensor(ones);
    let want = values(plain.forward(state()));
    assert_close(&values(plif.forward(state())), &want, 1e-13, "unit slopes");
}

#[test]
fn generalised_sigsoftmax_starts_as_sigsoftmax() {
    let device = cpu();
    let mut gss = HeadConfig::generalised_sigsoftmax(EMBEDDING, VOCAB).init(&device);
    let sig = head(&HeadConfig::sigsoftmax(EMBEDDING, VOCAB), (&device, DType::F32));
    gss.decoder = sig.decoder.clone();
    let state = || tensor([4, EMBEDDING], 1, (&device, DType::F32)).mul_scalar(30.0);
    assert_close(&values(gss.forward(state())), &values(sig.forward(state())), 1e-6, "k = 2, c = 0");
}

#[test]
fn a_fresh_plif_of_any_size_is_the_identity() {
    let device = cpu();
    let z: Vec<f32> = (-250..=250).map(|i| i as f32 / 10.0).collect();
    for knots in [1, 2, 1000, 100_000, 1_000_000] {
        let config = LogitMapConfig::Plif { knots, bound: 20.0 };
        let map = config.init(&device);
        let y = values(map.forward(Tensor::<1>::from_floats(z.as_slice(), &device)));
        for (z, y) in z.iter().zip(y) {
            assert!((*z as f64 - y).abs() < 4e-5, "{knots} knots: f({z}) = {y}");
        }
    }
}

/// From the smallest bound to the largest.
#[test]
fn a_fresh_plif_is_a_softmax_whatever_its_bound() {
    let on = (&cpu(), DType::F32);
    let state = || tensor([4, EMBEDDING], 1, on);
    let plain = head(&softmax(VOCAB), on);
    let want = values(plain.forward(state()));
    let smallest = f64::from(f32::MIN_POSITIVE);
    for (bound, knots, most) in [
        (smallest, 1, 1e-5),
        (smallest, 2, 1e-5),
        (20.0, 1000, 1e-5),
        (1e4, 1, 1e-3),
        (1e4, 17, 1e-3),
        (1e4, 1000, 1e-3),
    ] {
        let map = LogitMapConfig::Plif { knots, bound };
        let mut plif = softmax(VOCAB).with_logit_map(map).init(on.0);
        plif.decoder = plain.decoder.clone();
        for (got, want) in values(plif.forward(state())).iter().zip(&want) {
            assert!((got - want).abs() <= most, "T {bound:e}, {knots} knots: {got} against {want}");
        }
    }
}

#[test]
fn maps_increase() {
    let on = (&cpu(), DType::F64);
    let z: Vec<f64> = (-400..=400).map(|i| i as f64 / 40.0).collect();
    for config in LogitMapConfig::examples() {
        let map = head(&softmax(VOCAB).with_logit_map(config), on).logit_map;
        let input = Tensor::<1>::from_data(z.as_slice(), on);
        let y = values(map.forward(input));
        // A generalised sigsoftmax increases for k > 0 only; the spread parameters give it k > −1.
        let increases = y.windows(2).all(|pair| pair[1] >= pair[0]);
        assert!(increases || matches!(map, LogitMap::Gss(_)), "{config:?}");
    }
}
