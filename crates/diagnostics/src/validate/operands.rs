//! Operands of a case: random, equal on every machine, and rounded to the dtype before use.

use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;

use super::cases::{Case, Operand, Role, Work};
use hipvit::error::{Error, Result};
use hipvit::exec::append;
use hipvit::float8::{Float8, Overflow};
use hipvit::graph::{Graph, ValueId};
use hipvit::ops::{GridMask, GridPositions, MulScalar, Op};
use hipvit::patch_grid::{self, PatchGrid};
use hipvit::tensor::{DType, Input, Tensor};

/// Values of a case's operands, in their order.
pub(super) struct Operands {
    pub(super) tensors: Vec<Tensor>,
    input: Values,
}

/// Input of the graph.
enum Values {
    Bytes(Vec<u8>),
    Floats(Vec<f32>),
}

impl Operands {
    pub(super) fn new(case: &Case, dtype: DType) -> Result<Self> {
        // A graph whose op takes no image has one pixel as input.
        let mut input = Values::Bytes(vec![0; 3]);
        let mut tensors = Vec::with_capacity(case.operands.len());
        for (seed, operand) in case.operands.iter().enumerate() {
            let shape = operand.shape.as_slice();
            let tensor = match operand.role {
                Role::Image(DType::U8) => {
                    let mut bytes = bytes(operand, seed);
                    if let Work::Op(Op::GridPositions(GridPositions) | Op::GridMask(GridMask)) = case.work {
                        // A single image can have any grid.
                        write_grids(shape, if shape[0] == 1 { 2 } else { 0 }, &mut bytes);
                    }
                    input = Values::Bytes(bytes.clone());
                    view(shape, bytes)
                }
                // Images are f32 in every dtype.
                Role::Image(_) => {
                    let values = floats(operand, DType::F32, seed);
                    input = Values::Floats(values.clone());
                    Tensor::from_f32(shape, values)
                }
                Role::ByteWeight(DType::I8) => int8_weight(operand, seed),
                Role::ByteWeight(_) => float8_weight(operand, seed),
                Role::SparseWeight | Role::CompressedWeight => {
                    let mut values = floats(operand, dtype, seed);
                    prune(&mut values, seed);
                    Tensor::from_f32(shape, values)
                }
                Role::KeyMask => view(shape, key_mask(operand, seed)),
                Role::Integers { below } => integers(operand, below, seed),
                Role::Single => Tensor::from_f32(shape, floats(operand, DType::F32, seed)),
                Role::Activation | Role::Parameter => Tensor::from_f32(shape, floats(operand, dtype, seed)),
            };
            tensors.push(tensor.ok_or_else(|| Error::graph(case.op_name(), "an operand of another size"))?);
        }
        Ok(Self { tensors, input })
    }

    pub(super) fn input(&self) -> Input<'_> {
        match &self.input {
            Values::Bytes(bytes) => Input::Pixels(bytes),
            Values::Floats(values) => Input::Values(values),
        }
    }

    /// Returns the graph of `op` alone. Parameters are constants, and so are activations outside of the
    /// arena. A multiplication by 1 puts the others into the arena. Also returns which operand each of these
    /// steps puts there, in their order.
    pub(super) fn graph(&self, case: &Case, op: &Op) -> Result<(Graph, Vec<usize>)> {
        let role = hipvit::graph::Role::Other;
        let (shape, dtype) = match case.image() {
            Some(Operand {
                shape,
                role: Role::Image(dtype),
                ..
            }) => ([1, shape[1], shape[2], shape[3]], *dtype),
            _ => ([1, 1, 1, 3], DType::U8),
        };
        let mut graph = Graph::new("validate", shape, dtype);
        let mut placed = Vec::new();
        let mut inputs: Vec<ValueId> = Vec::with_capacity(case.operands.len());
        for (index, (operand, tensor)) in case.operands.iter().zip(&self.tensors).enumerate() {
            if matches!(operand.role, Role::Image(_)) {
                inputs.push(graph.input());
                continue;
            }
            let mut id = graph.constant(format!("operand {index}"), tensor.clone());
            if case.in_arena && operand.role == Role::Activation {
                id = graph.push(
                    role,
                    format!("placed {index}"),
                    Op::MulScalar(MulScalar(1.0)),
                    [id],
                )?;
                placed.push(index);
            }
            inputs.push(id);
        }
        graph.push(role, op.name(), op.clone(), inputs)?;
        Ok((graph, placed))
    }
}

/// Returns the tensor's elements as the dtype stores them; bytes stay bytes.
pub(super) fn stored(tensor: &Tensor, dtype: DType) -> Vec<u8> {
    let values = tensor.to_f32();
    if tensor.dtype() == DType::U8 {
        return values.iter().map(|&v| v as u8).collect();
    }
    if tensor.dtype() == DType::I32 {
        return values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect();
    }
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    append(&mut bytes, &values, dtype);
    bytes
}

/// Sets any two of each four values to 0.
fn prune(values: &mut [f32], seed: usize) {
    for (index, four) in values.chunks_mut(4).enumerate() {
        let first = random(seed + 1000, index) as usize;
        let second = first + 1 + (first / 4) % 3;
        for place in [first % 4, second % 4] {
            if let Some(value) = four.get_mut(place) {
                *value = 0.0;
            }
        }
    }
}

/// Returns signed bytes with scales that reach 0.5 and 1.5 times the operand's spread.
fn int8_weight(operand: &Operand, seed: usize) -> Option<Tensor> {
    let rows = operand.shape.first().copied().unwrap_or(0);
    let scale = |i| operand.spread / 128.0 * (0.5 + (random(seed + 1000, i) >> 40) as f32 / (1 << 24) as f32);
    let bytes = bytes(operand, seed);
    let range = 0..bytes.len();
    let scales: Vec<f32> = (0..rows).map(scale).collect();
    Tensor::scaled(operand.shape.clone(), DType::I8, Arc::new(bytes), range, scales)
}

/// Returns E4M3 values uniform in ± the operand's spread.
fn float8_weight(operand: &Operand, seed: usize) -> Option<Tensor> {
    let rows = operand.shape.first().copied().unwrap_or(0);
    let scale = operand.spread / Float8::E4M3.largest();
    let values = floats(operand, DType::F32, seed);
    let bits = values
        .iter()
        .map(|value| Float8::E4M3.from_f32(value / scale, Overflow::Saturate));
    let bytes: Vec<u8> = bits.collect();
    let range = 0..bytes.len();
    Tensor::scaled(
        operand.shape.clone(),
        DType::F8E4M3,
        Arc::new(bytes),
        range,
        vec![scale; rows],
    )
}

/// Writes grids of images `[B,H,W,3]`, starting at image `first`: the maximum number of patches in one row,
/// then one patch, then arbitrary grids. If there are four images, the last grid exceeds the maximum.
fn write_grids(shape: &[usize], first: usize, images: &mut [u8]) {
    let size = [shape[1], shape[2]];
    let patches = patch_grid::most_patches(size);
    for (index, image) in images.chunks_exact_mut(size[0] * size[1] * 3).enumerate() {
        let index = first + index;
        let any = |stream, most: usize| 1 + random(stream, index) as usize % most.max(1);
        let rows = any(7, patches.isqrt() + 1);
        let [rows, columns] = match index {
            0 => [1, patches],
            1 => [1, 1],
            3 => [patches, 2],
            _ => [rows, any(8, patches / rows)],
        };
        // The row exists, and the validated sizes fit.
        let _ = PatchGrid { rows, columns }.write(&mut image[patch_grid::first(size)..]);
    }
}

fn view(shape: &[usize], bytes: Vec<u8>) -> Option<Tensor> {
    let range = 0..bytes.len();
    Tensor::view(shape, DType::U8, Arc::new(bytes), range)
}

fn bytes(operand: &Operand, seed: usize) -> Vec<u8> {
    let len: usize = operand.shape.iter().product();
    (0..len).into_par_iter().map(|i| random(seed, i) as u8).collect()
}

/// Returns a mask with about seven of ten keys present; none in the first half for the first image.
fn key_mask(operand: &Operand, seed: usize) -> Vec<u8> {
    let len: usize = operand.shape.iter().product();
    let hidden = operand.shape.last().map_or(0, |keys| keys / 2);
    (0..len)
        .map(|i| u8::from(i >= hidden && random(seed, i) % 10 < 7))
        .collect()
}

/// Returns integers that ascend along the last extent, at random places.
fn integers(operand: &Operand, below: i32, seed: usize) -> Option<Tensor> {
    let len: usize = operand.shape.iter().product();
    let row_len = operand.shape.last().copied().unwrap_or(1).max(1);
    let value = |i| {
        let (row, place) = (i / row_len, i % row_len);
        let step = |number: i32| random(seed + number as usize, row) as usize % row_len;
        (1..below).filter(|&number| step(number) <= place).count() as i32
    };
    let bytes: Vec<u8> = (0..len).flat_map(|i| value(i).to_le_bytes()).collect();
    let range = 0..bytes.len();
    Tensor::view(operand.shape.clone(), DType::I32, Arc::new(bytes), range)
}

fn floats(operand: &Operand, dtype: DType, seed: usize) -> Vec<f32> {
    let len: usize = operand.shape.iter().product();
    let value = |i| {
        // 24 bits, uniform in −1 … 1.
        let unit = (random(seed, i) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let value = operand.mean + operand.spread * unit;
        match dtype {
            DType::F16 => f16::from_f32(value).to_f32(),
            DType::BF16 => bf16::from_f32(value).to_f32(),
            _ => value,
        }
    };
    (0..len).into_par_iter().map(value).collect()
}

/// Returns number `index` of the stream `seed`. SplitMix64's finaliser needs no state, so it runs in
/// parallel. <https://doi.org/10.1145/2714064.2660195>
pub(super) fn random(seed: usize, index: usize) -> u64 {
    let mut z = (((seed as u64 + 1) << 48) ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
