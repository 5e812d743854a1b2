//! The nodes of a model in topological order, with functions inlined.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;

use crate::error::{Refusal, refuse};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};

/// Largest number of nodes of a model, with those of its functions.
const MOST_NODES: usize = 1 << 20;

/// Deepest nesting of functions.
const MOST_CALLS: usize = 32;

/// Name in [`NodeProto`]'s metadata of the modules that a node is from, outermost first.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// Versions of operator sets by their domain.
pub(crate) type Opsets = Rc<HashMap<String, i64>>;

/// A node of a model. Names of values are unique in the model.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Name of the node, or of its first output if it has none.
    pub(crate) name: String,
    /// Empty for ONNX's own operators.
    pub(crate) domain: String,
    pub(crate) op: String,
    /// Versions of the operator sets for the node and the nodes of its subgraphs.
    pub(crate) opsets: Opsets,
    /// Empty names are operands that are left out.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: Vec<AttributeProto>,
    pub(crate) module: Option<String>,
}

impl Node {
    /// Returns the version of the node's operator set. 0 if the model does not name its domain.
    pub(crate) fn opset(&self) -> i64 {
        self.opsets.get(&self.domain).copied().unwrap_or(0)
    }

    /// Returns the operator's name, with its domain unless that is ONNX's own.
    pub(crate) fn qualified_op(&self) -> String {
        if self.domain.is_empty() {
            self.op.clone()
        } else {
            format!("{}::{}", self.domain, self.op)
        }
    }

    /// Returns the subgraphs of the node.
    fn subgraphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.attributes
            .iter()
            .filter_map(|attribute| attribute.g.as_ref())
    }

    /// Returns the names of all values that the node reads, also in its subgraphs.
    pub(crate) fn reads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.inputs.iter().map(String::as_str).collect();
        self.subgraphs().for_each(|graph| captured(graph, &mut names));
        names
    }
}

/// Adds the names that the nodes of a subgraph read. Some of them may be values of the subgraph.
fn captured<'a>(graph: &'a GraphProto, names: &mut Vec<&'a str>) {
    names.extend(graph.output.iter().map(|output| output.name.as_str()));
    for node in &graph.node {
        names.extend(node.input.iter().map(String::as_str));
        let inner = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
        inner.for_each(|graph| captured(graph, names));
    }
}

/// The functions of a model.
#[derive(Debug)]
pub(crate) struct Functions {
    functions: HashMap<[String; 3], FunctionProto>,
}

impl Functions {
    /// Takes the functions out of `model`.
    pub(crate) fn take(model: &mut ModelProto) -> Self {
        let functions = std::mem::take(&mut model.functions).into_iter();
        let key = |function: &FunctionProto| {
            [
                domain(&function.domain),
                function.name.clone(),
                function.overload.clone(),
            ]
        };
        Self {
            functions: functions.map(|function| (key(&function), function)).collect(),
        }
    }

    /// Returns the nodes of a graph that its outputs depend on, in topological order. `outer` has the names of values from
    /// outside the graph: its inputs and initialisers, and the values around a subgraph.
    pub(crate) fn nodes_of(
        &self,
        nodes: Vec<NodeProto>,
        opsets: &Opsets,
        outputs: &[&str],
        outer: impl Fn(&str) -> bool,
    ) -> Result<Vec<Node>, Refusal> {
        let mut flat = Vec::with_capacity(nodes.len());
        let mut ends = Calls {
            functions: &self.functions,
            nodes: &mut flat,
        };
        ends.add(nodes, opsets, &Scope::default(), 0)?;
        sorted(flat, outputs, outer)
    }
}

/// Returns the domain, which is empty for ONNX's own operators.
fn domain(name: &str) -> String {
    if name == "ai.onnx" {
        String::new()
    } else {
        name.to_owned()
    }
}

/// Returns the versions of the operator sets by their domain.
pub(crate) fn opsets(imports: &[OperatorSetIdProto]) -> Opsets {
    let pairs = imports.iter();
    Rc::new(
        pairs
            .map(|import| (domain(&import.domain), import.version))
            .collect(),
    )
}

/// Names and attributes inside of a function's call.
#[derive(Debug, Default)]
struct Scope {
    /// Put before the names of values of the function. Empty in the main graph.
    prefix: String,
    /// Names outside of the function for those of its inputs and outputs.
    names: HashMap<String, String>,
    attributes: HashMap<String, AttributeProto>,
    module: Option<String>,
}

impl Scope {
    fn rename(&self, name: String) -> String {
        match self.names.get(&name) {
            Some(outer) => outer.clone(),
            None if name.is_empty() || self.prefix.is_empty() => name,
            None => format!("{}{name}", self.prefix),
        }
    }

    /// Returns the attribute with the value that the call gives. `None` if the call leaves it out.
    fn attribute(&self, attribute: AttributeProto) -> Option<AttributeProto> {
        if attribute.ref_attr_name.is_empty() {
            let graph = attribute.g.map(|graph| self.graph(graph));
            return Some(AttributeProto {
                g: graph,
                ..attribute
            });
        }
        let given = self.attributes.get(&attribute.ref_attr_name)?;
        Some(AttributeProto {
            name: attribute.name,
            ..given.clone()
        })
    }

    /// Renames the values in a subgraph.
    fn graph(&self, mut graph: GraphProto) -> GraphProto {
        let nodes = std::mem::take(&mut graph.node).into_iter();
        graph.node = nodes.map(|node| self.node(node)).collect();
        for output in graph.output.iter_mut().chain(&mut graph.input) {
            output.name = self.rename(std::mem::take(&mut output.name));
        }
        for tensor in &mut graph.initializer {
            tensor.name = self.rename(std::mem::take(&mut tensor.name));
        }
        graph
    }

    fn node(&self, mut node: NodeProto) -> NodeProto {
        for name in node.input.iter_mut().chain(&mut node.output) {
            *name = self.rename(std::mem::take(name));
        }
        let attributes = std::mem::take(&mut node.attribute).into_iter();
        node.attribute = attributes
            .filter_map(|attribute| self.attribute(attribute))
            .collect();
        node
    }
}

/// Appends nodes with the calls of functions replaced by the functions' nodes.
struct Calls<'a> {
    functions: &'a HashMap<[String; 3], FunctionProto>,
    nodes: &'a mut Vec<Node>,
}

impl Calls<'_> {
    fn add(
        &mut self,
        nodes: Vec<NodeProto>,
        opsets: &Opsets,
        scope: &Scope,
        depth: usize,
    ) -> Result<(), Refusal> {
        for node in nodes {
            if self.nodes.len() >= MOST_NODES {
                refuse!("has more than {MOST_NODES} nodes with those of its functions");
            }
            let module = module(&node).or_else(|| scope.module.clone());
            let node = scope.node(node);
            let domain = domain(&node.domain);
            let key = [domain, node.op_type, node.overload];
            if let Some(function) = self.functions.get(&key) {
                let call = Call {
                    inputs: node.input,
                    outputs: node.output,
                    attributes: node.attribute,
                    module,
                };
                self.call(call, function, depth)?;
                continue;
            }
            let [domain, op, _] = key;
            let first = node.output.iter().find(|name| !name.is_empty());
            let name = if node.name.is_empty() {
                first.cloned().unwrap_or_default()
            } else {
                format!("{}{}", scope.prefix, node.name)
            };
            self.nodes.push(Node {
                name,
                domain,
                op,
                opsets: opsets.clone(),
                inputs: node.input,
                outputs: node.output,
                attributes: node.attribute,
                module,
            });
        }
        Ok(())
    }

    fn call(&mut self, call: Call, function: &FunctionProto, depth: usize) -> Result<(), Refusal> {
        if depth >= MOST_CALLS {
            refuse!(
                "has functions that call each other {MOST_CALLS} deep, at `{}`. Functions cannot be recursive",
                function.name
            );
        }
        let output = call.outputs.iter().find(|name| !name.is_empty());
        let mut scope = Scope {
            prefix: format!("{}/", output.map_or("", String::as_str)),
            module: call.module,
            ..Scope::default()
        };
        let missing = std::iter::repeat_with(String::new);
        let operands = call.inputs.into_iter().chain(missing);
        scope.names.extend(function.input.iter().cloned().zip(operands));
        let results = function.output.iter().cloned().zip(call.outputs);
        scope.names.extend(results.filter(|(_, outer)| !outer.is_empty()));
        let defaults = function.attribute_proto.iter().cloned();
        let given = defaults.chain(call.attributes);
        scope
            .attributes
            .extend(given.map(|attribute| (attribute.name.clone(), attribute)));
        let opsets = opsets(&function.opset_import);
        self.add(function.node.clone(), &opsets, &scope, depth + 1)
    }
}

/// A node that calls a function.
struct Call {
    inputs: Vec<String>,
    outputs: Vec<String>,
    attributes: Vec<AttributeProto>,
    module: Option<String>,
}

/// Returns the innermost module that a node is from, by the metadata of torch's exporter or the path that is its name.
fn module(node: &NodeProto) -> Option<String> {
    if let Some(scopes) = node.metadata_props.iter().find(|entry| entry.key == SCOPES) {
        // A list in Python's syntax: the names of the modules, then the name of the value.
        let scopes: Vec<&str> = scopes.value.split('\'').skip(1).step_by(2).collect();
        let (_, modules) = scopes.split_last()?;
        return modules
            .last()
            .filter(|name| !name.is_empty())
            .map(|&name| name.to_owned());
    }
    // `/blocks/blocks.0/attn/qkv/MatMul`, by the exporter of TorchScript.
    let parts: Vec<&str> = node.name.strip_prefix('/')?.split('/').collect();
    let (_, parts) = parts.split_last()?;
    let mut modules: Vec<&str> = Vec::new();
    for part in parts {
        // `blocks.0` repeats the name of the list before it.
        if let Some(list) = modules.last()
            && part.strip_prefix(list).is_some_and(|rest| rest.starts_with('.'))
        {
            modules.pop();
        }
        modules.push(part);
    }
    (!modules.is_empty()).then(|| modules.join("."))
}

/// Sorts the nodes topologically. Keeps the order of the file where that is possible, and drops nodes that no output needs.
fn sorted(nodes: Vec<Node>, outputs: &[&str], outer: impl Fn(&str) -> bool) -> Result<Vec<Node>, Refusal> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if producers.insert(output, index).is_some() || outer(output) {
                refuse!(
                    "node `{}`: another node or input has the name of its output `{output}`",
                    node.name
                );
            }
        }
    }
    let live = live(&nodes, &producers, outputs, &outer)?;
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut waiting = vec![0usize; nodes.len()];
    for (index, node) in nodes.iter().enumerate().filter(|(index, _)| live[*index]) {
        let mut read: Vec<usize> = node
            .reads()
            .iter()
            .filter_map(|name| producers.get(name).copied())
            .collect();
        read.sort_unstable();
        read.dedup();
        waiting[index] = read.len();
        for producer in read {
            readers[producer].push(index);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len())
        .filter(|&index| live[index] && waiting[index] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if let Some(index) = (0..nodes.len()).find(|&index| live[index] && waiting[index] > 0) {
        refuse!(
            "node `{}`: its input depends on its output, a cycle",
            nodes[index].name
        );
    }
    drop(producers);
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let mut sorted: Vec<Node> = order
        .into_iter()
        .filter_map(|index| nodes[index].take())
        .collect();
    // Results that nothing reads are left out, such as the statistics of a norm.
    let mut read: HashSet<String> = outputs.iter().map(|&output| output.to_owned()).collect();
    read.extend(sorted.iter().flat_map(|node| node.reads()).map(str::to_owned));
    for output in sorted.iter_mut().flat_map(|node| &mut node.outputs) {
        if !read.contains(output) {
            output.clear();
        }
    }
    Ok(sorted)
}

/// Marks the nodes that the outputs depend on.
fn live(
    nodes: &[Node],
    producers: &HashMap<&str, usize>,
    outputs: &[&str],
    outer: &impl Fn(&str) -> bool,
) -> Result<Vec<bool>, Refusal> {
    let mut live = vec![false; nodes.len()];
    let mut stack = Vec::new();
    for output in outputs {
        match producers.get(output) {
            Some(&index) => stack.push(index),
            None if outer(output) => {}
            None => refuse!("its output `{output}` is not computed by any node"),
        }
    }
    while let Some(index) = stack.pop() {
        if std::mem::replace(&mut live[index], true) {
            continue;
        }
        let node = &nodes[index];
        let inner: HashSet<&str> = node.subgraphs().flat_map(defined).collect();
        for name in node.reads() {
            match producers.get(name) {
                Some(&producer) => stack.push(producer),
                None if name.is_empty() || outer(name) || inner.contains(name) => {}
                None => refuse!(
                    "node `{}`: its input `{name}` is neither an input, an initialiser nor the output of a node",
                    node.name
                ),
            }
        }
    }
    Ok(live)
}

/// Returns the names of the values that a subgraph defines, also in subgraphs of its own.
fn defined(graph: &GraphProto) -> Vec<&str> {
    let mut names: Vec<&str> = graph
        .initializer
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    names.extend(graph.input.iter().map(|input| input.name.as_str()));
    for node in &graph.node {
        names.extend(node.output.iter().map(String::as_str));
        let inner = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
        inner.for_each(|graph| names.extend(defined(graph)));
    }
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
        NodeProto {
            op_type: op.into(),
            input: inputs.iter().map(|&name| name.into()).collect(),
            output: outputs.iter().map(|&name| name.into()).collect(),
            ..NodeProto::default()
        }
    }

    fn nodes(all: Vec<NodeProto>, functions: Vec<FunctionProto>) -> Result<Vec<String>, Refusal> {
        let mut model = ModelProto {
            functions,
            ..ModelProto::default()
        };
        let functions = Functions::take(&mut model);
        let nodes = functions.nodes_of(all, &Opsets::default(), &["y"], |name| name == "x")?;
        Ok(nodes
            .iter()
            .map(|node| format!("{}({})", node.op, node.inputs.join(",")))
            .collect())
    }

    #[test]
    fn nodes_are_sorted_and_unused_ones_dropped() {
        let all = vec![
            node("C", &["b"], &["y"]),
            node("A", &["x"], &["a"]),
            node("D", &["a"], &["d"]),
            node("B", &["a"], &["b"]),
        ];
        assert_eq!(nodes(all, vec![]).unwrap(), ["A(x)", "B(a)", "C(b)"]);
    }

    #[test]
    fn invalid_graphs_are_refused_with_the_node() {
        let refused = |all| nodes(all, vec![]).unwrap_err().to_string();
        let cycle = vec![node("A", &["y"], &["a"]), node("B", &["a"], &["y"])];
        assert_eq!(
            refused(cycle),
            "node `a`: its input depends on its output, a cycle"
        );
        let missing = vec![node("A", &["z"], &["y"])];
        assert!(refused(missing).starts_with("node `y`: its input `z` is neither"));
        let twice = vec![node("A", &["x"], &["y"]), node("B", &["x"], &["y"])];
        assert!(refused(twice).contains("another node or input has the name of its output `y`"));
        assert!(refused(vec![node("A", &[], &["x"])]).contains("`x`"));
        assert!(refused(vec![]).contains("its output `y` is not computed"));
    }

    #[test]
    fn functions_are_inlined_with_their_attributes() {
        let inner = AttributeProto {
            name: "axis".into(),
            ref_attr_name: "dim".into(),
            ..AttributeProto::default()
        };
        let function = FunctionProto {
            name: "F".into(),
            domain: "local".into(),
            input: vec!["p".into(), "q".into()],
            output: vec!["r".into()],
            node: vec![
                NodeProto {
                    attribute: vec![inner],
                    ..node("A", &["p"], &["t"])
                },
                node("B", &["t", "q"], &["r"]),
            ],
            ..FunctionProto::default()
        };
        let call = NodeProto {
            domain: "local".into(),
            ..node("F", &["x"], &["y"])
        };
        assert_eq!(
            nodes(vec![call.clone()], vec![function.clone()]).unwrap(),
            ["A(x)", "B(y/t,)"]
        );
        let recursive = FunctionProto {
            node: vec![NodeProto {
                domain: "local".into(),
                ..node("F", &["p"], &["r"])
            }],
            ..function
        };
        let error = nodes(vec![call], vec![recursive]).unwrap_err().to_string();
        assert!(error.contains("recursive"), "{error}");
    }

    #[test]
    fn modules_are_found_by_both_exporters() {
        let named = |name: &str| {
            module(&NodeProto {
                name: name.into(),
                ..NodeProto::default()
            })
        };
        assert_eq!(
            named("/blocks/blocks.0/attn/qkv/MatMul").as_deref(),
            Some("blocks.0.attn.qkv")
        );
        assert_eq!(named("/Add_3"), None);
        assert_eq!(named("node_1"), None);
        let entry = crate::proto::StringStringEntryProto {
            key: SCOPES.into(),
            value: "['', 'blocks.0', 'blocks.0.mlp', 'gelu_1']".into(),
        };
        let dynamo = NodeProto {
            metadata_props: vec![entry],
            ..NodeProto::default()
        };
        assert_eq!(module(&dynamo).as_deref(), Some("blocks.0.mlp"));
    }
}
