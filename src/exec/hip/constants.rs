//! The graph's constants on a device: one allocation, in the executor's dtype.

use std::collections::HashMap;

use half::{bf16, f16};

use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::hip::{Frozen, Operand, Stream};
use crate::tensor::DType;

/// Alignment of each constant: enough for any vector load.
const ALIGNMENT: usize = 256;

/// The constants that nodes read, as a device gets them: all concatenated. One for all devices that hold the same.
#[derive(Debug)]
pub(crate) struct HostConstants {
    bytes: Vec<u8>,
    offsets: HashMap<ValueId, usize>,
}

impl HostConstants {
    pub(crate) fn new(graph: &Graph, dtype: DType) -> Self {
        let (bytes, offsets) = concatenate(graph, dtype);
        Self { bytes, offsets }
    }
}

/// The constants that nodes read, on a device.
#[derive(Debug)]
pub(super) struct Constants {
    memory: Frozen<u8>,
    addresses: HashMap<ValueId, u64>,
}

impl Constants {
    pub(super) fn upload(host: &HostConstants, stream: &Stream) -> Result<Self> {
        let memory = stream.upload(&host.bytes)?.freeze()?;
        let addresses = host
            .offsets
            .iter()
            .map(|(&id, &offset)| (id, memory.address() + offset as u64))
            .collect();
        Ok(Self { memory, addresses })
    }

    pub(super) fn addresses(&self) -> &HashMap<ValueId, u64> {
        &self.addresses
    }

    pub(super) fn reading(&self) -> Operand<'_> {
        self.memory.reading()
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

/// All constants that nodes read as elements of `dtype`, concatenated, and each one's offset in bytes.
pub(super) fn concatenate(graph: &Graph, dtype: DType) -> (Vec<u8>, HashMap<ValueId, usize>) {
    let mut bytes = Vec::new();
    let mut offsets = HashMap::new();
    for &id in graph.nodes().iter().flat_map(|node| &node.inputs) {
        let Some(tensor) = &graph.value(id).constant else {
            continue;
        };
        offsets.entry(id).or_insert_with(|| {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let offset = bytes.len();
            append(&mut bytes, &tensor.to_f32(), dtype);
            offset
        });
    }
    (bytes, offsets)
}

/// Appends values, rounded to `dtype`, as the device reads them.
pub(crate) fn append(bytes: &mut Vec<u8>, values: &[f32], dtype: DType) {
    match dtype {
        DType::F16 => bytes.extend(values.iter().flat_map(|&v| f16::from_f32(v).to_ne_bytes())),
        DType::BF16 => bytes.extend(values.iter().flat_map(|&v| bf16::from_f32(v).to_ne_bytes())),
        _ => bytes.extend_from_slice(bytemuck::cast_slice(values)),
    }
}

/// Elements of `dtype` as f32.
pub(crate) fn unpack(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F16 => halves(bytes).map(|b| f16::from_bits(b).to_f32()).collect(),
        DType::BF16 => halves(bytes).map(|b| bf16::from_bits(b).to_f32()).collect(),
        _ => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_ne_bytes(b))
            .collect(),
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks().0.iter().map(|&b| u16::from_ne_bytes(b))
}
