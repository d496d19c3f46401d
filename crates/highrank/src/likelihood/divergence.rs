//! What a divergence makes of a student's and a teacher's log-probabilities: its terms, and what they pull.
//!
//! With the gradient `G_v` of a divergence for `log S_v`, as if these were independent:
//!
//! ```text
//! forward KL         −T_v
//! reverse KL         S_v (log S_v − log T_v)
//! Jensen–Shannon     (1 − β) S_v (log S_v − log M_v)
//! total variation    ½ S_v sign(S_v − T_v)
//! ```
//!
//! A summand `S_v` is left out: it changes no gradient of what log-probabilities are made of. The pull of a word is `−G_v`, what a target
//! distribution has of it where the loss is a cross-entropy.

use burn::tensor::DType;
use highrank_kernels::Floats;
#[cfg(feature = "flex")]
use highrank_kernels::cpu::Real;

use crate::ops::{Divergence, Kernels};

impl Divergence {
    /// The divergence, `[rows]`, and the pulls, `[rows, V]`, for log-probabilities `[rows, V]`, −∞ for masked words. It is infinite for
    /// a student that has no word.
    pub(crate) fn of_rows<B: Kernels>(self, log_s: Floats<B>, log_t: Floats<B>) -> (Floats<B>, Floats<B>) {
        let (s, t) = (log_s.clone().exp(), log_t.clone().exp());
        let has_no_word = s.clone().max_dim(1).at_most(0.0);
        // A number in place of −∞, so that 0 times the logarithm of 0 is 0.
        let lowest = if log_s.dtype() == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let finite = |x: Floats<B>| {
            let infinite = x.at_most(lowest);
            x.fill_where(infinite, lowest)
        };
        let (log_s, log_t) = (finite(log_s), finite(log_t));
        // Infinite where one has some of a word that the other has nothing of.
        let diverging = |terms: Floats<B>, mass: &Floats<B>, other: &Floats<B>| {
            let missed = mass.above(0.0).and(other.at_most(lowest));
            terms.fill_where(missed, f64::INFINITY)
        };
        let (terms, pulls) = match self {
            Self::ForwardKl => {
                let terms = t.clone() * (log_t - log_s.clone());
                (diverging(terms, &t, &log_s), t)
            }
            Self::ReverseKl => {
                let terms = s.clone() * (log_s - log_t.clone());
                (diverging(terms.clone(), &s, &log_t), -terms)
            }
            Self::JensenShannon { beta } => {
                let of_t = log_t.clone().add_scalar(beta.ln());
                let of_s = log_s.clone().add_scalar((1.0 - beta).ln());
                let of_t_is_larger = (of_t.clone() - of_s.clone()).at_least(0.0);
                // A constant, so that the derivative is right where both are equal, too.
                let larger = of_t.clone().keep_where(of_t_is_larger, of_s.clone()).detach();
                let log_m = ((of_t - larger.clone()).exp() + (of_s - larger.clone()).exp()).log() + larger;
                let own = s * (log_s - log_m.clone()).mul_scalar(1.0 - beta);
                (t * (log_t - log_m).mul_scalar(beta) + own.clone(), -own)
            }
            Self::TotalVariation => {
                let excess = s.clone() - t;
                let above = excess.zeros_like().fill_where(excess.above(0.0), 0.5);
                let below = excess.zeros_like().fill_where((-excess.clone()).above(0.0), 0.5);
                (excess.abs().mul_scalar(0.5), s * (below - above))
            }
        };
        let [rows, _] = terms.dims();
        let divergence = terms.sum_dim(1).fill_where(has_no_word, f64::INFINITY);
        (divergence.reshape([rows]), pulls)
    }

    /// The term of a word, and its pull, for `S`, `log S` and `log T`. Not of a forward divergence, which is scored as a cross-entropy.
    #[cfg(feature = "flex")]
    #[inline(always)]
    pub(crate) fn of_word<T: Real>(self, s: T, log_s: T, log_t: T) -> [T; 2] {
        let t = log_t.exp_of_bounded();
        match self {
            Self::ForwardKl => unreachable!("its targets are the teacher's probabilities"),
            Self::ReverseKl => {
                let term = if s > T::ZERO { s * (log_s - log_t) } else { T::ZERO };
                [term, -term]
            }
            Self::JensenShannon { beta } => {
                let of_t = log_t + T::of(beta.ln());
                let of_s = log_s + T::of((1.0 - beta).ln());
                let (larger, smaller) = if of_t > of_s { (of_t, of_s) } else { (of_s, of_t) };
                let log_m = larger + (T::ONE + (smaller - larger).exp_of_bounded()).log();
                let own = if s > T::ZERO { s * (log_s - log_m) } else { T::ZERO };
                let own = T::of(1.0 - beta) * own;
                let other = if t > T::ZERO { t * (log_t - log_m) } else { T::ZERO };
                [T::of(beta).mul_add(other, own), -own]
            }
            Self::TotalVariation => {
                let half = T::of(0.5);
                let excess = s - t;
                let sign = if excess > T::ZERO {
                    T::ONE
                } else if excess < T::ZERO {
                    -T::ONE
                } else {
                    T::ZERO
                };
                [half * excess.abs(), -half * s * sign]
            }
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::activation::log_softmax;
    use burn::tensor::{Device, Tensor};

    use super::*;

    /// The composed form is differentiated as it stands.
    #[test]
    fn the_gradient_is_right_where_both_have_the_same_of_a_word() {
        let on = (&Device::flex().autodiff(), DType::F64);
        let teacher = [[0.5f64, 0.25, 0.25]];
        let divergence = |logits: [f64; 3]| {
            let logits = Tensor::<2>::from_data([logits], on).require_grad();
            let log_t = Tensor::<2>::from_data(teacher, on).log();
            let beta = Divergence::JensenShannon { beta: 0.5 };
            let (loss, _) =
                beta.of_rows::<burn::backend::Dispatch>(log_softmax(logits.clone(), 1).into(), log_t.into());
            (logits, loss.tensor::<1>())
        };
        // The first word's probabilities are equal.
        let at = [0.5f64, 0.3, 0.2].map(f64::ln);
        let (logits, loss) = divergence(at);
        let gradient: Vec<f64> = logits.grad(&loss.backward()).unwrap().into_data().iter::<f64>().collect();
        for (word, got) in gradient.iter().enumerate() {
            let moved = |step: f64| {
                let mut logits = at;
                logits[word] += step;
                divergence(logits).1.into_scalar::<f64>()
            };
            let want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((got - want).abs() < 1e-9, "word {word}: {got} against {want}");
        }
    }
}
