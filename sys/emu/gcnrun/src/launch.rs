//! What a launch is given, and what it reports.

/// In which order the blocks of a grid and the waves of a block run. A correct kernel gives the same in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By index.
    #[default]
    Forward,
    /// The last first.
    Reversed,
    /// Another order for each block and each stretch between two barriers, made from the seed.
    Shuffled(u64),
}

/// What is looked for, beyond what no kernel may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Values that nothing has written and that decide something.
    pub uninitialised: bool,
    /// Two waves that touch a byte of LDS with no barrier between.
    pub lds_races: bool,
    /// Loads and stores of a dword or more that are not aligned to a dword, and of two bytes to two. Off by default, since
    /// ROCm runs the hardware in its unaligned access mode and compilers merge smaller accesses accordingly. Scalar loads
    /// and atomic operations have to be aligned in any case.
    pub alignment: bool,
    /// How many instructions a wave may execute before it counts as hung.
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
    /// Bytes of LDS beside those that the kernel declares.
    pub dynamic_lds: u32,
    /// The explicit arguments, laid out as [`KernelInfo::arguments`](crate::KernelInfo::arguments) says. Trailing padding
    /// to a multiple of eight bytes may be there.
    pub arguments: &'a [u8],
    /// In which order blocks and waves run.
    pub order: Order,
    /// What is looked for.
    pub options: Checks,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions executed, one for each wave that executes it.
    pub instructions: u64,
    /// Waves that ran.
    pub waves: u64,
}
