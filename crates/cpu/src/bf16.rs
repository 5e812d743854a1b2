//! Linear layers and attention in bf16 on the CPU, by AMX or AVX-512 BF16.
//!
//! - Both operands of each GEMM are rounded to bf16 (to nearest, ties to even). Products are exact and summed in f32.
//! - Weights are stored in bf16. Activations are f32 in memory, and rounded when they are multiplied.
//! - Each element is summed in one order, independent of other rows and columns and of the thread. The orders of AMX and AVX-512 differ.
//! - Subnormal operands and sums count as zeros, as these instructions treat them.
//! - Softmax, norms and residuals are in f32.

pub(super) mod attention;
#[cfg(test)]
mod tests;
mod x86;

use rayon::prelude::*;

use hipvit_graph::op::OpError;

use super::amx;
use super::packed::{COLUMNS, GROUP_BYTES, Lines, ROWS, STEP, in_tasks, with_lines};
use super::rows::SharedLoop;
use super::tail::Tail;

/// Input channels per group.
const GROUP: usize = GROUP_BYTES / size_of::<u16>();
/// Input channels are zero-padded to a multiple of this: the channels of a row of an AMX tile.
const CHANNELS: usize = amx::TILE_BYTES / size_of::<u16>();
/// Elements of a panel per group.
const PANEL_STEP: usize = STEP / size_of::<u16>();

/// Sums of a strip of x and a panel.
type Tile<const R: usize = ROWS> = [[f32; COLUMNS]; R];

/// Instruction set of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Amx,
    Avx512Bf16,
}

impl Isa {
    /// All instruction sets, fastest first.
    const ALL: [Self; 2] = [Self::Amx, Self::Avx512Bf16];

    /// Returns the fastest instruction set of this processor. `None` if it has none.
    pub(crate) fn best() -> Option<Self> {
        Self::ALL.into_iter().find(|isa| isa.is_available())
    }

    /// Returns the rows of a strip of x.
    fn strip_rows(self) -> usize {
        match self {
            Self::Amx => amx::ROWS,
            Self::Avx512Bf16 => ROWS,
        }
    }
}

/// Returns true if AMX multiplies bf16: the processor has it and the system permits its use.
pub fn has_amx() -> bool {
    Isa::Amx.is_available()
}

/// A weight `[N,K]` in bf16, packed for many GEMMs.
#[derive(Clone)]
pub(crate) struct Weight {
    n: usize,
    k: usize,
    isa: Isa,
    panels: Lines<u16>,
}

impl Weight {
    /// Rounds and packs `weight [N,K]`, in parallel.
    pub(crate) fn new(weight: &[f32], n: usize, k: usize, isa: Isa) -> Self {
        let panel = k.next_multiple_of(CHANNELS) * COLUMNS;
        let mut panels = Lines::new(n.div_ceil(COLUMNS) * panel);
        panels
            .as_mut_slice()
            .par_chunks_exact_mut(panel)
            .zip(weight.par_chunks(COLUMNS * k))
            .for_each_item(|(panel, rows)| isa.pack_rows(rows, [k, k], panel));
        Self { n, k, isa, panels }
    }
}

/// Computes [`Op::Linear`](hipvit_graph::op::Op::Linear) in bf16 on `x [M,K]`.
pub(crate) fn run(x: &[f32], weight: &Weight, tail: Tail<'_>, out: &mut [f32]) -> Result<(), OpError> {
    let Weight { n, k, isa, .. } = *weight;
    let (rows, strip_rows, padded) = (out.len() / n, isa.strip_rows(), k.next_multiple_of(CHANNELS));
    let (strip, panel) = (padded * strip_rows, padded * COLUMNS);
    with_lines(rows.div_ceil(strip_rows) * strip, |strips: &mut [u16]| {
        strips
            .par_chunks_mut(strip)
            .zip(x.par_chunks(strip_rows * k))
            .for_each_item(|(strip, x)| isa.pack_strips(x, [k, k], strip));
        let panels = weight.panels.as_slice();
        in_tasks(n, strip_rows, tail, out, |rows, columns, result| {
            let job = Job {
                x: &strips[rows.start / strip_rows * strip..rows.end.div_ceil(strip_rows) * strip],
                panels: &panels[columns.start / COLUMNS * panel..columns.end / COLUMNS * panel],
                channels: padded,
                scale: 1.0,
                bias: tail
                    .bias
                    .map_or(&[], |bias| &bias[columns.start..columns.end.min(n)]),
            };
            isa.gemm(&job, result);
        })
    })
}

/// Multiplication of rows of x by some panels.
#[derive(Clone, Copy)]
struct Job<'a> {
    /// Strips of x.
    x: &'a [u16],
    panels: &'a [u16],
    /// Channels of x, padded.
    channels: usize,
    scale: f32,
    /// Bias of the first columns. Empty if there is no bias.
    bias: &'a [f32],
}
