//! Builds attention and pooling of packed sequences, in which each image is a document.

use std::sync::Arc;

use hipvit_graph::pattern::{Bool, Pattern, ints, masks};

use super::Builder;
use super::blocks::attention_spec;
use crate::error::{Error, Result};
use crate::graph::{Provenance, Role, ValueId};
use crate::model::packed_layout::{Layout, Table};
use crate::model::packing::Packing;
use crate::model::vit::Pooling;
use crate::ops::{Add, AttentionOperands, Op, PatternAttention};
use crate::tensor::{DType, Tensor};

impl Builder<'_> {
    /// Adds the positions of packed patches, which are an input of the graph, to `x`. Adds the input of documents, which all
    /// attention after it reads.
    pub(super) fn packed_positions(&mut self, x: ValueId, layout: Layout) -> Result<ValueId> {
        let (name, dim) = (self.trunk(self.names.positions), self.vit.dim);
        let table = match layout.table {
            Table::Square { side } => {
                let table = self.weights.take(&name, &[side * side, dim])?;
                table.to_f32().into_owned()
            }
            Table::Grid(spec) => self.grid_table(&name, spec)?.0,
        };
        self.packing = Some(Packing::new(layout, table, dim));
        let shape = [1, layout.patches, dim];
        let positions = self.graph.add_input(Packing::POSITIONS, shape, DType::F32)?;
        let documents = self
            .graph
            .add_input(Packing::DOCUMENTS, [1, layout.tokens()], DType::I32)?;
        self.documents = Some(documents);
        let op = Op::Add(Add);
        Ok(self.graph.push(Role::Patch, "positions", op, [x, positions])?)
    }

    /// Adds attention in which each token sees the tokens of its own document.
    pub(super) fn document_attention(
        &mut self,
        step: &str,
        documents: ValueId,
        operands: AttentionOperands,
        mut inputs: Vec<ValueId>,
    ) -> Result<ValueId> {
        inputs.push(documents);
        let mask = masks::documents(Packing::DOCUMENTS);
        let op = self.masked(step, self.vit.heads, operands, "documents", mask)?;
        Ok(self.graph.push(Role::Attention, step, op, inputs)?)
    }

    /// Pools the tokens of each image: `[1,tokens,D] → [1,images,D]`. The mean is attention with queries of zeros, and the
    /// class token is attention to that token alone.
    pub(super) fn pool_documents(&mut self, tokens: ValueId) -> Result<ValueId> {
        let (dim, layout) = (self.vit.dim, self.vit.packed());
        let layout = layout.ok_or_else(|| Error::graph("pool", "images are not packed"))?;
        let zeros = Tensor::from_f32([1, layout.images, dim], vec![0.0; layout.images * dim]);
        let zeros = zeros.ok_or_else(|| Error::graph("pool", "has no channels"))?;
        let query = self.graph.constant(Provenance::computed("pool.query", []), zeros);
        let mut inputs = vec![query, tokens, tokens];
        let mask = match self.vit.pooling {
            Pooling::Mean { skip } => {
                inputs.extend(self.documents);
                own_tokens(layout, skip)
            }
            _ => ints::key().equal(ints::query() * layout.prefix as i32),
        };
        let operands = AttentionOperands::Separate;
        let op = self.masked("pool", self.vit.heads, operands, "pool of documents", mask)?;
        Ok(self.graph.push(Role::Other, "pool", op, inputs)?)
    }

    /// Returns the attention of a learned query of each image to the image's tokens, without the first `skip`. Its last
    /// operand is the documents.
    pub(super) fn document_pool(
        &self,
        layout: Layout,
        heads: usize,
        skip: usize,
    ) -> Result<PatternAttention> {
        let mask = own_tokens(layout, skip);
        self.masked(
            "attn_pool",
            heads,
            AttentionOperands::PackedKv,
            "pool of documents",
            mask,
        )
    }

    /// Returns the learned query of the pooling, `[1,1,D]`, repeated for each image.
    pub(super) fn queries(&mut self, name: &str, layout: Layout) -> Result<ValueId> {
        let dim = self.vit.dim;
        let query = self.weights.take(name, &[1, 1, dim])?.to_f32().into_owned();
        let queries = Tensor::from_f32([1, layout.images, dim], query.repeat(layout.images));
        let queries = queries.ok_or_else(|| Error::graph(name, "does not have the elements of its shape"))?;
        let provenance = Provenance::computed(format!("{name}.repeated"), [name.into()]);
        Ok(self.graph.constant(provenance, queries))
    }

    fn masked(
        &self,
        step: &str,
        heads: usize,
        operands: AttentionOperands,
        name: &str,
        mask: Bool,
    ) -> Result<PatternAttention> {
        let spec = attention_spec(self.vit.dim, heads, operands);
        let pattern = Pattern::new().with_name(name).with_mask(mask);
        let program = pattern.compile().map_err(|error| Error::graph(step, error))?;
        Ok(PatternAttention {
            heads,
            head_dim: spec.head_dim,
            scale: spec.scale,
            operands,
            program: Arc::new(program),
            scalars: Vec::new(),
            log_sum_exp: false,
        })
    }
}

/// Keys of the image with the number of the query. Without its prefix tokens if some are skipped.
fn own_tokens(layout: Layout, skip: usize) -> Bool {
    let own = ints::load(Packing::DOCUMENTS, [ints::batch(), ints::key()]).equal(ints::query());
    if skip == 0 {
        own
    } else {
        own & !masks::prefix(layout.prefixes() as i32)
    }
}
