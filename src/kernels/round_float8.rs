//! `round_float8`: rounding to FP8 in training.

use std::borrow::Cow;

use hipvit_graph::op::{Float8, Float8Source, RoundFloat8};

use super::activation_code::activation_code;
use super::bindings::{
    Float8Code, Float8SourceCode, ROUND_FLOAT8_ALIGNMENT, ROUND_FLOAT8_FIGURES, ROUND_FLOAT8_HISTORY,
    ROUND_FLOAT8_LARGEST_BLOCKS, ROUND_FLOAT8_RATES, ROUND_FLOAT8_ROWS, ROUND_FLOAT8_SUMMED,
    ROUND_FLOAT8_THREADS, ROUND_FLOAT8_TILE, RoundFloat8Args, RoundFloat8Stage,
};
use super::lower::{Call, Lower, Lowering, rows, shape_of};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::{Plan, Step};

const STAGES: [RoundFloat8Stage; 3] = [
    RoundFloat8Stage::Largest,
    RoundFloat8Stage::Round,
    RoundFloat8Stage::Finish,
];

/// Bits of the flags.
const DELAYED: u32 = 1;
const STORED: u32 = 2;

const STATISTICS_BYTES: usize = (ROUND_FLOAT8_RATES + ROUND_FLOAT8_HISTORY) as usize * size_of::<f32>();
const LARGEST_BYTES: usize = ROUND_FLOAT8_LARGEST_BLOCKS as usize * size_of::<f32>();

/// Blocks of the second stage for x `[rows, channels]`, whose transpose has `padded_rows` columns.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    below: usize,
    beside: usize,
    channels: usize,
}

impl Blocks {
    pub(super) fn of([padded_rows, channels]: [usize; 2]) -> Self {
        Self {
            below: padded_rows.div_ceil(ROUND_FLOAT8_ROWS as usize),
            beside: channels.div_ceil(ROUND_FLOAT8_TILE as usize),
            channels,
        }
    }

    /// Returns the bytes of the figures of all blocks, and those of the sums.
    pub(super) fn bytes(self) -> [usize; 2] {
        let figures = self.below * self.beside * ROUND_FLOAT8_FIGURES as usize;
        [figures, self.below * self.channels].map(|count| count * size_of::<f32>())
    }
}

impl Lower for RoundFloat8 {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("round_float8"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let format = match self.format {
            Float8::E4M3 => Float8Code::E4M3,
            Float8::E5M2 => Float8Code::E5M2,
            Float8::E4M3Fnuz | Float8::E5M2Fnuz => {
                return Err(KernelError::unsupported("rounds to FNUZ, which no kernel does"));
            }
        };
        let x = step.shape_of(0)?;
        let (rows, channels) = (rows(x)?, x.last().copied().unwrap_or(1));
        let (source, activation, dy) = match self.source {
            Float8Source::Value => (Float8SourceCode::Value, None, DeviceAddress::NULL),
            Float8Source::Activation(activation) => (
                Float8SourceCode::Activation,
                Some(activation),
                DeviceAddress::NULL,
            ),
            Float8Source::Slope(activation) => (Float8SourceCode::Slope, Some(activation), step.address(2)?),
        };
        let is_stored = self.stored && step.element() == 2;
        let args = RoundFloat8Args {
            x: step.address(0)?,
            dy,
            statistics: step.address(1)?,
            out: step.out,
            transposed: step.result(Self::TRANSPOSED)?,
            next: step.result(Self::STATISTICS)?,
            sums: if self.sums {
                step.result(Self::SUMS)?
            } else {
                DeviceAddress::NULL
            },
            scratch: step.addresses.scratch,
            rows: extent(rows)?,
            channels: extent(channels)?,
            padded_rows: extent(rows.next_multiple_of(self.align))?,
            format: format as u32,
            source: source as u32,
            activation: activation_code(activation) as u32,
            flags: if self.delayed { DELAYED } else { 0 } | if is_stored { STORED } else { 0 },
            stage: 0,
        };
        let calls = STAGES.map(|stage| {
            Call::from(RoundFloat8Args {
                stage: stage as u32,
                ..args
            })
        });
        Ok(calls.into())
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let x = step.inputs.first().map_or(&[][..], |&x| shape_of(plan, x));
        let channels = x.last().copied().unwrap_or(1).max(1);
        let rows = (x.iter().product::<usize>() / channels).next_multiple_of(self.align);
        let [figures, sums] = Blocks::of([rows, channels]).bytes();
        LARGEST_BYTES + figures + if self.sums { sums } else { 0 }
    }
}

impl RoundFloat8Args {
    fn is(&self, stage: RoundFloat8Stage) -> bool {
        self.stage == stage as u32
    }

    fn is_stored(&self) -> bool {
        self.flags & STORED != 0
    }

    fn blocks(&self) -> Blocks {
        Blocks::of([self.padded_rows as usize, self.channels as usize])
    }

    /// Returns the bytes of a result with as many rows and columns.
    fn result_bytes(&self, element: usize, extents: &[u32]) -> usize {
        if self.is_stored() {
            bytes(1, extents).next_multiple_of(ROUND_FLOAT8_ALIGNMENT as usize) + size_of::<f32>()
        } else {
            bytes(element, extents)
        }
    }

    /// Checks what the variant that stores bytes requires.
    fn check_stored(&self) -> Result<(), KernelError> {
        let alignment = ROUND_FLOAT8_ALIGNMENT;
        let addresses = [self.x, self.dy, self.out, self.transposed];
        if !self.channels.is_multiple_of(alignment)
            || !self.padded_rows.is_multiple_of(alignment)
            || addresses
                .iter()
                .any(|address| !address.is_aligned_to(alignment as usize))
        {
            return Err("stores bytes of matrices whose extents and addresses are multiples of 16".into());
        }
        Ok(())
    }
}

// SAFETY: see hip/round_float8.hip. A block takes rows and columns, or a share of the elements, and exactly as many blocks are launched.
unsafe impl KernelArguments for RoundFloat8Args {
    const FILE: &'static str = "round_float8";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let source = if self.source == Float8SourceCode::Activation as u32 {
            "_activation"
        } else if self.source == Float8SourceCode::Slope as u32 {
            "_slope"
        } else {
            ""
        };
        Ok(if self.is(RoundFloat8Stage::Finish) {
            "round_float8_finish".into()
        } else if self.is(RoundFloat8Stage::Largest) {
            format!("round_float8_largest{source}").into()
        } else if self.is_stored() {
            format!("round_float8_stored{source}").into()
        } else {
            format!("round_float8{source}").into()
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.rows == 0 || self.channels == 0 {
            return Err("x has no elements".into());
        }
        if self.padded_rows < self.rows {
            return Err(KernelError::internal("transposes more rows than the result has"));
        }
        if self.is_stored() {
            self.check_stored()?;
        }
        let blocks = if self.is(RoundFloat8Stage::Largest) {
            ROUND_FLOAT8_LARGEST_BLOCKS.into()
        } else if self.is(RoundFloat8Stage::Round) {
            let Blocks { below, beside, .. } = self.blocks();
            below as u64 * beside as u64
        } else if self.sums.is_null() {
            1
        } else {
            1 + u64::from(self.channels.div_ceil(ROUND_FLOAT8_SUMMED))
        };
        target.blocks(blocks, ROUND_FLOAT8_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let [figures, sums] = self.blocks().bytes();
        let sums = if self.sums.is_null() { 0 } else { sums };
        let behind = self.scratch.offset(LARGEST_BYTES);
        visit(Access::read("statistics", self.statistics, STATISTICS_BYTES));
        if self.is(RoundFloat8Stage::Finish) {
            visit(Access::read("figures", behind, figures + sums));
            visit(Access::write("next", self.next, STATISTICS_BYTES));
            if !self.sums.is_null() {
                visit(Access::write("sums", self.sums, bytes(element, &[self.channels])));
            }
            return;
        }
        let all = bytes(element, &[self.rows, self.channels]);
        visit(Access::read("x", self.x, all));
        if self.source == Float8SourceCode::Slope as u32 {
            visit(Access::read("dy", self.dy, all));
        }
        if self.is(RoundFloat8Stage::Largest) {
            visit(Access::write("largest", self.scratch, LARGEST_BYTES));
            return;
        }
        visit(Access::read("largest", self.scratch, LARGEST_BYTES));
        let out = self.result_bytes(element, &[self.rows, self.channels]);
        let transposed = self.result_bytes(element, &[self.padded_rows, self.channels]);
        visit(Access::write("out", self.out, out));
        visit(Access::write("transposed", self.transposed, transposed));
        visit(Access::write("figures", behind, figures + sums));
    }
}
