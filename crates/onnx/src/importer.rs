//! Converts the nodes of a model one by one. See also: [`control_flow`](crate::control_flow), nodes with subgraphs.

use std::collections::{HashMap, HashSet};

use crate::builder::Builder;
use crate::context::Context;
use crate::error::{Problem, Refusal, refuse};
use crate::ops;
use crate::program::{Functions, Node};
use crate::source::Source;
use crate::value::Value;

/// The values of a model by name. `None` for those whose node was refused.
type Values = HashMap<String, Option<Value>>;

/// A model that is imported.
pub(crate) struct Importer<'a> {
    pub(crate) source: &'a Source,
    pub(crate) functions: &'a Functions,
    pub(crate) builder: Builder,
    pub(crate) values: Values,
    pub(crate) problems: Vec<Problem>,
    /// Names of the values of subgraphs.
    pub(crate) inner: HashSet<String>,
    /// Nodes of loops that may still be unrolled.
    pub(crate) unrolled: usize,
}

impl Importer<'_> {
    /// Converts `nodes`, which are in topological order. Nodes that are refused become problems.
    pub(crate) fn run(&mut self, nodes: &[Node], outputs: &[&str]) {
        self.run_nodes(nodes, outputs, 0);
    }

    pub(crate) fn run_nodes(&mut self, nodes: &[Node], outputs: &[&str], depth: usize) {
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
        if node.domain.is_empty() && node.op == "If" {
            return self.branch(node, &inputs, depth);
        }
        if node.domain.is_empty() && node.op == "Loop" {
            return self.repeat(node, &inputs, depth);
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
