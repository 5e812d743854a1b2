//! Linear layers in int8 on the CPU.
//!
//! - Weights are symmetric, `w ≈ scale[n] · q`, with a scale per output channel. No zero point has to be multiplied by x.
//! - Activations are quantised when they are multiplied, by default each row (token) by its own range and zero point. No calibration is
//!   needed, and an outlier costs only its own token resolution. Results do not depend on the batch, and GELU's one-sided outputs use all
//!   256 levels. The cost is a pass over M·K elements beside M·K·N products.
//! - `Σ (q_x − zero) · q_w = Σ q_x·q_w − zero · Σ q_w`. The dot products take x as u8 and the weight as i8, as on x86. The sums of the
//!   weight are computed when it is packed.
//! - Integer sums are exact in any order, and each operation after them is rounded separately. All instruction sets therefore give the same
//!   bits.
//! - The instruction set is chosen at run time: `int8/x86.rs` and `amx.rs` for x86, `int8/neon.rs` for AArch64. Other processors use plain
//!   loops, which are exact but slow.
//! - Everything else (norms, attention, softmax, residuals) is in f32.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use hipvit_graph::op::{Levels, OpError};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::amx;
use super::packed::{COLUMNS, GROUP_BYTES, Lines, ROW_STEP, ROWS, STEP, in_tasks, scatter, with_lines};
use super::rows::{SharedLoop, with_scratch};
use super::tail::Tail;

/// Input channels whose products one instruction adds.
const GROUP: usize = GROUP_BYTES;
/// Maximum number of input channels: `255 · 128 · K` fits in an i32.
const MOST_CHANNELS: usize = 1 << 16;

/// Sums of a strip of x and a panel.
type Tile<const R: usize = ROWS> = [[i32; COLUMNS]; R];

/// Instruction set of the dot products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    I8mm,
    #[cfg(target_arch = "aarch64")]
    DotProd,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Isa {
    /// All instruction sets, fastest first.
    const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Amx,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512Vnni,
        #[cfg(target_arch = "x86_64")]
        Self::AvxVnni,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "aarch64")]
        Self::I8mm,
        #[cfg(target_arch = "aarch64")]
        Self::DotProd,
        #[cfg(target_arch = "aarch64")]
        Self::Neon,
        Self::Portable,
    ];

    /// Returns the fastest instruction set of this processor.
    fn best() -> Self {
        let available = Self::ALL.iter().copied().find(|isa| isa.is_available());
        available.unwrap_or(Self::Portable)
    }

    /// Returns the rows of a strip of x, and the number of adjacent channels of a row that are stored together. Input channels are
    /// zero-padded to a multiple of the latter.
    fn strip(self) -> (usize, usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => (amx::ROWS, amx::TILE_BYTES),
            _ => (ROWS, GROUP),
        }
    }
}

/// Returns true if AMX computes int8 linear layers: the processor has it and the system permits its use.
#[cfg(target_arch = "x86_64")]
pub fn has_amx() -> bool {
    Isa::Amx.is_available()
}

/// Formats the extents.
impl std::fmt::Debug for Int8Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Int8Weight[{}, {}]", self.n, self.k)
    }
}

/// An int8 weight `[N,K]`, packed for many GEMMs. A panel of `COLUMNS` output channels has, for each group of `GROUP` input channels, the
/// group of each output channel. Missing channels at the ends are zero.
#[derive(Clone)]
pub struct Int8Weight {
    n: usize,
    k: usize,
    isa: Isa,
    panels: Lines<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

impl Int8Weight {
    /// Packs `weight [N,K]` in parallel. Its rows have the scales `scales`.
    pub fn new(weight: &[i8], scales: &[f32], n: usize, k: usize) -> Result<Self, OpError> {
        Self::with_isa(weight, scales, n, k, Isa::best())
    }

    fn with_isa(weight: &[i8], scales: &[f32], n: usize, k: usize, isa: Isa) -> Result<Self, OpError> {
        if n == 0 || k == 0 || weight.len() != n * k || scales.len() != n {
            return Err(format!(
                "the weight has {} elements and {} scales, expected {n} × {k} and {n}",
                weight.len(),
                scales.len()
            )
            .into());
        }
        if k > MOST_CHANNELS {
            return Err(format!("has {k} input channels, more than {MOST_CHANNELS} in int8").into());
        }
        let padded = n.next_multiple_of(COLUMNS);
        let panel = k.next_multiple_of(isa.strip().1) * COLUMNS;
        let mut packed = Self {
            n,
            k,
            isa,
            panels: Lines::new(padded / COLUMNS * panel),
            scales: scales.to_vec(),
            sums: vec![0; padded],
        };
        packed.scales.resize(padded, 0.0);
        let panels = packed.panels.as_mut_slice().par_chunks_exact_mut(panel);
        let panels = panels.zip(packed.sums.par_chunks_mut(COLUMNS));
        panels
            .zip(weight.par_chunks(COLUMNS * k))
            .for_each_item(|((panel, sums), rows)| {
                for (j, (row, sum)) in rows.chunks(k).zip(sums).enumerate() {
                    *sum = row.iter().map(|&q| i32::from(q)).sum();
                    for (group, values) in row.chunks(GROUP).enumerate() {
                        let at = group * STEP + j * GROUP;
                        panel[at..at + values.len()].copy_from_slice(values);
                    }
                }
            });
        Ok(packed)
    }

    /// Returns the bytes of a panel.
    fn panel(&self) -> usize {
        self.k.next_multiple_of(self.isa.strip().1) * COLUMNS
    }
}

/// Computes [`Op::Linear`](hipvit_graph::op::Op::Linear) in int8 on `x [M,K]`. A task is a block of strips of x times some panels of the weight.
pub fn run(
    x: &[f32],
    weight: &Int8Weight,
    levels: Levels,
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let Int8Weight { n, k, isa, .. } = *weight;
    let rows = out.len() / n;
    let (strip_rows, channels) = isa.strip();
    let (strips, strip) = (
        rows.div_ceil(strip_rows),
        k.next_multiple_of(channels) * strip_rows,
    );
    with_lines(strips * strip, |bytes: &mut [u8]| {
        with_scratch(2 * rows, |ranges| {
            let (scales, zeros) = ranges.split_at_mut(rows);
            let zeros: &mut [i32] = bytemuck::cast_slice_mut(zeros);
            let ranges = scales
                .par_chunks_mut(strip_rows)
                .zip(zeros.par_chunks_mut(strip_rows));
            let strips = bytes.par_chunks_mut(strip).zip(ranges);
            strips
                .zip(x.par_chunks(strip_rows * k))
                .for_each_item(|((bytes, (scales, zeros)), x)| {
                    quantize_strip((isa, levels), x, k, bytes, scales, zeros);
                });
            let x = Quantized {
                bytes,
                strip,
                scales,
                zeros,
            };
            multiply(&x, weight, tail, out)
        })
    })
}

/// Quantised rows of x. A strip has, for each group of adjacent channels ([`Isa::strip`]), the group of each of its rows.
#[derive(Clone, Copy)]
struct Quantized<'a> {
    bytes: &'a [u8],
    /// Bytes of a strip.
    strip: usize,
    scales: &'a [f32],
    zeros: &'a [i32],
}

fn multiply(x: &Quantized<'_>, weight: &Int8Weight, tail: Tail<'_>, out: &mut [f32]) -> Result<(), OpError> {
    let Int8Weight { n, isa, .. } = *weight;
    let strip_rows = isa.strip().0;
    in_tasks(n, strip_rows, tail, out, |rows, columns, result| {
        let panels = columns.start / COLUMNS * weight.panel()..columns.end / COLUMNS * weight.panel();
        let job = Job {
            x: &x.bytes[rows.start / strip_rows * x.strip..rows.end.div_ceil(strip_rows) * x.strip],
            strip: x.strip,
            scales: &x.scales[rows.clone()],
            zeros: &x.zeros[rows],
            panels: &weight.panels.as_slice()[panels],
            panel: weight.panel(),
            weight_scales: &weight.scales[columns.clone()],
            weight_sums: &weight.sums[columns.clone()],
            bias: tail
                .bias
                .map_or(&[], |bias| &bias[columns.start..columns.end.min(n)]),
        };
        isa.gemm(&job, result);
    })
}

/// Multiplication of rows of x by some panels.
#[derive(Clone, Copy)]
struct Job<'a> {
    x: &'a [u8],
    /// Bytes of a strip of x.
    strip: usize,
    /// Scale of each row.
    scales: &'a [f32],
    zeros: &'a [i32],
    panels: &'a [i8],
    /// Bytes of a panel.
    panel: usize,
    /// Scale of each column of the panels.
    weight_scales: &'a [f32],
    weight_sums: &'a [i32],
    /// Bias of the first columns, which are not padding. Empty if there is no bias.
    bias: &'a [f32],
}

/// Computes `out [rows, columns] = x · weightᵀ + bias` of a job. `tile(x, panel, rows, result)` computes one tile, with `centre` subtracted
/// from x.
#[inline(always)]
fn gemm<const R: usize>(
    job: &Job<'_>,
    out: &mut [f32],
    centre: i32,
    tile: impl Fn(&[u8], &[i8], usize, &mut Tile<R>),
) {
    let width = job.weight_scales.len();
    let mut sums: Tile<R> = [[0; COLUMNS]; R];
    let weight_scales = job.weight_scales.as_chunks::<COLUMNS>().0;
    let weight_sums = job.weight_sums.as_chunks::<COLUMNS>().0;
    let panels = job
        .panels
        .chunks_exact(job.panel)
        .zip(weight_scales.iter().zip(weight_sums));
    for (p, (panel, (weight_scales, weight_sums))) in panels.enumerate() {
        let mut bias = [0.0; COLUMNS];
        let part = job.bias.iter().skip(p * COLUMNS);
        bias.iter_mut().zip(part).for_each(|(bias, value)| *bias = *value);
        let strips = job.x.chunks_exact(job.strip);
        let ranges = job.scales.chunks(R).zip(job.zeros.chunks(R));
        for ((strip, (scales, zeros)), out) in strips.zip(ranges).zip(out.chunks_mut(R * width)) {
            tile(strip, panel, scales.len(), &mut sums);
            let rows = sums
                .iter()
                .zip(scales.iter().zip(zeros))
                .zip(out.chunks_exact_mut(width));
            for ((sums, (scale, zero)), out) in rows {
                for (j, out) in out[p * COLUMNS..(p + 1) * COLUMNS].iter_mut().enumerate() {
                    let sum = sums[j].wrapping_sub(zero.wrapping_sub(centre).wrapping_mul(weight_sums[j]));
                    *out = sum as f32 * weight_scales[j] * scale + bias[j];
                }
            }
        }
    }
}

/// Computes the sums of the first `rows` rows with plain loops.
fn portable(x: &[u8], panel: &[i8], rows: usize, tile: &mut Tile) {
    for (r, row) in tile.iter_mut().enumerate().take(rows) {
        *row = [0; COLUMNS];
        for (x, panel) in x
            .as_chunks::<ROW_STEP>()
            .0
            .iter()
            .zip(panel.as_chunks::<STEP>().0)
        {
            let x = &x[r * GROUP..(r + 1) * GROUP];
            for (sum, weight) in row.iter_mut().zip(panel.as_chunks::<GROUP>().0) {
                *sum += x
                    .iter()
                    .zip(weight)
                    .map(|(x, w)| i32::from(*x) * i32::from(*w))
                    .sum::<i32>();
            }
        }
    }
}

/// Quantises the rows of a strip of x. Missing rows at the end are not written and have no effect.
fn quantize_strip(
    (isa, levels): (Isa, Levels),
    x: &[f32],
    k: usize,
    bytes: &mut [u8],
    scales: &mut [f32],
    zeros: &mut [i32],
) {
    with_scratch(k.next_multiple_of(isa.strip().1) / size_of::<f32>(), |row| {
        let row: &mut [u8] = bytemuck::cast_slice_mut(row);
        row[k..].fill(0);
        for (r, (x, (scale, zero))) in x.chunks(k).zip(scales.iter_mut().zip(zeros)).enumerate() {
            (*scale, *zero) = isa.quantize_row(x, levels, &mut row[..k]);
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Amx => scatter::<{ amx::TILE_BYTES }, { amx::X_STEP }>(row, r, bytes),
                _ => scatter::<GROUP, ROW_STEP>(row, r, bytes),
            }
        }
    });
}

/// Rounds a row to 8 bits, `x ≈ scale · (q − zero)`. Returns the scale and the zero point.
///
/// - [`Levels::Range`]: `scale · (0 − zero) … scale · (255 − zero)` is the range of the row's values and 0, so that 0 is exact.
/// - [`Levels::Magnitude`]: the largest magnitude is 127.5 steps from the zero point 128.
/// - A row with NaN or infinity has the scale NaN, so that its results are NaN.
/// - With a scale per row, a row of zeros has the scale 0. So has a row of numbers below 255 times the smallest normal number.
#[inline(always)]
pub fn quantize_row(x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
    // Map the floats to integers of the same order, with NaN at the ends. The minimum of integers does not depend on an order, so the
    // compiler can vectorise it.
    let ordered = |bits: i32| bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed();
    let (mut low, mut high) = (0, 0);
    for x in x {
        let key = ordered(x.to_bits().cast_signed());
        low = low.min(key);
        high = high.max(key);
    }
    let [low, high] = [low, high].map(|key| f32::from_bits(ordered(key).cast_unsigned()));
    if !low.is_finite() || !high.is_finite() {
        q.fill(0);
        return (f32::NAN, 0);
    }
    let scale = match levels {
        Levels::Range => high / 255.0 - low / 255.0,
        Levels::Magnitude => high.max(-low) / 127.5,
        Levels::Fixed { scale, .. } => scale,
    };
    if scale < f32::MIN_POSITIVE {
        q.fill(0);
        return (0.0, 0);
    }
    // In the sum, the last bit of |steps| < 2^22 is a unit: it rounds to nearest, ties to even.
    const UNITS: f32 = 1.5 * (1 << 23) as f32;
    let round = |steps: f32| (steps + UNITS).to_bits().cast_signed() - UNITS.to_bits().cast_signed();
    let level = |rounded: i32, zero: i32| (rounded + zero).clamp(0, 255) as u8;
    // Divide by the scale of a file as everywhere else, so that ties round the same way. The largest magnitude is a tie.
    let zero = match levels {
        Levels::Range => {
            let inverse = 1.0 / scale;
            let zero = -round(low * inverse);
            for (q, x) in q.iter_mut().zip(x) {
                *q = level(round(x * inverse), zero);
            }
            zero
        }
        Levels::Magnitude => {
            for (q, x) in q.iter_mut().zip(x) {
                *q = level(round(x / scale), 128);
            }
            128
        }
        Levels::Fixed { zero, .. } => {
            let zero = i32::from(zero);
            for (q, x) in q.iter_mut().zip(x) {
                // `round` does not support numbers of any magnitude.
                *q = level(round((x / scale).clamp(-256.0, 256.0)), zero);
            }
            zero
        }
    };
    (scale, zero)
}

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
impl Isa {
    fn is_available(self) -> bool {
        true
    }

    fn gemm(self, job: &Job<'_>, out: &mut [f32]) {
        gemm(job, out, 0, portable);
    }

    fn quantize_row(self, x: &[f32], levels: Levels, q: &mut [u8]) -> (f32, i32) {
        quantize_row(x, levels, q)
    }
}
