//! Order of a training step's nodes in which the ranks exchange gradients during the backward pass.

use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::op::exchange::ExchangeKind;

/// Number of later exchanges that start before a rank waits for divided sums. More exchanges at once need more memory.
const IN_FLIGHT: usize = 2;

/// Returns `graph` with each exchange of gradients right after the last of its tensors, so that the rest of the backward pass is computed
/// during the exchange. The order of exchanges is that of the graph.
///
/// Whole sums are awaited where the graph awaits them. Divided sums are awaited as soon as two more exchanges have started, so that few
/// whole gradients are in memory at once.
#[must_use]
pub fn overlap_exchanges(graph: &Graph) -> Graph {
    let early = early_nodes(graph);
    let mut order = Order {
        graph,
        known: vec![true; graph.values().len()],
        waiting: Vec::new(),
        started: Vec::new(),
        order: Vec::with_capacity(graph.nodes().len()),
    };
    for id in graph.nodes().iter().flat_map(|node| &node.outputs) {
        order.known[id.index()] = false;
    }
    order.waiting = (0..graph.nodes().len()).filter(|&index| early[index]).collect();
    for (index, node) in graph.nodes().iter().enumerate() {
        if early[index] {
            continue;
        }
        if !order.is_ready(index) {
            // All exchanges have started.
            order.emit_ready(true);
        }
        order.emit(index, node);
        order.emit_ready(false);
    }
    order.emit_ready(true);
    let nodes = order
        .order
        .iter()
        .map(|&index| graph.nodes()[index].clone())
        .collect();
    Graph {
        nodes,
        ..graph.clone()
    }
}

/// Returns the nodes that may be computed before those in front of them: exchanges of gradients, divided sums, and what is only computed for
/// them.
fn early_nodes(graph: &Graph) -> Vec<bool> {
    let mut early = vec![false; graph.nodes().len()];
    // True for values that a node reads which is not early.
    let mut is_read = vec![false; graph.values().len()];
    for &(_, id) in graph.outputs() {
        is_read[id.index()] = true;
    }
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        early[index] = match &node.op {
            Op::Exchange(exchange) => exchange.kind != ExchangeKind::Gather,
            Op::ExchangeResult(result) => result.kind == ExchangeKind::Scatter,
            Op::Mul(_) | Op::Accumulate(_) => {
                node.outputs.iter().all(|id| !is_read[id.index()]) && feeds_exchange(graph, node, &early)
            }
            _ => false,
        };
        if !early[index] {
            node.inputs.iter().for_each(|id| is_read[id.index()] = true);
        }
    }
    early
}

/// Returns true if an early node reads a result of `node`.
fn feeds_exchange(graph: &Graph, node: &Node, early: &[bool]) -> bool {
    let mut readers = graph.nodes().iter().zip(early).filter(|(_, early)| **early);
    readers.any(|(reader, _)| node.outputs.iter().any(|id| reader.inputs.contains(id)))
}

struct Order<'a> {
    graph: &'a Graph,
    /// True for values that are computed, by [`ValueId::index`](crate::ValueId::index).
    known: Vec<bool>,
    /// Early nodes that are not computed yet.
    waiting: Vec<usize>,
    /// Ids of the exchanges that have started.
    started: Vec<u32>,
    /// Nodes so far.
    order: Vec<usize>,
}

impl Order<'_> {
    fn is_ready(&self, index: usize) -> bool {
        let inputs = &self.graph.nodes()[index].inputs;
        inputs.iter().all(|id| self.known[id.index()])
    }

    fn emit(&mut self, index: usize, node: &Node) {
        node.outputs.iter().for_each(|id| self.known[id.index()] = true);
        if let Op::Exchange(exchange) = &node.op {
            self.started.push(exchange.id);
        }
        self.order.push(index);
    }

    /// Appends the early nodes whose operands are computed. With `all`, also the divided sums that were started last.
    fn emit_ready(&mut self, all: bool) {
        while let Some(place) = (0..self.waiting.len()).find(|&place| self.may_run(place, all)) {
            let index = self.waiting.remove(place);
            self.emit(index, &self.graph.nodes()[index]);
        }
    }

    fn may_run(&self, place: usize, all: bool) -> bool {
        let index = self.waiting[place];
        if !self.is_ready(index) {
            return false;
        }
        match &self.graph.nodes()[index].op {
            // In the order of the graph, so that it is the same at all ranks.
            Op::Exchange(_) => self.waiting[..place]
                .iter()
                .all(|&other| !matches!(self.graph.nodes()[other].op, Op::Exchange(_))),
            Op::ExchangeResult(result) => {
                let start = self.started.iter().position(|&id| id == result.id);
                all || start.is_some_and(|start| self.started.len() - start > IN_FLIGHT)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::graph::{OutputKind, Role};
    use crate::op::{Add, Exchange, ExchangeResult};
    use crate::tensor::Tensor;
    use crate::value::ValueId;

    fn exchanged(graph: &mut Graph, id: u32, kind: ExchangeKind, x: ValueId) -> ValueId {
        let op = Exchange {
            id,
            kind,
            ranks: 2,
            conditional: false,
            f32_tensors: true,
            bf16_wire: false,
        };
        let bucket = graph.push(Role::Other, format!("start {id}"), op, [x]).unwrap();
        let op = ExchangeResult {
            id,
            kind,
            ranks: 2,
            shapes: vec![graph.value(x).shape.clone()],
            f32_tensors: true,
        };
        graph
            .push(Role::Other, format!("end {id}"), op, [bucket])
            .unwrap()
    }

    /// Four gradients that depend on each other, and an exchange for each at the end. Returns the names in the order of execution.
    fn order(kind: ExchangeKind) -> Vec<String> {
        let mut graph = Graph::new("step", [1, 1, 1, 3], DType::F32);
        let weight = Tensor::from_f32([3], vec![1.0; 3]).unwrap();
        let mut gradients = vec![graph.parameter("weight", weight)];
        for index in 0..4 {
            let last = gradients[index];
            gradients.push(
                graph
                    .push(Role::Other, format!("g{index}"), Add, [last, last])
                    .unwrap(),
            );
        }
        for (id, &gradient) in gradients[1..].iter().enumerate() {
            let sum = exchanged(&mut graph, id as u32, kind, gradient);
            graph.set_output(OutputKind::Gradient(id), sum);
        }
        let graph = overlap_exchanges(&graph);
        graph.verify().unwrap();
        graph.nodes().iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn exchanges_start_when_their_gradient_is_computed() {
        let expected = [
            "g0", "start 0", "g1", "start 1", "g2", "start 2", "g3", "start 3", "end 0", "end 1", "end 2",
            "end 3",
        ];
        assert_eq!(order(ExchangeKind::Sum), expected);
    }

    #[test]
    fn divided_sums_are_awaited_soon() {
        let expected = [
            "g0", "start 0", "g1", "start 1", "g2", "start 2", "end 0", "g3", "start 3", "end 1", "end 2",
            "end 3",
        ];
        assert_eq!(order(ExchangeKind::Scatter), expected);
    }
}
