//! Builds the bias of attention's scores by relative position from the model's tables.

use std::path::Path;

use super::super::{Builder, SharedBias};
use crate::error::{Error, Result};
use crate::graph::{Change, Provenance, ValueId};
use crate::model::positions;
use crate::model::relative::{RelativePositions, TableFitting, bias, table_rows};
use crate::tensor::Tensor;

impl Builder<'_> {
    /// Returns the bias of a block, `[heads, tokens, tokens]`, if the model has one.
    pub(super) fn score_bias(&mut self, tensors: &str) -> Result<Option<ValueId>> {
        let Some(spec) = self.vit.relative else {
            return Ok(None);
        };
        if spec.shared && self.shared_bias.is_none() {
            let name = self.trunk(self.names.shared_relative);
            self.shared_bias = Some(SharedBias {
                table: self.relative_table(&name, spec)?,
                name,
                value: None,
            });
        }
        if !spec.own {
            let Some(SharedBias { name, table, value }) = &self.shared_bias else {
                return Ok(None);
            };
            if value.is_some() {
                return Ok(*value);
            }
            let (name, table) = (name.clone(), table.clone());
            let value = self.bias_constant(name.into(), &table)?;
            if let Some(shared) = &mut self.shared_bias {
                shared.value = Some(value);
            }
            return Ok(Some(value));
        }
        let name = format!("{tensors}{}", self.names.relative);
        let mut table = self.relative_table(&name, spec)?;
        let mut provenance = Provenance::from(&name);
        if let Some(shared) = &self.shared_bias {
            table
                .iter_mut()
                .zip(&shared.table)
                .for_each(|(own, shared)| *own += shared);
            let sum = format!("{name} + {}", shared.name);
            provenance = Provenance::computed(sum, [provenance, Provenance::from(&shared.name)]);
        }
        self.bias_constant(provenance, &table).map(Some)
    }

    /// Returns a table, fitted to the image.
    fn relative_table(&mut self, name: &str, spec: RelativePositions) -> Result<Vec<f32>> {
        let (heads, grid) = (self.vit.heads, self.vit.grid());
        let rows = match self.weights.shape(name) {
            Some(&[rows, _]) => rows,
            // The table does not exist. `take` reports it with the expected shape.
            _ => table_rows(grid),
        };
        let file = self.weights.file(name).unwrap_or(Path::new("")).to_owned();
        let stored = self.weights.take(name, &[rows, heads])?;
        let fitted = spec.fitting.fit(&stored.to_f32(), heads, grid);
        let (table, from) = fitted.map_err(|reason| Error::tensor(&file, name, reason))?;
        let Some(from) = from else {
            return Ok(table);
        };
        self.interpolated = Some((from, grid));
        Ok(match spec.fitting {
            // timm fits the table at load, and keeps the stored type.
            TableFitting::Timm => positions::rounded(table, stored.dtype()),
            TableFitting::Transformers { .. } => table,
        })
    }

    fn bias_constant(&mut self, table: Provenance, values: &[f32]) -> Result<ValueId> {
        let (heads, grid) = (self.vit.heads, self.vit.grid());
        let tokens = grid[0] * grid[1] + 1;
        let provenance = table.then(Change::Grid(grid));
        let tensor = Tensor::from_f32([heads, tokens, tokens], bias(values, heads, grid));
        let tensor = tensor.ok_or_else(|| Error::graph(provenance.to_string(), "has another size"))?;
        Ok(self.graph.constant(provenance, tensor))
    }
}
