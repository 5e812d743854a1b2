//! The plan of a graph: fixes batch size and dtype, places every activation in one arena by liveness, and has the cost of every step.
//! Executors run it, and `hipvit inspect` prints it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::arena::{self, Storage};
use crate::error::{Error, Result};
use crate::graph::{self, Graph, Node, OutputKind};
use crate::op::{Linear, Op, RoundFloat8, Rounding};
use crate::tensor::DType;
use crate::updates::updated_in_place;
use crate::value::{GraphInput, ValueId, ValueKind};

pub use crate::arena::ALIGNMENT;

/// Maximum bytes of a buffer: addressable by a 64-bit process, and far from overflow.
const MAX_BUFFER: usize = 1 << 46;

/// Identifies a [`Buffer`] of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(u32);

impl BufferId {
    /// Returns the index in [`Plan::buffers`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Location of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An input of the graph, in the caller's memory or in a copy of it.
    Input(ValueId),
    /// A constant of the graph.
    Constant(ValueId),
    /// A parameter or a state of the graph. It is outside the arena, since it persists across runs.
    State(ValueId),
    /// An activation in the arena.
    Buffer(BufferId),
}

/// A part of the arena that holds a value during its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// The value.
    pub value: ValueId,
    /// Extents at the plan's batch size, outermost first.
    pub shape: Vec<usize>,
    /// Dtype: the plan's, f32 if the op's result always is, or 8 bits: i8, E4M3 or E5M2 (in OCP's or the device's encoding).
    pub dtype: DType,
    /// Rounding of the elements to 8 bits. `None` for other dtypes. Per-row values are stored [behind all elements](Self::row_scales).
    pub rounding: Option<Rounding>,
    /// Offset in the arena in bytes, a multiple of [`ALIGNMENT`].
    pub offset: usize,
    /// Size in bytes, without padding at the end.
    pub bytes: usize,
    /// The step that writes the buffer. No earlier step uses the memory of logits and embeddings either.
    pub first_step: usize,
    /// The last step that reads the buffer. The plan's last step for an output, or if memory is not reused.
    pub last_step: usize,
    /// State that the value is [written to](crate::op::Definition::replaces_rows). The buffer then has no memory in the arena.
    pub state: Option<ValueId>,
}

impl Buffer {
    /// Returns the scale of FP8 elements with a single scale.
    pub fn float8(&self) -> Option<f32> {
        self.rounding?.fixed_float8()
    }

    /// Returns the offset in bytes, from the start of the buffer, of the scale of elements that [`RoundFloat8`] has
    /// [stored](RoundFloat8::stored).
    pub fn tensor_scale(&self) -> Option<usize> {
        let is_stored = self.rounding.is_none() && matches!(self.dtype, DType::F8E4M3 | DType::F8E5M2);
        is_stored.then(|| RoundFloat8::scale_offset(self.shape.iter().product()))
    }

    /// Returns the offset in bytes, from the start of the buffer, of the per-row scales of 8-bit rows. In int8 each scale has a zero point.
    pub fn row_scales(&self) -> Option<usize> {
        let elements: usize = self.shape.iter().product();
        let rounding = self.rounding.filter(|rounding| rounding.is_of_rows());
        rounding.map(|_| elements.next_multiple_of(ALIGNMENT))
    }
}

/// An input of the graph at the plan's batch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInput {
    /// The input of the graph.
    pub input: GraphInput,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Dtype in which steps read it. Activations and other f32 inputs have the plan's dtype, unless all steps read them in
    /// [f32](crate::op::Definition::operand_dtype). Pixels, pixel values and integers keep their own dtype.
    pub dtype: DType,
    /// Offset in bytes, a multiple of [`ALIGNMENT`], for executors that copy all inputs into one buffer.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// A node with the locations of its operands, and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index in [`Graph::nodes`].
    pub node: usize,
    /// Operands, in the order of the node.
    pub inputs: Vec<Operand>,
    /// Buffers of the results.
    pub outputs: Vec<BufferId>,
    /// Operand whose storage the first result overwrites element by element, if any. A [`Reshape`](crate::op::Reshape) shares it and
    /// changes nothing, so that both values remain.
    pub in_place: Option<usize>,
    /// Floating-point operations; see [`Op::flops`](crate::op::Op::flops).
    pub flops: u64,
    /// Bytes that the step has to read: every operand once, with weights in the plan's dtype.
    pub bytes_read: u64,
    /// Bytes of the results.
    pub bytes_written: u64,
}

impl Step {
    /// Returns the buffer of the first result.
    pub fn output(&self) -> BufferId {
        self.outputs[0]
    }
}

/// A graph that is ready to run at one batch size.
#[derive(Clone, Debug)]
pub struct Plan {
    graph: Arc<Graph>,
    batch: usize,
    dtype: DType,
    steps: Vec<Step>,
    buffers: Vec<Buffer>,
    outputs: Vec<(OutputKind, ValueId, BufferId)>,
    updates: Vec<(ValueId, BufferId)>,
    arena_bytes: usize,
    naive_bytes: usize,
    lower_bound_bytes: usize,
    /// The inputs, in the order of the graph. There is at least one.
    inputs: Vec<PlanInput>,
}

impl Plan {
    /// Plans `graph` for `batch` images with activations in `dtype`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the batch is 0, or so large that a buffer cannot be addressed. [`Error::Graph`] if the shapes do not fit at
    /// this batch size, or if an output or the new value of a state is not the result of a node.
    pub fn new(graph: Arc<Graph>, batch: usize, dtype: DType) -> Result<Self> {
        if batch == 0 {
            return Err(Error::argument("batch", "is 0; at least one image is needed"));
        }
        let shapes = graph.shapes(batch)?;
        let end = graph.nodes().len().saturating_sub(1);
        let reuse = graph.optimizations().memory_reuse;
        let last_use = last_uses(&graph);
        let written = updated_in_place(&graph, Op::replaces_rows);
        let mut buffers: Vec<Buffer> = Vec::with_capacity(graph.nodes().len());
        let mut of_value: HashMap<ValueId, BufferId> = HashMap::new();
        let mut steps = Vec::with_capacity(graph.nodes().len());
        // A buffer that overwrites another one shares its storage.
        let mut storages: Vec<Storage> = Vec::new();
        let mut storage_of: Vec<usize> = Vec::new();

        for (index, node) in graph.nodes().iter().enumerate() {
            let inputs = operands(&graph, node, &of_value)?;
            let is_output = |id| {
                let updates = graph.updates().iter().any(|&(_, result)| result == id);
                updates || graph.outputs().iter().any(|&(_, output)| output == id)
            };
            let mut outputs = Vec::with_capacity(node.outputs.len());
            let mut in_place = None;
            let mut bytes_written = 0;
            for (position, &value) in node.outputs.iter().enumerate() {
                let shape = &shapes[value.index()];
                let rounding = graph.value(value).rounding;
                let result_dtype = match rounding {
                    Some(Rounding::Float8(_)) => DType::F8E4M3,
                    Some(Rounding::Int8(_)) => DType::I8,
                    None | Some(Rounding::Bf16) => match node.op.keeps_dtype_of().filter(|_| position == 0) {
                        Some(operand) => operand_dtype(&graph, &buffers, inputs[operand], dtype),
                        None => node.op.result_dtype(position, dtype),
                    },
                };
                let mut bytes = buffer_bytes(&node.name, shape, result_dtype, rounding)?;
                if rounding.is_none() && matches!(result_dtype, DType::F8E4M3 | DType::F8E5M2) {
                    bytes = RoundFloat8::scale_offset(bytes) + DType::F32.size();
                }
                let state = written.get(&value).copied();
                let own_storage = has_own_storage(&graph, value);
                // Both values stay, since the op changes no element.
                let is_view = matches!(node.op, Op::Reshape(_));
                let may_alias = node
                    .op
                    .may_alias()
                    .filter(|_| position == 0 && reuse && !own_storage && !adds_residual(&graph, node));
                let shares_storage = |other: &&Operand, id: &BufferId| match other {
                    Operand::Buffer(other) => storage_of[other.index()] == storage_of[id.index()],
                    _ => false,
                };
                let aliased = may_alias.filter(|&i| match inputs.get(i) {
                    Some(Operand::Buffer(id)) if buffers[id.index()].state.is_none() => {
                        let value = node.inputs[i];
                        let is_last = || storages[storage_of[id.index()]].last == index && !is_output(value);
                        (buffers[id.index()].dtype, buffers[id.index()].bytes) == (result_dtype, bytes)
                            && (is_last() || is_view && !has_own_storage(&graph, value))
                            && inputs.iter().filter(|other| shares_storage(other, id)).count() == 1
                    }
                    _ => false,
                });
                // Without reuse of memory every buffer lives until the end.
                let last_step = if is_output(value) || !reuse {
                    end
                } else {
                    last_use[value.index()].unwrap_or(index)
                };
                let storage = match aliased.map(|i| inputs[i]) {
                    Some(Operand::Buffer(id)) => storage_of[id.index()],
                    _ => {
                        storages.push(Storage {
                            bytes: if state.is_some() { 0 } else { bytes },
                            first: if own_storage { 0 } else { index },
                            last: last_step,
                        });
                        storages.len() - 1
                    }
                };
                storages[storage].last = storages[storage].last.max(last_step);
                storage_of.push(storage);
                in_place = in_place.or(aliased);
                bytes_written += bytes as u64;

                // A graph has at most thousands of nodes.
                let output = BufferId(buffers.len() as u32);
                of_value.insert(value, output);
                outputs.push(output);
                buffers.push(Buffer {
                    value,
                    shape: shape.clone(),
                    dtype: result_dtype,
                    rounding,
                    offset: 0,
                    bytes,
                    first_step: index,
                    last_step,
                    state,
                });
            }
            steps.push(Step {
                node: index,
                inputs,
                outputs,
                in_place,
                flops: step_flops(node, &shapes),
                bytes_read: bytes_read(&graph, node, &shapes, dtype),
                bytes_written,
            });
        }

        let (first, last) = last_updates(&graph);
        let adjacent = last.into_iter().filter_map(|value| {
            let storage = storage_of[of_value.get(&value)?.index()];
            (storages[storage].first >= first).then_some(storage)
        });
        let (offsets, arena_bytes) = arena::place_adjacent(&storages, &adjacent.collect::<Vec<_>>());
        for (buffer, &storage) in buffers.iter_mut().zip(&storage_of) {
            buffer.offset = offsets[storage];
        }
        let outputs = graph
            .outputs()
            .iter()
            .map(|&(kind, value)| match of_value.get(&value) {
                Some(&buffer) => Ok((kind, value, buffer)),
                None => Err(Error::graph(
                    &graph.value(value).name,
                    "is an output, but no node computes it",
                )),
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            inputs: plan_inputs(&graph, &shapes, dtype)?,
            batch,
            dtype,
            steps,
            updates: updates(&graph, &buffers, &of_value)?,
            outputs,
            arena_bytes,
            naive_bytes: arena::naive(buffers.iter().filter(|b| b.state.is_none()).map(|b| b.bytes)),
            lower_bound_bytes: arena::lower_bound(&storages),
            buffers,
            graph,
        })
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Returns the number of images per run.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the inputs in the order of the [graph](Graph::inputs). There is at least one.
    pub fn inputs(&self) -> &[PlanInput] {
        &self.inputs
    }

    /// Returns the input of this value, if it is one.
    pub fn input(&self, value: ValueId) -> Option<&PlanInput> {
        self.inputs.iter().find(|of_plan| of_plan.input.value == value)
    }

    /// Returns the bytes of all inputs, with the padding between them.
    pub fn input_bytes(&self) -> usize {
        self.inputs.last().map_or(0, |last| last.offset + last.bytes)
    }

    /// Returns the dtype of the activations.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the steps in execution order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the buffers, by [`BufferId::index`].
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns the buffer `id`.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// Returns the node of `step`.
    pub fn node(&self, step: &Step) -> &Node {
        &self.graph.nodes()[step.node]
    }

    /// Returns the outputs, each with the buffer that holds it after the last step.
    pub fn outputs(&self) -> &[(OutputKind, ValueId, BufferId)] {
        &self.outputs
    }

    /// Returns true if the output `kind`, the value `value`, shares its storage with no other value: logits, embeddings, and named outputs
    /// of at most two dimensions. A caller that overwrites it before a run can tell whether the run wrote it.
    pub fn has_own_storage(&self, kind: OutputKind, value: ValueId) -> bool {
        is_small(&self.graph, kind, value)
    }

    /// Returns the dtype in which executors keep a parameter or state; see [`state_dtype`].
    pub fn state_dtype(&self, id: ValueId) -> DType {
        state_dtype(&self.graph, id, self.dtype)
    }

    /// Returns the parameters and states that the run updates, each with the buffer that holds its new elements after the last step.
    pub fn updates(&self) -> &[(ValueId, BufferId)] {
        &self.updates
    }

    /// Returns the size of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Returns the size of the arena in bytes without reuse of memory.
    pub fn naive_bytes(&self) -> usize {
        self.naive_bytes
    }

    /// Returns the peak of live bytes, a lower bound for the arena.
    pub fn lower_bound_bytes(&self) -> usize {
        self.lower_bound_bytes
    }

    /// Returns the floating-point operations of a run.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(|step| step.flops).sum()
    }
}

/// Returns true if the value shares its storage with no other value. This holds for the small results with one row per image. A caller that
/// overwrites them before a run can tell whether the run wrote them.
fn has_own_storage(graph: &Graph, value: ValueId) -> bool {
    graph
        .outputs()
        .iter()
        .any(|&(kind, output)| output == value && is_small(graph, kind, output))
}

/// Returns true for logits, embeddings, and named outputs of at most two dimensions.
fn is_small(graph: &Graph, kind: OutputKind, value: ValueId) -> bool {
    match kind {
        OutputKind::Logits | OutputKind::Embedding => true,
        OutputKind::Named(_) => graph.value(value).shape.len() <= 2,
        _ => false,
    }
}

/// Returns true if a layer of a training step adds a residual. In place, some GEMMs round the sum once more. So that
/// [recomputation](crate::recompute()) changes no bit, these layers never write in place, even if nothing else needs the residual.
fn adds_residual(graph: &Graph, node: &Node) -> bool {
    !graph.updates().is_empty() && matches!(node.op, Op::Linear(Linear { residual: true, .. }))
}

/// Returns the last node that reads each value, by [`ValueId::index`].
fn last_uses(graph: &Graph) -> Vec<Option<usize>> {
    let mut last = vec![None; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        for id in &node.inputs {
            last[id.index()] = Some(index);
        }
    }
    last
}

/// Returns the first of the last nodes, which only compute new values of states, and these values in the order of the states. As neighbours in
/// the arena, they are written to the states by few copies.
fn last_updates(graph: &Graph) -> (usize, Vec<ValueId>) {
    let state_of: HashMap<ValueId, ValueId> =
        graph.updates().iter().map(|&(to, result)| (result, to)).collect();
    let updates = |node: &Node| node.outputs.iter().all(|id| state_of.contains_key(id));
    let count = graph
        .nodes()
        .iter()
        .rev()
        .take_while(|node| updates(node))
        .count();
    let first = graph.nodes().len() - count;
    let results = graph.nodes()[first..].iter().flat_map(|node| &node.outputs);
    let mut results: Vec<ValueId> = results.copied().collect();
    results.sort_by_key(|result| state_of[result]);
    (first, results)
}

fn operands(graph: &Graph, node: &Node, of_value: &HashMap<ValueId, BufferId>) -> Result<Vec<Operand>> {
    let find = |&id: &ValueId| {
        if id == graph.input() || graph.value(id).kind == ValueKind::Input {
            Ok(Operand::Input(id))
        } else if graph.value(id).is_constant() {
            Ok(Operand::Constant(id))
        } else if graph.value(id).is_stateful() {
            Ok(Operand::State(id))
        } else {
            of_value.get(&id).copied().map(Operand::Buffer).ok_or_else(|| {
                let operand = &graph.value(id).name;
                Error::graph(&node.name, format!("reads `{operand}` before it is computed"))
            })
        }
    };
    node.inputs.iter().map(find).collect()
}

/// Returns the dtype in which executors keep the parameter or state `id`, if plans have activations in `dtype`.
///
/// It is the dtype of the result that is written to it. An op whose result is always f32, such as that of an optimiser, thus has f32 master
/// weights in plans of 16 bits. Parameters and states that no run writes have `dtype`, unless all nodes read them in f32.
pub fn state_dtype(graph: &Graph, id: ValueId, dtype: DType) -> DType {
    let written = graph.updates().iter().find(|&&(to, _)| to == id);
    let of_result = |&(_, result): &(ValueId, ValueId)| {
        graph.nodes().iter().find_map(|node| {
            let position = node.outputs.iter().position(|&output| output == result)?;
            Some(node.op.result_dtype(position, dtype))
        })
    };
    let of_result = written.and_then(of_result);
    of_result.unwrap_or_else(|| dtype_of_readers(graph, id, dtype))
}

/// Returns the dtype in which an operand is in memory. Constants are kept in `dtype`, except for integers.
fn operand_dtype(graph: &Graph, buffers: &[Buffer], operand: Operand, dtype: DType) -> DType {
    match operand {
        Operand::Buffer(id) => buffers[id.index()].dtype,
        Operand::Constant(id) if graph.value(id).dtype == DType::I32 => DType::I32,
        Operand::Constant(_) => dtype,
        Operand::State(id) => state_dtype(graph, id, dtype),
        Operand::Input(id) => {
            let input = graph.inputs().find(|input| input.value == id);
            input.map_or(dtype, |input| input_dtype(graph, input, dtype))
        }
    }
}

/// Returns the inputs of a plan. `shapes` has the shapes of all values.
fn plan_inputs(graph: &Graph, shapes: &[Vec<usize>], dtype: DType) -> Result<Vec<PlanInput>> {
    let mut end: usize = 0;
    let of_plan = |input: GraphInput| {
        let shape = shapes[input.value.index()].clone();
        let dtype = input_dtype(graph, input, dtype);
        let bytes = buffer_bytes(&graph.value(input.value).name, &shape, dtype, None)?;
        let offset = end.next_multiple_of(ALIGNMENT);
        end = offset + bytes;
        Ok(PlanInput {
            input,
            shape,
            dtype,
            offset,
            bytes,
        })
    };
    graph.inputs().map(of_plan).collect()
}

/// Returns the dtype in which steps read an input.
fn input_dtype(graph: &Graph, input: GraphInput, dtype: DType) -> DType {
    let own = graph.value(input.value).dtype;
    let is_image = input.value == graph.input() && graph.takes_images();
    let is_activation = own == DType::F32 && !is_image;
    if is_activation {
        dtype_of_readers(graph, input.value, dtype)
    } else {
        own
    }
}

/// Returns the dtype in which nodes read a value that is not 8 bits: f32 if none reads it in `dtype`.
fn dtype_of_readers(graph: &Graph, id: ValueId, dtype: DType) -> DType {
    let mut is_read = false;
    for node in graph.nodes() {
        for (index, _) in node
            .inputs
            .iter()
            .enumerate()
            .filter(|&(_, &operand)| operand == id)
        {
            if node.op.operand_dtype(index, dtype) != DType::F32 {
                return dtype;
            }
            is_read = true;
        }
    }
    if is_read { DType::F32 } else { dtype }
}

/// Returns the parameters and states that a run writes, each with the buffer of its new elements.
fn updates(
    graph: &Graph,
    buffers: &[Buffer],
    of_value: &HashMap<ValueId, BufferId>,
) -> Result<Vec<(ValueId, BufferId)>> {
    let update = |&(to, result): &(ValueId, ValueId)| {
        let state = graph.value(to);
        let Some(&id) = of_value.get(&result) else {
            let name = &graph.value(result).name;
            return Err(Error::graph(
                &state.name,
                format!("is written with `{name}`, which no node computes"),
            ));
        };
        let Buffer { shape, rounding, .. } = &buffers[id.index()];
        if *shape != state.shape {
            let reason = format!("has shape {:?}, but {shape:?} is written to it", state.shape);
            return Err(Error::graph(&state.name, reason));
        }
        if rounding.is_some() {
            return Err(Error::graph(
                &state.name,
                "is written with elements that are rounded to 8 bits",
            ));
        }
        Ok((to, id))
    };
    graph.updates().iter().map(update).collect()
}

fn buffer_bytes(node: &str, shape: &[usize], dtype: DType, rounding: Option<Rounding>) -> Result<usize> {
    let elements = shape
        .iter()
        .try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
    let of_row = rounding.map_or(0, Rounding::row_bytes);
    let with_scales = |bytes: usize| match (of_row, shape) {
        (0, _) | (_, []) => Some(bytes),
        (_, [outer @ .., _]) => {
            let scales = outer.iter().product::<usize>() * of_row;
            bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(scales)
        }
    };
    elements
        .filter(|&bytes| bytes <= MAX_BUFFER)
        .and_then(with_scales)
        .filter(|&bytes| bytes <= MAX_BUFFER)
        .ok_or_else(|| {
            let reason = format!("the result of node `{node}`, {shape:?}, cannot be addressed");
            Error::argument("batch", reason)
        })
}

/// Returns the node's floating-point operations. `shapes` has those of all values.
pub(super) fn step_flops(node: &Node, shapes: &[Vec<usize>]) -> u64 {
    node.op
        .flops(&graph::operands(node, shapes), &results(node, shapes))
}

/// Returns the shapes of the node's results.
fn results(node: &Node, shapes: &[Vec<usize>]) -> Vec<Vec<usize>> {
    node.outputs.iter().map(|id| shapes[id.index()].clone()).collect()
}

/// Returns the bytes of the operands that the op reads, counting each value once.
fn bytes_read(graph: &Graph, node: &Node, shapes: &[Vec<usize>], dtype: DType) -> u64 {
    let (operands, results) = (graph::operands(node, shapes), results(node, shapes));
    let bytes = |(index, &id): (usize, &ValueId)| {
        let size = if let Some(input) = graph.inputs().find(|input| input.value == id) {
            input_dtype(graph, input, dtype).size()
        } else if graph.value(id).is_stateful() {
            state_dtype(graph, id, dtype).size()
        } else if graph.value(id).dtype.size() == 1 || graph.value(id).rounding.is_some() {
            1
        } else {
            node.op.operand_dtype(index, dtype).size()
        };
        (node.op.elements_read(index, &operands, &results) * size) as u64
    };
    let first = |&(index, id): &(usize, &ValueId)| !node.inputs[..index].contains(id);
    node.inputs.iter().enumerate().filter(first).map(bytes).sum()
}
