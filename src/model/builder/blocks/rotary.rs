//! Queries, keys and values with rotary position embedding: joins several layers, repeats fewer heads of keys and
//! values, and adds the rotation.

use super::super::Builder;
use super::{Packed, joined};
use crate::error::{Error, Result};
use crate::graph::{Change, Provenance, Role, ValueId};
use crate::model::names::Qkv;
use crate::model::vit::Vit;
use crate::ops::{Op, Rope};
use crate::tensor::Tensor;

impl Builder<'_> {
    /// Returns the layer that computes queries, keys and values of block `index`.
    pub(super) fn qkv(&mut self, index: usize, tensors: &str) -> Result<Packed> {
        let Vit {
            dim, heads, qkv_bias, ..
        } = *self.vit;
        match self.names.qkv {
            Qkv::Packed(name) if qkv_bias[0] != qkv_bias[1] => {
                let name = format!("{tensors}{name}.weight");
                let weight = self.weights.take(&name, &[3 * dim, dim])?;
                let mut parts = Vec::with_capacity(3);
                let [query, value] = self.names.qv_biases;
                for (part, bias) in [Some(query), None, Some(value)].into_iter().enumerate() {
                    let rows = weight.rows(part * dim..(part + 1) * dim);
                    let rows = rows.ok_or_else(|| Error::graph(&name, "has too few rows"))?;
                    let bias = match bias.map(|bias| format!("{tensors}{bias}")) {
                        Some(bias) => {
                            let tensor = self.weights.take(&bias, &[dim])?;
                            Some((bias.into(), tensor))
                        }
                        None => None,
                    };
                    parts.push(Packed {
                        weight: (name.clone().into(), rows),
                        bias,
                    });
                }
                let bias = joined(&parts)?.bias;
                Ok(Packed {
                    weight: (name.into(), weight),
                    bias,
                })
            }
            Qkv::Packed(name) => self.packed(&format!("{tensors}{name}"), [3 * dim, dim], qkv_bias[0]),
            Qkv::PackedTensors { weight, bias } => {
                let [weight, bias] = [weight, bias].map(|name| format!("{tensors}{name}"));
                let weights = self.weights.take(&weight, &[3 * dim, dim])?;
                let biases = self.weights.take(&bias, &[3 * dim])?;
                Ok(Packed {
                    weight: (weight.into(), weights),
                    bias: Some((bias.into(), biases)),
                })
            }
            Qkv::Separate(names) => {
                let kv_heads = self.vit.kv_heads.as_ref().map_or(heads, |heads| heads[index]);
                let mut parts = Vec::with_capacity(3);
                for (part, name) in names.into_iter().enumerate() {
                    let of_part = if part == 0 { heads } else { kv_heads };
                    let extents = [of_part * (dim / heads), dim];
                    let layer = self.packed(&format!("{tensors}{name}"), extents, qkv_bias[part])?;
                    parts.push(repeated(layer, of_part, heads)?);
                }
                joined(&parts)
            }
        }
    }

    /// Returns the table of block `index`, if queries and keys are rotated.
    pub(super) fn rotary_table(&mut self, index: usize) -> Result<Option<ValueId>> {
        if self.rotary_tables.is_empty() {
            self.rotary_tables = self.make_rotary_tables()?;
        }
        Ok(self.rotary_tables.get(index).copied())
    }

    /// Creates the tables of all blocks. If the angles are not learned, there is only one.
    fn make_rotary_tables(&mut self) -> Result<Vec<ValueId>> {
        let Some(rotary) = self.vit.rotary else {
            return Ok(Vec::new());
        };
        let Vit {
            dim, heads, depth, ..
        } = *self.vit;
        let ([rows, columns], head_dim) = (self.vit.grid(), dim / heads);
        if let Some(table) = rotary.axial([rows, columns], head_dim) {
            let provenance = Provenance::computed(format!("rope {rows}×{columns}"), []);
            let table = self.table(provenance, [rows * columns, head_dim], table)?;
            return Ok(vec![table; depth]);
        }
        let name = self.trunk(self.names.rotary);
        let half = head_dim / 2;
        let frequencies = self
            .weights
            .take(&name, &[2, depth, heads, half])?
            .to_f32()
            .into_owned();
        let of_block = |index: usize| {
            let of = |axis: usize| &frequencies[(axis * depth + index) * heads * half..][..heads * half];
            let table = rotary.learned([rows, columns], half, [of(0), of(1)]);
            let provenance = Provenance::from(&name).then(Change::Column(index));
            let provenance = provenance.then(Change::Grid([rows, columns]));
            self.table(provenance, [rows * columns, dim], table)
        };
        (0..depth).map(of_block).collect()
    }

    fn table(
        &mut self,
        provenance: Provenance,
        [places, channels]: [usize; 2],
        values: Vec<f32>,
    ) -> Result<ValueId> {
        let tensor = Tensor::from_f32([1, places, channels], values);
        let tensor = tensor.ok_or_else(|| Error::graph(provenance.to_string(), "has another size"))?;
        Ok(self.graph.constant(provenance, tensor))
    }

    /// Rotates the first `rotated` of queries, keys and values in `x`.
    pub(super) fn rotated(
        &mut self,
        step: &str,
        x: ValueId,
        rotated: usize,
        table: Option<ValueId>,
    ) -> Result<ValueId> {
        let (Some(rotary), Some(table)) = (self.vit.rotary, table) else {
            return Ok(x);
        };
        let op = Op::Rope(Rope {
            heads: self.vit.heads,
            head_dim: self.vit.dim / self.vit.heads,
            rotated,
            pairs: rotary.pairs,
        });
        Ok(self.graph.push(Role::Qkv, step, op, [x, table])?)
    }
}

/// Repeats each of the `from` heads of a layer up to `heads` heads, because attention needs as many heads of keys as of
/// queries.
fn repeated(layer: Packed, from: usize, heads: usize) -> Result<Packed> {
    if from == heads {
        return Ok(layer);
    }
    let repeat = |(of, tensor): (Provenance, Tensor)| {
        let rows = tensor.shape()[0] / from;
        let head = |head: usize| tensor.rows(head * rows..(head + 1) * rows);
        let parts = (0..heads).map(|index| head(index / (heads / from)));
        let parts = parts.collect::<Option<Vec<Tensor>>>();
        let all = parts.and_then(|parts| Tensor::concat_rows(&parts.iter().collect::<Vec<_>>()));
        match all {
            Some(all) => Ok((of.then(Change::RepeatedHeads(heads / from)), all)),
            None => Err(Error::graph(of.to_string(), "has too few rows")),
        }
    };
    Ok(Packed {
        weight: repeat(layer.weight)?,
        bias: layer.bias.map(repeat).transpose()?,
    })
}
