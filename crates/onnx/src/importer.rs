//! Converts the nodes of a model one by one.

use std::collections::HashMap;

use crate::builder::Builder;
use crate::context::Context;
use crate::error::{Problem, Refusal, refuse};
use crate::initializer;
use crate::ops;
use crate::program::{Functions, Node};
use crate::proto::GraphProto;
use crate::source::Source;
use crate::value::Value;

/// Deepest nesting of subgraphs.
const MOST_SUBGRAPHS: usize = 16;

/// The values of a model by name. `None` for those whose node was refused.
type Values = HashMap<String, Option<Value>>;

/// A model that is imported.
pub(crate) struct Importer<'a> {
    pub(crate) source: &'a Source,
    pub(crate) functions: &'a Functions,
    pub(crate) builder: Builder,
    pub(crate) values: Values,
    pub(crate) problems: Vec<Problem>,
}

impl Importer<'_> {
    /// Converts `nodes`, which are in topological order. Nodes that are refused become problems.
    pub(crate) fn run(&mut self, nodes: &[Node], outputs: &[&str]) {
        self.run_nodes(nodes, outputs, 0);
    }

    fn run_nodes(&mut self, nodes: &[Node], outputs: &[&str], depth: usize) {
        let last = last_uses(nodes, outputs);
        for (index, node) in nodes.iter().enumerate() {
            self.builder.begin(node.module.as_deref().unwrap_or(&node.name));
            let results = self.convert(node, depth);
            let results = results.unwrap_or_else(|refusal| {
                self.refuse(node, refusal);
                Vec::new()
            });
            let mut results = results.into_iter();
            for output in &node.outputs {
                let result = results.next();
                if !output.is_empty() {
                    self.values.insert(output.clone(), result);
                }
            }
            // Values of the outer graph may be used again.
            if depth == 0 {
                for name in node
                    .inputs
                    .iter()
                    .filter(|name| last.get(name.as_str()) == Some(&index))
                {
                    self.values.remove(name);
                }
            }
        }
    }

    fn refuse(&mut self, node: &Node, refusal: Refusal) {
        if let Refusal::Reason(reason) = refusal {
            self.problems.push(Problem {
                node: node.name.clone(),
                op: node.qualified_op(),
                opset: node.opset(),
                module: node.module.clone(),
                reason,
            });
        }
    }

    fn convert(&mut self, node: &Node, depth: usize) -> Result<Vec<Value>, Refusal> {
        let Some(converter) = ops::converter(&node.domain, &node.op) else {
            refuse!("the operator is not supported");
        };
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            inputs.push(match self.values.get(name) {
                Some(Some(value)) => Some(value.clone()),
                Some(None) => return Err(Refusal::Operand),
                None if name.is_empty() => None,
                None => refuse!("its input `{name}` is not computed before it"),
            });
        }
        if node.op == "If" {
            return self.branch(node, &inputs, depth);
        }
        let mut context = Context::new(node, self.source, &mut self.builder, inputs);
        let results = converter(&mut context)?;
        context.check_attributes()?;
        for result in &results {
            self.builder.note_batched(result);
        }
        if results.len() < node.outputs.iter().filter(|name| !name.is_empty()).count() {
            refuse!("has {} outputs, which is not supported", node.outputs.len());
        }
        Ok(results)
    }

    /// Converts the subgraph that a known condition selects.
    fn branch(&mut self, node: &Node, inputs: &[Option<Value>], depth: usize) -> Result<Vec<Value>, Refusal> {
        let condition = inputs.first().and_then(Option::as_ref).and_then(Value::number);
        let Some(condition) = condition else {
            refuse!("has a condition that depends on the input, not a fixed one");
        };
        let name = if condition == 0.0 {
            "else_branch"
        } else {
            "then_branch"
        };
        let graph = node.attributes.iter().find(|attribute| attribute.name == name);
        let Some(graph) = graph.and_then(|attribute| attribute.g.clone()) else {
            refuse!("lacks its `{name}`");
        };
        self.subgraph(node, graph, depth)
    }

    /// Converts the nodes of a subgraph. Returns its outputs.
    fn subgraph(&mut self, node: &Node, mut graph: GraphProto, depth: usize) -> Result<Vec<Value>, Refusal> {
        if depth >= MOST_SUBGRAPHS {
            refuse!("is in {MOST_SUBGRAPHS} subgraphs, which is too deep");
        }
        for tensor in &graph.initializer {
            let value = initializer::read(self.source, tensor);
            let value = value.map_err(|error| format!("its initialiser `{}` {error}", tensor.name))?;
            self.values.insert(tensor.name.clone(), Some(value));
        }
        let nodes = std::mem::take(&mut graph.node);
        let outputs: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        let values = &self.values;
        let outer = |name: &str| values.contains_key(name);
        let nodes = self.functions.nodes_of(nodes, &node.opsets, &outputs, outer)?;
        self.run_nodes(&nodes, &[], depth + 1);
        let result = |name: &&str| match self.values.get(*name) {
            Some(Some(value)) => Ok(value.clone()),
            _ => Err(Refusal::Operand),
        };
        outputs.iter().map(result).collect()
    }
}

/// Returns the index of the last node that reads each value. Outputs of the model have none.
fn last_uses<'a>(nodes: &'a [Node], outputs: &[&'a str]) -> HashMap<&'a str, usize> {
    let mut last = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        last.extend(node.reads().into_iter().map(|name| (name, index)));
    }
    for output in outputs {
        last.remove(output);
    }
    last
}
