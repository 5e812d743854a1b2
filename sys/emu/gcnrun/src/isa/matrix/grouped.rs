//! Matrix instructions whose groups of lanes hold consecutive parts of the depth: MFMA and SMFMAC of CDNA, WMMA of gfx12.

use super::operands::{Element, Operand, multiply, multiply_integers, wave_row_known};
use crate::code::{Context, Exit, Instruction, Outcome, uninitialised};
use crate::isa::lanes::scalar;
use crate::line::Line;
use crate::operands::Type;
use crate::wave::Wave;

/// Indices of `detail`: the shape, the elements of both inputs, and the number of elements of B that a lane holds.
///
/// `src` holds A, B and C, and for SMFMAC the indices. `offset` holds the number of blocks, and for SMFMAC the first bit of the indices.
const SIDE: usize = 0;
const DEPTH: usize = 1;
const INPUT: usize = 2;
const HELD: usize = 3;

/// Shape that a mnemonic states.
struct Shape {
    side: u32,
    depth: u32,
    inputs: [Element; 2],
    integer: bool,
}

/// `f32_16x16x16f16`, `f32_16x16x16_f16`, `f32_32x32x4_2b_f32`, `f32_16x16x16bf16_1k`, `i32_32x32x16_i8`, `f32_16x16x32_fp8_bf8`,
/// `i32_16x16x16_iu8`.
fn shape(line: &mut Line<'_>, name: &str) -> Result<Shape, String> {
    let unknown = String::new;
    let (output, rest) = name.split_once('_').ok_or_else(unknown)?;
    let rest = rest.strip_suffix("_1k").unwrap_or(rest);
    let mut sides = rest.splitn(3, 'x');
    let mut side = || sides.next().and_then(|side| side.parse::<u32>().ok());
    let (rows, columns) = (side().ok_or_else(unknown)?, side().ok_or_else(unknown)?);
    let last = sides.next().ok_or_else(unknown)?;
    let digits = last.find(|c: char| !c.is_ascii_digit()).ok_or_else(unknown)?;
    let depth: u32 = last[..digits].parse().map_err(|_| unknown())?;
    let mut kind = last[digits..].trim_start_matches('_');
    if let Some((blocks, after)) = kind.split_once("b_")
        && blocks.chars().all(|c| c.is_ascii_digit())
    {
        kind = after;
    }
    let float8 = |name: &str| line.arch.float8?.format(name).map(Element::F8);
    let inputs = match kind {
        "f16" => [Element::F16; 2],
        "bf16" => [Element::Bf16; 2],
        "f32" => [Element::F32; 2],
        "i8" => [Element::I8(true); 2],
        "iu8" => {
            let signed = line.bits("neg_lo", false)?;
            [Element::I8(signed[0]), Element::I8(signed[1])]
        }
        _ => kind
            .split_once('_')
            .and_then(|(a, b)| Some([float8(a)?, float8(b)?]))
            .ok_or_else(unknown)?,
    };
    let integer = matches!(inputs[0], Element::I8(_));
    if rows != columns || !matches!(rows, 4 | 16 | 32) || output != if integer { "i32" } else { "f32" } {
        return Err(unknown());
    }
    Ok(Shape {
        side: rows,
        depth,
        inputs,
        integer,
    })
}

/// The operands D, A and B, if they have as many registers as a shape asks for.
fn operands(line: &Line<'_>, run: crate::code::Handler, shape: &Shape) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.dst.register = line.vgpr(0)?.0;
    instruction.src[0] = line.source(1, Type::U32)?;
    instruction.src[1] = line.source(2, Type::U32)?;
    instruction.detail[SIDE] = shape.side;
    instruction.detail[DEPTH] = shape.depth;
    instruction.detail[INPUT] = shape.inputs[0].code() | shape.inputs[1].code() << 8;
    // Elements of B that a lane holds; fewer lanes than the wave's hold a matrix where there are several blocks.
    instruction.detail[HELD] = u32::from(line.vgpr(2)?.1) * shape.inputs[1].per_dword() as u32;
    Ok(instruction)
}

/// MFMA, and WMMA of gfx12.
pub(super) fn decode(line: &mut Line<'_>, name: &str) -> Result<Instruction, String> {
    let shape = shape(line, name)?;
    let lanes = line.arch.lanes;
    let mut instruction = operands(line, dense, &shape)?;
    let held = instruction.detail[HELD];
    let blocks = if shape.depth == lanes / shape.side * held {
        1
    } else {
        lanes / shape.side
    };
    if (blocks > 1 && held != shape.depth)
        || u32::from(line.vgpr(1)?.1) * shape.inputs[0].per_dword() as u32 != held
        || u32::from(line.vgpr(0)?.1) * lanes != shape.side * shape.side * blocks
    {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.src[2] = line.source(3, if shape.integer { Type::U32 } else { Type::F32 })?;
    instruction.offset = i64::from(blocks);
    Ok(instruction)
}

/// SMFMAC: of every four elements of a row of A two are there, which an index of two bits names each. D is C.
pub(super) fn decode_sparse(line: &mut Line<'_>, name: &str) -> Result<Instruction, String> {
    let shape = shape(line, name)?;
    let mut instruction = operands(line, sparse, &shape)?;
    let held = instruction.detail[HELD];
    if shape.depth != 64 / shape.side * held
        || 2 * u32::from(line.vgpr(1)?.1) * shape.inputs[0].per_dword() as u32 != held
        || u32::from(line.vgpr(0)?.1) * 64 != shape.side * shape.side
        || line.arch.float8.is_none()
    {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.src[2] = line.source(0, Type::U32)?;
    instruction.src[3] = line.source(3, Type::U32)?;
    // A register has the indices of several instructions, unless CBSZ says that it has those of one.
    let (first, set) = (line.number("cbsz")? != 0, line.number("abid")?);
    instruction.offset = if first { 0 } else { set * i64::from(held) % 32 };
    Ok(instruction)
}

/// Reads a matrix. Lane l holds row l mod side, and part l/side of the depth or block l/side.
fn read(wave: &Wave, register: usize, element: Element, [side, depth, held, blocks]: [usize; 4]) -> Operand {
    let mut operand = Operand {
        values: vec![0.0; blocks * side * depth],
        known: vec![true; blocks * side],
    };
    let per_dword = element.per_dword();
    for lane in 0..wave.lanes as usize {
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
}

/// The row and the block of a lane's ith result; the column is l mod side.
fn place(i: usize, lane: usize, side: usize, lanes: usize) -> (usize, usize) {
    let group = lane / side;
    match side {
        4 => (i, group),
        16 => {
            let rows = 256 / lanes;
            (group * rows + i % rows, i / rows)
        }
        _ => ((i & 15) / 4 * 8 + group * 4 + (i & 3), i >> 4),
    }
}

/// Reads C, lets `accumulate` add to it, and writes D. `known` says which rows of A and columns of B are known.
fn update(
    wave: &mut Wave,
    instruction: &Instruction,
    blocks: usize,
    known: [&[bool]; 2],
    accumulate: impl FnOnce(&mut [u32]),
) {
    let (side, lanes) = (instruction.detail[SIDE] as usize, wave.lanes as usize);
    let results = side * side * blocks / lanes;
    let slots = |i: usize, lane: usize| {
        let (row, block) = place(i, lane, side, lanes);
        let (row, column) = (block * side + row, block * side + lane % side);
        (row, column, row * side + lane % side)
    };
    let source = instruction.src[2][0];
    let mut c = vec![0_u32; blocks * side * side];
    let mut all_known = vec![true; blocks * side * side];
    for i in 0..results {
        for lane in 0..lanes {
            let (row, column, slot) = slots(i, lane);
            c[slot] = match source.vgpr() {
                Some(register) => {
                    all_known[slot] = wave_row_known(wave, register + i, lane);
                    wave.vgpr[register + i][lane]
                }
                None => scalar(wave, source.place),
            };
            all_known[slot] &= known[0][row] && known[1][column];
        }
    }
    accumulate(&mut c);
    let register = usize::from(instruction.dst.register);
    for i in 0..results {
        let mut bits = 0;
        for lane in 0..lanes {
            let slot = slots(i, lane).2;
            wave.vgpr[register + i][lane] = c[slot];
            bits |= u64::from(all_known[slot]) << lane;
        }
        wave.vgpr_known[register + i] = [bits; 2];
    }
}

fn dense(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let has_fma = context.has_fma;
    let wave = &mut *context.wave;
    let [side, depth, _, held] = instruction.detail.map(|detail| detail as usize);
    let elements = [0, 8].map(|shift| Element::from_code(instruction.detail[INPUT] >> shift & 255));
    let blocks = instruction.offset as usize;
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    let (a, b) = (
        read(wave, a, elements[0], [side, depth, held, blocks]),
        read(wave, b, elements[1], [side, depth, held, blocks]),
    );
    let inputs = a
        .values
        .chunks_exact(side * depth)
        .zip(b.values.chunks_exact(side * depth));
    update(wave, instruction, blocks, [&a.known, &b.known], |c| {
        for ((a, b), c) in inputs.zip(c.chunks_exact_mut(side * side)) {
            if matches!(elements[0], Element::I8(_)) {
                multiply_integers(a, b, c, depth, side);
            } else {
                let mut sums: Vec<f32> = c.iter().map(|bits| f32::from_bits(*bits)).collect();
                multiply(has_fma, a, b, &mut sums, depth, side);
                for (bits, sum) in c.iter_mut().zip(sums) {
                    *bits = sum.to_bits();
                }
            }
        }
    });
    Ok(())
}

fn sparse(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let [side, depth, _, held] = instruction.detail.map(|detail| detail as usize);
    let elements = [0, 8].map(|shift| Element::from_code(instruction.detail[INPUT] >> shift & 255));
    let [a, b, _, indices] = [0, 1, 2, 3].map(|operand| instruction.src[operand][0].vgpr());
    let (Some(a), Some(b), Some(indices)) = (a, b, indices) else {
        return Ok(());
    };
    if (0..64).any(|lane| !wave_row_known(wave, indices, lane)) && context.space.checks().uninitialised {
        return Err(Box::<Exit>::from(uninitialised("the indices of a sparse matrix")));
    }
    let indices = wave.vgpr[indices];
    let a = read(wave, a, elements[0], [side, depth / 2, held / 2, 1]);
    let b = read(wave, b, elements[1], [side, depth, held, 1]);
    let integer = matches!(elements[0], Element::I8(_));
    update(wave, instruction, 1, [&a.known, &b.known], |c| {
        for (at, value) in a.values.iter().enumerate() {
            let (row, k) = (at / (depth / 2), at % (depth / 2));
            let (group, e) = (k / (held / 2), k % (held / 2));
            let index = indices[group * side + row] >> (instruction.offset as usize + 2 * e) & 3;
            let k = group * held + e / 2 * 4 + index as usize;
            for column in 0..side {
                let other = b.values[column * depth + k];
                let sum = &mut c[row * side + column];
                *sum = if integer {
                    sum.wrapping_add((*value as i32 * other as i32).cast_unsigned())
                } else {
                    value.mul_add(other, f32::from_bits(*sum)).to_bits()
                };
            }
        }
    });
    Ok(())
}
