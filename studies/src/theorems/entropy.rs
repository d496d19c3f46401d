//! Theorem 2 (Ganea et al., ICML 2019): the least cross-entropy of a softmax is the largest entropy under the truth's moments.

use plotters::prelude::SeriesLabelPosition;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::evidence::Evidence;
use super::matrix::{Matrix, dot, log_sum_exp, solve};
use program::chart::{Chart, Scale};
use program::failure::Failure;

/// Numbers of words M, each with a number of dimensions d.
const SIZES: [(usize, usize); 6] = [(3, 1), (5, 2), (8, 2), (12, 4), (30, 6), (100, 10)];
/// Which of them is drawn.
const DRAWN: usize = 2;
/// Steps that Newton's method may take; it needs about ten.
const STEPS: usize = 100;

/// Both sides of the theorem, each by a solver of its own.
///
/// A context has the true distribution p over M words with vectors `w_i` of width d. Over all context vectors h and all
/// distributions q,
///
/// ```text
/// min_h H(p, softmax(W h))  =  max { H(q) : Σ q_i w_i = Σ p_i w_i, Σ q_i = 1, q ≥ 0 }
/// ```
///
/// and both are reached by the same distribution. The left side is solved by Newton's method over h, which knows nothing of
/// moments; the right side by Newton's method over q, from p on and within the constraints, which knows nothing of softmaxes.
#[derive(Debug, Serialize)]
pub struct Duality {
    cases: Vec<Case>,
    /// The cross-entropy and the entropy around the solution, along lines.
    #[serde(skip)]
    around: [Vec<(f64, f64)>; 2],
}

#[derive(Debug, Serialize)]
struct Case {
    words: usize,
    d: usize,
    /// The least cross-entropy, in nats.
    cross_entropy: f64,
    /// The largest entropy, in nats.
    entropy: f64,
    /// Entropy of p, in nats: what a softmax without bottleneck would reach.
    entropy_of_truth: f64,
    /// Largest difference of a probability between the two solutions.
    difference: f64,
    /// Largest difference of a moment of the first solution from the truth's.
    moments: f64,
}

impl Duality {
    /// Of random words and truths.
    ///
    /// # Errors
    /// If a solver meets a system without solution.
    pub fn measure(seed: u64) -> Result<Self, Failure> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let (mut cases, mut around) = (vec![], [vec![], vec![]]);
        for (index, (words, d)) in SIZES.into_iter().enumerate() {
            let problem = Problem::random(words, d, &mut rng);
            let h = problem.least_cross_entropy()?;
            let q = problem.largest_entropy()?;
            let softmax = problem.softmax(&h);
            let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
            let differences = &mut softmax.iter().zip(&q).map(|(a, b)| (a - b).abs());
            let moments = problem.moments(&softmax).into_iter().zip(problem.moments(&problem.truth));
            cases.push(Case {
                words,
                d,
                cross_entropy: problem.cross_entropy(&h),
                entropy: entropy(&q),
                entropy_of_truth: entropy(&problem.truth),
                difference: largest(differences),
                moments: largest(&mut moments.map(|(a, b)| (a - b).abs())),
            });
            if index == DRAWN {
                around = problem.around(&h, &q, &mut rng)?;
            }
        }
        Ok(Self { cases, around })
    }
}

/// Words and a true distribution.
struct Problem {
    /// `[M, d]`
    words: Matrix,
    /// `[M]`
    truth: Vec<f64>,
}

impl Problem {
    fn random(words: usize, d: usize, rng: &mut Pcg64Mcg) -> Self {
        let truth = Matrix::normal(1, words, rng).map(|x| 1.5 * x).log_softmax().map(f64::exp);
        Self { words: Matrix::normal(words, d, rng), truth: truth.values }
    }

    fn logits(&self, h: &[f64]) -> Vec<f64> {
        (0..self.words.rows).map(|word| dot(self.words.row(word), h)).collect()
    }

    fn softmax(&self, h: &[f64]) -> Vec<f64> {
        let logits = self.logits(h);
        let log_sum = log_sum_exp(&logits);
        logits.iter().map(|logit| (logit - log_sum).exp()).collect()
    }

    /// `−Σ p_i log softmax(W h)_i`
    fn cross_entropy(&self, h: &[f64]) -> f64 {
        let logits = self.logits(h);
        log_sum_exp(&logits) - dot(&self.truth, &logits)
    }

    /// `Σ q_i w_i`
    fn moments(&self, q: &[f64]) -> Vec<f64> {
        self.words.transposed_times(q)
    }

    /// Newton's method over h, from 0.
    fn least_cross_entropy(&self) -> Result<Vec<f64>, Failure> {
        let d = self.words.columns;
        let mut h = vec![0.0; d];
        for _ in 0..STEPS {
            let q = self.softmax(&h);
            let mean = self.moments(&q);
            let gradient: Vec<f64> =
                mean.iter().zip(self.moments(&self.truth)).map(|(mean, want)| mean - want).collect();
            // The covariance of the words under the softmax.
            let mut curvature = Matrix::new(d, d, vec![0.0; d * d]);
            for (word, q) in q.iter().enumerate() {
                let centred: Vec<f64> =
                    self.words.row(word).iter().zip(&mean).map(|(w, mean)| w - mean).collect();
                add_outer(&mut curvature, *q, &centred);
            }
            let step = solve(&curvature, &gradient)?;
            let value = self.cross_entropy(&h);
            let lower = |length: &f64| self.cross_entropy(&moved(&h, &step, -length)) < value;
            let Some(length) = halvings().find(lower) else { break };
            h = moved(&h, &step, -length);
        }
        Ok(h)
    }

    /// The constraints as rows: d moments, and the sum of all probabilities.
    fn constraints(&self) -> Matrix {
        let (words, d) = (self.words.rows, self.words.columns);
        let of_row = |row: usize| (0..words).map(move |word| (row, word));
        let element = |(row, word): (usize, usize)| if row < d { self.words.row(word)[row] } else { 1.0 };
        Matrix::new(d + 1, words, (0..=d).flat_map(of_row).map(element).collect())
    }

    /// Newton's method over q, from p, along directions that change no constraint.
    ///
    /// The curvature of `Σ q log q` is `1/q`, so the direction is `−q (log q + 1 + Aᵀν)` with multipliers ν for which
    /// it changes no constraint.
    fn largest_entropy(&self) -> Result<Vec<f64>, Failure> {
        let constraints = self.constraints();
        let mut q = self.truth.clone();
        for _ in 0..STEPS {
            let slope: Vec<f64> = q.iter().map(|q| q.ln() + 1.0).collect();
            let mut system =
                Matrix::new(constraints.rows, constraints.rows, vec![0.0; constraints.rows.pow(2)]);
            let mut right = vec![0.0; constraints.rows];
            for (word, (q, slope)) in q.iter().zip(&slope).enumerate() {
                let column: Vec<f64> = (0..constraints.rows).map(|row| constraints.row(row)[word]).collect();
                add_outer(&mut system, *q, &column);
                right.iter_mut().zip(&column).for_each(|(right, a)| *right -= q * slope * a);
            }
            let multipliers = solve(&system, &right)?;
            let pulls = constraints.transposed_times(&multipliers);
            let direction: Vec<f64> =
                (0..q.len()).map(|word| -q[word] * (slope[word] + pulls[word])).collect();
            let value = entropy(&q);
            let higher = |length: &f64| {
                let moved = moved(&q, &direction, *length);
                moved.iter().all(|q| *q > 0.0) && entropy(&moved) > value
            };
            let Some(length) = halvings().find(higher) else { break };
            q = moved(&q, &direction, length);
        }
        Ok(q)
    }

    /// The cross-entropy along a line through h, and the entropy along a line through q within the constraints, up to where a
    /// probability would be 0.
    fn around(&self, h: &[f64], q: &[f64], rng: &mut Pcg64Mcg) -> Result<[Vec<(f64, f64)>; 2], Failure> {
        let line = Matrix::normal(1, h.len(), rng).values;
        let constraints = self.constraints();
        let gram = constraints.times_transposed(&constraints);
        let free = Matrix::normal(1, q.len(), rng).values;
        let pulls: Vec<f64> = (0..constraints.rows).map(|row| dot(constraints.row(row), &free)).collect();
        let bound = constraints.transposed_times(&solve(&gram, &pulls)?);
        let free = moved(&free, &bound, -1.0);
        let room = q.iter().zip(&free).map(|(q, step)| q / step.abs()).fold(f64::INFINITY, f64::min);
        let places = || (-20..=20).map(|place| f64::from(place) / 20.0);
        Ok([
            places().map(|t| (t, self.cross_entropy(&moved(h, &line, 0.5 * t)))).collect(),
            places().map(|t| (t, entropy(&moved(q, &free, 0.999 * room * t)))).collect(),
        ])
    }
}

/// `−Σ q log q` in nats.
fn entropy(q: &[f64]) -> f64 {
    -q.iter().map(|q| q * q.ln()).sum::<f64>()
}

/// `from + length · line`
fn moved(from: &[f64], line: &[f64], length: f64) -> Vec<f64> {
    from.iter().zip(line).map(|(from, line)| from + length * line).collect()
}

/// Adds `factor · v vᵀ`.
fn add_outer(matrix: &mut Matrix, factor: f64, v: &[f64]) {
    for (row, left) in v.iter().enumerate() {
        matrix.row_mut(row).iter_mut().zip(v).for_each(|(sum, right)| *sum += factor * left * right);
    }
}

/// 1, ½, ¼ and so on.
fn halvings() -> impl Iterator<Item = f64> {
    (0..40).map(|power| 0.5f64.powi(power))
}

impl Evidence for Duality {
    fn holds(&self) -> bool {
        self.cases.iter().all(|case| {
            (case.cross_entropy - case.entropy).abs() < 1e-9
                && case.difference < 1e-6
                && case.moments < 1e-6
                && case.entropy >= case.entropy_of_truth - 1e-12
        })
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "Theorem 2: least cross-entropy of a softmax, largest entropy under its moments, in nats\n",
        );
        let titles = ["cross-entropy", "entropy", "difference", "of q", "H(p)"];
        let [cross, entropy, gap, of_q, truth] = titles;
        text += &format!("{:>5}{:>4}{cross:>18}{entropy:>18}{gap:>12}{of_q:>10}{truth:>10}", "M", "d");
        for case in &self.cases {
            text += &format!(
                "\n{:>5}{:>4}{:>18.12}{:>18.12}{:>12.1e}{:>10.1e}{:>10.4}",
                case.words,
                case.d,
                case.cross_entropy,
                case.entropy,
                (case.cross_entropy - case.entropy).abs(),
                case.difference,
                case.entropy_of_truth,
            );
        }
        text
    }

    fn chart(&self) -> Chart {
        let [cross_entropies, entropies] = self.around.clone();
        let (words, d) = SIZES[DRAWN];
        Chart {
            caption: format!("Theorem 2: the two problems around their common solution, M {words}, d {d}"),
            x: ("place on a line through the solution", Scale::Linear),
            y: ("nats", Scale::Linear),
            lines: vec![
                ("cross-entropy of softmax(W h), h on a line".into(), cross_entropies),
                ("entropy of q, on a line that keeps the moments".into(), entropies),
            ],
            labels: Some(SeriesLabelPosition::UpperMiddle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_solvers_find_the_same_distribution() {
        for seed in 0..5 {
            let duality = Duality::measure(seed).unwrap();
            assert!(duality.holds(), "{}", duality.text());
            // A bottleneck costs something.
            assert!(duality.cases.iter().all(|case| case.entropy > case.entropy_of_truth + 1e-4));
            // Everything else is worse: cross-entropies lie above the solution, entropies below.
            let (value, [cross_entropies, entropies]) = (duality.cases[DRAWN].entropy, &duality.around);
            for &(t, cross_entropy) in cross_entropies {
                assert!(if t == 0.0 { cross_entropy < value + 1e-9 } else { cross_entropy > value + 1e-6 });
            }
            for &(t, entropy) in entropies {
                assert!(if t == 0.0 { entropy > value - 1e-9 } else { entropy < value - 1e-9 });
            }
        }
    }

    #[test]
    fn two_words_have_an_answer_in_closed_form() {
        // One moment and the sum fix q: it is p.
        let problem = Problem { words: Matrix::new(2, 1, vec![1.0, -2.0]), truth: vec![0.3, 0.7] };
        let q = problem.softmax(&problem.least_cross_entropy().unwrap());
        assert!((q[0] - 0.3).abs() < 1e-8 && (problem.largest_entropy().unwrap()[1] - 0.7).abs() < 1e-12);
        // Words without any difference in their vectors are left alike.
        let words = Matrix::new(4, 1, vec![1.0, 1.0, 0.0, 0.0]);
        let problem = Problem { words, truth: vec![0.5, 0.1, 0.3, 0.1] };
        let want = [0.3, 0.3, 0.2, 0.2];
        let h = problem.least_cross_entropy().unwrap();
        for found in [problem.softmax(&h), problem.largest_entropy().unwrap()] {
            assert!(found.iter().zip(want).all(|(q, want)| (q - want).abs() < 1e-8), "{found:?}");
        }
    }
}
