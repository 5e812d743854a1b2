//! The geometry of a launch.

/// The geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Number of blocks along x, y, z.
    pub grid: [u32; 3],
    /// Number of threads per block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic LDS (shared memory) per block.
    pub lds_bytes: u32,
}

impl Launch {
    /// Creates a launch of `grid` blocks of `block` threads along x, without dynamic LDS.
    #[must_use]
    pub fn new(grid: u32, block: u32) -> Self {
        Self {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            lds_bytes: 0,
        }
    }

    /// Creates a launch with at least one thread per element, for `count` elements along x, in blocks of 256 threads. It has at least one
    /// block. The kernel must compare its index with the count.
    #[must_use]
    pub fn for_elements(count: u32) -> Self {
        const BLOCK: u32 = 256;
        Self::new(count.div_ceil(BLOCK).max(1), BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread() {
        for (count, blocks) in [(0, 1), (1, 1), (256, 1), (257, 2), (u32::MAX, 1 << 24)] {
            assert_eq!(Launch::for_elements(count), Launch::new(blocks, 256));
        }
    }
}
