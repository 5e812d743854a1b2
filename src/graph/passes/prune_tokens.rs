//! Computes only the token that the head reads. Where a model's head reads one token, the last block needs only that
//! token's query, attention row, output projection and feed-forward; keys and values are still those of all tokens.
//! The result is the same. It saves more than four fifths of that block's work, 7 % of ViT-B/16 at 224 pixels.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::rewrite::{PlainLinear, Rewriter, Rewritten, rewrite, sized};
use crate::graph::{Graph, Node, Role, ValueId};
use crate::ops::{Attention, AttentionOperands, Op, Pool};

/// Which tokens of a value the rest of the graph needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Nothing,
    Token(usize),
    All,
}

impl Demand {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, demand) | (demand, Self::Nothing) => demand,
            (a, b) if a == b => a,
            _ => Self::All,
        }
    }
}

/// Counts the nodes that compute one token instead of all.
pub(in crate::graph) fn run(graph: &Graph) -> Result<Rewritten> {
    let demands = demands(graph)?;
    let token_of = |id: ValueId| match demands[id.index()] {
        Demand::Token(token) => Some(token),
        _ => None,
    };
    let mut pools = Pools::default();
    let mut moved_pools = 0;
    let rewritten = rewrite(graph, |rewriter, node| {
        if let (Op::Pool(Pool::Token(_)), Some(_)) = (&node.op, token_of(node.inputs[0])) {
            moved_pools += 1;
            return Ok(Some(rewriter.map(node.inputs[0])));
        }
        let Some(token) = token_of(node.output) else {
            return Ok(None);
        };
        let mut narrow = |rewriter: &mut Rewriter<'_>, id: ValueId| match token_of(id) {
            Some(_) => Ok(rewriter.map(id)),
            None => pools.take(rewriter, id, token),
        };
        if let Op::Attention(attention) = &node.op {
            return narrow_attention(rewriter, graph, node, attention, narrow).map(Some);
        }
        let narrowed = token_operands(&node.op).unwrap_or_default();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, &id) in node.inputs.iter().enumerate() {
            inputs.push(match narrowed.contains(&i) {
                true => narrow(rewriter, id)?,
                false => rewriter.map(id),
            });
        }
        rewriter
            .emit(node.role, &node.name, node.op.clone(), inputs)
            .map(Some)
    })?;
    Ok(Rewritten {
        changes: rewritten.changes - moved_pools,
        ..rewritten
    })
}

/// The tokens needed of every value, by [`ValueId::index`], propagated from the outputs backwards.
fn demands(graph: &Graph) -> Result<Vec<Demand>> {
    let shapes = graph.shapes(2)?;
    // One token of several per image.
    let has_tokens = |id: ValueId| matches!(*shapes[id.index()], [2, tokens, _] if tokens > 1);
    let producers: HashMap<ValueId, &Node> = graph.nodes().iter().map(|node| (node.output, node)).collect();
    let mut demands = vec![Demand::Nothing; graph.values().len()];
    let want = |demands: &mut Vec<Demand>, id: ValueId, demand| {
        demands[id.index()] = demands[id.index()].join(demand);
    };
    for &(_, id) in graph.outputs() {
        want(&mut demands, id, Demand::All);
    }
    for node in graph.nodes().iter().rev() {
        let x = node.inputs[0];
        if let Op::Pool(Pool::Token(token)) = node.op
            && has_tokens(x)
        {
            want(&mut demands, x, Demand::Token(token));
            continue;
        }
        let demand = demands[node.output.index()];
        let token = matches!(demand, Demand::Token(_));
        match &node.op {
            // The packed projection is split, so all that it reads is needed.
            Op::Attention(attention) if token && attention.operands == AttentionOperands::PackedQkv => {
                match producers.get(&x).and_then(|node| PlainLinear::of(graph, node)) {
                    Some(linear) => want(&mut demands, linear.x(), Demand::All),
                    None => {
                        demands[node.output.index()] = Demand::All;
                        want(&mut demands, x, Demand::All);
                    }
                }
            }
            op => {
                let narrowed = token_operands(op)
                    .filter(|operands| token && operands.iter().all(|&i| has_tokens(node.inputs[i])));
                if narrowed.is_none() && token {
                    demands[node.output.index()] = Demand::All;
                }
                let narrowed = narrowed.unwrap_or_default();
                for (i, &id) in node.inputs.iter().enumerate() {
                    let all = !narrowed.contains(&i);
                    want(&mut demands, id, if all { Demand::All } else { demand });
                }
            }
        }
    }
    Ok(demands)
}

/// The operands of which an op needs only the tokens that are needed of its result; `None` if it needs all.
fn token_operands(op: &Op) -> Option<Vec<usize>> {
    match op {
        Op::LayerNorm { .. }
        | Op::RmsNorm { .. }
        | Op::Activation(_)
        | Op::Scale
        | Op::MulScalar(_)
        | Op::SwiGlu => Some(vec![0]),
        Op::Add => Some(vec![0, 1]),
        Op::Linear(linear) => {
            let residual = linear.residual.then_some(2 + usize::from(linear.bias));
            Some(std::iter::once(0).chain(residual).collect())
        }
        // The queries.
        Op::Attention(attention) => (attention.operands != AttentionOperands::PackedQkv).then(|| vec![0]),
        _ => None,
    }
}

/// Attention with one query per image.
fn narrow_attention<'a>(
    rewriter: &mut Rewriter<'a>,
    graph: &'a Graph,
    node: &'a Node,
    attention: &Attention,
    mut narrow: impl FnMut(&mut Rewriter<'a>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let linear = match attention.operands {
        AttentionOperands::PackedQkv => rewriter
            .producer(node.inputs[0])
            .and_then(|node| PlainLinear::of(graph, node)),
        _ => None,
    };
    let Some(linear) = linear else {
        let mut inputs = vec![narrow(rewriter, node.inputs[0])?];
        inputs.extend(rewriter.map_all(&node.inputs[1..]));
        return rewriter.emit(node.role, &node.name, node.op.clone(), inputs);
    };
    let channels = attention.heads * attention.head_dim;
    let part = |rewriter: &mut Rewriter<'a>, name: &str, x, rows: std::ops::Range<usize>| {
        let name = format!("{}.{name}", linear.node.name);
        let weight = sized(node, linear.weight.rows(rows.clone()))?;
        let bias = match linear.bias {
            Some(bias) => Some((format!("{name}.bias"), sized(node, bias.rows(rows))?)),
            None => None,
        };
        rewriter.emit_linear(Role::Qkv, &name, x, (format!("{name}.weight"), weight), bias)
    };
    let x = narrow(rewriter, linear.x())?;
    let q = part(rewriter, "q", x, 0..channels)?;
    let x = rewriter.map(linear.x());
    let kv = part(rewriter, "kv", x, channels..3 * channels)?;
    let op = Op::Attention(Attention {
        operands: AttentionOperands::PackedKv,
        ..*attention
    });
    rewriter.emit(node.role, &node.name, op, [q, kv])
}

/// Nodes that select one token of a value that is needed whole, one per value and token.
#[derive(Default)]
struct Pools {
    of: HashMap<(ValueId, usize), ValueId>,
}

impl Pools {
    fn take(&mut self, rewriter: &mut Rewriter<'_>, id: ValueId, token: usize) -> Result<ValueId> {
        if let Some(&pool) = self.of.get(&(id, token)) {
            return Ok(pool);
        }
        let name = format!("{}.token{token}", rewriter.name(id));
        let whole = rewriter.map(id);
        let pool = rewriter.emit(Role::Other, &name, Op::Pool(Pool::Token(token)), [whole])?;
        self.of.insert((id, token), pool);
        Ok(pool)
    }
}
