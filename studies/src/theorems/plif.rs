//! Theorem 7 (Ganea et al., ICML 2019): a PLIF comes as near to an increasing function as its knots are many.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use highrank::LogitMapConfig;
use highrank::logit_map::LogitMap;
use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;

use super::evidence::Evidence;
use program::chart::{Chart, Scale};
use program::device;
use program::failure::Failure;

/// Numbers of pieces.
const KNOTS: [usize; 9] = [10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000];
/// T: the PLIF bends on [−T, T].
const BOUND: f64 = 20.0;
/// Places in a piece at which the error is measured; odd, for the middle to be one of them.
const PLACES: usize = 7;

/// An increasing function that a PLIF has to follow.
struct Target {
    name: &'static str,
    function: fn(f64) -> f64,
    /// The largest slope less the smallest.
    slopes: f64,
    /// The largest second derivative, if there is one everywhere.
    curvature: Option<f64>,
}

const TARGETS: [Target; 3] = [
    // z + log σ(z): slopes 2 − σ(z), second derivative −σ(1 − σ).
    Target {
        name: "sigsoftmax",
        function: |z| 2.0 * z - z.max(0.0) - (-z.abs()).exp().ln_1p(),
        slopes: 1.0,
        curvature: Some(0.25),
    },
    // Without a second derivative at a place that is near no knot: 0.36 to 0.64 of a piece's width from its left end.
    Target { name: "kink", function: |z| z + (z - 20.0 / 11.0).abs() / 2.0, slopes: 1.0, curvature: None },
    Target {
        name: "steep tanh",
        function: |z| z / 10.0 + 5.0 * z.tanh(),
        slopes: 5.0,
        // 10 tanh(z) (1 − tanh²(z)) is largest where tanh² = 1/3.
        curvature: Some(3.8491),
    },
];

/// Largest errors of PLIFs that pass through a function at every knot.
#[derive(Debug, Serialize)]
pub struct PlifErrors {
    functions: Vec<OfFunction>,
}

#[derive(Debug, Serialize)]
struct OfFunction {
    function: &'static str,
    errors: Vec<Errors>,
}

#[derive(Debug, Serialize)]
struct Errors {
    knots: usize,
    /// Largest |f − PLIF| on [−T, T].
    error: f64,
    /// What it is at most, Δ being the width of a piece: `Δ (max f′ − min f′) / 4`, and with a second derivative `Δ² max|f″| / 8`.
    bound: f64,
}

impl PlifErrors {
    /// Of the crate's PLIF in f64, with the slopes of the chords.
    ///
    /// # Errors
    /// If the program was built without a CPU device.
    pub fn measure() -> Result<Self, Failure> {
        let device = device::open(device::cpu_or_fastest())?;
        let of = |target: &Target| OfFunction {
            function: target.name,
            errors: KNOTS.iter().map(|&knots| errors(target, knots, &device)).collect(),
        };
        Ok(Self { functions: TARGETS.iter().map(of).collect() })
    }
}

fn errors(target: &Target, knots: usize, device: &Device) -> Errors {
    let (function, delta) = (target.function, 2.0 * BOUND / knots as f64);
    let end = |piece: usize| -BOUND + piece as f64 * delta;
    let chord = |piece: usize| (function(end(piece + 1)) - function(end(piece))) / delta;
    let slopes: Vec<f64> = (0..knots).map(chord).collect();
    // f(−T) = b₀ − s₀ T
    let offset = function(-BOUND) + slopes[0] * BOUND;
    // softplus(v) = s
    let raw: Vec<f64> = slopes.iter().map(|slope| slope + (-(-slope).exp()).ln_1p()).collect();
    let tensor = |values: Vec<f64>| {
        let count = values.len();
        Tensor::<1>::from_data(TensorData::new(values, [count]), (device, DType::F64))
    };
    let mut map = LogitMapConfig::Plif { knots, bound: BOUND }.init(device);
    if let LogitMap::Plif(plif) = &mut map {
        plif.raw_slopes = Param::from_tensor(tensor(raw));
        plif.offset = Param::from_tensor(tensor(vec![offset]));
    }
    let place = |at: usize| end(at / PLACES) + (at % PLACES) as f64 / (PLACES - 1) as f64 * delta;
    let places: Vec<f64> = (0..knots * PLACES).map(place).collect();
    let mapped = map.forward(tensor(places.clone())).into_data();
    let error = places
        .iter()
        .zip(mapped.iter::<f64>())
        .map(|(z, got)| (got - function(*z)).abs())
        .fold(0.0, f64::max);
    let any = delta * target.slopes / 4.0;
    let bound = target.curvature.map_or(any, |curvature| (delta * delta * curvature / 8.0).min(any));
    Errors { knots, error, bound }
}

/// What rounding may add to an error in f64: sums of 1e5 slopes, values up to 60.
const ROUNDING: f64 = 1e-10;

impl Evidence for PlifErrors {
    fn holds(&self) -> bool {
        self.functions.iter().all(|of| {
            let within = of.errors.iter().all(|errors| errors.error <= errors.bound + ROUNDING);
            let fall = of.errors.windows(2).all(|pair| pair[1].error < pair[0].error.max(ROUNDING));
            within && fall
        })
    }

    fn text(&self) -> String {
        let mut text = String::from("Theorem 7: largest error of a PLIF on [-20, 20] (bound)\n   knots");
        for of in &self.functions {
            text += &format!("{:>22}", of.function);
        }
        for (row, knots) in KNOTS.into_iter().enumerate() {
            text += &format!("\n{knots:>8}");
            for of in &self.functions {
                let Errors { error, bound, .. } = of.errors[row];
                text += &format!("{:>22}", format!("{error:.1e} ({bound:.1e})"));
            }
        }
        text
    }

    fn chart(&self) -> Chart {
        let line = |of: &OfFunction| {
            let points = of.errors.iter().map(|errors| (errors.knots as f64, errors.error)).collect();
            (of.function.to_string(), points)
        };
        Chart {
            caption: "Theorem 7: largest error of a PLIF on [-20, 20]".into(),
            x: ("knots", Scale::Logarithmic),
            y: ("largest error", Scale::Logarithmic),
            lines: self.functions.iter().map(line).collect(),
            labels: Some(SeriesLabelPosition::LowerLeft),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn errors_fall_with_the_knots_at_the_order_of_the_function() {
        let errors = PlifErrors::measure().unwrap();
        assert!(errors.holds(), "{}", errors.text());
        let order = |name: &str, from: usize, to: usize| {
            let of = &errors.functions.iter().find(|of| of.function == name).unwrap().errors;
            let (a, b) = (&of[from], &of[to]);
            (a.error / b.error).ln() / (b.knots as f64 / a.knots as f64).ln()
        };
        // From 100 to 10,000 knots: second order where there is a second derivative, first order at a kink.
        assert!((order("sigsoftmax", 2, 6) - 2.0).abs() < 0.05, "{}", errors.text());
        assert!((order("steep tanh", 2, 6) - 2.0).abs() < 0.2, "{}", errors.text());
        assert!((order("kink", 2, 6) - 1.0).abs() < 0.2, "{}", errors.text());
        // The bounds are met, not merely kept.
        for of in &errors.functions {
            assert!(of.errors[4].error > 0.8 * of.errors[4].bound, "{}", errors.text());
        }
    }
}
