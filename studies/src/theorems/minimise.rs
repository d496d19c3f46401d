//! Minima of smooth functions of many numbers.

use std::cell::RefCell;

use argmin::core::{CostFunction, Error, Executor, Gradient, IterState};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

/// Steps that the curvature is estimated from.
const MEMORY: usize = 12;

/// A local minimum by L-BFGS: the point, and the function there.
///
/// `function` gives its value and its gradient. It ends after `steps` steps, or when a step no longer lowers the function.
///
/// # Errors
/// If the function is no finite number wherever it was tried.
pub fn minimise(
    start: Vec<f64>,
    steps: usize,
    function: impl Fn(&[f64]) -> (f64, Vec<f64>),
) -> Result<(Vec<f64>, f64), Error> {
    let solver = LBFGS::new(MoreThuenteLineSearch::new(), MEMORY)
        // Equal values end it, and nothing else.
        .with_tolerance_cost(f64::MIN_POSITIVE)?
        .with_tolerance_grad(0.0)?;
    let mut state = Executor::new(Smooth { function, last: RefCell::default() }, solver)
        .configure(|state: IterState<_, _, (), (), (), _>| state.param(start).max_iters(steps as u64))
        .run()?
        .state;
    let value = state.get_best_cost();
    let point = state.take_best_param().filter(|_| value.is_finite());
    point.map(|point| (point, value)).ok_or_else(|| Error::msg("a function without a finite value"))
}

/// A function and what it gave at the last point, because value and gradient are asked for one after the other.
struct Smooth<F> {
    function: F,
    last: RefCell<(Vec<f64>, f64, Vec<f64>)>,
}

impl<F: Fn(&[f64]) -> (f64, Vec<f64>)> Smooth<F> {
    /// No line search ends by itself beyond what is finite.
    fn at(&self, point: &[f64]) -> Result<(), Error> {
        if point.iter().any(|x| !x.is_finite()) {
            return Err(Error::msg("a point that is not finite"));
        }
        let mut last = self.last.borrow_mut();
        if last.0 != point {
            let (value, gradient) = (self.function)(point);
            *last = (point.to_vec(), value, gradient);
        }
        Ok(())
    }
}

impl<F: Fn(&[f64]) -> (f64, Vec<f64>)> CostFunction for Smooth<F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, point: &Vec<f64>) -> Result<f64, Error> {
        self.at(point)?;
        Ok(self.last.borrow().1)
    }
}

impl<F: Fn(&[f64]) -> (f64, Vec<f64>)> Gradient for Smooth<F> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, point: &Vec<f64>) -> Result<Vec<f64>, Error> {
        self.at(point)?;
        Ok(self.last.borrow().2.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quadratic_and_a_curved_valley_are_solved() {
        let weight = |i: usize| 1.0 + 50.0 * i as f64;
        let (x, value) = minimise(vec![5.0; 20], 200, |x| {
            let offsets: Vec<f64> = x.iter().enumerate().map(|(i, x)| x - i as f64).collect();
            let value = offsets.iter().enumerate().map(|(i, x)| weight(i) * x * x).sum();
            (value, offsets.iter().enumerate().map(|(i, x)| 2.0 * weight(i) * x).collect())
        })
        .unwrap();
        assert!(value < 1e-20, "{value}");
        assert!(x.iter().enumerate().all(|(i, x)| (x - i as f64).abs() < 1e-10), "{x:?}");
        let (x, value) = minimise(vec![-1.2, 1.0], 300, |x| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * b * x[0], 200.0 * b])
        })
        .unwrap();
        assert!(value < 1e-16 && (x[0] - 1.0).abs() < 1e-7, "{x:?}: {value}");
        // From there it ends, and where nothing is finite it says so.
        let parabola = |x: &[f64]| ((x[0] - 0.1).powi(2) + 1.0, vec![2.0 * (x[0] - 0.1)]);
        for start in [0.1, 0.1 + 1e-17, 0.1 + 1e-9, 1e3] {
            let (x, value) = minimise(vec![start], 500, parabola).unwrap();
            assert!(value == 1.0 && (x[0] - 0.1).abs() < 1e-7, "{start}: {x:?}");
        }
        for nothing in [f64::INFINITY, f64::NAN] {
            assert!(minimise(vec![1.0], 5, |_| (nothing, vec![nothing])).is_err());
        }
    }
}
