//! What a learned logit map looks like, and which part of it the logits see.

use burn::tensor::{Device, Tensor, TensorData};

use super::rows::MASKED;
use crate::logit_map::{LogitMap, Plif};

/// Mean, spread and range of a PLIF's slopes, all of which start at 1 (Ganea et al., ICML 2019, section 5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlopeStatistics {
    /// Number of pieces.
    pub pieces: usize,
    /// Mean slope.
    pub mean: f64,
    /// Standard deviation over all pieces.
    pub std: f64,
    /// Smallest slope.
    pub min: f64,
    /// Largest slope.
    pub max: f64,
}

impl SlopeStatistics {
    /// The statistics of a PLIF's slopes.
    pub fn of(plif: &Plif) -> Self {
        let slopes: Vec<f64> = plif.slopes().into_data().iter::<f64>().collect();
        let pieces = slopes.len();
        let mean = slopes.iter().sum::<f64>() / pieces as f64;
        let squares: f64 = slopes.iter().map(|slope| (slope - mean).powi(2)).sum();
        Self {
            pieces,
            mean,
            std: (squares / pieces as f64).sqrt(),
            min: slopes.iter().copied().fold(f64::INFINITY, f64::min),
            max: slopes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// `(z, f(z))` at `points` places evenly spread over `[from, to]`, both ends included.
///
/// # Panics
/// With fewer than two points.
pub fn curve(map: &LogitMap, (from, to): (f64, f64), points: usize, device: &Device) -> Vec<(f64, f64)> {
    assert!(points >= 2, "curve: {points} points do not make a line");
    let step = (to - from) / (points - 1) as f64;
    let z: Vec<f64> = (0..points).map(|i| from + i as f64 * step).collect();
    let input = Tensor::<1>::from_data(TensorData::new(z.clone(), [points]), device);
    z.into_iter().zip(map.forward(input).into_data().iter::<f64>()).collect()
}

/// Range of the logits a map is applied to, and how many lie outside `[−T, T]`, where a PLIF goes on with its end slopes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitRange {
    /// `T`.
    pub bound: f64,
    /// Number of logits read, those of masked words left out.
    pub count: u64,
    /// Of these, how many are below `−T`.
    pub below: u64,
    /// Of these, how many are above `T`.
    pub above: u64,
    /// Smallest logit; infinite before the first.
    pub min: f64,
    /// Largest logit; negative infinite before the first.
    pub max: f64,
}

impl LogitRange {
    /// For the interval `[−bound, bound]`.
    pub fn new(bound: f64) -> Self {
        Self { bound, count: 0, below: 0, above: 0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }

    /// Takes in logits before the map, of any shape, without those of masked words (−∞). NaN is counted and nothing else. See
    /// [`OutputHead::logit_blocks`](crate::OutputHead::logit_blocks).
    pub fn add<const D: usize>(&mut self, logits: Tensor<D>) {
        for logit in logits.into_data().iter::<f64>().filter(|logit| *logit != MASKED) {
            self.count += 1;
            self.below += u64::from(logit < -self.bound);
            self.above += u64::from(logit > self.bound);
            self.min = self.min.min(logit);
            self.max = self.max.max(logit);
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::LogitMapConfig;

    fn plif(raw: &[f32], bound: f64) -> Plif {
        let device = Device::flex();
        let LogitMap::Plif(mut plif) = LogitMapConfig::Plif { knots: raw.len(), bound }.init(&device) else {
            unreachable!()
        };
        plif.raw_slopes = burn::module::Param::from_tensor(Tensor::from_floats(raw, &device));
        plif
    }

    #[test]
    fn slopes_are_those_of_the_function() {
        // softplus of ln(e^s − 1) is s.
        let raw = [0.5f64, 1.0, 3.0].map(|s| (s.exp() - 1.0).ln() as f32);
        let plif = plif(&raw, 3.0);
        let slopes = SlopeStatistics::of(&plif);
        assert_eq!(slopes.pieces, 3);
        for (got, want) in
            [(slopes.mean, 1.5), (slopes.min, 0.5), (slopes.max, 3.0), (slopes.std, (3.5f64 / 3.0).sqrt())]
        {
            assert!((got - want).abs() < 1e-6, "{got} against {want}");
        }
        let curve = curve(&LogitMap::Plif(plif), (-4.0, 4.0), 9, &Device::flex());
        let slope = |i: usize| curve[i + 1].1 - curve[i].1;
        // Outside the end slopes go on.
        for (i, want) in [(0, 0.5), (1, 0.5), (3, 1.0), (6, 3.0), (7, 3.0)] {
            assert!((slope(i) - want).abs() < 1e-5, "step {i}: {}", slope(i));
        }
    }

    #[test]
    fn logits_on_the_bound_are_inside_and_masked_words_nowhere() {
        let mut range = LogitRange::new(2.0);
        let device = Device::flex();
        range.add(Tensor::<2>::from_floats([[-2.0, 2.0, 2.5], [-7.0, 0.0, 3.0]], &device));
        range.add(Tensor::<1>::from_floats([1.0, f32::NEG_INFINITY, 1.0], &device));
        assert_eq!((range.count, range.below, range.above, range.min, range.max), (8, 1, 2, -7.0, 3.0));
    }
}
