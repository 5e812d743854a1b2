//! Appends nodes to the graph, and infers extents that depend on the batch size.

use std::collections::{HashMap, HashSet};

use hipvit_graph::op::{Concat, CumSum, Elementwise, Expand, Levels, Op, Reshape, Shape};
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::{DType, Graph, Provenance, Role, ValueId};

use crate::conversion;
use crate::counted::{self, Rows};
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::folding;
use crate::shape::{count, fixed, show};
use crate::value::{Constant, Data, Value};

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
        let mut results = self.apply_op(op.into(), operands)?;
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
        self.apply_op(op.into(), operands)
    }

    fn apply_op(&mut self, op: Op, operands: &[&Value]) -> Result<Vec<Value>, Refusal> {
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
            return folding::compute(&op, operands, element);
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

    /// Applies an expression to operands that may be integers, with a result of type `element`.
    pub(crate) fn elementwise(
        &mut self,
        expression: Float,
        operands: &[&Value],
        element: ElementType,
    ) -> Result<Value, Refusal> {
        let integers: Vec<usize> = (0..operands.len())
            .filter(|&index| operands[index].element.is_integer())
            .collect();
        let op = Elementwise::new(operands.len(), expression)
            .map_err(|error| error.to_string())?
            .with_integer_operands(&integers);
        let op = if element.is_integer() {
            op.into_integers()
        } else {
            op
        };
        let result = self.apply(op, operands)?;
        if !element.is_float()
            && let Some(converted) = conversion::convert(&result, element)?
        {
            return Ok(converted);
        }
        Ok(Value { element, ..result })
    }

    /// Appends a node that copies a value of the graph. Returns its result.
    pub(crate) fn copied(&mut self, x: &Value) -> Result<ValueId, Refusal> {
        let copy = self.elementwise(floats::operand(0), &[x], x.element)?;
        self.id(&copy)
    }

    /// Reshapes `x` in the graph.
    pub(crate) fn reshape(&mut self, x: &Value, dims: &[Dim]) -> Result<Value, Refusal> {
        let op = Reshape {
            extents: dims.iter().map(|dim| dim.at_one()).collect(),
            batch: dims.iter().position(|dim| dim.is_batch()),
        };
        self.apply(op, &[x])
    }

    /// Repeats the elements of `x` in the graph, also if they are indices that could stay known.
    pub(crate) fn expand(&mut self, x: &Value, target: &[Dim]) -> Result<Value, Refusal> {
        let extents: Vec<usize> = target.iter().map(|dim| dim.at_one()).collect();
        let missing = target.len().saturating_sub(x.rank());
        let is_batched = |axis: usize| {
            axis.checked_sub(missing)
                .is_some_and(|axis| x.dims[axis].is_batch())
        };
        let batch = target.iter().position(|dim| dim.is_batch());
        let (like, operands) = match batch {
            Some(axis) if !is_batched(axis) => {
                let (value, axis, extent) = self.batched()?;
                (Some((axis, extent)), vec![x.clone(), value])
            }
            _ => (None, vec![x.clone()]),
        };
        let operands: Vec<&Value> = operands.iter().collect();
        self.apply(Expand { extents, batch, like }, &operands)
    }

    /// Appends the nodes that compute the integers of a ramp: running sums of ones count the images.
    fn compute_ramp(&mut self, value: &Value) -> Result<Value, Refusal> {
        let Data::Ramp(ramp) = &value.data else {
            return Ok(value.clone());
        };
        let unsupported = || {
            format!(
                "computes indices {} of several batches, which is not supported",
                show(&value.dims)
            )
        };
        let known = |number: Linear| number.known().map(|number| number as f32).ok_or_else(unsupported);
        let one = Value::integers(value.element, &[1], vec![Linear::new(1)])?;
        let mut sum = None;
        for (axis, (&dim, &stride)) in value.dims.iter().zip(&ramp.strides).enumerate() {
            if dim == Dim::Fixed(1) || stride == Linear::default() {
                continue;
            }
            let mut dims = vec![Dim::Fixed(1); value.rank()];
            dims[axis] = dim;
            let numbers = match dim.fixed() {
                Some(extent) => {
                    let mut shape = vec![1; value.rank()];
                    shape[axis] = extent;
                    let numbers: Vec<Linear> = (0..extent as i64).map(Linear::new).collect();
                    Value::integers(value.element, &shape, numbers)?
                }
                None => {
                    let ones = self.expand(&one, &[dim])?;
                    let op = CumSum {
                        axis: 0,
                        exclusive: true,
                        reverse: false,
                    };
                    let counted = self.apply(op, &[&ones])?;
                    if counted.dims == dims {
                        counted
                    } else {
                        self.reshape(&counted, &dims)?
                    }
                }
            };
            let scaled = floats::operand(0) * known(stride)?;
            sum = Some(match sum {
                None => self.elementwise(scaled + known(ramp.start)?, &[&numbers], value.element)?,
                Some(sum) => {
                    self.elementwise(scaled + floats::operand(1), &[&numbers, &sum], value.element)?
                }
            });
        }
        match sum {
            Some(sum) if sum.dims == value.dims => Ok(sum),
            // Known integers are repeated in the graph too: as a ramp, they would be computed again.
            Some(sum) => self.expand(&sum, &value.dims),
            None => {
                let start = Value::integers(value.element, &vec![1; value.rank()], vec![ramp.start])?;
                self.expand(&start, &value.dims)
            }
        }
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
                let computed = self.compute_ramp(value)?;
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
        return Ok(one.into_iter().map(|shape| fixed(&shape)).collect());
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

/// Formats the shapes of operands for errors.
pub(crate) fn show_all(operands: &[&Value]) -> String {
    let shapes: Vec<String> = operands.iter().map(|x| show(&x.dims)).collect();
    shapes.join(" and ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::ramp::Ramp;

    #[test]
    fn indices_that_are_equal_for_all_images_are_repeated_in_the_graph() {
        let graph = Graph::of_values("model", "x", [1, 2], DType::F32).unwrap();
        let input = Data::Computed(graph.input());
        let mut builder = Builder::new(graph);
        builder.note_batched(&Value {
            element: ElementType::F32,
            dims: vec![Dim::Batch(1), Dim::Fixed(2)],
            data: input,
        });
        let indices = Value {
            element: ElementType::I64,
            dims: vec![Dim::Batch(1), Dim::Fixed(3)],
            data: Data::Ramp(Ramp {
                start: Linear::new(5),
                strides: vec![Linear::default(), Linear::new(2)],
            }),
        };
        let id = builder.id(&indices).unwrap();
        assert_eq!(builder.graph.value(id).shape, [1, 3]);
        let node = builder.graph.nodes().last().unwrap();
        assert!(matches!(node.op, Op::Expand(_)), "{}", node.op);
    }
}
