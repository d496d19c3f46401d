//! How far a distribution is from a teacher's.

/// What a student's distribution `S` is compared with a teacher's `T` by. All are 0 where the two are equal; in nats, but for
/// the total variation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Divergence {
    /// `KL(T ‖ S) = Σ_v T_v (log T_v − log S_v)`: the student covers all that the teacher finds likely (Hinton et al. 2015). On the CPU
    /// backend it is a cross-entropy less a constant, so that in f32 its value is off by up to 1e-6 nats.
    ForwardKl,
    /// `KL(S ‖ T) = Σ_v S_v (log S_v − log T_v)`: the student leaves out what the teacher finds unlikely (MiniLLM, Gu et al.,
    /// ICLR 2024).
    ReverseKl,
    /// The generalised Jensen–Shannon divergence `β KL(T ‖ M) + (1 − β) KL(S ‖ M)` with `M = β T + (1 − β) S` (Agarwal et al., ICLR
    /// 2024, section 2).
    JensenShannon {
        /// `β`, between 0 and 1.
        beta: f64,
    },
    /// `½ Σ_v |T_v − S_v|`.
    TotalVariation,
}
