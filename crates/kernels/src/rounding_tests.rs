use super::*;
use burn::tensor::{Device, Tensor, TensorData};

/// The digits of the precisions, and others, up to as many as f32 has, and more.
pub(crate) const DIGITS: [u32; 6] = [2, 8, 11, 23, 24, 60];

/// Numbers of every exponent, around the ties of every cut, and those that are none.
pub(crate) fn examples() -> Vec<f32> {
    let mut mantissas = vec![0, 1, 2, (1 << 23) - 1, (1 << 23) - 2, 0x2a_aaaa, 0x55_5555];
    for cut in DIGITS.into_iter().filter(|digits| *digits < 24).map(|digits| 24 - digits) {
        let half = 1u32 << (cut - 1);
        for kept in [0, 1, 2, 0x3f_ffff] {
            let at = ((kept << cut) + half) & 0x7f_ffff;
            mantissas.extend([at - 1, at, at + 1]);
        }
    }
    let bits = (0..256u32).flat_map(|exponent| mantissas.iter().map(move |m| (exponent << 23) | m));
    bits.flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]).collect()
}

/// By comparison with both neighbours of so many digits, in f64.
pub(crate) fn expected(x: f32, digits: u32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    // The place of the last digit; numbers below the smallest normal one share its.
    let exponent = ((x.to_bits() >> 23) & 255).max(1) as i32 - 127;
    let unit = 2f64.powi(exponent + 1 - digits as i32);
    let below = (f64::from(x) / unit).floor();
    let rest = f64::from(x) / unit - below;
    let odd = below.rem_euclid(2.0) == 1.0;
    let up = rest > 0.5 || (rest == 0.5 && odd);
    let rounded = (below + if up { 1.0 } else { 0.0 }) * unit;
    // The neighbour of the largest number would be 2¹²⁸.
    (if rounded.abs() >= 2f64.powi(128) { f64::INFINITY.copysign(rounded) } else { rounded }) as f32
}

/// Equal, or both NaN.
#[track_caller]
pub(crate) fn assert_same(got: &[f32], want: &[f32], from: &[f32], what: &str) {
    assert_eq!((got.len(), want.len()), (from.len(), from.len()));
    for ((got, want), from) in got.iter().zip(want).zip(from) {
        let same = got.to_bits() == want.to_bits() || (*got == 0.0 && *want == 0.0);
        assert!(
            same || (got.is_nan() && want.is_nan()),
            "{what}: {from:e} became {got:e}, expected {want:e}"
        );
    }
}

fn tensor(values: &[f32], device: &Device, dtype: DType) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, dtype))
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f64>().map(|x| x as f32).collect()
}

fn nearest(x: Tensor<1>, digits: u32) -> Tensor<1> {
    Floats::tensor(Rounding::nearest(x.into(), digits))
}

/// The number is the nearest on a device, whether it is tracked or not.
fn check(device: &Device) {
    let from = examples();
    for digits in DIGITS {
        let want: Vec<f32> = from.iter().map(|x| expected(*x, digits)).collect();
        for device in [device.clone(), device.clone().autodiff()] {
            let got = values(nearest(tensor(&from, &device, DType::F32), digits));
            assert_same(&got, &want, &from, &format!("{digits} digits on {device:?}"));
        }
        // f64 has the same digits, in its own range: nothing is below its smallest normal number or overflows.
        let from: Vec<f32> =
            from.iter().copied().filter(|x| !x.is_subnormal() && expected(*x, digits).is_finite()).collect();
        let want: Vec<f32> = from.iter().map(|x| expected(*x, digits)).collect();
        let got = values(nearest(tensor(&from, device, DType::F64), digits));
        assert_same(&got, &want, &from, &format!("{digits} digits of f64 on {device:?}"));
    }
    const LARGE: f64 = 3.0 * (1u128 << 100) as f64;
    let large = [f64::MAX, 1.0 + f64::EPSILON, LARGE];
    let wide = || Tensor::<1>::from_data(TensorData::new(large.to_vec(), [3]), (device, DType::F64));
    let got: Vec<f64> = nearest(wide(), 53 - 1).into_data().iter().collect();
    assert_eq!(got, [f64::INFINITY, 1.0, LARGE]);
    // As many digits as there are, and more.
    for digits in [53, 60] {
        assert_eq!(nearest(wide(), digits).into_data().iter::<f64>().collect::<Vec<_>>(), large);
    }
}

#[cfg(feature = "flex")]
#[test]
fn flex_rounds_to_the_nearest() {
    check(&Device::flex());
}

#[cfg(feature = "ndarray")]
#[test]
fn ndarray_rounds_to_the_nearest() {
    check(&Device::ndarray());
}

#[cfg(feature = "flex")]
#[test]
fn sums_round_to_the_nearest_too() {
    // Above the numbers whose digits are at another place.
    let from: Vec<f32> = examples()
        .into_iter()
        .filter(|x| x.is_nan() || *x == 0.0 || x.is_normal() || x.is_infinite())
        .collect();
    for device in [Device::flex(), Device::flex().autodiff()] {
        for digits in DIGITS.into_iter().filter(|digits| *digits != 23) {
            let want: Vec<f32> = from.iter().map(|x| expected(*x, digits)).collect();
            let x = Floats::from(tensor(&from, &device, DType::F32));
            assert_same(&values::<1>(by_sums(x, digits).tensor()), &want, &from, &format!("{digits} digits"));
        }
    }
}

#[cfg(feature = "flex")]
#[test]
fn a_gradient_passes_as_if_nothing_were_rounded() {
    let device = Device::flex().autodiff();
    let from = [1.3f32, -1e-3, 3e38, f32::INFINITY];
    let factor = [2.0f32, -3.0, 1.5, 0.1];
    for by in [|x| Rounding::nearest(x, 8), |x| by_sums(x, 8)] {
        let by: fn(Floats) -> Floats = by;
        let x = tensor(&from, &device, DType::F32).require_grad();
        let y: Tensor<1> = by(Floats::from(x.clone())).tensor();
        let gradients = (y * tensor(&factor, &device, DType::F32)).sum().backward();
        assert_eq!(values(x.grad(&gradients).expect("a gradient")), factor);
    }
}

#[cfg(feature = "flex")]
#[test]
fn any_layout_is_rounded() {
    use crate::Precision::{Bf16, Full, Tf32};

    let device = Device::flex();
    // More than a block of numbers, in shared memory and alone.
    let from: Vec<f32> = (0..300 * 200).map(|i| (i as f32 * 0.731).sin() * 1e3).collect();
    let whole = Tensor::<2>::from_data(TensorData::new(from.clone(), [300, 200]), &device);
    let views = [
        whole.clone(),
        whole.clone().transpose(),
        whole.clone().slice([17..90, 0..200]),
        whole.clone().slice([17..90, 3..60]).transpose(),
        whole.clone().slice([5..6, 0..200]).expand([4, 200]),
        whole.clone().flip([0, 1]),
    ];
    for (precision, digits) in [(Full, 24), (Tf32, 11), (Bf16, 8)] {
        let round = |x: Tensor<2>| values(precision.round(x));
        let want = |x: Tensor<2>| values(x).into_iter().map(|x| expected(x, digits)).collect::<Vec<_>>();
        for (i, view) in views.clone().into_iter().enumerate() {
            assert_eq!(round(view.clone()), want(view), "view {i}, {precision}");
        }
        assert_eq!(values(whole.clone()), from, "shared memory is left alone");
        let alone = || Tensor::<2>::from_data(TensorData::new(from.clone(), [300, 200]), &device);
        assert_eq!(round(alone()), want(alone()), "{precision}");
        assert_eq!(round(alone().transpose()), want(alone().transpose()), "{precision}");
        assert!(round(Tensor::empty([0, 3], &device)).is_empty());
    }
}
