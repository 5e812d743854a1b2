//! A launch's parameters and statistics.

/// In which order the blocks of a grid and the waves of a block run. A correct kernel gives the same in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of the indices.
    #[default]
    Forward,
    /// The last first.
    Reversed,
    /// A pseudorandom order, from the seed; another for each block, and for each phase between two barriers.
    Shuffled(u64),
}

/// Checks beyond those that are always made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Uses of uninitialised values.
    pub uninitialised: bool,
    /// Races: two waves access a byte of LDS without a barrier between.
    pub lds_races: bool,
    /// Loads and stores of a dword or more that are not aligned to a dword, and of two bytes to two. Off by default, since
    /// ROCm runs the hardware in its unaligned access mode and compilers merge smaller accesses accordingly. Scalar loads
    /// and atomic operations have to be aligned in any case.
    pub alignment: bool,
    /// Maximum number of instructions of a wave before it is reported as hung.
    pub budget: u64,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            uninitialised: true,
            lds_races: true,
            alignment: false,
            budget: 1 << 30,
        }
    }
}

/// A kernel and what to run it on.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Work-items of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic LDS, in addition to those that the kernel declares.
    pub dynamic_lds: u32,
    /// The explicit arguments, laid out as [`KernelInfo::arguments`](crate::KernelInfo::arguments) says. Trailing padding
    /// to a multiple of eight bytes is allowed.
    pub arguments: &'a [u8],
    /// In which order blocks and waves run.
    pub order: Order,
    /// The checks to make.
    pub options: Checks,
}

/// Counts of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions executed, counted once per wave.
    pub instructions: u64,
    /// Waves that ran.
    pub waves: u64,
}
