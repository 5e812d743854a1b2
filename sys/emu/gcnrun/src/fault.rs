//! Faults: what a kernel did wrong, at which instruction, in which lane.

use std::fmt;

/// Reason for which a kernel was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The emulator does not support the instruction, or one of its operands or modifiers.
    UnknownInstruction {
        /// The unsupported instruction or operand.
        what: String,
    },
    /// A global access outside every allocation.
    OutOfBounds {
        /// The address of the access.
        address: u64,
        /// The size of the access in bytes.
        bytes: u64,
        /// The allocation that begins last before the address: its first byte and its length.
        nearest: Option<(u64, u64)>,
    },
    /// An access to an address that is not aligned.
    Misaligned {
        /// The address, or the offset in LDS or scratch memory.
        address: u64,
        /// The alignment that it needs.
        alignment: u32,
    },
    /// A global access to an allocation that was freed.
    UseAfterFree {
        /// The address of the access.
        address: u64,
        /// The allocation's first byte and its length.
        allocation: (u64, u64),
    },
    /// A global access to another device's memory without peer access.
    NoPeerAccess {
        /// The address of the access.
        address: u64,
        /// The device that the memory belongs to.
        owner: u32,
    },
    /// An access beyond the block's LDS.
    LdsOverrun {
        /// The address of the access.
        offset: u64,
        /// The size of the access in bytes.
        bytes: u32,
        /// The block's LDS in bytes.
        size: u32,
    },
    /// An access beyond the lane's scratch memory.
    ScratchOverrun {
        /// The address of the access.
        offset: u64,
        /// The size of the access in bytes.
        bytes: u32,
        /// The lane's scratch memory in bytes.
        size: u32,
    },
    /// An uninitialised value is used as an address, a branch condition or a lane mask, or is stored to global memory.
    Uninitialised {
        /// Place of the value, and its use.
        what: String,
    },
    /// Two waves accessed the same byte of LDS without a barrier between, and at least one wrote.
    LdsRace {
        /// The byte.
        offset: u32,
        /// The other wave; `None` if there were several.
        other: Option<u32>,
        /// True if the other wave wrote; false if it read.
        other_wrote: bool,
    },
    /// Waves of a block wait at different barriers.
    BarrierDivergence {
        /// Address at which another wave of the block waits.
        other_pc: u64,
    },
    /// The arguments do not have the size that the kernel takes.
    ArgumentSize {
        /// The bytes that the kernel takes.
        expected: usize,
        /// The bytes that were given.
        given: usize,
    },
    /// The launch asks for what the kernel or the device does not allow.
    Configuration {
        /// Description of the fault.
        what: String,
    },
    /// A wave used up its instruction budget.
    Timeout {
        /// Number of instructions that it executed.
        instructions: u64,
    },
    /// The kernel trapped, as `abort` and failed assertions do.
    Trap {
        /// The trap's number.
        number: u32,
    },
    /// The program counter left the code.
    WildJump {
        /// The address.
        target: u64,
    },
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownInstruction { what } => write!(f, "the emulator does not support {what}"),
            Self::OutOfBounds {
                address,
                bytes,
                nearest,
            } => {
                write!(f, "{bytes} bytes at {address:#x} are outside every allocation")?;
                match nearest {
                    Some((begin, length)) if address - begin >= *length => write!(
                        f,
                        "; the nearest before, {length} bytes at {begin:#x}, ends {} bytes earlier",
                        address - begin - length
                    ),
                    Some((begin, length)) => write!(
                        f,
                        "; they begin in {length} bytes at {begin:#x}, {} bytes before its end",
                        begin + length - address
                    ),
                    None => Ok(()),
                }
            }
            Self::Misaligned { address, alignment } => {
                write!(f, "{address:#x} is not a multiple of {alignment}")
            }
            Self::UseAfterFree {
                address,
                allocation: (begin, length),
            } => write!(
                f,
                "{address:#x} is in {length} bytes at {begin:#x} that were freed"
            ),
            Self::NoPeerAccess { address, owner } => write!(
                f,
                "{address:#x} is memory of device {owner}, to which peer access was not enabled"
            ),
            Self::LdsOverrun { offset, bytes, size } => write!(
                f,
                "{bytes} bytes at {offset} of LDS exceed the block's {size} bytes"
            ),
            Self::ScratchOverrun { offset, bytes, size } => write!(
                f,
                "{bytes} bytes at {offset} of scratch memory exceed the lane's {size} bytes"
            ),
            Self::Uninitialised { what } => write!(f, "uninitialised value: {what}"),
            Self::LdsRace {
                offset,
                other,
                other_wrote,
            } => {
                let did = if *other_wrote { "written" } else { "read" };
                write!(f, "byte {offset} of LDS was {did} by ")?;
                match other {
                    Some(wave) => write!(f, "wave {wave}")?,
                    None => f.write_str("several waves")?,
                }
                f.write_str(" since the last barrier")
            }
            Self::BarrierDivergence { other_pc } => write!(
                f,
                "the waves of the block wait at different barriers (another waits at {other_pc:#x})"
            ),
            Self::ArgumentSize { expected, given } => {
                write!(f, "the kernel takes {expected} bytes of arguments, not {given}")
            }
            Self::Configuration { what } => f.write_str(what),
            Self::Timeout { instructions } => {
                write!(f, "the wave executed {instructions} instructions and did not end")
            }
            Self::Trap { number } => write!(f, "trap {number}"),
            Self::WildJump { target } => write!(f, "a jump to {target:#x}, where no code is"),
        }
    }
}

impl std::error::Error for FaultKind {}

/// Reason and place at which a kernel was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The fault.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// Where; `None` if the kernel did not begin.
    pub place: Option<Place>,
}

/// An instruction in a lane of a wave of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The instruction's address in the code object.
    pub pc: u64,
    /// The instruction as the disassembler writes it.
    pub instruction: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The wave's index in the block.
    pub wave: u32,
    /// The lane, if one lane caused it.
    pub lane: Option<u32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.kind)?;
        let Some(place) = &self.place else {
            return Ok(());
        };
        let [x, y, z] = place.block;
        write!(f, "\n  in block ({x}, {y}, {z}), wave {}", place.wave)?;
        if let Some(lane) = place.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, "\n  at {:#x}: {}", place.pc, place.instruction)
    }
}

impl std::error::Error for Fault {}
