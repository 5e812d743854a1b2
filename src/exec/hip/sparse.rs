//! Detection of 2:4 sparse weights, and which of them stay packed on a device ([`Sparse`]).

use std::collections::{HashMap, HashSet};

use super::candidate::Hipsparselt;
use super::elements::append;
use super::libraries::selection_key;
use super::lower::SparseForm;
use crate::dtype::to_hip;
use crate::error::Result;
use crate::exec::select::{HIPSPARSELT, SelectOptions, Sparse, SparseKernel, Store};
use crate::graph::{Graph, Node, ValueId};
use crate::hip::{Device, SparseLt};
use crate::kernels::{SparseOrder, pack_sparse, sparse_indices_at};
use crate::ops::{Op, Rounding};
use crate::tensor::{DType, Tensor};

/// The 2:4 sparse weights of linear layers, and their form on the device.
#[derive(Debug)]
pub(crate) struct SparseWeights {
    pub(super) order: SparseOrder,
    pub(super) forms: HashMap<ValueId, SparseForm>,
}

impl SparseWeights {
    /// Finds the 2:4 sparse weights that stay packed. `None` if there are none, if the device cannot skip their zeros in `dtype`, or if the
    /// options disable it. `tuned` has the measurements of this machine, by default those in the user's cache.
    ///
    /// # Errors
    ///
    /// The device has no stream.
    pub(crate) fn of(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        select: SelectOptions,
        tuned: Option<&Store>,
    ) -> Result<Option<Self>> {
        let order = SparseOrder::of(device.properties().arch());
        let Some(order) = order.filter(|_| dtype.size() == 2 && select.sparse != Sparse::Off) else {
            return Ok(None);
        };
        let weights = weights(graph);
        if weights.is_empty() {
            return Ok(None);
        }
        let stream = device.stream()?;
        let store = match (select.measured && !select.reproducible, tuned) {
            (true, Some(tuned)) => tuned.clone(),
            (true, None) => {
                let (key, _) = selection_key(&stream);
                Store::current(&key.with(HIPSPARSELT, Hipsparselt::version(&stream)))
            }
            (false, _) => Store::default(),
        };
        // The library's results may depend on the number of rows.
        let library = if select.reproducible {
            None
        } else {
            SparseLt::with_workspace(&stream, 0).ok()
        };
        let compressed = |extents| {
            let bytes = library.as_ref()?.compressed_bytes(extents, to_hip(dtype)).ok()?;
            Some(SparseForm::Compressed { bytes })
        };
        let form = |extents| match (store.sparse(extents, to_hip(dtype)), select.sparse) {
            (_, Sparse::Builtin) | (Some(SparseKernel::Builtin), _) => SparseForm::Packed,
            (Some(SparseKernel::Hipsparselt), Sparse::Auto) => {
                compressed(extents).unwrap_or(SparseForm::Dense)
            }
            (_, Sparse::On) => compressed(extents).unwrap_or(SparseForm::Packed),
            _ => SparseForm::Dense,
        };
        let forms = weights.into_iter().map(|(id, extents)| (id, form(extents)));
        Ok(Some(Self {
            order,
            forms: forms.collect(),
        }))
    }
}

/// Returns the weights that only linear layers use, without the patch embedding's, which may be computed as a convolution.
fn weights(graph: &Graph) -> Vec<(ValueId, [usize; 2])> {
    let nodes = graph.nodes();
    let patches = nodes.iter().filter(|node| matches!(node.op, Op::PatchExtract(_)));
    let patches: HashSet<ValueId> = patches.map(Node::output).collect();
    let mut used_otherwise = HashSet::new();
    for node in nodes {
        for (position, &id) in node.inputs.iter().enumerate() {
            let multiplies = match &node.op {
                Op::Linear(spec) => {
                    let in_8_bits = spec.rounding.is_some_and(Rounding::is_to_8_bits);
                    position == 1 && !in_8_bits && !patches.contains(&node.inputs[0])
                }
                _ => false,
            };
            if !multiplies {
                used_otherwise.insert(id);
            }
        }
    }
    let mut seen = HashSet::new();
    let of_node = |id: ValueId| {
        let weight = graph.value(id).constant.as_ref()?;
        let &[n, k] = weight.shape() else { return None };
        (is_two_of_four(weight, k) && seen.insert(id)).then_some((id, [n, k]))
    };
    let inputs = nodes.iter().filter_map(|node| node.inputs.get(1).copied());
    inputs
        .filter(|id| !used_otherwise.contains(id))
        .filter_map(of_node)
        .collect()
}

/// Returns true if two of each four elements in rows of `k` are 0. For dense weights this inspects only a few elements.
fn is_two_of_four(weight: &Tensor, k: usize) -> bool {
    let is_float = matches!(weight.dtype(), DType::F32 | DType::F16 | DType::BF16);
    // Factors of rows leave zeros as they are.
    k > 0 && k.is_multiple_of(4) && is_float && weight.stored_parts().all(has_two_of_four)
}

fn has_two_of_four(weight: &Tensor) -> bool {
    let size = weight.dtype().size();
    if !matches!(weight.dtype(), DType::F32 | DType::F16 | DType::BF16) {
        return false;
    }
    // Ignore the sign bit, in the last byte in little endian.
    let is_zero = |element: &[u8]| match element.split_last() {
        Some((last, rest)) => last & 0x7f == 0 && rest.iter().all(|&byte| byte == 0),
        None => true,
    };
    let bytes = weight.to_le_bytes();
    bytes
        .chunks_exact(4 * size)
        .all(|four| four.chunks_exact(size).filter(|element| is_zero(element)).count() >= 2)
}

/// Appends a packed weight: the kept elements, then their indices. Appends nothing and returns false if the weight is not 2:4 sparse.
pub(super) fn append_sparse(bytes: &mut Vec<u8>, weight: &Tensor, dtype: DType, order: SparseOrder) -> bool {
    let &[n, k] = weight.shape() else { return false };
    let Some((elements, indices)) = pack_sparse(&weight.to_f32(), [n, k], order) else {
        return false;
    };
    let start = bytes.len();
    append(bytes, &elements, dtype);
    bytes.resize(start + sparse_indices_at(n, k), 0);
    bytes.extend(indices);
    true
}
