//! Tensor parallelism: the graph of one of several ranks.
//!
//! The split is that of Megatron-LM, <https://arxiv.org/abs/1909.08053>. It applies to a pair of Linears with attention or an activation
//! between them:
//!
//! - The output channels of the first and the input channels of the second Linear are divided among the ranks, attention by heads.
//! - The second Linear gives a partial sum. An [`Op::AllReduce`] completes it, twice per block, and adds bias and residual once.
//! - Every rank computes all other nodes, from the same operands to the same bits.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{AllReduce, Linear, Op, OperandShare, Rounding};
use crate::passes::{float8, round_rows};
use crate::provenance::{Change, Provenance};
use crate::rewrite::{Rewriter, rewrite, sized};
use crate::stages::Stage;
use crate::tensor::Tensor;
use crate::value::ValueId;

/// Hidden channels are divided in units of this many, so that the rows of each rank have the alignment of the whole rows.
const CHANNEL_UNIT: usize = 8;

/// Returns the graph of rank `rank` of `ranks`. `graph` must be optimised. With one rank this is `graph` itself. The graphs of all ranks
/// have the same nodes, outputs and [`Op::AllReduce`]s in the same order.
///
/// # Errors
///
/// [`Error::Argument`], naming the model and the numbers, if the heads cannot be divided evenly or nothing can be divided. [`Error::Graph`]
/// if constants do not fit their nodes.
pub fn shard(graph: &Graph, rank: usize, ranks: usize) -> Result<Graph> {
    let (shard, ends) = divide(graph, rank, ranks)?;
    some(ends, graph, ranks)?;
    Ok(shard)
}

/// Returns the [shards](shard) of a model's [stages](super::stages()) for a rank. A stage may have nothing to divide, such as a stage with
/// the head alone. All ranks then compute it.
///
/// # Errors
///
/// The errors of [`shard()`], and [`Error::Argument`] if no stage can be divided.
pub fn shard_stages(stages: &[Stage], rank: usize, ranks: usize) -> Result<Vec<Stage>> {
    let mut all = 0;
    let shard = |stage: &Stage| {
        let (graph, ends) = divide(&stage.graph, rank, ranks)?;
        all += ends;
        Ok(Stage {
            graph,
            outputs: stage.outputs.clone(),
            flops: stage.flops,
        })
    };
    let shards = stages.iter().map(shard).collect::<Result<Vec<_>>>()?;
    if let Some(first) = stages.first() {
        some(all, &first.graph, ranks)?;
    }
    Ok(shards)
}

/// Checks that the graph was divided.
///
/// # Errors
///
/// [`Error::Argument`] if `regions` is 0.
fn some(regions: usize, graph: &Graph, ranks: usize) -> Result<()> {
    if regions > 0 || ranks == 1 {
        return Ok(());
    }
    let reason = format!("{} has no layers to divide among {ranks} GPUs", graph.name);
    Err(Error::argument("tensor", reason))
}

/// Returns the rank's graph, and the number of regions that are divided.
fn divide(graph: &Graph, rank: usize, ranks: usize) -> Result<(Graph, usize)> {
    if rank >= ranks {
        return Err(Error::argument(
            "tensor",
            format!("there is no rank {rank} of {ranks}"),
        ));
    }
    if ranks == 1 {
        return Ok((graph.clone(), 0));
    }
    check_heads(graph, ranks)?;
    let mut parts: HashMap<ValueId, Part> = HashMap::new();
    let mut ends = 0;
    let readers = Readers::new(graph);
    for node in &graph.nodes {
        if let Some(found) = region(graph, &readers, node) {
            ends += 1;
            parts.extend(found);
        }
    }
    let share = Share { rank, ranks };
    let rewritten = rewrite(graph, |rewriter, node| match parts.get(&node.output()) {
        Some(part) => emit(rewriter, node, part, share).map(Some),
        None => Ok(None),
    })?;
    let stores = |of: fn(Rounding) -> bool| {
        let mut roundings = graph.values.iter().filter_map(|value| value.rounding);
        roundings.any(of)
    };
    let (float8, rows) = (
        stores(|rounding| rounding.fixed_float8().is_some()),
        stores(Rounding::is_of_rows),
    );
    let mut graph = rewritten.graph;
    if float8 {
        float8::store(&mut graph);
    }
    if rows {
        round_rows::mark(&mut graph);
    }
    graph.verify()?;
    graph.shard = Some((rank, ranks));
    Ok((graph, ends))
}

fn check_heads(graph: &Graph, ranks: usize) -> Result<()> {
    let heads = graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(spec) => Some(spec.heads),
        _ => None,
    });
    match heads.into_iter().find(|heads| !heads.is_multiple_of(ranks)) {
        None => Ok(()),
        Some(heads) => {
            let fit = (2..=heads).filter(|n| heads.is_multiple_of(*n));
            let fit: Vec<String> = fit.map(|n| n.to_string()).collect();
            let advice = if fit.is_empty() {
                "use another parallelism".to_owned()
            } else {
                format!("use {} GPUs, or another parallelism", fit.join(" or "))
            };
            let reason = format!(
                "{} has {heads} attention heads, which cannot be divided evenly among {ranks} GPUs: {advice}",
                graph.name
            );
            Err(Error::argument("tensor", reason))
        }
    }
}

/// A rank's share of something that is divided.
#[derive(Clone, Copy, Debug)]
struct Share {
    rank: usize,
    ranks: usize,
}

impl Share {
    /// Returns the rank's range of `count` items, in whole units.
    fn of(self, count: usize, unit: usize) -> Range<usize> {
        // Divide few channels one by one, so that every rank gets some.
        let fits = count.is_multiple_of(unit) && count / unit >= self.ranks;
        let unit = if fits { unit } else { 1 };
        let at = |rank: usize| count / unit * rank / self.ranks * unit;
        at(self.rank)..at(self.rank + 1)
    }
}

/// Division of a node's channels.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A Linear with divided output channels: `blocks` parts of equal size. A rank has a share of each part.
    Columns { blocks: usize, unit: usize },
    /// A node that works on each channel or head separately.
    Inner { unit: usize },
    /// The Linear that sums over the divided channels.
    Rows { unit: usize },
}

/// Readers of each value.
struct Readers {
    uses: Vec<usize>,
    producer: HashMap<ValueId, usize>,
}

impl Readers {
    fn new(graph: &Graph) -> Self {
        let mut uses = vec![0; graph.values.len()];
        let inputs = graph.nodes.iter().flat_map(|node| &node.inputs);
        for id in inputs.chain(graph.outputs.iter().map(|(_, id)| id)) {
            uses[id.index()] += 1;
        }
        let producer = graph.nodes.iter().enumerate().map(|(i, node)| (node.output(), i));
        Self {
            uses,
            producer: producer.collect(),
        }
    }
}

/// Returns how the nodes of a region are divided. The region ends at `end`, a Linear that can be divided by its input channels. It starts
/// at Linears that are divided by their output channels. `None` if there is no such region.
fn region(graph: &Graph, readers: &Readers, end: &Node) -> Option<Vec<(ValueId, Part)>> {
    let Op::Linear(Linear { activation: None, .. }) = end.op else {
        return None;
    };
    graph.value(end.inputs[1]).constant.as_ref()?;
    let mut found = Vec::new();
    let mut units = None;
    // Values that still have to be divided, with their number of blocks. Each rank has a share of each block.
    let mut open = vec![(end.inputs[0], 1)];
    let mut inner = 0;
    while let Some((id, blocks)) = open.pop() {
        if graph.value(id).is_constant() {
            // Fixed queries of attention, which the node that reads them divides.
            graph.value(id).constant.as_ref()?;
            continue;
        }
        let node = &graph.nodes[*readers.producer.get(&id)?];
        if readers.uses[id.index()] != 1 {
            return None;
        }
        if let Op::Linear(Linear { residual: false, .. }) = &node.op {
            for &id in &node.inputs[1..] {
                graph.value(id).constant.as_ref()?;
            }
            found.push((id, Part::Columns { blocks, unit: 0 }));
            continue;
        }
        let division = node.op.division(blocks)?;
        if let Some(own) = division.unit {
            // Parts with different units cannot be divided together.
            if units.replace(own).is_some() {
                return None;
            }
        }
        for (operand, blocks) in division.operands {
            open.push((node.inputs[operand], blocks));
        }
        for constant in division.constants {
            graph.value(node.inputs[constant]).constant.as_ref()?;
        }
        inner += 1;
        found.push((id, Part::Inner { unit: 0 }));
    }
    let linears = found.iter().any(|(_, part)| matches!(part, Part::Columns { .. }));
    // An activation may be fused into the first Linear.
    let fused = || {
        found.iter().any(|(id, _)| {
            let node = &graph.nodes[readers.producer[id]];
            matches!(
                node.op,
                Op::Linear(Linear {
                    activation: Some(_),
                    ..
                })
            )
        })
    };
    if !linears || (inner == 0 && !fused()) {
        return None;
    }
    let unit = units.unwrap_or(CHANNEL_UNIT);
    for (_, part) in &mut found {
        *part = match *part {
            Part::Columns { blocks, .. } => Part::Columns { blocks, unit },
            _ => Part::Inner { unit },
        };
    }
    found.push((end.output(), Part::Rows { unit }));
    Some(found)
}

/// Appends a rank's part of `node`.
fn emit<'a>(rewriter: &mut Rewriter<'a>, node: &'a Node, part: &Part, share: Share) -> Result<ValueId> {
    match *part {
        Part::Columns { blocks, unit } => columns(rewriter, node, blocks, unit, share),
        Part::Rows { unit } => rows(rewriter, node, unit, share),
        Part::Inner { unit } => {
            let op = node.op.of_rank(share.ranks);
            let inputs = node.inputs.iter().enumerate().map(|(index, &id)| {
                let Some(tensor) = rewriter.tensor(id) else {
                    return Ok(rewriter.map(id));
                };
                let part = match node.op.operand_share(index, tensor.shape()) {
                    OperandShare::Whole => return Ok(rewriter.map(id)),
                    OperandShare::Heads => {
                        let heads = tensor.shape().first().copied().unwrap_or(0);
                        tensor.rows(share.of(heads, 1))
                    }
                    OperandShare::Channels => {
                        let channels = tensor.shape().last().copied().unwrap_or(0);
                        let range = share.of(channels, unit);
                        let shape = [&tensor.shape()[..tensor.shape().len() - 1], &[range.len()]].concat();
                        let matrix = tensor.reshaped([tensor.len() / channels.max(1), channels]);
                        matrix.and_then(|matrix| matrix.columns(range)?.reshaped(shape))
                    }
                };
                let provenance = share.of_constant(rewriter.provenance(id));
                Ok(rewriter.constant(provenance, sized(node, part)?))
            });
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            rewriter.emit(node.role, &node.name, op, inputs)
        }
    }
}

/// Appends the Linear with the rank's output channels.
fn columns<'a>(
    rewriter: &mut Rewriter<'a>,
    node: &'a Node,
    blocks: usize,
    unit: usize,
    share: Share,
) -> Result<ValueId> {
    let mut inputs = vec![rewriter.map(node.inputs[0])];
    for &id in &node.inputs[1..] {
        let part = rewriter.tensor(id).and_then(|tensor| {
            let block = tensor.shape().first()? / blocks;
            let range = share.of(block, unit);
            let rows = |index: usize| tensor.rows(index * block + range.start..index * block + range.end);
            let rows = (0..blocks).map(rows).collect::<Option<Vec<Tensor>>>()?;
            match rows.as_slice() {
                [rows] => Some(rows.clone()),
                rows => Tensor::concat_rows(&rows.iter().collect::<Vec<_>>()),
            }
        });
        let provenance = share.of_constant(rewriter.provenance(id));
        inputs.push(rewriter.constant(provenance, sized(node, part)?));
    }
    rewriter.emit(node.role, &node.name, node.op.clone(), inputs)
}

/// Appends the Linear with the rank's input channels, and the all-reduce.
fn rows<'a>(rewriter: &mut Rewriter<'a>, node: &'a Node, unit: usize, share: Share) -> Result<ValueId> {
    let Op::Linear(Linear {
        bias,
        residual,
        rounding,
        ..
    }) = node.op
    else {
        return Err(Error::graph(&node.name, "is no linear layer"));
    };
    let (x, weight) = (node.inputs[0], node.inputs[1]);
    let part = rewriter.tensor(weight).and_then(|tensor| {
        let range = share.of(*tensor.shape().get(1)?, unit);
        tensor.columns(range)
    });
    let provenance = share.of_constant(rewriter.provenance(weight));
    let weight = rewriter.constant(provenance, sized(node, part)?);
    let inputs = [rewriter.map(x), weight];
    let op = Op::Linear(Linear {
        // Per-row parameters would be computed from the rank's part of the row.
        rounding: rounding.filter(|rounding| !rounding.is_of_rows()),
        ..Linear::default()
    });
    let partial = rewriter.emit(node.role, &node.name, op, inputs)?;
    let sum = AllReduce {
        ranks: share.ranks,
        bias,
        residual,
    };
    let mut inputs = vec![partial];
    inputs.extend(rewriter.map_all(&node.inputs[2..]));
    let name = format!("{}.all_reduce", node.name);
    rewriter.emit(node.role, &name, Op::AllReduce(sum), inputs)
}

impl Share {
    /// Returns the provenance of the rank's part of a constant.
    fn of_constant(self, whole: Provenance) -> Provenance {
        let Self { rank, ranks } = self;
        whole.then(Change::Share { rank, ranks })
    }
}
