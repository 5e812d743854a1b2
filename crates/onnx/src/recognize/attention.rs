//! Attention as products of matrices: `softmax(scale · Q·Kᵀ + bias) · V` for heads `[B, heads, N, D]`.

use std::collections::HashMap;

use hipvit_graph::op::{Attention, AttentionOperands, BatchMatMul, MulScalar, Op, Permute, Slice, Softmax};
use hipvit_graph::tensor::Tensor;
use hipvit_graph::{Graph, Node, Provenance, Result, Rewriter, Role, ValueId, rewrite};

use super::view::{View, Views, constant_sum, reshape, simplify};

/// Largest head size of hipvit's attention.
const MOST_CHANNELS: usize = 256;

/// Masks add at most this to scores that are not to count.
const MASKED: f32 = -1e4;

/// Replaces the products by attention, and removes the changes of layout around it that cancel.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    let views = Views::new(graph)?;
    let mut uses: HashMap<ValueId, usize> = HashMap::new();
    for &id in graph.nodes().iter().flat_map(|node| &node.inputs) {
        *uses.entry(id).or_default() += 1;
    }
    for (_, id) in graph.outputs() {
        *uses.entry(*id).or_default() += 1;
    }
    let finder = Finder { views, uses };
    let rewritten = rewrite(graph, |rewriter, node| match finder.find(node) {
        Some(found) => finder.emit(rewriter, node, &found).map(Some),
        None => Ok(None),
    })?;
    simplify(&rewritten.graph)
}

/// Queries, keys or values `[B, heads, N, D]`.
struct Heads {
    id: ValueId,
    /// The axes of [`id`](Self::id) in the order B, heads, N, D.
    order: [usize; 4],
    view: View,
}

impl Heads {
    fn extents(&self) -> [usize; 4] {
        self.order.map(|axis| self.view.extent(axis))
    }
}

/// Attention that was found.
struct Found {
    q: Heads,
    k: Heads,
    v: Heads,
    scale: f32,
    bias: Option<ValueId>,
    causal: bool,
}

/// The scores before the softmax.
struct Scores<'a> {
    product: &'a Node,
    factor: f32,
    bias: Option<ValueId>,
}

struct Finder<'a> {
    views: Views<'a>,
    uses: HashMap<ValueId, usize>,
}

impl<'a> Finder<'a> {
    fn graph(&self) -> &'a Graph {
        self.views.graph
    }

    /// Returns the node that computes `id` for one reader only.
    fn sole(&self, id: ValueId) -> Option<&'a Node> {
        let node = self.views.producers.get(&id).copied();
        node.filter(|_| self.uses.get(&id) == Some(&1))
    }

    fn find(&self, node: &Node) -> Option<Found> {
        let Op::BatchMatMul(BatchMatMul {
            transpose_a: false,
            transpose_b: false,
        }) = node.op
        else {
            return None;
        };
        let softmax = self.sole(node.inputs[0])?;
        if softmax.op != Op::Softmax(Softmax { log: false }) {
            return None;
        }
        let Scores {
            product,
            factor,
            bias,
        } = self.scores(softmax.inputs[0])?;
        let Op::BatchMatMul(BatchMatMul {
            transpose_a: false,
            transpose_b,
        }) = product.op
        else {
            return None;
        };
        let keys_last = if transpose_b { [0, 1, 2, 3] } else { [0, 1, 3, 2] };
        let q = self.heads(product.inputs[0], [0, 1, 2, 3])?;
        let k = self.heads(product.inputs[1], keys_last)?;
        let v = self.heads(node.inputs[1], [0, 1, 2, 3])?;
        let ([b, heads, queries, d], of_k, of_v) = (q.extents(), k.extents(), v.extents());
        let keys = of_k[2];
        if of_k != of_v || of_k != [b, heads, keys, d] || d > MOST_CHANNELS || v.view.factor != 1.0 {
            return None;
        }
        let causal = match bias {
            Some(bias) => self.is_causal(bias, [queries, keys])?,
            None => false,
        };
        if let Some(bias) = bias.filter(|_| !causal) {
            self.bias(bias, [heads, queries, keys])?;
        }
        Some(Found {
            scale: factor * q.view.factor * k.view.factor,
            q,
            k,
            v,
            bias: bias.filter(|_| !causal),
            causal,
        })
    }

    /// Follows the scores back through a bias and a factor to the product.
    fn scores(&self, id: ValueId) -> Option<Scores<'a>> {
        let mut node = self.sole(id)?;
        let mut scores = Scores {
            product: node,
            factor: 1.0,
            bias: None,
        };
        if let Some([x, bias]) = constant_sum(self.graph(), node) {
            scores.bias = Some(bias);
            node = self.sole(x)?;
        }
        while let Op::MulScalar(MulScalar(factor)) = node.op {
            scores.factor *= factor;
            node = self.sole(node.inputs[0])?;
        }
        scores.product = node;
        Some(scores)
    }

    fn heads(&self, id: ValueId, order: [usize; 4]) -> Option<Heads> {
        let view = self.views.of(id);
        (view.axes.len() == 4).then_some(Heads { id, order, view })
    }

    /// Returns true if the bias masks the keys after each query. `None` if it masks others, which attention does not.
    fn is_causal(&self, bias: ValueId, [queries, keys]: [usize; 2]) -> Option<bool> {
        let tensor = self.graph().value(bias).constant.as_ref()?;
        let values = tensor.to_f32();
        // NaN is not a number to compare either.
        if values.iter().all(|&x| x > MASKED) {
            return Some(false);
        }
        let is_masked = |index: usize, x: f32| {
            let (query, key) = (index / keys, index % keys);
            if key > query { x <= MASKED } else { x == 0.0 }
        };
        let is_causal = queries == keys
            && values.len() == queries * keys
            && values.iter().enumerate().all(|(index, &x)| is_masked(index, x));
        is_causal.then_some(true)
    }

    /// Returns the bias as `[heads, queries, keys]`.
    fn bias(&self, id: ValueId, target: [usize; 3]) -> Option<Tensor> {
        let tensor = self.graph().value(id).constant.as_ref()?;
        let shape = tensor.shape();
        let outer = shape.len().saturating_sub(3);
        if shape[..outer].iter().any(|&extent| extent != 1) {
            return None;
        }
        let mut own = [1; 3];
        own[3 - (shape.len() - outer)..].copy_from_slice(&shape[outer..]);
        if own == target {
            return tensor.reshaped(target);
        }
        if own
            .iter()
            .zip(target)
            .any(|(&own, target)| own != 1 && own != target)
        {
            return None;
        }
        let values = tensor.to_f32();
        let at = |axis: usize, index: usize| if own[axis] == 1 { 0 } else { index };
        let mut repeated = Vec::with_capacity(target.iter().product());
        for head in 0..target[0] {
            for query in 0..target[1] {
                let row = (at(0, head) * own[1] + at(1, query)) * own[2];
                repeated.extend((0..target[2]).map(|key| values[row + at(2, key)]));
            }
        }
        Tensor::from_f32(target, repeated)
    }

    /// Returns the shapes `[B, N, C]` of heads at batch sizes 1 and 2.
    fn rows(&self, heads: &Heads) -> [[usize; 3]; 2] {
        let [b, count, n, d] = heads.extents();
        let one = self.graph().value(heads.id).shape[heads.order[0]];
        [[one, n, count * d], [b, n, count * d]]
    }

    /// Returns the width of the rows of the source, if the heads are consecutive channels of them.
    fn width(&self, heads: &Heads) -> Option<usize> {
        let [b, count, n, d] = heads.extents();
        let source: usize = self.views.shape(heads.view.source).iter().product();
        let rows = b * n;
        let width = (rows > 0 && source.is_multiple_of(rows)).then(|| source / rows)?;
        let mut strides = [0; 4];
        for (axis, stride) in heads.order.into_iter().zip([n * width, d, width, 1]) {
            strides[axis] = stride;
        }
        let fits = heads.view.has_strides(&strides) && heads.view.offset + count * d <= width;
        fits.then_some(width)
    }

    /// Emits heads as rows `[B, N, C]`.
    fn emit_rows(&self, rewriter: &mut Rewriter<'_>, name: &str, heads: &Heads) -> Result<ValueId> {
        let [one, two] = self.rows(heads);
        let channels = one[2];
        if let Some(width) = self.width(heads) {
            let source = self.emit_source(rewriter, name, heads, width)?;
            if width == channels {
                return Ok(source);
            }
            let slice = Slice::new(2, heads.view.offset, channels);
            return rewriter.emit(Role::Attention, &format!("{name}.channels"), slice, [source]);
        }
        let [b, h, n, d] = heads.order;
        let x = rewriter.map(heads.id);
        let axes = vec![b, n, h, d];
        let x = rewriter.emit(Role::Attention, &format!("{name}.tokens"), Permute { axes }, [x])?;
        let x = rewriter.emit(Role::Attention, &format!("{name}.rows"), reshape(&one, &two), [x])?;
        // The factors of queries and keys are part of the scale.
        let factor = heads.view.factor;
        if factor == 1.0 {
            return Ok(x);
        }
        rewriter.emit(
            Role::Attention,
            &format!("{name}.unscaled"),
            MulScalar(1.0 / factor),
            [x],
        )
    }

    /// Emits the source of heads as rows `[B, N, width]`.
    fn emit_source(
        &self,
        rewriter: &mut Rewriter<'_>,
        name: &str,
        heads: &Heads,
        width: usize,
    ) -> Result<ValueId> {
        let [[one, n, _], [two, ..]] = self.rows(heads);
        let source = rewriter.map(heads.view.source);
        let (one, two) = ([one, n, width], [two, n, width]);
        if self.views.shape(heads.view.source) == two {
            return Ok(source);
        }
        rewriter.emit(
            Role::Attention,
            &format!("{name}.packed"),
            reshape(&one, &two),
            [source],
        )
    }

    fn emit(&self, rewriter: &mut Rewriter<'_>, node: &Node, found: &Found) -> Result<ValueId> {
        let Found { q, k, v, .. } = found;
        let [_, heads, queries, head_dim] = q.extents();
        let keys = k.extents()[2];
        let channels = heads * head_dim;
        let name = |part: &str| format!("{}.{part}", node.name);
        let packed = |parts: &[&Heads]| {
            let source = parts[0].view.source;
            let mut indexed = parts.iter().enumerate();
            indexed.all(|(index, part)| {
                part.view.source == source
                    && part.view.offset == index * channels
                    && self.width(part) == Some(parts.len() * channels)
            })
        };
        let (operands, mut inputs) = if queries == keys && packed(&[q, k, v]) {
            let qkv = self.emit_source(rewriter, &name("qkv"), q, 3 * channels)?;
            (AttentionOperands::PackedQkv, vec![qkv])
        } else if packed(&[k, v]) {
            let rows = self.emit_rows(rewriter, &name("q"), q)?;
            let kv = self.emit_source(rewriter, &name("kv"), k, 2 * channels)?;
            (AttentionOperands::PackedKv, vec![rows, kv])
        } else {
            let parts = [("q", q), ("k", k), ("v", v)];
            let rows = parts.map(|(part, heads)| self.emit_rows(rewriter, &name(part), heads));
            (
                AttentionOperands::Separate,
                rows.into_iter().collect::<Result<_>>()?,
            )
        };
        if let Some(id) = found.bias
            && let Some(tensor) = self.bias(id, [heads, queries, keys])
        {
            let provenance = self.graph().value(id).provenance.clone();
            let provenance = provenance.unwrap_or_else(|| Provenance::computed(name("bias"), []));
            inputs.push(rewriter.constant(provenance, tensor));
        }
        let op = Attention {
            heads,
            head_dim,
            scale: found.scale,
            operands,
            bias: found.bias.is_some(),
            causal: found.causal,
            ..Attention::default()
        };
        let rows = rewriter.emit(Role::Attention, &node.name, op, inputs)?;
        let [[one, ..], [two, ..]] = self.rows(k);
        let split = |batch: usize| [batch, queries, heads, head_dim];
        let op = reshape(&split(one), &split(two));
        let x = rewriter.emit(Role::Attention, &name("split"), op, [rows])?;
        let axes = vec![0, 2, 1, 3];
        rewriter.emit(Role::Attention, &name("heads"), Permute { axes }, [x])
    }
}
