//! Random numbers for tests of the kernels.

/// Returns pseudo-random 24-bit numbers from a linear congruential generator.
pub(super) fn bits(len: usize, seed: u32) -> impl Iterator<Item = u32> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(next(&seed), next)
        .map(|state| state >> 8)
        .take(len)
}

/// Returns numbers from `low` to `low + 2`.
pub(super) fn floats(len: usize, seed: u32, low: f32) -> Vec<f32> {
    bits(len, seed)
        .map(|v| v as f32 / (1 << 23) as f32 + low)
        .collect()
}
