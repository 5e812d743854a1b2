//! The graph's constants as the CPU kernels read them.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::ops::int8::Int8Weight;
use crate::ops::linear::PrepackedWeight;
use crate::ops::{Linear, Op, Rounding};
use crate::tensor::DType;

/// Weights prepacked for the GEMMs, everything else as f32.
#[derive(Default)]
pub(super) struct Constants {
    /// The weights of linear layers and patch convolutions.
    pub(super) weights: HashMap<ValueId, PrepackedWeight>,
    /// Those of linear layers in int8.
    pub(super) int8: HashMap<ValueId, Int8Weight>,
    pub(super) values: HashMap<ValueId, Vec<f32>>,
}

impl Constants {
    pub(super) fn new(graph: &Graph) -> Result<Self> {
        let mut weights: HashMap<ValueId, &str> = HashMap::new();
        let mut int8: HashMap<ValueId, &str> = HashMap::new();
        let mut values: HashSet<ValueId> = HashSet::new();
        for node in graph.nodes() {
            for (position, &id) in node.inputs.iter().enumerate() {
                let value = graph.value(id);
                if !value.is_constant {
                    continue;
                }
                if value.constant.is_none() {
                    let reason = format!("the constant `{}` was released", value.name);
                    return Err(Error::graph(&node.name, reason));
                }
                match node.op {
                    Op::Linear(Linear {
                        rounding: Some(Rounding::Int8(_)),
                        ..
                    }) if position == 1 => {
                        int8.insert(id, &node.name);
                    }
                    Op::Linear(_) | Op::PatchConv(_) if position == 1 => {
                        weights.insert(id, &node.name);
                    }
                    _ => {
                        values.insert(id);
                    }
                }
            }
        }
        let weights = weights
            .into_par_iter()
            .map(|(id, node)| Ok((id, pack(graph, id).map_err(|e| Error::graph(node, e))?)))
            .collect::<Result<_>>()?;
        let int8 = int8
            .into_par_iter()
            .map(|(id, node)| Ok((id, pack_int8(graph, id).map_err(|e| Error::graph(node, e))?)))
            .collect::<Result<_>>()?;
        let values = values
            .into_iter()
            .filter_map(|id| Some((id, graph.value(id).constant.as_ref()?.to_f32().into_owned())))
            .collect();
        Ok(Self {
            weights,
            int8,
            values,
        })
    }
}

fn pack(graph: &Graph, id: ValueId) -> Result<PrepackedWeight, String> {
    let tensor = graph
        .value(id)
        .constant
        .as_ref()
        .ok_or("the weight has no value")?;
    let (&n, inner) = tensor.shape().split_first().ok_or("the weight is a scalar")?;
    let values = tensor.to_f32();
    PrepackedWeight::new(&values, n, inner.iter().product())
}

fn pack_int8(graph: &Graph, id: ValueId) -> Result<Int8Weight, String> {
    let tensor = graph
        .value(id)
        .constant
        .as_ref()
        .ok_or("the weight has no value")?;
    let &[n, k] = tensor.shape() else {
        return Err("the weight is no matrix".into());
    };
    let parts = tensor.scaled_parts().filter(|_| tensor.dtype() == DType::I8);
    let (weight, scales) = parts.ok_or("the weight is not int8")?;
    Int8Weight::new(bytemuck::cast_slice(weight), scales, n, k)
}
