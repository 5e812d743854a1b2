//! Dynamic taint analysis: the ways of marked bytes. In a launch that [`Program::taint`](crate::Program::taint) runs, a bit of
//! the shadow does not say whether a byte was written but whether it is *clean*. Bytes that
//! [`Memory::taint`](crate::Memory::taint) marked, and those computed from them, are not clean. [`isa`](crate::isa) propagates
//! both kinds of bits alike, through arithmetic, permutations, matrix instructions, LDS and memory; [`tracer`] looks at what each
//! instruction wrote. Values that only control which instructions run, or which addresses they access, do not propagate.

mod operands;
mod tracer;

use std::collections::BTreeMap;

use crate::profile::Class;

pub(crate) use tracer::Tracer;

/// Carriers of marked bytes in a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Taint {
    /// Wave instructions whose result, or stored data, depends on a marked byte.
    pub instructions: u64,
    /// Blocks with such an instruction.
    pub blocks: u64,
    /// Waves of the blocks that carry marked bytes.
    pub waves: u64,
    /// The lanes of these whose registers carried it at some time.
    pub lanes: u64,
    /// The first of these instructions: of the first block, when it ran.
    pub first: Option<Carrier>,
    /// The last: of the last block.
    pub last: Option<Carrier>,
    /// Carriers by the instruction's step.
    pub steps: BTreeMap<Step, Carriers>,
    /// Ranges of global memory whose bytes were stored and depend on a marked byte: address and length, in order.
    pub stored: Vec<[u64; 2]>,
}

/// Operation of an instruction on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// Loads it from global or scratch memory.
    Load,
    /// Computes with it on the vector ALU.
    Vector,
    /// Computes with it on the scalar ALU, or loads it there.
    Scalar,
    /// Stores it to LDS.
    LdsStore,
    /// Loads it from LDS, or exchanges it between lanes.
    LdsLoad,
    /// Multiplies and accumulates matrices.
    Matrix,
    /// Stores it to global or scratch memory.
    Store,
}

/// The instructions of a step that carry marked bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Carriers {
    /// Wave instructions.
    pub instructions: u64,
    /// Lanes, summed over them.
    pub lanes: u64,
    /// The first of them.
    pub first: Option<Carrier>,
}

/// An instruction that carries marked bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Carrier {
    /// Address of the instruction.
    pub pc: u64,
    /// The instruction as the disassembler writes it, with its registers.
    pub instruction: String,
    /// The index of its block in the grid.
    pub block: [u32; 3],
    /// The index of its wave in the block.
    pub wave: u32,
    /// Number of its lanes that carry marked bytes. 0 if a scalar register does.
    pub lanes: u32,
    /// The first of them.
    pub lane: Option<u32>,
    /// Address of that lane's access to memory; in LDS its offset.
    pub address: Option<u64>,
}

impl Step {
    fn of(class: Class, mnemonic: &str) -> Option<Self> {
        let stores = |names: [&str; 3]| names.iter().any(|name| mnemonic.contains(name));
        Some(match class {
            Class::Valu | Class::Transcendental => Self::Vector,
            Class::Matrix => Self::Matrix,
            Class::Salu | Class::ScalarMemory => Self::Scalar,
            Class::VectorMemory | Class::Scratch if stores(["_store", "_atomic", "_add"]) => Self::Store,
            Class::VectorMemory | Class::Scratch => Self::Load,
            Class::Lds if stores(["_read", "_load", "permute"]) || mnemonic.contains("_swizzle") => {
                Self::LdsLoad
            }
            Class::Lds => Self::LdsStore,
            Class::Branch | Class::Barrier | Class::Wait | Class::Other => return None,
        })
    }
}
