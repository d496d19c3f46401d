//! Products whose inputs are rounded: the same rounding on every path, and its errors.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor};
use highrank::{HeadConfig, Precision};

use crate::support::*;

#[test]
fn every_path_rounds_alike() {
    let on = (&cpu(), DType::F64);
    for config in all_heads(11) {
        for precision in [Precision::Tf32, Precision::Bf16] {
            let config = config.clone().with_precision(precision);
            let head = head(&config, on);
            let hidden = || tensor([7, config.d_hidden], 1, on);
            let fused = values(head.nll(hidden(), targets(7, 11, on.0)));
            let composed = values(composed_nll(&head, hidden(), targets(7, 11, on.0)));
            assert_close(&fused, &composed, 1e-12, &format!("{config:?}"));
        }
    }
}

#[test]
fn a_head_remembers_its_precision() {
    let config = mos(11).with_precision(Precision::Bf16);
    let head = config.init(&ad());
    assert_eq!(head.clone().valid().precision, Precision::Bf16);
    let record = head.clone().into_record();
    assert_eq!(head.load_record(record).precision, Precision::Bf16);
}

/// Cross-entropies and gradients of a head whose parameters are about as large as trained ones.
fn run(config: &HeadConfig, dtype: DType) -> [Vec<f64>; 2] {
    const TOKENS: usize = 24;
    struct Shrink;
    impl ModuleMapper for Shrink {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            Param::from_tensor(param.val().mul_scalar(0.15).detach())
        }
    }
    let on = (&ad(), dtype);
    let head = head(config, on).map(&mut Shrink);
    let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
    let nll = head.nll(hidden.clone(), targets(TOKENS, config.vocab, on.0));
    [values(nll.clone()), all_gradients(&head, &hidden, nll.sum())]
}

/// Whether the processor has instructions for products of bf16, which the kernels take then.
fn multiplies_pairs() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Compares with f64. Prints the errors, some of which the documentation quotes.
#[test]
fn errors_are_those_of_the_digits_that_are_left() {
    let (hidden, d, vocab) = (96, 64, 500);
    let heads = [
        ("softmax", HeadConfig::softmax(d, vocab)),
        ("moc", HeadConfig::moc(hidden, d, vocab, 5)),
        ("mos", HeadConfig::mos(hidden, d, vocab, 5)),
        ("sigsoftmax", HeadConfig::sigsoftmax(d, vocab)),
        ("plif", HeadConfig::plif(d, vocab, 1000)),
        ("mos-plif", HeadConfig::mos_plif(hidden, d, vocab, 5, 1000)),
    ];
    println!("products of bf16: {}", if multiplies_pairs() { "by the processor" } else { "rounded by hand" });
    println!("{:12} {:10} {:>10} {:>10}", "head", "precision", "nll", "gradients");
    for (name, config) in heads {
        let [nll, gradients] = run(&config, DType::F64);
        for (precision, least, most) in
            [(Precision::Full, 0.0, 2e-6), (Precision::Tf32, 2e-6, 1e-3), (Precision::Bf16, 2e-5, 1e-2)]
        {
            let got = run(&config.clone().with_precision(precision), DType::F32);
            let errors = [relative_error(&got[0], &nll), relative_error(&got[1], &gradients)];
            println!("{name:12} {precision:10} {:10.1e} {:10.1e}", errors[0], errors[1]);
            // The slope of a PLIF jumps: a logit that rounding moves across a knot has another gradient.
            let most = if name.ends_with("plif") { f64::max(most, 1e-4) } else { most };
            for error in errors {
                assert!((least..most).contains(&error), "{name} at {precision}: {errors:?}");
            }
        }
    }
}
