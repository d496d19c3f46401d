//! Minima of smooth functions of many numbers.

use std::collections::VecDeque;

use super::matrix::dot;

/// Steps that the curvature is estimated from.
const MEMORY: usize = 12;
/// Share of the decrease that the gradient promises which a step must reach.
const SUFFICIENT: f64 = 1e-4;
/// Halvings of a step before it counts as none.
const HALVINGS: usize = 40;

/// A local minimum by L-BFGS with a halving line search: the point, and the function there.
///
/// `function` writes its gradient to the second argument. It ends after `steps` steps, or when a step no longer lowers the
/// function.
pub fn minimise(
    start: Vec<f64>,
    steps: usize,
    mut function: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> (Vec<f64>, f64) {
    let mut x = start;
    let mut gradient = vec![0.0; x.len()];
    let mut value = function(&x, &mut gradient);
    let mut pairs: VecDeque<Pair> = VecDeque::with_capacity(MEMORY + 1);
    let (mut next_x, mut next_gradient) = (x.clone(), gradient.clone());
    for _ in 0..steps {
        let mut direction = quasi_newton(&gradient, &pairs);
        let mut slope = dot(&direction, &gradient);
        if slope >= 0.0 {
            // Curvature estimated wrongly: start over from the gradient.
            pairs.clear();
            direction = gradient.iter().map(|g| -g).collect();
            slope = dot(&direction, &gradient);
        }
        let mut length = if pairs.is_empty() { (1.0 / (-slope).sqrt()).min(1.0) } else { 1.0 };
        let mut found = None;
        for _ in 0..HALVINGS {
            next_x.iter_mut().zip(&x).zip(&direction).for_each(|((next, x), d)| *next = x + length * d);
            let next = function(&next_x, &mut next_gradient);
            if next < value + SUFFICIENT * length * slope {
                found = Some(next);
                break;
            }
            length *= 0.5;
        }
        let Some(next) = found else { break };
        let step: Vec<f64> = next_x.iter().zip(&x).map(|(next, x)| next - x).collect();
        let change: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(next, g)| next - g).collect();
        let curvature = dot(&step, &change);
        if curvature > 1e-12 * dot(&change, &change) {
            pairs.push_back(Pair { step, change, curvature });
            if pairs.len() > MEMORY {
                pairs.pop_front();
            }
        }
        std::mem::swap(&mut x, &mut next_x);
        std::mem::swap(&mut gradient, &mut next_gradient);
        value = next;
    }
    (x, value)
}

/// A step and how the gradient changed over it.
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    /// Their scalar product.
    curvature: f64,
}

/// Minus the gradient times the inverse curvature that the pairs tell of.
fn quasi_newton(gradient: &[f64], pairs: &VecDeque<Pair>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let add = |direction: &mut [f64], factor: f64, other: &[f64]| {
        direction.iter_mut().zip(other).for_each(|(d, other)| *d += factor * other);
    };
    let mut factors = Vec::with_capacity(pairs.len());
    for Pair { step, change, curvature } in pairs.iter().rev() {
        let factor = dot(step, &direction) / curvature;
        add(&mut direction, -factor, change);
        factors.push(factor);
    }
    if let Some(Pair { change, curvature, .. }) = pairs.back() {
        let scale = curvature / dot(change, change);
        direction.iter_mut().for_each(|d| *d *= scale);
    }
    for (Pair { step, change, curvature }, factor) in pairs.iter().zip(factors.iter().rev()) {
        let back = dot(change, &direction) / curvature;
        add(&mut direction, factor - back, step);
    }
    direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quadratic_and_a_curved_valley_are_solved() {
        let (x, value) = minimise(vec![5.0; 20], 200, |x, gradient| {
            let mut sum = 0.0;
            for (i, (x, g)) in x.iter().zip(gradient).enumerate() {
                let weight = 1.0 + 50.0 * i as f64;
                sum += weight * (x - i as f64).powi(2);
                *g = 2.0 * weight * (x - i as f64);
            }
            sum
        });
        assert!(value < 1e-20, "{value}");
        assert!(x.iter().enumerate().all(|(i, x)| (x - i as f64).abs() < 1e-10), "{x:?}");
        let (x, value) = minimise(vec![-1.2, 1.0], 300, |x, gradient| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            gradient[0] = -2.0 * a - 400.0 * b * x[0];
            gradient[1] = 200.0 * b;
            a * a + 100.0 * b * b
        });
        assert!(value < 1e-16 && (x[0] - 1.0).abs() < 1e-7, "{x:?}: {value}");
    }
}
