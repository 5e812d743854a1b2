//! Builds the bias of attention's scores by relative position from the model's tables.

use std::path::Path;

use super::super::{Builder, SharedBias};
use crate::error::{Error, Result};
use crate::graph::{Role, ValueId};
use crate::model::positions;
use crate::model::relative::{RelativePositions, TableFitting, relative_bias};
use crate::ops::Add;
use crate::tensor::Tensor;

impl Builder<'_> {
    /// Returns the bias of the block `step`, `[heads, tokens, tokens]`, if the model has one.
    pub(super) fn score_bias(&mut self, step: &str, tensors: &str) -> Result<Option<ValueId>> {
        let Some(spec) = self.vit.relative else {
            return Ok(None);
        };
        let shared = match self.shared_bias {
            Some(shared) => Some(shared),
            None if spec.shared => {
                let name = self.trunk(self.names.shared_relative);
                let table = self.relative_table(&name, spec)?;
                let bias = if spec.own {
                    None
                } else {
                    Some(self.bias_of(&format!("{step}.bias"), table)?)
                };
                Some(SharedBias { table, bias })
            }
            None => None,
        };
        self.shared_bias = shared;
        if !spec.own {
            return Ok(shared.and_then(|shared| shared.bias));
        }
        let name = format!("{tensors}{}", self.names.relative);
        let mut table = self.relative_table(&name, spec)?;
        if let Some(shared) = shared {
            let operands = [table, shared.table];
            table = self
                .graph
                .push(Role::Attention, format!("{step}.table"), Add, operands)?;
        }
        self.bias_of(&format!("{step}.bias"), table).map(Some)
    }

    /// Returns the constant of a table, fitted to the image.
    fn relative_table(&mut self, name: &str, spec: RelativePositions) -> Result<ValueId> {
        let (heads, grid) = (self.vit.heads, self.vit.grid());
        let rows = match self.weights.shape(name) {
            Some(&[rows, _]) => rows,
            // The table does not exist. `take` reports it with the expected shape.
            _ => relative_bias(grid).table_rows(),
        };
        let file = self.weights.file(name).unwrap_or(Path::new("")).to_owned();
        let stored = self.weights.take(name, &[rows, heads])?;
        let fitted = spec.fitting.fit(&stored.to_f32(), heads, grid);
        let (mut table, from) = fitted.map_err(|reason| Error::tensor(&file, name, reason))?;
        if let Some(from) = from {
            self.interpolated = Some((from, grid));
            if matches!(spec.fitting, TableFitting::Timm) {
                // timm fits the table at load, and keeps the stored type.
                table = positions::rounded(table, stored.dtype());
            }
        }
        let rows = relative_bias(grid).table_rows();
        let table = Tensor::from_f32([rows, heads], table);
        let table = table.ok_or_else(|| Error::graph(name, "has another size"))?;
        Ok(self.graph.constant(name, table))
    }

    /// Adds the bias of each pair of tokens.
    fn bias_of(&mut self, step: &str, table: ValueId) -> Result<ValueId> {
        let op = relative_bias(self.vit.grid());
        Ok(self.graph.push(Role::Attention, step, op, [table])?)
    }
}
