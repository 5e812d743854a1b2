//! Computes only the token that the head reads. Where a model's head reads one token, the last block needs only that
//! token's query, attention row, output projection and feed-forward; keys and values are still those of all tokens.
//! The result is the same. It saves more than four fifths of that block's work, 7 % of ViT-B/16 at 224 pixels.

use std::collections::HashMap;

use crate::error::Result;
use crate::op::{Attention, AttentionOperands, Op, Pool, Rope};
use crate::rewrite::{PlainLinear, Rewriter, Rewritten, rewrite, sized};
use crate::{Change, Graph, Node, Provenance, Role, ValueId};

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
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
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
        let Some(token) = token_of(node.output()) else {
            return Ok(None);
        };
        let mut narrow = |rewriter: &mut Rewriter<'_>, id: ValueId| match token_of(id) {
            Some(_) => Ok(rewriter.map(id)),
            None => pools.take(rewriter, id, token),
        };
        if let Op::Rope(_) = node.op {
            // Only of a token that is not rotated is one token wanted.
            return narrow(rewriter, node.inputs[0]).map(Some);
        }
        if let Op::Attention(attention) = &node.op {
            return narrow_attention(rewriter, graph, node, attention, token, narrow).map(Some);
        }
        let narrowed = node.op.tokenwise().unwrap_or_default();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, &id) in node.inputs.iter().enumerate() {
            inputs.push(if narrowed.contains(&i) {
                narrow(rewriter, id)?
            } else {
                rewriter.map(id)
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
    let producers: HashMap<ValueId, &Node> = graph.nodes().iter().map(|node| (node.output(), node)).collect();
    let mut demands = vec![Demand::Nothing; graph.values().len()];
    let want = |demands: &mut Vec<Demand>, id: ValueId, demand| {
        demands[id.index()] = demands[id.index()].join(demand);
    };
    let set = |demands: &mut Vec<Demand>, node: &Node, demand| {
        for id in &node.outputs {
            demands[id.index()] = demand;
        }
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
        // A query of its own would lose its position among the keys; and a key mask is of models whose head reads all tokens.
        if matches!(&node.op, Op::Attention(attention) if attention.causal || attention.key_mask)
            && let wanted @ Demand::Token(_) = &mut demands[node.output().index()]
        {
            *wanted = Demand::All;
        }
        // All results have the same tokens.
        let joined = |joined: Demand, id: &ValueId| joined.join(demands[id.index()]);
        let demand = node.outputs.iter().fold(Demand::Nothing, joined);
        set(&mut demands, node, demand);
        let token = matches!(demand, Demand::Token(_));
        match &node.op {
            Op::Attention(attention) if token && !is_constant_bias(graph, node, attention) => {
                demands[node.output().index()] = Demand::All;
                for &id in &node.inputs {
                    want(&mut demands, id, Demand::All);
                }
            }
            // The packed projection is split, so all that it reads is needed.
            Op::Attention(attention) if token && attention.operands == AttentionOperands::PackedQkv => {
                match projection(graph, |id| producers.get(&id).copied(), x, demand) {
                    Some((linear, _)) => want(&mut demands, linear.x(), Demand::All),
                    None => {
                        demands[node.output().index()] = Demand::All;
                        want(&mut demands, x, Demand::All);
                    }
                }
            }
            Op::Rope(_) if token && !(is_fixed(graph, node, demand) && has_tokens(x)) => {
                demands[node.output().index()] = Demand::All;
                want(&mut demands, x, Demand::All);
            }
            op => {
                let narrowed = op
                    .tokenwise()
                    .filter(|operands| token && operands.iter().all(|&i| has_tokens(node.inputs[i])));
                if narrowed.is_none() && token {
                    set(&mut demands, node, Demand::All);
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

/// Whether attention's bias, if it has one, is a constant, of which one query's rows can be taken.
fn is_constant_bias(graph: &Graph, node: &Node, attention: &Attention) -> bool {
    let bias = node.inputs.get(attention.operands.count());
    bias.is_none_or(|&bias| graph.value(bias).constant.is_some())
}

/// Whether the token that is wanted of a rotation's result is one that is not rotated.
fn is_fixed(graph: &Graph, rope: &Node, demand: Demand) -> bool {
    let [tokens, places] = [0, 1].map(|i| graph.value(rope.inputs[i]).shape.get(1).copied().unwrap_or(0));
    matches!(demand, Demand::Token(token) if token + places < tokens)
}

/// The projection to packed queries, keys and values, and their rotation, if there is one; only if both can be split so that
/// one query is computed.
fn projection<'a>(
    graph: &'a Graph,
    producer: impl Fn(ValueId) -> Option<&'a Node>,
    packed: ValueId,
    demand: Demand,
) -> Option<(PlainLinear<'a>, Option<(&'a Node, Rope)>)> {
    let node = producer(packed)?;
    let Op::Rope(spec) = node.op else {
        return Some((PlainLinear::of(graph, node)?, None));
    };
    if spec.rotated != 2 || !is_fixed(graph, node, demand) {
        return None;
    }
    let linear = PlainLinear::of(graph, producer(node.inputs[0])?)?;
    Some((linear, Some((node, spec))))
}

/// Attention with one query per image.
fn narrow_attention<'a>(
    rewriter: &mut Rewriter<'a>,
    graph: &'a Graph,
    node: &'a Node,
    attention: &Attention,
    token: usize,
    mut narrow: impl FnMut(&mut Rewriter<'a>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let projection = match attention.operands {
        AttentionOperands::PackedQkv => {
            let producer = |id| rewriter.producer(id);
            projection(graph, producer, node.inputs[0], Demand::Token(token))
        }
        _ => None,
    };
    let Some((linear, rope)) = projection else {
        let mut inputs = vec![narrow(rewriter, node.inputs[0])?];
        inputs.extend(rewriter.map_all(&node.inputs[1..attention.operands.count()]));
        inputs.extend(bias_of(rewriter, node, attention, token)?);
        return rewriter.emit(node.role, &node.name, node.op.clone(), inputs);
    };
    let channels = attention.heads * attention.head_dim;
    let part = |rewriter: &mut Rewriter<'a>, name: &str, x, rows: std::ops::Range<usize>| {
        let name = format!("{}.{name}", linear.node.name);
        let of_rows = |index: usize| {
            let whole = rewriter.provenance(linear.node.inputs[index]);
            whole.then(Change::Rows(rows.clone()))
        };
        let weight = (of_rows(1), sized(node, linear.weight.rows(rows.clone()))?);
        let bias = match linear.bias {
            Some(bias) => {
                let provenance = Provenance::computed(format!("{name}.bias"), [of_rows(2)]);
                Some((provenance, sized(node, bias.rows(rows.clone()))?))
            }
            None => None,
        };
        rewriter.emit_linear(Role::Qkv, &name, x, weight, bias, linear.rounding)
    };
    let x = narrow(rewriter, linear.x())?;
    let q = part(rewriter, "q", x, 0..channels)?;
    let x = rewriter.map(linear.x());
    let mut kv = part(rewriter, "kv", x, channels..3 * channels)?;
    if let Some((rope, spec)) = rope {
        let op = Op::Rope(Rope { rotated: 1, ..spec });
        let table = rewriter.map(rope.inputs[1]);
        kv = rewriter.emit(rope.role, &rope.name, op, [kv, table])?;
    }
    let op = Op::Attention(Attention {
        operands: AttentionOperands::PackedKv,
        ..*attention
    });
    let mut inputs = vec![q, kv];
    inputs.extend(bias_of(rewriter, node, attention, token)?);
    rewriter.emit(node.role, &node.name, op, inputs)
}

/// The part of attention's bias for one query, `[heads, 1, N]`, if there is a bias.
fn bias_of(
    rewriter: &mut Rewriter<'_>,
    node: &Node,
    attention: &Attention,
    token: usize,
) -> Result<Option<ValueId>> {
    let Some(&bias) = node.inputs.get(attention.operands.count()) else {
        return Ok(None);
    };
    let part = rewriter.tensor(bias).and_then(|tensor| {
        let &[heads, queries, keys] = tensor.shape() else {
            return None;
        };
        let matrix = tensor.reshaped([heads, queries * keys])?;
        matrix
            .columns(token * keys..(token + 1) * keys)?
            .reshaped([heads, 1, keys])
    });
    let provenance = rewriter.provenance(bias).then(Change::Column(token));
    Ok(Some(rewriter.constant(provenance, sized(node, part)?)))
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
