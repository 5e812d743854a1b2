//! The graph's constants on a device: one allocation, in the executor's dtype. 8-bit weights of linear layers stay in 8 bits, followed by
//! their scales.

use std::collections::{BTreeSet, HashMap};

use super::elements::append;
use super::lower::{FACTOR_ALIGNMENT, SparseForm};
use super::sparse::{SparseWeights, append_sparse};
use crate::dtype::to_hip;
use crate::error::Result;
use crate::float8::{Float8, Overflow};
use crate::graph::{Graph, ValueId};
use crate::hip::{DeviceAddress, Frozen, Operand, SparseLt, Stream};
use crate::ops::{Float8Scale, Linear, Op, Rounding};
use crate::tensor::DType;

/// Alignment of each constant in bytes, enough for any vector load.
const ALIGNMENT: usize = 256;

/// The constants that nodes read, concatenated in the device's format. Devices with the same constants share them.
#[derive(Debug)]
pub(crate) struct HostConstants {
    pub(super) bytes: Vec<u8>,
    pub(super) offsets: HashMap<ValueId, usize>,
    /// Offset of each FP8 step, by the bits of the step.
    steps: HashMap<u32, usize>,
    /// The 2:4 sparse weights.
    sparse: HashMap<ValueId, SparseForm>,
    /// 2:4 sparse weights that the device compresses.
    dense: Vec<DenseWeight>,
}

/// A 2:4 sparse weight `[n, k]` with its zeros, as hipSPARSELt takes it.
#[derive(Debug)]
struct DenseWeight {
    extents: [usize; 2],
    dtype: DType,
    bytes: Vec<u8>,
    /// Offset of the compressed weight.
    offset: usize,
    compressed: usize,
}

impl HostConstants {
    /// Converts the constants. `float8` is the device's FP8 encoding, if it has FP8 GEMMs. `sparse` has the weights that are packed.
    pub(crate) fn new(
        graph: &Graph,
        dtype: DType,
        float8: Option<DType>,
        sparse: Option<&SparseWeights>,
    ) -> Self {
        let mut this = Self {
            bytes: Vec::new(),
            offsets: HashMap::new(),
            steps: HashMap::new(),
            sparse: sparse.map(|sparse| sparse.forms.clone()).unwrap_or_default(),
            dense: Vec::new(),
        };
        for node in graph.nodes() {
            for (position, &id) in node.inputs.iter().enumerate() {
                let Some(tensor) = &graph.value(id).constant else {
                    continue;
                };
                if this.offsets.contains_key(&id) {
                    continue;
                }
                let offset = this.align();
                this.offsets.insert(id, offset);
                if let (Some(SparseForm::Packed), Some(sparse)) = (this.sparse.get(&id), sparse) {
                    if append_sparse(&mut this.bytes, tensor, dtype, sparse.order) {
                        continue;
                    }
                    this.sparse.remove(&id);
                }
                if let (Some(&SparseForm::Compressed { bytes }), &[n, k]) =
                    (this.sparse.get(&id), tensor.shape())
                {
                    let mut dense = Vec::with_capacity(n * k * dtype.size());
                    append(&mut dense, &tensor.to_f32(), dtype);
                    this.dense.push(DenseWeight {
                        extents: [n, k],
                        dtype,
                        bytes: dense,
                        offset,
                        compressed: bytes,
                    });
                    this.bytes.resize(offset + bytes, 0);
                    continue;
                }
                match (&node.op, tensor.scaled_parts()) {
                    (Op::Linear(spec), Some((weight, scales))) if position == 1 => {
                        match (spec.rounding, float8) {
                            (Some(Rounding::Int8(_)), _) => append_int8(&mut this.bytes, (&weight, &scales)),
                            (Some(Rounding::Float8(scale)), Some(float8)) => {
                                append_float8(&mut this.bytes, (&weight, &scales), scale, float8);
                            }
                            _ => append(&mut this.bytes, &tensor.to_f32(), dtype),
                        }
                    }
                    _ if tensor.dtype() == DType::I32 => append_integers(&mut this.bytes, &tensor.to_f32()),
                    (op, _) => {
                        let dtype = op.operand_dtype(position, dtype);
                        append(&mut this.bytes, &tensor.to_f32(), dtype);
                    }
                }
            }
        }
        let Some(float8) = float8 else { return this };
        let of_nodes = graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Linear(Linear {
                rounding: Some(rounding),
                ..
            }) => rounding.fixed_float8(),
            _ => None,
        });
        let steps: BTreeSet<u32> = of_nodes.map(f32::to_bits).collect();
        this.align();
        for bits in steps {
            this.steps.insert(bits, this.bytes.len());
            let step = f32::from_bits(bits) * unit(float8);
            for factor in [step, 1.0 / step] {
                this.bytes.extend(factor.to_ne_bytes());
                this.bytes
                    .resize(this.bytes.len().next_multiple_of(FACTOR_ALIGNMENT), 0);
            }
        }
        this
    }

    /// Returns true if there are 2:4 sparse weights whose zeros the device can skip.
    pub(super) fn has_sparse(&self) -> bool {
        !self.sparse.is_empty()
    }

    fn align(&mut self) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.bytes.len()
    }
}

/// Returns the ratio between OCP's numbers and those of this encoding: bits that encode `x` in OCP's encode `x / unit` here.
fn unit(float8: DType) -> f32 {
    if float8 == DType::F8E4M3Fnuz { 2.0 } else { 1.0 }
}

fn append_int8(bytes: &mut Vec<u8>, (weight, scales): (&[u8], &[f32])) {
    let width = (weight.len() / scales.len().max(1)).max(1);
    bytes.extend_from_slice(weight);
    bytes.resize(bytes.len().next_multiple_of(size_of::<f32>()), 0);
    bytes.extend(scales.iter().flat_map(|scale| scale.to_ne_bytes()));
    let sum = |row: &[u8]| row.iter().map(|q| i32::from(q.cast_signed())).sum::<i32>();
    bytes.extend(weight.chunks(width).flat_map(|row| sum(row).to_ne_bytes()));
}

/// Appends an E4M3 weight and its scales. If x has scales per row, the weight keeps them. Otherwise the GEMM takes one scale: the largest
/// one, to which all rows are rounded.
fn append_float8(bytes: &mut Vec<u8>, (weight, scales): (&[u8], &[f32]), of_x: Float8Scale, encoding: DType) {
    let largest = scales.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let width = (weight.len() / scales.len().max(1)).max(1);
    let table = Float8::E4M3.table();
    for (row, of_row) in weight.chunks(width).zip(scales) {
        let rounded = |&bits: &u8| {
            if of_x == Float8Scale::Row || *of_row == largest {
                bits
            } else {
                Float8::E4M3.from_f32(table[usize::from(bits)] * (of_row / largest), Overflow::Saturate)
            }
        };
        let encode = |bits: u8| match encoding {
            DType::F8E4M3Fnuz => fnuz(bits),
            _ => bits,
        };
        bytes.extend(row.iter().map(rounded).map(encode));
    }
    bytes.resize(bytes.len().next_multiple_of(FACTOR_ALIGNMENT), 0);
    let scales = match of_x {
        Float8Scale::Row => scales,
        Float8Scale::Fixed(_) => &[largest],
    };
    bytes.extend(
        scales
            .iter()
            .flat_map(|scale| (scale * unit(encoding)).to_ne_bytes()),
    );
}

/// Returns the bits that encode in FNUZ half the number that `bits` encode in OCP's format.
fn fnuz(bits: u8) -> u8 {
    const NAN: u8 = 0x80;
    match bits {
        0x80 => 0,
        0x7f | 0xff => NAN,
        bits => bits,
    }
}

/// Constants of the nodes, on a device.
#[derive(Debug)]
pub(super) struct Constants {
    memory: Frozen<u8>,
    addresses: HashMap<ValueId, DeviceAddress>,
    steps: HashMap<u32, DeviceAddress>,
    sparse: HashMap<ValueId, SparseForm>,
}

impl Constants {
    pub(super) fn upload(host: &HostConstants, stream: &Stream) -> Result<Self> {
        let mut memory = stream.upload(&host.bytes)?;
        if !host.dense.is_empty() {
            let lt = SparseLt::with_workspace(stream, 0)?;
            for weight in &host.dense {
                let dense = stream.upload(&weight.bytes)?;
                let compressed = memory.writing();
                let compressed = compressed.part(weight.offset..weight.offset + weight.compressed)?;
                lt.compress(weight.extents, to_hip(weight.dtype), dense.reading(), compressed)?;
            }
        }
        let memory = memory.freeze()?;
        let at = |offset: usize| memory.address().offset(offset);
        Ok(Self {
            addresses: host
                .offsets
                .iter()
                .map(|(&id, &offset)| (id, at(offset)))
                .collect(),
            steps: host
                .steps
                .iter()
                .map(|(&bits, &offset)| (bits, at(offset)))
                .collect(),
            sparse: host.sparse.clone(),
            memory,
        })
    }

    pub(super) fn addresses(&self) -> &HashMap<ValueId, DeviceAddress> {
        &self.addresses
    }

    /// Addresses of the FP8 steps, by the bits of the step.
    pub(super) fn steps(&self) -> &HashMap<u32, DeviceAddress> {
        &self.steps
    }

    /// 2:4 sparse weights whose zeros the device can skip.
    pub(super) fn sparse(&self) -> &HashMap<ValueId, SparseForm> {
        &self.sparse
    }

    pub(super) fn reading(&self) -> Operand<'_> {
        self.memory.reading()
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

/// Appends integers, which are indices: no executor rounds them.
fn append_integers(bytes: &mut Vec<u8>, values: &[f32]) {
    bytes.extend(values.iter().flat_map(|&value| (value as i32).to_ne_bytes()));
}
