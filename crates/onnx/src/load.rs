//! Decodes a model, finds its batch size, and imports it between its inputs and its outputs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use hipvit_graph::{DType, Graph, ValueId};
use prost::Message as _;

use crate::builder::{Builder, reason};
use crate::control_flow::MOST_UNROLLED;
use crate::dim::Dim;
use crate::element::ElementType;
use crate::error::{Error, Refusal, refuse};
use crate::importer::Importer;
use crate::model::{Counted, Info, Model, Options};
use crate::program::{Functions, Node, opsets};
use crate::proto::tensor_shape_proto::dimension;
use crate::proto::{GraphProto, ModelProto, ValueInfoProto};
use crate::shape::{MOST_AXES, count};
use crate::source::Source;
use crate::value::{Data, Value};
use crate::{initializer, limits, recognize};

/// Versions of ONNX's operator set that are supported.
const OPSETS: std::ops::RangeInclusive<i64> = 11..=24;

/// An input as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Name.
    pub name: String,
    /// Element type.
    pub element: ElementType,
    /// Extents.
    pub extents: Vec<Extent>,
}

/// An extent of a declared input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Extent with a number.
    Fixed(usize),
    /// An extent without a number. If it has no name in the file, its name is `<input>.<axis>`.
    Named(String),
}

/// Returns the inputs that the model in `bytes` declares.
pub(crate) fn inputs(source: &Source, bytes: Bytes) -> Result<Vec<Declared>, Error> {
    let model = ModelProto::decode(bytes).map_err(|error| {
        source.invalid(format!(
            "is not an ONNX model ({error}). Export or download it again"
        ))
    })?;
    let graph = model
        .graph
        .ok_or_else(|| source.invalid("is not an ONNX model: it has no graph"))?;
    declared(&graph).map_err(|refusal| source.invalid(refusal.to_string()))
}

/// Imports the model in `bytes`.
pub(crate) fn load(source: &Source, bytes: Bytes, options: &Options) -> Result<Model, Error> {
    let invalid = |refusal: Refusal| source.invalid(refusal.to_string());
    limits::check(&bytes).map_err(invalid)?;
    let mut model = ModelProto::decode(bytes).map_err(|error| {
        source.invalid(format!(
            "is not an ONNX model ({error}). Export or download it again"
        ))
    })?;
    let graph = model
        .graph
        .take()
        .ok_or_else(|| source.invalid("is not an ONNX model: it has no graph"))?;
    let versions = opsets(&model.opset_import);
    let opset = versions.get("").copied().unwrap_or(0);
    if !OPSETS.contains(&opset) {
        return Err(source.invalid(format!(
            "uses version {opset} of ONNX's operators, but {} to {} are supported. Export it with opset_version={}",
            OPSETS.start(),
            OPSETS.end(),
            OPSETS.end(),
        )));
    }
    let functions = Functions::take(&mut model);
    let declared = declared(&graph).map_err(invalid)?;
    let dims = dims(source, &declared, options)?;
    let mut values = initializers(source, &graph).map_err(invalid)?;
    let (built, inputs) = begin(source, &graph.name, &declared, &dims).map_err(invalid)?;
    let mut builder = Builder::new(built);
    for (name, value) in &inputs {
        builder.note_batched(value);
        values.insert(name.clone(), Some(value.clone()));
    }
    let outputs: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let nodes = functions
        .nodes_of(graph.node, &versions, &names, |name| values.contains_key(name))
        .map_err(invalid)?;
    let mut importer = Importer {
        source,
        functions: &functions,
        builder,
        values,
        problems: Vec::new(),
        inner: HashSet::new(),
        unrolled: MOST_UNROLLED,
    };
    importer.run(&nodes, &names);
    let Importer {
        builder,
        values,
        problems,
        ..
    } = importer;
    if !problems.is_empty() {
        let path = source.path().to_owned();
        return Err(Error::Problems { path, problems });
    }
    let (mut graph, outputs) = end(builder, &outputs, &values).map_err(invalid)?;
    if !options.keep_nodes {
        graph = recognize::run(&graph, options.pixels).map_err(|error| invalid(reason(error)))?;
    }
    let inputs = declared.into_iter().zip(dims).map(|(input, dims)| Info {
        name: input.name,
        element: input.element,
        dims,
        counted: None,
    });
    Ok(Model {
        graph,
        inputs: inputs.collect(),
        outputs,
        opset,
        producer: format!("{} {}", model.producer_name, model.producer_version)
            .trim()
            .to_owned(),
        metadata: model
            .metadata_props
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect(),
        operators: operators(&nodes),
    })
}

fn operators(nodes: &[Node]) -> BTreeMap<String, usize> {
    let mut operators = BTreeMap::new();
    for node in nodes {
        *operators.entry(node.qualified_op()).or_default() += 1;
    }
    operators
}

/// Reads the inputs that the file declares, without those that initialisers give.
fn declared(graph: &GraphProto) -> Result<Vec<Declared>, Refusal> {
    let given: HashSet<&str> = graph
        .initializer
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    let mut names = HashSet::new();
    let mut inputs = Vec::new();
    for input in graph
        .input
        .iter()
        .filter(|input| !given.contains(input.name.as_str()))
    {
        if !names.insert(&input.name) {
            refuse!("two inputs have the name `{}`", input.name);
        }
        inputs.push(one_declared(input).map_err(|error| format!("input `{}`: {error}", input.name))?);
    }
    if inputs.is_empty() {
        refuse!("has no inputs, so that there is nothing to run it on");
    }
    Ok(inputs)
}

fn one_declared(input: &ValueInfoProto) -> Result<Declared, Refusal> {
    let tensor = input.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
    let Some(tensor) = tensor else {
        refuse!("is not a tensor");
    };
    let Some(element) = ElementType::from_code(tensor.elem_type.into()) else {
        refuse!(
            "has elements of type {}, which is not supported",
            tensor.elem_type
        );
    };
    let Some(shape) = &tensor.shape else {
        refuse!("has no shape");
    };
    if shape.dim.len() > MOST_AXES {
        refuse!(
            "has {} axes, but at most {MOST_AXES} are supported",
            shape.dim.len()
        );
    }
    let mut extents = Vec::with_capacity(shape.dim.len());
    for (axis, dim) in shape.dim.iter().enumerate() {
        extents.push(match &dim.value {
            Some(dimension::Value::DimValue(extent)) if *extent > 0 => {
                Extent::Fixed(usize::try_from(*extent).map_err(|_| "has an extent that is too large")?)
            }
            Some(dimension::Value::DimParam(name)) if !name.is_empty() => Extent::Named(name.clone()),
            _ => Extent::Named(format!("{}.{axis}", input.name)),
        });
    }
    Ok(Declared {
        name: input.name.clone(),
        element,
        extents,
    })
}

/// Returns the extents of all inputs. The first extent of an input without a number is the batch size.
fn dims(source: &Source, inputs: &[Declared], options: &Options) -> Result<Vec<Vec<Dim>>, Error> {
    let is_open = |name: &str| !options.extents.contains_key(name);
    let first = |input: &Declared| match input.extents.first() {
        Some(Extent::Named(name)) if is_open(name) => Some(name.clone()),
        _ => None,
    };
    let batch = inputs.iter().find_map(first);
    let mut open = BTreeSet::new();
    let mut all = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut dims = Vec::with_capacity(input.extents.len());
        for (axis, extent) in input.extents.iter().enumerate() {
            dims.push(match extent {
                Extent::Fixed(extent) => Dim::Fixed(*extent),
                Extent::Named(name) => match options.extents.get(name) {
                    Some(&extent) => Dim::Fixed(extent),
                    None if axis == 0 && Some(name) == batch.as_ref() => Dim::Batch(1),
                    None => {
                        open.insert(name.clone());
                        Dim::Fixed(0)
                    }
                },
            });
        }
        all.push(dims);
    }
    if open.is_empty() {
        return Ok(all);
    }
    Err(Error::Extents {
        path: source.path().to_owned(),
        names: open.into_iter().collect(),
    })
}

fn initializers(source: &Source, graph: &GraphProto) -> Result<HashMap<String, Option<Value>>, Refusal> {
    if let Some(sparse) = graph.sparse_initializer.first() {
        let name = sparse.values.as_ref().map_or("", |values| values.name.as_str());
        refuse!("initialiser `{name}` is sparse, which is not supported. Export it dense");
    }
    let mut values = HashMap::new();
    for tensor in &graph.initializer {
        let value = initializer::read(source, tensor);
        let value = value.map_err(|error| format!("initialiser `{}` {error}", tensor.name))?;
        if values.insert(tensor.name.clone(), Some(value)).is_some() {
            refuse!("two initialisers have the name `{}`", tensor.name);
        }
    }
    Ok(values)
}

/// Creates the graph with its inputs.
fn begin(
    source: &Source,
    name: &str,
    declared: &[Declared],
    dims: &[Vec<Dim>],
) -> Result<(Graph, Vec<(String, Value)>), Refusal> {
    let stem = source.path().file_stem().and_then(|stem| stem.to_str());
    let model = stem.filter(|stem| *stem != "model").unwrap_or(name);
    let mut graph: Option<Graph> = None;
    let mut inputs = Vec::new();
    for (input, dims) in declared.iter().zip(dims) {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.at_one()).collect();
        if count(&shape)? == 0 {
            refuse!("input `{}` has no elements: its shape is {shape:?}", input.name);
        }
        let per_image = dims.first().is_some_and(|dim| dim.is_batch());
        let dtype: DType = input.element.input_dtype();
        let name = input.name.as_str();
        let id = match &mut graph {
            None => {
                let made = if per_image {
                    Graph::of_values(model, name, shape, dtype)
                } else {
                    Graph::of_fixed_values(model, name, shape, dtype)
                };
                graph.insert(made.map_err(reason)?).input()
            }
            Some(graph) if per_image => graph.add_input(name, shape, dtype).map_err(reason)?,
            Some(graph) => graph.add_fixed_input(name, shape, dtype).map_err(reason)?,
        };
        let value = Value {
            element: input.element,
            dims: dims.clone(),
            data: Data::Computed(id),
        };
        inputs.push((input.name.clone(), value));
    }
    let graph = graph.ok_or("has no inputs")?;
    Ok((graph, inputs))
}

/// Declares the outputs of the graph: those of the file, and after them the numbers of rows that are results.
fn end(
    mut builder: Builder,
    outputs: &[String],
    values: &HashMap<String, Option<Value>>,
) -> Result<(Graph, Vec<Info>), Refusal> {
    if outputs.is_empty() {
        refuse!("has no outputs");
    }
    let mut infos = Vec::with_capacity(outputs.len());
    let mut ids = Vec::with_capacity(outputs.len());
    let mut counts: Vec<(String, ValueId)> = Vec::new();
    for name in outputs {
        let Some(Some(value)) = values.get(name) else {
            refuse!("its output `{name}` is not computed");
        };
        let Data::Computed(mut id) = value.data else {
            refuse!("its output `{name}` does not depend on the input, which is not supported");
        };
        if builder.graph.inputs().any(|input| input.value == id) {
            // Outputs are results of nodes.
            builder.begin(name);
            id = builder.copied(value)?;
        }
        ids.push(id);
        let counted = builder.rows(value).map(|rows| {
            let known = counts.iter().find(|(_, count)| *count == rows.count);
            let output = match known {
                Some((known, _)) => known.clone(),
                None => {
                    let output = format!("rows of {name}");
                    counts.push((output.clone(), rows.count));
                    output
                }
            };
            Counted {
                axis: rows.axis,
                output,
            }
        });
        infos.push(Info {
            name: name.clone(),
            element: value.element,
            dims: value.dims.clone(),
            counted,
        });
    }
    let mut graph = builder.graph;
    let named = outputs.iter().cloned().zip(ids);
    for (name, id) in named.chain(counts) {
        graph.add_output(name, id).map_err(reason)?;
    }
    Ok((graph, infos))
}
