//! Nodes with subgraphs: `If` with a known condition, and `Loop` with a known number of steps, which is unrolled.

use crate::error::{Refusal, refuse};
use crate::importer::Importer;
use crate::initializer;
use crate::ops::stack;
use crate::program::Node;
use crate::proto::GraphProto;
use crate::value::Value;
use crate::{dim::Linear, element::ElementType};

/// Deepest nesting of subgraphs.
const MOST_SUBGRAPHS: usize = 16;

/// Most steps of a loop.
const MOST_STEPS: usize = 1024;

/// Most nodes of all unrolled loops.
pub(crate) const MOST_UNROLLED: usize = 1 << 14;

/// A subgraph with its nodes in topological order.
struct Body {
    nodes: Vec<Node>,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Importer<'_> {
    /// Converts the subgraph that a known condition selects.
    pub(crate) fn branch(
        &mut self,
        node: &Node,
        inputs: &[Option<Value>],
        depth: usize,
    ) -> Result<Vec<Value>, Refusal> {
        let condition = inputs.first().and_then(Option::as_ref).and_then(Value::number);
        let Some(condition) = condition else {
            refuse!("has a condition that depends on the input, not a fixed one");
        };
        let name = if condition == 0.0 {
            "else_branch"
        } else {
            "then_branch"
        };
        let body = self.body(node, name, depth)?;
        self.run_nodes(&body.nodes, &[], depth + 1);
        self.results(&body)
    }

    /// Unrolls a loop with a known number of steps.
    pub(crate) fn repeat(
        &mut self,
        node: &Node,
        inputs: &[Option<Value>],
        depth: usize,
    ) -> Result<Vec<Value>, Refusal> {
        let known = |index: usize| match inputs.get(index).and_then(Option::as_ref) {
            None => Ok(None),
            Some(value) => match value.number() {
                Some(number) => Ok(Some(number)),
                None => refuse!("has a limit or condition that depends on the input, not a fixed one"),
            },
        };
        let (limit, mut condition) = (known(0)?, known(1)?.is_none_or(|condition| condition != 0.0));
        let Some(mut state) = inputs
            .get(2..)
            .unwrap_or_default()
            .iter()
            .cloned()
            .collect::<Option<Vec<Value>>>()
        else {
            refuse!("leaves out a value of its first step");
        };
        let body = self.body(node, "body", depth)?;
        let carried = state.len();
        if body.inputs.len() != carried + 2 || body.outputs.len() <= carried {
            refuse!(
                "carries {carried} values, but its body has {} inputs and {} outputs",
                body.inputs.len(),
                body.outputs.len()
            );
        }
        let mut scans: Vec<Vec<Value>> = vec![Vec::new(); body.outputs.len() - 1 - carried];
        let mut step = 0;
        while condition && limit.is_none_or(|limit| f64::from(step) < limit) {
            // Steps without nodes count too.
            self.count_step(step as usize, body.nodes.len().max(1))?;
            let index = Value::integers(ElementType::I64, &[], vec![Linear::new(step.into())])?;
            let truth = Value::integers(ElementType::Bool, &[], vec![Linear::new(1)])?;
            let values = [index, truth].into_iter().chain(state);
            for (name, value) in body.inputs.iter().zip(values) {
                self.define(name, value)?;
            }
            self.run_nodes(&body.nodes, &[], depth + 1);
            let mut results = self.results(&body)?.into_iter();
            condition = match results.next().as_ref().and_then(Value::number) {
                Some(number) => number != 0.0,
                None => refuse!("has a condition that depends on the input, not a fixed one"),
            };
            state = results.by_ref().take(carried).collect();
            scans
                .iter_mut()
                .zip(results)
                .for_each(|(scan, value)| scan.push(value));
            step += 1;
        }
        for scan in scans {
            if scan.is_empty() {
                refuse!("takes no step, and has results of each step");
            }
            state.push(stack(&mut self.builder, &scan)?);
        }
        Ok(state)
    }

    /// Refuses loops that are too long.
    fn count_step(&mut self, step: usize, nodes: usize) -> Result<(), Refusal> {
        let rest = self.unrolled.checked_sub(nodes);
        match rest.filter(|_| step < MOST_STEPS) {
            Some(rest) => {
                self.unrolled = rest;
                Ok(())
            }
            None => {
                refuse!("takes more than {MOST_STEPS} steps, or {MOST_UNROLLED} nodes in all loops together")
            }
        }
    }

    /// Returns the subgraph that is the attribute `name`, with its initialisers known.
    fn body(&mut self, node: &Node, name: &str, depth: usize) -> Result<Body, Refusal> {
        if depth >= MOST_SUBGRAPHS {
            refuse!("is in {MOST_SUBGRAPHS} subgraphs, which is too deep");
        }
        let graph = node.attributes.iter().find(|attribute| attribute.name == name);
        let Some(mut graph) = graph.and_then(|attribute| attribute.g.clone()) else {
            refuse!("lacks its `{name}`");
        };
        self.initializers(&graph)?;
        let names = |infos: &[crate::proto::ValueInfoProto]| -> Vec<String> {
            infos.iter().map(|info| info.name.clone()).collect()
        };
        let (inputs, outputs) = (names(&graph.input), names(&graph.output));
        // A body is converted again in the next step of a loop around it.
        for output in graph.node.iter().flat_map(|node| &node.output) {
            if self.inner.contains(output) {
                self.values.remove(output);
            }
        }
        let nodes = std::mem::take(&mut graph.node);
        let values = &self.values;
        let outer = |name: &str| values.contains_key(name) || inputs.iter().any(|input| input == name);
        let wanted: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let nodes = self.functions.nodes_of(nodes, &node.opsets, &wanted, outer)?;
        self.inner
            .extend(nodes.iter().flat_map(|node| node.outputs.iter().cloned()));
        Ok(Body {
            nodes,
            inputs,
            outputs,
        })
    }

    fn initializers(&mut self, graph: &GraphProto) -> Result<(), Refusal> {
        for tensor in &graph.initializer {
            let value = initializer::read(self.source, tensor);
            let value = value.map_err(|error| format!("its initialiser `{}` {error}", tensor.name))?;
            self.define(&tensor.name, value)?;
        }
        Ok(())
    }

    /// Sets a value of a subgraph. Refuses names of values outside of it.
    fn define(&mut self, name: &str, value: Value) -> Result<(), Refusal> {
        if self.values.contains_key(name) && !self.inner.contains(name) {
            refuse!("has a subgraph with the value `{name}`, which is one outside of it");
        }
        self.inner.insert(name.to_owned());
        self.values.insert(name.to_owned(), Some(value));
        Ok(())
    }

    /// Returns the outputs of a subgraph whose nodes have been converted.
    fn results(&self, body: &Body) -> Result<Vec<Value>, Refusal> {
        let result = |name: &String| match self.values.get(name) {
            Some(Some(value)) => Ok(value.clone()),
            _ => Err(Refusal::Operand),
        };
        body.outputs.iter().map(result).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use prost::Message as _;

    use crate::proto::{GraphProto, ModelProto};
    use crate::{Options, load_bytes};

    /// Returns the error of the golden with loops after a change of its graph.
    fn refused(change: impl FnOnce(&mut GraphProto)) -> String {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/golden/onnx_ops/loop.onnx"
        );
        let mut model = ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap();
        change(model.graph.as_mut().unwrap());
        let result = load_bytes("loop", model.encode_to_vec(), &Options::default());
        result.unwrap_err().to_string()
    }

    /// Sets the number of steps of the inner loop.
    fn set_steps(graph: &mut GraphProto, steps: i64) {
        let tensor = graph.initializer.iter_mut().find(|tensor| tensor.name == "two");
        tensor.unwrap().raw_data = steps.to_le_bytes().to_vec().into();
    }

    fn body(graph: &mut GraphProto) -> &mut GraphProto {
        graph.node[0].attribute[0].g.as_mut().unwrap()
    }

    #[test]
    fn long_loops_are_refused() {
        let error = refused(|graph| set_steps(graph, 1 << 40));
        assert!(
            error.contains("(Loop, opset 18)") && error.contains("takes more than 1024 steps"),
            "{error}"
        );
        // No loop is too long, but all together are.
        let error = refused(|graph| {
            set_steps(graph, 1000);
            let last = graph.initializer.iter_mut().find(|tensor| tensor.name == "last");
            last.unwrap().raw_data = 1000i64.to_le_bytes().to_vec().into();
        });
        assert!(error.contains("16384 nodes"), "{error}");
    }

    #[test]
    fn conditions_that_depend_on_the_input_are_refused() {
        let error = refused(|graph| body(graph).output[0].name = "next".into());
        assert!(
            error.contains("has a condition that depends on the input"),
            "{error}"
        );
    }

    #[test]
    fn names_from_outside_are_not_defined_again() {
        let error = refused(|graph| body(graph).input[1].name = "x".into());
        assert!(
            error.contains("has a subgraph with the value `x`, which is one outside of it"),
            "{error}"
        );
    }
}
