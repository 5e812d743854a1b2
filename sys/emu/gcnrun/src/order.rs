//! Selection and order of the blocks of a grid that run: samples, permutations.

/// The first of the blocks that a sample takes, and how many. They are neighbours, because these share what they load, and
/// whole rows, whose blocks may differ.
pub(crate) fn sampled(grid: [u32; 3], most: u64) -> (u64, u64) {
    let [x, y, z] = grid.map(u64::from);
    if x * y * z <= most {
        return (0, x * y * z);
    }
    let unit = [x * y, x].into_iter().find(|&unit| unit <= most).unwrap_or(1);
    let (units, taken) = (x * y * z / unit, most / unit);
    ((units - taken) / 2 * unit, taken * unit)
}

/// Returns the place of `index` in a permutation of `0..count`. It is a Feistel network of four rounds over the next power of
/// four, walked until it is in range.
pub(crate) fn permuted(index: u64, count: u64, seed: u64) -> u64 {
    let bits = (u64::BITS - count.leading_zeros()).div_ceil(2);
    let mask = (1_u64 << bits) - 1;
    let mut index = index;
    loop {
        let (mut left, mut right) = (index >> bits, index & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ mix(right ^ seed.rotate_left(16 * round)) & mask);
        }
        index = left << bits | right;
        if index < count {
            return index;
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::{permuted, sampled};

    #[test]
    fn samples_are_whole_rows_from_the_middle() {
        assert_eq!(sampled([10, 1, 1], 10), (0, 10));
        assert_eq!(sampled([100, 1, 1], 10), (45, 10));
        assert_eq!(sampled([4, 100, 1], 10), (196, 8));
        assert_eq!(sampled([4, 2, 9], 16), (24, 16));
        assert_eq!(sampled([4, 2, 9], 1), (35, 1));
    }

    #[test]
    fn every_index_comes_once() {
        for count in [1, 2, 3, 4, 5, 63, 64, 65, 1000] {
            for seed in 0..8 {
                let mut order: Vec<_> = (0..count).map(|turn| permuted(turn, count, seed)).collect();
                let shuffled = order.clone();
                order.sort_unstable();
                assert!(order.iter().copied().eq(0..count), "{count} {seed}");
                assert!(count < 63 || shuffled != order);
            }
        }
    }
}
