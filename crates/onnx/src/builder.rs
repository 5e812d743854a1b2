//! Appends nodes to the graph, infers extents that depend on the batch size, and computes what is known.

use std::collections::{HashMap, HashSet};

use hipvit_graph::op::{Concat, Levels, Op, Shape};
use hipvit_graph::reference::Array;
use hipvit_graph::{DType, Graph, Provenance, Role, ValueId, tensor::Tensor};

use crate::counted::{self, Rows};
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Constant, Data, MOST_FLOATS, Value, count, show};

/// Most floating-point operations of a node that is computed at import.
const MOST_OPERATIONS: u64 = 1 << 36;

/// A graph under construction.
#[derive(Debug)]
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    /// Constants of the graph by the address, dtype and shape of their elements.
    constants: HashMap<(usize, DType, Shape), ValueId>,
    names: HashSet<String>,
    /// Last number that was appended to a name.
    numbers: HashMap<String, usize>,
    /// Values that are rounded to 8 bits, before the rounding, and its levels, by the dequantised results.
    rounded: HashMap<ValueId, (Value, Levels)>,
    /// Operands of the nodes that only move elements, by their results.
    moves: HashMap<ValueId, (Op, Value)>,
    /// The rows of values of which a run counts the rows that are results.
    rows: HashMap<ValueId, Rows>,
    /// Name of the nodes that are appended.
    name: String,
    role: Role,
    /// A value with extents that depend on the batch size.
    batched: Option<Value>,
}

impl Builder {
    pub(crate) fn new(graph: Graph) -> Self {
        Self {
            graph,
            constants: HashMap::new(),
            names: HashSet::new(),
            numbers: HashMap::new(),
            rounded: HashMap::new(),
            moves: HashMap::new(),
            rows: HashMap::new(),
            name: String::new(),
            role: Role::Other,
            batched: None,
        }
    }

    /// Sets the name and the role of the nodes that are appended from here on.
    pub(crate) fn begin(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        self.role = role(name);
    }

    /// Remembers a value of the graph whose extents depend on the batch size.
    pub(crate) fn note_batched(&mut self, value: &Value) {
        if self.batched.is_none() && value.dims.iter().any(|dim| dim.is_batch()) {
            self.batched = Some(value.clone());
        }
    }

    /// Returns a value of the graph with an axis that depends on the batch size, the axis, and its extent at batch size 1.
    pub(crate) fn batched(&self) -> Result<(Value, usize, usize), Refusal> {
        let found = self.batched.as_ref().and_then(|value| {
            let axis = value.dims.iter().position(|dim| dim.is_batch())?;
            Some((value.clone(), axis, value.dims[axis].at_one()))
        });
        found.ok_or_else(|| "has a batch size, but the model's inputs have none".into())
    }

    /// Applies `op` to `operands` and returns its only result, or its first one.
    pub(crate) fn apply(&mut self, op: impl Into<Op>, operands: &[&Value]) -> Result<Value, Refusal> {
        let mut results = self.apply_all(op, operands)?;
        Ok(results.swap_remove(0))
    }

    /// Applies `op` to `operands`. Computes the results if all operands are known, and otherwise appends a node.
    ///
    /// The results have the element type of the first operand if the op keeps it or if it is a floating-point type, and f32 otherwise.
    pub(crate) fn apply_all(
        &mut self,
        op: impl Into<Op>,
        operands: &[&Value],
    ) -> Result<Vec<Value>, Refusal> {
        let op = op.into();
        let kept = op
            .keeps_dtype_of()
            .and_then(|index| operands.get(index))
            .map(|x| x.element);
        let first = operands
            .first()
            .map(|x| x.element)
            .filter(|element| element.is_float());
        let element = kept.or(first).unwrap_or(ElementType::F32);
        let shapes = result_dims(&op, operands)?;
        for dims in &shapes {
            count(&dims.iter().map(|dim| dim.at_one()).collect::<Shape>())?;
        }
        let is_known =
            operands.iter().all(|x| x.is_known()) && shapes.iter().flatten().all(|dim| !dim.is_batch());
        if is_known {
            return compute(&op, operands, element);
        }
        let inputs = operands
            .iter()
            .map(|x| self.id(x))
            .collect::<Result<Vec<_>, _>>()?;
        let rows = self.rows_of_results(&op, operands, &shapes)?;
        let name = self.unique();
        let is_move = matches!(op, Op::Permute(_) | Op::Reshape(_));
        let moved = is_move.then(|| (op.clone(), operands[0].clone()));
        let node = self
            .graph
            .push_node(self.role, name, op, inputs)
            .map_err(reason)?;
        let ids = node.outputs.clone();
        if let Some(moved) = moved {
            self.moves.insert(ids[0], moved);
        }
        if let Some(rows) = rows {
            self.rows.extend(ids.iter().map(|&id| (id, rows)));
        }
        let results = ids.into_iter().zip(shapes);
        Ok(results
            .map(|(id, dims)| Value {
                element,
                dims,
                data: Data::Computed(id),
            })
            .collect())
    }

    /// Remembers that a run counts the rows of `value` along an axis.
    pub(crate) fn note_count(&mut self, value: &Value, axis: usize, count: &Value) {
        if let (Data::Computed(id), Data::Computed(count)) = (&value.data, &count.data) {
            self.rows.insert(*id, Rows { axis, count: *count });
        }
    }

    /// Returns the rows of a value if a run counts those that are results.
    pub(crate) fn rows(&self, value: &Value) -> Option<Rows> {
        match value.data {
            Data::Computed(id) => self.rows.get(&id).copied(),
            _ => None,
        }
    }

    fn rows_of_results(
        &self,
        op: &Op,
        operands: &[&Value],
        results: &[Vec<Dim>],
    ) -> Result<Option<Rows>, Refusal> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let shapes: Vec<Shape> = operands.iter().map(|x| x.shape()).collect();
        let counted = operands.iter().map(|x| self.rows(x));
        let operands: Vec<counted::Operand<'_>> = shapes.iter().map(Vec::as_slice).zip(counted).collect();
        let extents = |dims: &Vec<Dim>| dims.iter().map(|dim| dim.at_one()).collect();
        let results: Vec<Shape> = results.iter().map(extents).collect();
        counted::of_results(op, &operands, &results)
    }

    /// Returns the graph's value. Adds known numbers as a constant.
    pub(crate) fn id(&mut self, value: &Value) -> Result<ValueId, Refusal> {
        if let Data::Computed(id) = value.data {
            return Ok(id);
        }
        match &value.data {
            Data::Ramp(_) => {
                let computed = crate::ramp::compute(self, value)?;
                return self.id(&computed);
            }
            Data::Columns(columns) => {
                let columns: Vec<&Value> = columns.iter().collect();
                let axis = value.rank().saturating_sub(1);
                let joined = self.apply(Concat { axis }, &columns)?;
                return self.id(&joined);
            }
            _ => {}
        }
        let Constant {
            tensor, provenance, ..
        } = value.to_constant()?;
        let key = (tensor.address(), tensor.dtype(), tensor.shape().to_vec());
        if let Some(&id) = self.constants.get(&key) {
            return Ok(id);
        }
        let given = provenance.to_string();
        let name = self.unique_of(&given);
        let provenance = if name == given {
            provenance
        } else {
            Provenance::computed(name, [provenance])
        };
        let id = self.graph.constant(provenance, tensor);
        self.constants.insert(key, id);
        Ok(id)
    }

    /// Returns the permutation or reshape that computes `value`, and its operand.
    pub(crate) fn move_of(&self, value: &Value) -> Option<&(Op, Value)> {
        match value.data {
            Data::Computed(id) => self.moves.get(&id),
            _ => None,
        }
    }

    /// Remembers that `result` is `x` rounded to 8 bits.
    pub(crate) fn note_rounded(&mut self, result: &Value, x: Value, levels: Levels) {
        if let Data::Computed(id) = result.data {
            self.rounded.insert(id, (x, levels));
        }
    }

    /// Returns the value that `value` is rounded from, in the layout of `value`, and the levels. `None` if it is not rounded.
    pub(crate) fn before_rounding(&mut self, value: &Value) -> Option<Result<(Value, Levels), Refusal>> {
        let Data::Computed(id) = value.data else {
            return None;
        };
        if let Some(found) = self.rounded.get(&id) {
            return Some(Ok(found.clone()));
        }
        let (op, source) = self.moves.get(&id)?.clone();
        let found = self.before_rounding(&source)?;
        Some(found.and_then(|(x, levels)| Ok((self.apply(op, &[&x])?, levels))))
    }

    fn unique(&mut self) -> String {
        let name = self.name.clone();
        self.unique_of(&name)
    }

    /// Returns `name`, or `name` with a number if a node or a constant has it already.
    fn unique_of(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while !self.names.insert(unique.clone()) {
            // The steps of a loop have many nodes of one name.
            let number = self.numbers.entry(name.to_owned()).or_insert(1);
            *number += 1;
            unique = format!("{name}:{number}");
        }
        unique
    }
}

/// Returns the part of the model for a latency breakdown, by the words in a node's name.
fn role(name: &str) -> Role {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["qkv", "q_proj", "k_proj", "v_proj", "query", "key", "value"]) {
        Role::Qkv
    } else if has(&["attn", "attention"]) {
        Role::Attention
    } else if has(&["mlp", "ffn", "feed_forward", "fc1", "fc2", "intermediate"]) {
        Role::Ffn
    } else if has(&["patch_embed", "stem", "embeddings"]) {
        Role::Patch
    } else {
        Role::Other
    }
}

pub(crate) fn reason(error: hipvit_graph::Error) -> Refusal {
    match error {
        hipvit_graph::Error::Op { op, source, .. } => format!("{op} {source}"),
        other => other.to_string(),
    }
    .into()
}

/// Infers the results' extents at batch sizes 1, 2 and 3. Each extent must be fixed or a multiple of the batch size.
fn result_dims(op: &Op, operands: &[&Value]) -> Result<Vec<Vec<Dim>>, Refusal> {
    let at = |batch: usize| -> Result<Vec<Shape>, Refusal> {
        let extents = |x: &&Value| -> Option<Shape> { x.dims.iter().map(|dim| dim.extent(batch)).collect() };
        let shapes: Option<Vec<Shape>> = operands.iter().map(extents).collect();
        let shapes = shapes.ok_or("has an extent that overflows")?;
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        op.shapes(&shapes).map_err(|source| {
            let batch = if batch == 1 {
                String::new()
            } else {
                format!(" for a batch of {batch}")
            };
            Refusal::Reason(format!("{op} {source}{batch}"))
        })
    };
    let one = at(1)?;
    if !operands.iter().any(|x| x.dims.iter().any(|dim| dim.is_batch())) {
        return Ok(one.into_iter().map(|shape| crate::value::fixed(&shape)).collect());
    }
    let (two, three) = (at(2)?, at(3)?);
    let mut all = Vec::with_capacity(one.len());
    for ((one, two), three) in one.iter().zip(&two).zip(&three) {
        let mut dims = Vec::with_capacity(one.len());
        for ((&one, &two), &three) in one.iter().zip(two).zip(three) {
            dims.push(match [two, three] {
                [two, three] if two == one && three == one => Dim::Fixed(one),
                [two, three] if two == 2 * one && three == 3 * one => Dim::Batch(one),
                _ => refuse!(
                    "{op} has the extents {one}, {two} and {three} for 1, 2 and 3 images, which is not a multiple of the batch size"
                ),
            });
        }
        all.push(dims);
    }
    Ok(all)
}

/// Computes the results of known operands.
fn compute(op: &Op, operands: &[&Value], element: ElementType) -> Result<Vec<Value>, Refusal> {
    let shapes: Vec<Shape> = operands.iter().map(|x| x.shape()).collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let results = op.shapes(&shapes).map_err(|source| format!("{op} {source}"))?;
    for shape in &results {
        if count(shape)? > MOST_FLOATS {
            refuse!("computes {shape:?} elements that do not depend on the input, which is too many");
        }
    }
    if op.flops(&shapes, &results) > MOST_OPERATIONS {
        refuse!("computes too much that does not depend on the input");
    }
    let moves_integers = op.keeps_dtype_of() == Some(0) && operands[0].as_integers().is_some();
    if moves_integers {
        return move_integers(op, operands, element);
    }
    let arrays = operands.iter().map(|x| array(x)).collect::<Result<Vec<_>, _>>()?;
    let references: Vec<&Array> = arrays.iter().collect();
    let results = op.eval(&references).map_err(|source| format!("{op} {source}"))?;
    let of: Vec<Provenance> = operands
        .iter()
        .filter_map(|x| x.as_constant().map(|constant| constant.provenance.clone()))
        .collect();
    let name = op.name();
    let mut values = Vec::with_capacity(results.len());
    for result in results {
        let tensor =
            Tensor::from_f32(result.shape(), result.to_f32()).ok_or("computes another number of elements")?;
        values.push(Value::constant(
            element,
            tensor,
            Provenance::computed(name, of.clone()),
        ));
    }
    Ok(values)
}

fn array(value: &Value) -> Result<Array, Refusal> {
    let constant = value.to_constant()?;
    Ok(Array::from(&constant.tensor))
}

/// Moves integers, which may depend on the batch size, by an op that only moves elements: it moves their indices.
fn move_integers(op: &Op, operands: &[&Value], element: ElementType) -> Result<Vec<Value>, Refusal> {
    let mut elements: Vec<Linear> = Vec::new();
    let mut arrays = Vec::with_capacity(operands.len());
    for (index, operand) in operands.iter().enumerate() {
        let is_moved = index == 0 || matches!(op, Op::Concat(_));
        match operand.as_integers().filter(|_| is_moved) {
            Some(integers) => {
                // Index 0 is for elements that the op makes up.
                let start = elements.len() + 1;
                let indices = (start..start + integers.len())
                    .map(|index| index as f64)
                    .collect();
                elements.extend(integers);
                arrays.push(
                    Array::new(operand.shape(), indices).ok_or("has operands that do not fit their shape")?,
                );
            }
            None => arrays.push(array(operand)?),
        }
    }
    let references: Vec<&Array> = arrays.iter().collect();
    let results = op.eval(&references).map_err(|source| format!("{op} {source}"))?;
    let mut values = Vec::with_capacity(results.len());
    for result in results {
        let source = |&index: &f64| {
            (index as usize)
                .checked_sub(1)
                .and_then(|index| elements.get(index).copied())
        };
        let moved: Vec<Linear> = result
            .values()
            .iter()
            .map(|index| source(index).unwrap_or_default())
            .collect();
        values.push(Value::integers(element, result.shape(), moved)?);
    }
    Ok(values)
}

/// Formats the shapes of operands for errors.
pub(crate) fn show_all(operands: &[&Value]) -> String {
    let shapes: Vec<String> = operands.iter().map(|x| show(&x.dims)).collect();
    shapes.join(" and ")
}
