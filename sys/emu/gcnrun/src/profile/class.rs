//! Unit of a GPU that executes an instruction, and its effect on the counters of outstanding accesses.

/// The unit that executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// The vector ALU.
    Valu,
    /// The vector ALU's slower unit: exponentials, logarithms, reciprocals, roots, sines.
    Transcendental,
    /// The matrix cores: MFMA, WMMA.
    Matrix,
    /// The scalar ALU.
    Salu,
    /// Scalar loads.
    ScalarMemory,
    /// Loads, stores and atomic operations on global memory.
    VectorMemory,
    /// Loads and stores of scratch memory.
    Scratch,
    /// LDS, with lane permutations by its hardware.
    Lds,
    /// Branches and calls.
    Branch,
    /// Barriers of a block.
    Barrier,
    /// Waits for outstanding accesses.
    Wait,
    /// Instructions that take no unit: hints, cache control, the end of the program.
    Other,
}

const TRANSCENDENTAL: &[&str] = &["exp", "log", "rcp", "rsq", "sqrt", "sin", "cos"];
const HINTS: &[&str] = &[
    "s_nop",
    "s_delay_alu",
    "s_clause",
    "s_endpgm",
    "s_sleep",
    "s_setprio",
    "s_code_end",
    "s_sendmsg",
    "s_set_inst_prefetch_distance",
    "s_inst_prefetch",
    "ds_nop",
    // The first half of a barrier.
    "s_barrier_signal",
];

impl Class {
    /// True if the unit's instructions work on the active lanes alone. Matrix instructions do not: CDNA's ignore EXEC, and RDNA's
    /// need all of its bits set.
    pub(super) fn heeds_exec(self) -> bool {
        matches!(
            self,
            Self::Valu | Self::Transcendental | Self::VectorMemory | Self::Scratch | Self::Lds
        )
    }

    /// Classifies a mnemonic; a dual instruction by its first half.
    pub(crate) fn of(mnemonic: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| mnemonic.starts_with(prefix));
        if HINTS.contains(&mnemonic) {
            Self::Other
        } else if starts(&["v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_"]) {
            Self::Matrix
        } else if let Some(operation) = mnemonic.strip_prefix("v_") {
            let name = operation.split('_').next().unwrap_or(operation);
            if TRANSCENDENTAL.contains(&name) {
                Self::Transcendental
            } else {
                Self::Valu
            }
        } else if starts(&["ds_"]) {
            Self::Lds
        } else if starts(&["scratch_"]) {
            Self::Scratch
        } else if starts(&["global_", "flat_", "buffer_"]) {
            if ["_load", "_store", "_atomic"]
                .iter()
                .any(|kind| mnemonic.contains(kind))
            {
                Self::VectorMemory
            } else {
                Self::Other
            }
        } else if starts(&["s_waitcnt", "s_wait_"]) {
            Self::Wait
        } else if starts(&["s_barrier"]) {
            Self::Barrier
        } else if starts(&["s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call"]) {
            Self::Branch
        } else if starts(&["s_load_", "s_buffer_load_"]) {
            Self::ScalarMemory
        } else if starts(&["s_"]) {
            Self::Salu
        } else {
            Self::Other
        }
    }
}

/// Target of outstanding accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Vector,
    Lds,
    Scalar,
}

/// Effect of an instruction on the counters of outstanding accesses: those of vector memory, of LDS, and of scalar loads, which
/// share LDS's before gfx12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    None,
    /// Waits until at most this number of accesses is outstanding, by counter.
    Wait([Option<u32>; 3]),
    /// An access of this unit increments the counter.
    Access(Unit, usize),
}

impl Event {
    /// Returns the event of an instruction as the disassembler writes it. Stores count only where loads and stores share a
    /// counter (GCN, CDNA): elsewhere nothing in a kernel waits for them.
    pub(super) fn of(class: Class, text: &str, arch: &str) -> Self {
        let (gfx9, gfx12) = (arch.starts_with("gfx9"), arch.starts_with("gfx12"));
        let count = |name: &str| {
            let (_, rest) = text.split_once(name)?;
            rest.split(')').next()?.parse().ok()
        };
        match class {
            Class::Wait if text.starts_with("s_waitcnt") => {
                Self::Wait([count("vmcnt("), count("lgkmcnt("), None])
            }
            Class::Wait => Self::wait_of_gfx12(text),
            Class::Lds => Self::Access(Unit::Lds, 1),
            Class::ScalarMemory => Self::Access(Unit::Scalar, if gfx12 { 2 } else { 1 }),
            Class::VectorMemory | Class::Scratch if gfx9 || !text.contains("_store") => {
                Self::Access(Unit::Vector, 0)
            }
            _ => Self::None,
        }
    }

    /// `s_wait_loadcnt 0x2`, `s_wait_loadcnt_dscnt 0x301`, whose bits from 8 up are the first count.
    fn wait_of_gfx12(text: &str) -> Self {
        let (name, count) = text.split_once(' ').unwrap_or((text, ""));
        let count = count.trim();
        let count = match count.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => count.parse().ok(),
        };
        let (first, second) = (count.map(|count| count >> 8 & 63), count.map(|count| count & 63));
        match name {
            "s_wait_loadcnt" => Self::Wait([count, None, None]),
            "s_wait_dscnt" => Self::Wait([None, count, None]),
            "s_wait_kmcnt" => Self::Wait([None, None, count]),
            "s_wait_loadcnt_dscnt" => Self::Wait([first, second, None]),
            "s_wait_storecnt_dscnt" => Self::Wait([None, second, None]),
            _ => Self::None,
        }
    }
}
