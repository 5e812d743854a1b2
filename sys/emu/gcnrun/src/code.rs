//! Decoded machine code: the instructions, the functions that execute them, what those work on and how they end.

use std::collections::HashMap;
use std::fmt;

use crate::fault::FaultKind;
use crate::operands::Source;
use crate::space::Space;
use crate::wave::Wave;

/// Reason for which a wave stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The wave waits at a barrier.
    Barrier,
    /// The wave has ended.
    End,
    /// The wave executed `s_sleep`: it waits for other waves or kernels.
    Sleep,
}

/// Result of an instruction: continue with the next, or leave the interpreter's loop.
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

/// A fault caused by one lane.
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

/// State that instructions work on.
pub(crate) struct Context<'a, 's> {
    pub(crate) wave: &'a mut Wave,
    pub(crate) space: &'a mut Space<'s>,
    pub(crate) code: &'a Code,
    /// Index of the instruction that comes next.
    pub(crate) next: u32,
    /// True if the host has AVX2 and FMA.
    pub(crate) has_fma: bool,
    /// Set while an operation is tried with its unknown bits replaced.
    pub(crate) assume_known: bool,
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) run: Handler,
    /// The function that `run` calls, if `run` only prepares operands (DPP); else `run` itself.
    pub(crate) inner: Handler,
    pub(crate) src: [[Source; 2]; 4],
    pub(crate) dst: Destination,
    /// The scalar register that a result goes to, if there is one; the second result of instructions with two.
    pub(crate) sdst: Option<u8>,
    /// True if denormals are never flushed, whatever MODE says.
    pub(crate) ignores_mode: bool,
    /// True if denormals are always flushed.
    pub(crate) flushes: bool,
    /// An offset, an immediate, or the index of a branch's target.
    pub(crate) offset: i64,
    /// Parameters of the kind of instruction, such as sizes and counts.
    pub(crate) detail: [u32; 4],
    /// The two halves of a dual instruction.
    pub(crate) dual: Option<Box<[Instruction; 2]>>,
}

/// Bits of its destination register that an operation leaves unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Writes all 32 bits.
    None,
    /// Writes the lower half, keeps the upper one.
    High,
    /// Writes the upper half, keeps the lower one.
    Low,
    /// SDWA: writes `width` bits at `shift`, and keeps, clears or sign-extends the others.
    Sdwa { shift: u8, width: u8, rest: Rest },
}

/// Treatment of the other bits by SDWA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Zero,
    Sign,
    Preserve,
}

/// The vector register that a result is written to, and the result's modifiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Destination {
    pub(crate) register: u16,
    pub(crate) keep: Keep,
    /// Output multiplier: 1, 2, 4 or ½.
    pub(crate) scale: f32,
    /// True if float results are clamped to 0 … 1.
    pub(crate) clamp: bool,
}

impl Instruction {
    /// Without operands.
    pub(crate) fn new(run: Handler) -> Self {
        Self {
            run,
            inner: run,
            src: [[Source::ZERO; 2]; 4],
            dst: Destination {
                register: 0,
                keep: Keep::None,
                scale: 1.0,
                clamp: false,
            },
            sdst: None,
            ignores_mode: false,
            flushes: false,
            offset: 0,
            detail: [0; 4],
            dual: None,
        }
    }
}

/// The machine code of a code object, decoded.
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// Each instruction's address, and the position and length of its text.
    lines: Vec<(u64, u32, u32)>,
    text: String,
    /// Index of the instruction that begins at each word of the code.
    index: Vec<u32>,
    begin: u64,
    /// One more than the highest vector register and accumulation register that the code names.
    registers: [usize; 2],
    /// Description of each instruction that cannot be executed.
    unsupported: HashMap<u32, String>,
    /// True if the code has `s_sleep`, which waves execute while they wait for others.
    sleeps: bool,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code")
            .field("begin", &self.begin)
            .field("instructions", &self.instructions.len())
            .finish_non_exhaustive()
    }
}

/// In `Code::index`: no instruction begins there.
pub(crate) const NOWHERE: u32 = u32::MAX;

impl Code {
    /// The lines of `llvm-objdump -d`'s output, with no instruction decoded yet.
    pub(crate) fn of_listing(text: String) -> Self {
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| line.starts_with('\t')) {
            let offset = line.as_ptr() as usize - text.as_ptr() as usize;
            let words = line
                .split_once("//")
                .and_then(|(_, words)| words.trim_start().split_once(':'));
            if let Some(Ok(address)) = words.map(|(address, _)| u64::from_str_radix(address, 16)) {
                lines.push((address, offset as u32, line.len() as u32));
            }
        }
        let begin = lines.first().map_or(0, |line| line.0);
        let end = lines.last().map_or(0, |line| line.0 + 4);
        let mut index = vec![NOWHERE; ((end - begin) / 4) as usize];
        for (number, (address, ..)) in lines.iter().enumerate() {
            if let Some(slot) = index.get_mut((address.wrapping_sub(begin) / 4) as usize) {
                *slot = number as u32;
            }
        }
        Self {
            sleeps: text.contains("\ts_sleep"),
            instructions: Vec::with_capacity(lines.len()),
            lines,
            text,
            index,
            begin,
            registers: [1, 0],
            unsupported: HashMap::new(),
        }
    }

    /// True if the code has `s_sleep`.
    pub(crate) fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Number of lines of the listing.
    pub(crate) fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// A line's address and text.
    pub(crate) fn line(&self, number: usize) -> (u64, &str) {
        let (address, offset, length) = self.lines[number];
        (address, &self.text[offset as usize..(offset + length) as usize])
    }

    /// Appends the instruction of the next line, which names registers below `registers`.
    pub(crate) fn push(&mut self, instruction: Instruction, registers: [usize; 2]) {
        self.instructions.push(instruction);
        for (all, new) in self.registers.iter_mut().zip(registers) {
            *all = (*all).max(new);
        }
    }

    /// Appends an instruction for the next line that faults when it is executed, because `what` is not supported.
    pub(crate) fn push_unsupported(&mut self, what: String) {
        let number = self.instructions.len();
        self.unsupported.insert(number as u32, what);
        let mut instruction = Instruction::new(run_unsupported);
        instruction.offset = number as i64;
        self.instructions.push(instruction);
    }
    /// The instruction at an address.
    pub(crate) fn index_of(&self, pc: u64) -> Result<u32, FaultKind> {
        let word = pc.wrapping_sub(self.begin);
        match self.index.get((word / 4) as usize) {
            Some(&index) if index != NOWHERE && word.is_multiple_of(4) => Ok(index),
            _ => Err(FaultKind::WildJump { target: pc }),
        }
    }

    /// The address of an instruction; past the last, of where one would be.
    pub(crate) fn address_of(&self, index: u32) -> u64 {
        match self.lines.get(index as usize) {
            Some(line) => line.0,
            None => self.lines.last().map_or(0, |line| line.0 + 4),
        }
    }

    /// The instruction at an address, as the disassembler writes it.
    pub(crate) fn text_at(&self, pc: u64) -> &str {
        self.index_of(pc).map_or("", |index| self.text_of(index as usize))
    }

    /// All instructions, as the disassembler writes them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        (0..self.instructions.len()).map(|index| self.text_of(index))
    }

    /// An instruction as the disassembler writes it.
    pub(crate) fn text_of(&self, index: usize) -> &str {
        let (_, line) = self.line(index);
        line.split("//").next().unwrap_or(line).trim()
    }

    /// Numbers of vector and accumulation registers that a [`Wave`] needs at least for the registers that the code names.
    pub(crate) fn registers(&self) -> [usize; 2] {
        self.registers
    }
}

fn run_unsupported(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let what = context
        .code
        .unsupported
        .get(&(instruction.offset as u32))
        .cloned()
        .unwrap_or_default();
    Err(FaultKind::UnknownInstruction { what }.into())
}
