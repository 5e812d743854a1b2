//! What AMD's instructions do, after the ISA guides of RDNA 2 and 3 and of CDNA 2 and 3.
//!
//! [`decode`](crate::decode) turns the disassembler's text into [`Instruction`]s, each with the function that executes it
//! for the whole wave; the tables are here, a file for each kind. [`run`] executes a wave until it waits or ends. What an
//! instruction does to memory it asks of [`Space`](crate::space::Space).

mod access;
mod compare;
mod control;
mod convert;
mod cross;
mod division;
mod dpp;
mod dual;
pub(crate) mod float;
mod lanes;
mod lds;
mod matrix;
mod packed;
mod salu;
mod smem;
#[cfg(test)]
mod tests;
mod valu;
mod vmem;

use crate::decode::{Code, Line};
use crate::fault::FaultKind;
use crate::operands::Source;
use crate::space::Space;
use crate::wave::Wave;
pub(crate) use lanes::{Destination, Keep};

/// Why a wave stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits at a barrier.
    Barrier,
    /// It has ended.
    End,
}

/// What an instruction came to: on to the next, or an exit from the loop.
pub(crate) type Outcome = Result<(), Box<Exit>>;

#[derive(Debug)]
pub(crate) enum Exit {
    Stop(Stop),
    Fault { kind: FaultKind, lane: Option<u32> },
}

impl From<FaultKind> for Box<Exit> {
    fn from(kind: FaultKind) -> Self {
        Box::new(Exit::Fault { kind, lane: None })
    }
}

/// A fault that is one lane's doing.
pub(crate) fn in_lane(kind: FaultKind, lane: u32) -> Box<Exit> {
    Box::new(Exit::Fault {
        kind,
        lane: Some(lane),
    })
}

pub(crate) fn uninitialised(what: impl Into<String>) -> FaultKind {
    FaultKind::Uninitialised { what: what.into() }
}

/// Executes one instruction for all lanes.
pub(crate) type Handler = for<'a, 's> fn(&mut Context<'a, 's>, &Instruction) -> Outcome;

/// What instructions work on.
pub(crate) struct Context<'a, 's> {
    pub(crate) wave: &'a mut Wave,
    pub(crate) space: &'a mut Space<'s>,
    pub(crate) code: &'a Code,
    /// Index of the instruction that comes next.
    pub(crate) next: u32,
    /// Are there AVX2 and FMA?
    modern: bool,
    /// Set while an operation is tried with its unknown bits replaced.
    assume_known: bool,
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) run: Handler,
    /// What `run` leads to, where `run` prepares something first (DPP).
    pub(crate) inner: Handler,
    pub(crate) src: [[Source; 2]; 4],
    pub(crate) dst: Destination,
    /// The scalar register that a result goes to, if there is one; the second result of instructions with two.
    pub(crate) sdst: Option<u8>,
    /// Never flushes denormals, whatever MODE says.
    pub(crate) ignores_mode: bool,
    /// Always flushes denormals.
    pub(crate) flushes: bool,
    /// An offset, an immediate, or the instruction that a branch leads to.
    pub(crate) offset: i64,
    /// Bytes, counts and the like: whatever the kind of instruction needs.
    pub(crate) detail: [u32; 4],
    /// The two halves of a dual instruction.
    pub(crate) dual: Option<Box<[Instruction; 2]>>,
}

/// What a line of the disassembly does.
///
/// # Errors
/// What of it is unknown.
pub(crate) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mnemonic = line.mnemonic;
    let decoded = if line.dual.is_some() {
        dual::decode(line)
    } else if mnemonic.starts_with("v_") {
        valu::decode(line)
    } else if mnemonic.starts_with("s_") {
        if mnemonic.starts_with("s_load_") {
            smem::decode(line)
        } else {
            control::decode(line).unwrap_or_else(|| salu::decode(line))
        }
    } else if mnemonic.starts_with("ds_") {
        lds::decode(line)
    } else {
        vmem::decode(line)
    };
    decoded.map_err(|what| {
        if what.is_empty() {
            format!("instruction {mnemonic}")
        } else {
            what
        }
    })
}

/// A fault and where it happened.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    /// What is wrong.
    pub kind: FaultKind,
    /// Address of the instruction.
    pub pc: u64,
    /// The lane, if it is the doing of one.
    pub lane: Option<u32>,
}

/// Executes a wave until it ends or waits at a barrier; its `pc` is then where it goes on.
///
/// # Errors
/// What it did wrong, and at which instruction.
pub(crate) fn run(wave: &mut Wave, code: &Code, space: &mut Space<'_>) -> Result<Stop, Stopped> {
    let mut index = code.index_of(wave.pc).map_err(|kind| Stopped {
        kind,
        pc: wave.pc,
        lane: None,
    })?;
    let mut context = Context {
        wave,
        space,
        code,
        next: 0,
        modern: modern(),
        assume_known: false,
    };
    let mut executed = 0_u64;
    let budget = context.wave.budget;
    let stop = loop {
        let Some(instruction) = code.instructions.get(index as usize) else {
            let target = code.address_of(index);
            break Err(Box::from(FaultKind::WildJump { target }));
        };
        executed += 1;
        if executed > budget {
            break Err(Box::from(FaultKind::Timeout {
                instructions: context.wave.executed + budget,
            }));
        }
        context.next = index + 1;
        if let Err(exit) = (instruction.run)(&mut context, instruction) {
            break Err(exit);
        }
        index = context.next;
    };
    let next = context.next;
    wave.executed += executed;
    wave.budget -= executed.min(budget);
    match stop.map_err(|exit| *exit) {
        Ok(()) => Ok(Stop::End),
        Err(Exit::Stop(stop)) => {
            wave.pc = code.address_of(next);
            Ok(stop)
        }
        Err(Exit::Fault { kind, lane }) => {
            wave.pc = code.address_of(index);
            Err(Stopped {
                kind,
                pc: wave.pc,
                lane,
            })
        }
    }
}

/// Does this processor have AVX2 and FMA?
fn modern() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}
