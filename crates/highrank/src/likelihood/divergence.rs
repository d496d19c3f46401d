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
    /// The divergence, `[rows]`, and the pulls, `[rows, V]`, for log-probabilities `[rows, V]`, −∞ for masked words.
    pub(crate) fn of_rows<B: Kernels>(self, log_s: Floats<B>, log_t: Floats<B>) -> (Floats<B>, Floats<B>) {
        let (s, t) = (log_s.clone().exp(), log_t.clone().exp());
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
                let distance = of_t.clone() - of_s.clone();
                let of_t_is_larger = distance.at_least(0.0);
                let log_m = of_t.keep_where(of_t_is_larger, of_s) + (-distance.abs()).exp().log1p();
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
        (terms.sum_dim(1).reshape([rows]), pulls)
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
