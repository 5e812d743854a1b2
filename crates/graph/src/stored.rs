//! A graph that was read from a file: serde gives it without its constants' elements, and unchecked.

use super::{Graph, Value};
use crate::tensor::Tensor;

impl Graph {
    /// This graph, as serde has read it, with the constants that `constant` gives.
    ///
    /// # Errors
    ///
    /// What `constant` says, or what is not sound: a value that does not exist, a constant of another shape or dtype,
    /// whatever [`verify`](Self::verify) finds.
    pub fn restored(
        mut self,
        mut constant: impl FnMut(&Value) -> Result<Tensor, String>,
    ) -> Result<Self, String> {
        let of_nodes = self
            .nodes
            .iter()
            .flat_map(|node| node.inputs.iter().chain(&node.outputs));
        let all = of_nodes
            .chain(self.outputs.iter().map(|(_, id)| id))
            .chain([&self.input]);
        if let Some(id) = all
            .map(|id| id.index())
            .max()
            .filter(|&id| id >= self.values.len())
        {
            return Err(format!("there is no value {id}"));
        }
        for value in self.values.iter_mut().filter(|value| value.is_constant()) {
            let tensor = constant(value)?;
            if tensor.dtype() != value.dtype || tensor.shape() != value.shape {
                return Err(format!(
                    "`{}` is {tensor:?}, expected {}{:?}",
                    value.name, value.dtype, value.shape
                ));
            }
            value.constant = Some(tensor);
        }
        self.verify().map_err(|error| error.to_string())?;
        Ok(self)
    }
}
