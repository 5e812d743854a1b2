//! The geometry of a launch.

/// The geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic LDS (shared memory) of a block, in bytes.
    pub lds_bytes: u32,
}

impl Launch {
    /// `grid` blocks of `block` threads along x, without dynamic LDS.
    #[must_use]
    pub fn new(grid: u32, block: u32) -> Self {
        Self {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            lds_bytes: 0,
        }
    }

    /// At least one thread for each of `count` elements along x, in blocks of 256 threads; at least one block. The kernel
    /// has to compare its index with the count.
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
