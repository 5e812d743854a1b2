//! Matrix instructions: WMMA of RDNA 3, MFMA of CDNA, with the 8-bit floats of gfx942.
//!
//! D = A·B + C, accumulated in the order of k with fused multiplications; the hardware's order is not documented, so last bits
//! may differ. Layouts are those of AMD's matrix instruction calculator. EXEC is ignored.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::float8::Float8;
use super::lanes::scalar;
use crate::code::{Context, Handler, Instruction, Outcome};
use crate::line::Line;
use crate::operands::Type;
use crate::wave::Wave;

/// The element type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    F16,
    Bf16,
    F32,
    /// Bytes, signed or not.
    I8(bool),
    I4(bool),
    F8(Float8),
}

impl Element {
    const CODES: [Self; 9] = [
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I8(true),
        Self::I8(false),
        Self::I4(true),
        Self::I4(false),
        Self::F8(Float8::Fp8),
        Self::F8(Float8::Bf8),
    ];

    fn code(self) -> u32 {
        Self::CODES
            .iter()
            .position(|element| *element == self)
            .unwrap_or(0) as u32
    }

    fn from_code(code: u32) -> Self {
        Self::CODES.get(code as usize).copied().unwrap_or(Self::F32)
    }

    fn per_dword(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I8(_) | Self::F8(_) => 4,
            Self::I4(_) => 8,
        }
    }

    /// The `index`th element of a dword, as a float: whole numbers of 8 bits are exact.
    fn get(self, dword: u32, index: usize) -> f32 {
        match self {
            Self::F16 => f16_to_f32(dword >> (16 * index)),
            Self::Bf16 => bf16_to_f32(dword >> (16 * index) & 0xffff),
            Self::F32 => f32::from_bits(dword),
            Self::I8(true) => f32::from((dword >> (8 * index)) as i8),
            Self::I8(false) => f32::from((dword >> (8 * index)) as u8),
            Self::I4(true) => ((dword << (28 - 4 * index)).cast_signed() >> 28) as f32,
            Self::I4(false) => (dword >> (4 * index) & 15) as f32,
            Self::F8(format) => format.value(dword >> (8 * index)),
        }
    }
}

/// An operand's matrix, row-major with the rows' known flags. B is read as its transpose: a row is a column of B.
struct Operand {
    values: Vec<f32>,
    known: Vec<bool>,
}

fn wave_row_known(wave: &Wave, register: usize, lane: usize) -> bool {
    let [low, high] = wave.vgpr_known[register];
    low & high & 1 << lane != 0
}

/// a (rows × depth) times b (columns × depth) added to c (rows × columns), all row-major.
#[inline(always)]
fn accumulate(a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    // Transposed, so that the inner loop runs over consecutive elements.
    let mut transposed = vec![0.0_f32; b.len()];
    for (column, row) in b.chunks_exact(depth).enumerate() {
        for (k, value) in row.iter().enumerate() {
            transposed[k * columns + column] = *value;
        }
    }
    for (row, out) in a.chunks_exact(depth).zip(c.chunks_exact_mut(columns)) {
        for (factor, values) in row.iter().zip(transposed.chunks_exact(columns)) {
            for (sum, value) in out.iter_mut().zip(values) {
                *sum = factor.mul_add(*value, *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn accumulate_with_fma(a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    accumulate(a, b, c, depth, columns);
}

fn multiply(has_fma: bool, a: &[f32], b: &[f32], c: &mut [f32], depth: usize, columns: usize) {
    #[cfg(target_arch = "x86_64")]
    if has_fma {
        // SAFETY: `has_fma` is only true where the interpreter detected AVX2 and FMA.
        unsafe { accumulate_with_fma(a, b, c, depth, columns) };
        return;
    }
    let _ = has_fma;
    accumulate(a, b, c, depth, columns);
}

/// The same with integers, which wrap around.
fn multiply_integers(a: &[f32], b: &[f32], c: &mut [u32], depth: usize, columns: usize) {
    for (row, out) in a.chunks_exact(depth).zip(c.chunks_exact_mut(columns)) {
        for (column, sum) in b.chunks_exact(depth).zip(out) {
            let sum_of_row: i32 = row.iter().zip(column).map(|(a, b)| *a as i32 * *b as i32).sum();
            *sum = sum.wrapping_add(sum_of_row.cast_unsigned());
        }
    }
}

/// The indices in `detail`: the shape and the elements; `src` holds A, B and C, `offset` the number of blocks.
const SIDE: usize = 0;
const DEPTH: usize = 1;
const INPUT: usize = 2;
const OUTPUT: usize = 3;

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    if let Some(shape) = base.strip_prefix("v_wmma_") {
        return Some(decode_wmma(line, shape));
    }
    let shape = base.strip_prefix("v_mfma_")?;
    Some(match shape {
        "f64_16x16x4_f64" | "f64_16x16x4f64" => decode_mfma_f64(line),
        _ => decode_mfma(line, shape),
    })
}

fn decode_wmma(line: &mut Line<'_>, shape: &str) -> Result<Instruction, String> {
    if !line.arch.gfx11 || line.arch.lanes != 32 {
        return Err(format!("{} of this architecture or wave size", line.mnemonic));
    }
    let signed = line.bits("neg_lo", false)?;
    let select = line.bits("op_sel", false)?;
    let (input, second, output) = match shape {
        "f32_16x16x16_f16" => (Element::F16, Element::F16, Element::F32),
        "f32_16x16x16_bf16" => (Element::Bf16, Element::Bf16, Element::F32),
        "f16_16x16x16_f16" => (Element::F16, Element::F16, Element::F16),
        "bf16_16x16x16_bf16" => (Element::Bf16, Element::Bf16, Element::Bf16),
        "i32_16x16x16_iu8" => (Element::I8(signed[0]), Element::I8(signed[1]), Element::I8(true)),
        "i32_16x16x16_iu4" => (Element::I4(signed[0]), Element::I4(signed[1]), Element::I8(true)),
        _ => return Err(String::new()),
    };
    if signed != [false; 4] && !matches!(input, Element::I8(_) | Element::I4(_)) {
        return Err(format!("neg_lo of {}", line.mnemonic));
    }
    let mut instruction = Instruction::new(wmma);
    let (register, count) = line.vgpr(0)?;
    let (_, inputs) = line.vgpr(1)?;
    if count != 8 || usize::from(inputs) != 16 / input.per_dword() {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    instruction.src[0] = line.source(1, Type::U32)?;
    instruction.src[1] = line.source(2, Type::U32)?;
    let constants = match output {
        Element::F16 => Type::F16,
        Element::Bf16 => Type::Bf16,
        _ if matches!(input, Element::I8(_) | Element::I4(_)) => Type::U32,
        _ => Type::F32,
    };
    instruction.src[2] = line.source(3, constants)?;
    let half = if select[2] { 16 } else { 0 };
    instruction.detail = [16, half, input.code() | second.code() << 8, output.code()];
    Ok(instruction)
}

/// A or B of a WMMA: lanes 0 to 15 hold a row each.
fn wmma_operand(wave: &Wave, register: usize, element: Element) -> Operand {
    let per_dword = element.per_dword();
    let mut operand = Operand {
        values: vec![0.0; 256],
        known: vec![true; 16],
    };
    for row in 0..16 {
        for k in 0..16 {
            let dword = register + k / per_dword;
            operand.values[16 * row + k] = element.get(wave.vgpr[dword][row], k % per_dword);
            operand.known[row] &= wave_row_known(wave, dword, row);
        }
    }
    operand
}

fn wmma(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let [_, half, inputs, output] = instruction.detail;
    let (first, second, output) = (
        Element::from_code(inputs & 255),
        Element::from_code(inputs >> 8),
        Element::from_code(output),
    );
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    let (a, b) = (wmma_operand(wave, a, first), wmma_operand(wave, b, second));
    let place = instruction.src[2][0];
    // Register i of lane l holds row 2i + l/16, column l mod 16.
    let mut c = [0_u32; 256];
    let mut known = [true; 256];
    let at = |i: usize, lane: usize| (2 * i + lane / 16) * 16 + lane % 16;
    for i in 0..8 {
        for lane in 0..32 {
            let (row, column) = (2 * i + lane / 16, lane % 16);
            c[at(i, lane)] = match place.vgpr() {
                Some(register) => {
                    known[at(i, lane)] = match output {
                        Element::F32 | Element::I8(_) => wave_row_known(wave, register + i, lane),
                        _ => wave.vgpr_known[register + i][half as usize / 16] >> lane & 1 == 1,
                    };
                    wave.vgpr[register + i][lane] >> half
                }
                None => scalar(wave, place.place),
            };
            known[at(i, lane)] &= a.known[row] && b.known[column];
        }
    }
    if matches!(first, Element::I8(_) | Element::I4(_)) {
        multiply_integers(&a.values, &b.values, &mut c, 16, 16);
    } else {
        let mut sums = c.map(|bits| match output {
            Element::F16 => f16_to_f32(bits),
            Element::Bf16 => bf16_to_f32(bits & 0xffff),
            _ => f32::from_bits(bits),
        });
        multiply(context.has_fma, &a.values, &b.values, &mut sums, 16, 16);
        c = sums.map(|sum| match output {
            Element::F16 => f32_to_f16(sum),
            Element::Bf16 => f32_to_bf16(sum),
            _ => sum.to_bits(),
        });
    }
    let register = usize::from(instruction.dst.register);
    let whole = matches!(output, Element::F32 | Element::I8(_));
    for i in 0..8 {
        for lane in 0..32 {
            let value = c[at(i, lane)];
            let slot = &mut wave.vgpr[register + i][lane];
            *slot = if whole {
                value
            } else {
                *slot & !(0xffff << half) | value << half
            };
            for (side, bits) in wave.vgpr_known[register + i].iter_mut().enumerate() {
                if whole || side == half as usize / 16 {
                    *bits = *bits & !(1 << lane) | u64::from(known[at(i, lane)]) << lane;
                }
            }
        }
    }
    Ok(())
}

/// `f32_16x16x16f16`, `f32_16x16x16_f16`, `f32_32x32x4_2b_f32`, `f32_16x16x16bf16_1k`, `i32_32x32x16_i8`, `f32_16x16x32_fp8_bf8`.
fn decode_mfma(line: &mut Line<'_>, shape: &str) -> Result<Instruction, String> {
    let unknown = String::new;
    let (output, rest) = shape.split_once('_').ok_or_else(unknown)?;
    let rest = rest.strip_suffix("_1k").unwrap_or(rest);
    let mut sides = rest.splitn(3, 'x');
    let rows: u32 = sides
        .next()
        .and_then(|side| side.parse().ok())
        .ok_or_else(unknown)?;
    let columns: u32 = sides
        .next()
        .and_then(|side| side.parse().ok())
        .ok_or_else(unknown)?;
    let last = sides.next().ok_or_else(unknown)?;
    let digits = last.find(|c: char| !c.is_ascii_digit()).ok_or_else(unknown)?;
    let depth: u32 = last[..digits].parse().map_err(|_| unknown())?;
    let mut kind = last[digits..].trim_start_matches('_');
    if let Some((blocks, after)) = kind.split_once("b_")
        && blocks.chars().all(|c| c.is_ascii_digit())
    {
        kind = after;
    }
    let float8 = |name: &str| match name {
        "fp8" if line.arch.fnuz => Some(Element::F8(Float8::Fp8)),
        "bf8" if line.arch.fnuz => Some(Element::F8(Float8::Bf8)),
        _ => None,
    };
    let (element, second) = match kind {
        "f16" => (Element::F16, Element::F16),
        "bf16" => (Element::Bf16, Element::Bf16),
        "f32" => (Element::F32, Element::F32),
        "i8" => (Element::I8(true), Element::I8(true)),
        _ => kind
            .split_once('_')
            .and_then(|(a, b)| float8(a).zip(float8(b)))
            .ok_or_else(unknown)?,
    };
    let integer = matches!(element, Element::I8(_));
    if rows != columns
        || !matches!(rows, 4 | 16 | 32)
        || output != if integer { "i32" } else { "f32" }
        || line.arch.lanes != 64
    {
        return Err(unknown());
    }
    let run: Handler = mfma;
    let mut instruction = Instruction::new(run);
    let (register, results) = line.vgpr(0)?;
    let (_, dwords) = line.vgpr(1)?;
    // Elements that a lane holds; fewer lanes than the wave's hold a matrix where there are several blocks.
    let held = u32::from(dwords) * element.per_dword() as u32;
    let blocks = if depth == 64 / rows * held { 1 } else { 64 / rows };
    if (blocks > 1 && held != depth) || u32::from(results) != rows * columns * blocks / 64 {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    instruction.src[0] = line.source(1, Type::U32)?;
    instruction.src[1] = line.source(2, Type::U32)?;
    instruction.src[2] = line.source(3, if integer { Type::U32 } else { Type::F32 })?;
    instruction.detail[SIDE] = rows;
    instruction.detail[DEPTH] = depth;
    instruction.detail[INPUT] = element.code() | second.code() << 8;
    instruction.detail[OUTPUT] = held;
    instruction.offset = i64::from(blocks);
    Ok(instruction)
}

fn mfma(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let [side, depth, _, held] = instruction.detail.map(|detail| detail as usize);
    let [element, second] = [0, 8].map(|shift| Element::from_code(instruction.detail[INPUT] >> shift & 255));
    let blocks = instruction.offset as usize;
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    // Lane l holds row l mod side: of the depth's part l/side, or of block l/side.
    let read = |register: usize, element: Element| {
        let mut operand = Operand {
            values: vec![0.0; blocks * side * depth],
            known: vec![true; blocks * side],
        };
        let per_dword = element.per_dword();
        for lane in 0..64 {
            let (group, row) = (lane / side, lane % side);
            let (row, first) = if blocks > 1 {
                (group * side + row, 0)
            } else {
                (row, group * held)
            };
            for k in 0..held {
                let dword = register + k / per_dword;
                operand.values[row * depth + first + k] = element.get(wave.vgpr[dword][lane], k % per_dword);
                operand.known[row] &= wave_row_known(wave, dword, lane);
            }
        }
        operand
    };
    let (a, b) = (read(a, element), read(b, second));
    let results = side * side * blocks / 64;
    // The row and the block of a lane's ith result; the column is l mod side.
    let place = |i: usize, lane: usize| {
        let group = lane / side;
        let (row, block) = match side {
            4 => (i, group),
            16 => (group * 4 + (i & 3), i >> 2),
            _ => ((i & 15) / 4 * 8 + group * 4 + (i & 3), i >> 4),
        };
        (block, row, lane % side)
    };
    let at = |i: usize, lane: usize| {
        let (block, row, column) = place(i, lane);
        (block * side + row) * side + column
    };
    let source = instruction.src[2][0];
    let mut c = vec![0_u32; blocks * side * side];
    let mut known = vec![true; blocks * side * side];
    for i in 0..results {
        for lane in 0..64 {
            let (block, row, column) = place(i, lane);
            let slot = at(i, lane);
            c[slot] = match source.vgpr() {
                Some(register) => {
                    known[slot] = wave_row_known(wave, register + i, lane);
                    wave.vgpr[register + i][lane]
                }
                None => scalar(wave, source.place),
            };
            known[slot] &= a.known[block * side + row] && b.known[block * side + column];
        }
    }
    let (inputs, outputs) = (side * depth, side * side);
    if matches!(element, Element::I8(_)) {
        for block in 0..blocks {
            let (a, b) = (
                &a.values[block * inputs..][..inputs],
                &b.values[block * inputs..][..inputs],
            );
            multiply_integers(a, b, &mut c[block * outputs..][..outputs], depth, side);
        }
    } else {
        let mut sums: Vec<f32> = c.iter().map(|bits| f32::from_bits(*bits)).collect();
        for block in 0..blocks {
            let (a, b) = (
                &a.values[block * inputs..][..inputs],
                &b.values[block * inputs..][..inputs],
            );
            multiply(
                context.has_fma,
                a,
                b,
                &mut sums[block * outputs..][..outputs],
                depth,
                side,
            );
        }
        for (bits, sum) in c.iter_mut().zip(sums) {
            *bits = sum.to_bits();
        }
    }
    let register = usize::from(instruction.dst.register);
    for i in 0..results {
        let mut bits = 0;
        for lane in 0..64 {
            wave.vgpr[register + i][lane] = c[at(i, lane)];
            bits |= u64::from(known[at(i, lane)]) << lane;
        }
        wave.vgpr_known[register + i] = [bits; 2];
    }
    Ok(())
}

fn decode_mfma_f64(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(mfma_f64);
    let (register, results) = line.vgpr(0)?;
    let ((_, a), (_, b)) = (line.vgpr(1)?, line.vgpr(2)?);
    if (results, a, b) != (8, 2, 2) || line.arch.lanes != 64 {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    for index in 0..3 {
        instruction.src[index] = line.source(index + 1, Type::F64)?;
    }
    Ok(instruction)
}

/// 16×16×4 doubles: lane l holds element k = l/16 of row l mod 16, and of the results row 4i + l/16, column l mod 16.
fn mfma_f64(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    let double = |wave: &Wave, register: usize, lane: usize| {
        f64::from_bits(u64::from(wave.vgpr[register][lane]) | u64::from(wave.vgpr[register + 1][lane]) << 32)
    };
    let known = |wave: &Wave, register: usize, lane: usize| {
        wave_row_known(wave, register, lane) && wave_row_known(wave, register + 1, lane)
    };
    let [low, high] = instruction.src[2];
    let constant =
        f64::from_bits(u64::from(scalar(wave, low.place)) | u64::from(scalar(wave, high.place)) << 32);
    let mut results = [[(0.0, true); 64]; 4];
    for (i, row) in results.iter_mut().enumerate() {
        for (lane, (sum, all_known)) in row.iter_mut().enumerate() {
            *sum = constant;
            if let Some(register) = low.vgpr() {
                *sum = double(wave, register + 2 * i, lane);
                *all_known = known(wave, register + 2 * i, lane);
            }
            for k in 0..4 {
                let (left, right) = (16 * k + 4 * i + lane / 16, 16 * k + lane % 16);
                *sum = double(wave, a, left).mul_add(double(wave, b, right), *sum);
                *all_known &= known(wave, a, left) && known(wave, b, right);
            }
        }
    }
    let register = usize::from(instruction.dst.register);
    for (i, row) in results.iter().enumerate() {
        for word in 0..2 {
            let at = register + 2 * i + word;
            let mut bits = 0;
            for (lane, (sum, known)) in row.iter().enumerate() {
                wave.vgpr[at][lane] = (sum.to_bits() >> (32 * word)) as u32;
                bits |= u64::from(*known) << lane;
            }
            wave.vgpr_known[at] = [bits; 2];
        }
    }
    Ok(())
}
