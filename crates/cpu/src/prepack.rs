//! Conversion of a graph's constants to the form of the CPU kernels.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hipvit_graph::op::OpError;
use rayon::prelude::*;

use super::collectives::Collectives;
use super::constants::{Constants, Form};
use super::cpu_op::CpuOp;
use super::int8::Int8Weight;
use super::prepacked::PrepackedWeight;
use hipvit_graph::tensor::DType;
use hipvit_graph::{Error, Graph, Node, Result, ValueId};

impl Constants {
    /// Converts the constants of `graph` for linear layers and attention in `dtype`: f32, f16 or bf16.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] or [`Error::Op`], naming the node, if a constant was released or a weight has no rows.
    pub fn new(graph: &Graph, dtype: DType) -> Result<Self> {
        let mut weights: HashMap<ValueId, (&Node, DType)> = HashMap::new();
        let mut int8: HashMap<ValueId, &Node> = HashMap::new();
        let mut values: HashSet<ValueId> = HashSet::new();
        for (id, node, form) in forms(graph, dtype) {
            let value = graph.value(id);
            if value.constant.is_none() {
                let reason = format!("the constant `{}` was released", value.name);
                return Err(Error::graph(&node.name, reason));
            }
            match form {
                Form::Int8 => drop(int8.insert(id, node)),
                Form::Weight(dtype) => drop(weights.insert(id, (node, dtype))),
                Form::Values => drop(values.insert(id)),
            }
        }
        let weights = weights
            .into_par_iter()
            .map(|(id, (node, dtype))| {
                let packed = pack(graph, id, dtype).map_err(|e| Error::op(&node.name, &node.op, e))?;
                Ok((id, packed))
            })
            .collect::<Result<_>>()?;
        let int8 = int8
            .into_par_iter()
            .map(|(id, node)| {
                let packed = pack_int8(graph, id).map_err(|e| Error::op(&node.name, &node.op, e))?;
                Ok((id, packed))
            })
            .collect::<Result<_>>()?;
        let values = values
            .into_iter()
            .filter_map(|id| Some((id, graph.value(id).constant.as_ref()?.to_f32().into_owned())))
            .collect();
        Ok(Self {
            weights,
            int8,
            values,
            dtype,
            collectives: None,
        })
    }

    /// Sets the connections to the other ranks of a training step.
    pub fn set_collectives(&mut self, collectives: Option<Arc<dyn Collectives>>) {
        self.collectives = collectives;
    }

    /// Returns the number of packed weights.
    #[must_use]
    pub fn weights(&self) -> usize {
        self.weights.len()
    }

    /// Returns the weights that were free of NaN and infinity when they were packed.
    pub fn finite_weights(&self) -> impl Iterator<Item = ValueId> {
        let finite = self.weights.iter().filter(|(_, weight)| weight.is_finite());
        finite.map(|(&id, _)| id)
    }
}

/// Returns the constants that nodes read, each with its form if the CPU computes in `dtype`.
fn forms(graph: &Graph, dtype: DType) -> impl Iterator<Item = (ValueId, &Node, Form)> {
    graph.nodes().iter().flat_map(move |node| {
        let constants = node.inputs.iter().enumerate();
        let constants = constants.filter(move |&(_, &id)| graph.value(id).is_constant());
        constants.map(move |(position, &id)| {
            let form = node.op.constant_form(position, dtype);
            (id, node, form)
        })
    })
}

/// Returns the bytes of the constants of `graph` on the CPU in `dtype`, without padding.
pub fn constant_bytes(graph: &Graph, dtype: DType) -> usize {
    let constants: HashSet<(ValueId, Form)> = forms(graph, dtype).map(|(id, _, form)| (id, form)).collect();
    let bytes = constants.into_iter().map(|(id, form)| {
        let shape = &graph.value(id).shape;
        let elements: usize = shape.iter().product();
        match form {
            Form::Weight(dtype) => elements * dtype.size(),
            // A scale and a sum per output channel.
            Form::Int8 => {
                elements
                    + shape
                        .first()
                        .map_or(0, |n| n * (size_of::<f32>() + size_of::<i32>()))
            }
            Form::Values => elements * size_of::<f32>(),
        }
    });
    bytes.sum()
}

fn pack(graph: &Graph, id: ValueId, dtype: DType) -> Result<PrepackedWeight, OpError> {
    let tensor = graph
        .value(id)
        .constant
        .as_ref()
        .ok_or("the weight has no value")?;
    let (&n, inner) = tensor.shape().split_first().ok_or("the weight is a scalar")?;
    let values = tensor.to_f32();
    PrepackedWeight::new(&values, n, inner.iter().product(), dtype)
}

fn pack_int8(graph: &Graph, id: ValueId) -> Result<Int8Weight, OpError> {
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
    Int8Weight::new(bytemuck::cast_slice(&weight), &scales, n, k)
}
