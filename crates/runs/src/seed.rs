//! Seeds of the steps of a training.

/// One well-mixed seed from a run's seed and two counters (a chain of SplitMix64 finalisers).
///
/// Every training step seeds the device's random numbers with it. So its dropout masks depend on the run's seed, the epoch
/// and the step, and on nothing that happened before.
pub fn mix_seed(seed: u64, epoch: u64, step: u64) -> u64 {
    [seed, epoch, step].into_iter().fold(0, |mixed: u64, word| {
        let mut mixed = (mixed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
