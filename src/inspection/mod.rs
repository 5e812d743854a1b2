//! What `hipvit inspect` shows of a model: the graph before and after the passes, the cost of every step, the use of memory,
//! and the address of each parameter, on the host and, if requested, on a GPU. As JSON through serde, as tables through
//! `Display` (`text.rs`), and the arena as a drawing (`plot`).

mod division;

use std::collections::HashMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::graph::plan::{Operand, Plan};
use crate::graph::{Graph, PassReport, Role, ValueId};
use crate::tensor::DType;

pub use division::{Part, parts};

/// A planned model.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The model's name.
    pub model: String,
    /// Images per run.
    pub batch: usize,
    /// The element type of the activations.
    pub dtype: DType,
    /// The graph as the model builder wrote it, at batch 1.
    pub before: Vec<NodeSummary>,
    /// The passes, in order.
    pub passes: Vec<PassReport>,
    /// The graph that is planned, at batch 1.
    pub after: Vec<NodeSummary>,
    /// The plan's steps at its batch.
    pub steps: Vec<StepSummary>,
    /// Sums over all steps.
    pub total: Cost,
    /// The arena.
    pub memory: Memory,
    /// The constants of the planned graph.
    pub parameters: Vec<Parameter>,
    /// The kernels on a GPU, if the model was loaded onto one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<SelectedKernels>,
    /// Why a GPU's kernels are not those that would be preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels_note: Option<String>,
    /// The memory on a GPU, if the model was loaded onto one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<DeviceMemory>,
    /// What each of several GPUs would have, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// The kernels that compute steps on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectedKernels {
    /// The op and what is fused into it.
    pub op: String,
    /// The result's extents.
    pub shape: Vec<usize>,
    /// How many steps are alike.
    pub steps: usize,
    /// The kernels and library calls of each, in order.
    pub kernels: Vec<String>,
    /// The geometry of those of them that are the crate's own; libraries do not tell theirs.
    pub launches: Vec<KernelLaunch>,
    /// Where the selection comes from: tuned, shipped or rule; `None` where there is nothing to select.
    pub origin: Option<String>,
}

/// The geometry of a kernel's launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelLaunch {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
}

impl SelectedKernels {
    /// Whether these are the same but for the number of steps.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let Self {
            op,
            shape,
            kernels,
            origin,
            ..
        } = other;
        (&self.op, &self.shape, &self.kernels, &self.origin) == (op, shape, kernels, origin)
    }
}

/// A range of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The first byte's address, in JSON as hexadecimal text.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

/// A model's memory on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// Which GPU.
    pub device: String,
    /// The element type of the parameters and the activations there.
    pub dtype: DType,
    /// All parameters: one allocation.
    pub weights: Region,
    /// The activations of a run.
    pub arena: Region,
    /// Temporary memory of steps, outside of the arena.
    pub scratch: Region,
    /// A run's input.
    pub input: Region,
    /// The range of each parameter in the weights.
    #[serde(skip)]
    pub parameters: HashMap<ValueId, Region>,
}

/// One node of a graph.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSummary {
    /// The node's name, which is its result's.
    pub name: String,
    /// The op and what is fused into it.
    pub op: String,
    /// The part of the model.
    pub role: Role,
    /// The operands, in order.
    pub inputs: Vec<ValueSummary>,
    /// The result's extents.
    pub shape: Vec<usize>,
}

/// One operand of a node.
#[derive(Clone, Debug, Serialize)]
pub struct ValueSummary {
    /// The value's name.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
}

/// Operations and memory traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that have to be read, weights included.
    pub bytes_read: u64,
    /// Bytes that have to be written.
    pub bytes_written: u64,
    /// Floating-point operations per byte: decides whether a step is compute-bound or memory-bound.
    pub intensity: f64,
}

/// One step of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// The node's name.
    pub name: String,
    /// The op and what is fused into it.
    pub op: String,
    /// The part of the model.
    pub role: Role,
    /// The result's extents at the plan's batch.
    pub shape: Vec<usize>,
    /// The step's cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// Where the result begins in the arena, in bytes.
    pub offset: usize,
    /// The result's size.
    pub bytes: usize,
    /// The operand that the result overwrites, if any.
    pub overwrites: Option<String>,
}

/// The memory of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The arena's size in bytes.
    pub arena_bytes: usize,
    /// The same without reuse.
    pub without_reuse_bytes: usize,
    /// The peak of live buffers: no arena can be smaller.
    pub lower_bound_bytes: usize,
}

/// One constant.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// The tensor's name in the weight file, or an expression of those it was computed from.
    pub name: String,
    /// The extents.
    pub shape: Vec<usize>,
    /// The element type as stored.
    pub dtype: DType,
    /// The stored size.
    pub bytes: usize,
    /// Where it is stored.
    pub place: Place,
    /// The host address of its first element, or of the first element that it is assembled from, in hexadecimal.
    pub address: String,
    /// Its copy on the GPU, if the model was loaded onto one and a step reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceParameter>,
    #[serde(skip)]
    id: ValueId,
}

/// A parameter on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceParameter {
    /// The element type there.
    pub dtype: DType,
    /// Its range.
    #[serde(flatten)]
    pub region: Region,
}

/// Where a parameter's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// In the mapped weight file, as stored.
    #[serde(rename = "mapped file")]
    MappedFile,
    /// In memory of its own, because a pass computed or packed it.
    #[serde(rename = "folded, host memory")]
    HostMemory,
    /// In those of other tensors, whose rows are packed or multiplied by factors when an executor reads them.
    #[serde(rename = "assembled from others")]
    Assembled,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MappedFile => "mapped file",
            Self::HostMemory => "folded, host memory",
            Self::Assembled => "assembled from others",
        })
    }
}

impl Inspection {
    /// Inspects `before`, the model builder's graph, and the plan that was made of it.
    pub fn new(before: &Graph, passes: &[PassReport], plan: &Plan) -> Self {
        let steps = steps(plan);
        let sum = |of: fn(&Cost) -> u64| steps.iter().map(|step| of(&step.cost)).sum();
        Self {
            model: before.name().to_owned(),
            batch: plan.batch(),
            dtype: plan.dtype(),
            before: nodes(before),
            passes: passes.to_vec(),
            after: nodes(plan.graph()),
            total: Cost::new(sum(|c| c.flops), sum(|c| c.bytes_read), sum(|c| c.bytes_written)),
            steps,
            memory: Memory {
                arena_bytes: plan.arena_bytes(),
                without_reuse_bytes: plan.naive_bytes(),
                lower_bound_bytes: plan.lower_bound_bytes(),
            },
            parameters: parameters(plan.graph()),
            kernels: Vec::new(),
            kernels_note: None,
            device_memory: None,
            parts: Vec::new(),
        }
    }

    /// Adds the memory on a GPU.
    pub fn on_device(mut self, memory: DeviceMemory) -> Self {
        for parameter in &mut self.parameters {
            parameter.device = memory
                .parameters
                .get(&parameter.id)
                .map(|&region| DeviceParameter {
                    dtype: memory.dtype,
                    region,
                });
        }
        self.device_memory = Some(memory);
        self
    }

    /// Adds the kernels on a device, with a note of why they are not those that would be preferred.
    pub fn with_kernels(mut self, kernels: Vec<SelectedKernels>, note: Option<&str>) -> Self {
        self.kernels = kernels;
        self.kernels_note = note.map(str::to_owned);
        self
    }
}

fn hexadecimal<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

impl Cost {
    /// Returns the cost of these operations and bytes, with their ratio.
    pub fn new(flops: u64, bytes_read: u64, bytes_written: u64) -> Self {
        let bytes = (bytes_read + bytes_written).max(1);
        Self {
            flops,
            bytes_read,
            bytes_written,
            intensity: flops as f64 / bytes as f64,
        }
    }
}

fn nodes(graph: &Graph) -> Vec<NodeSummary> {
    let value = |&id: &ValueId| ValueSummary {
        name: graph.value(id).name.clone(),
        shape: graph.value(id).shape.clone(),
    };
    graph
        .nodes()
        .iter()
        .map(|node| NodeSummary {
            name: node.name.clone(),
            op: node.op.to_string(),
            role: node.role,
            inputs: node.inputs.iter().map(value).collect(),
            shape: graph.value(node.output()).shape.clone(),
        })
        .collect()
}

fn steps(plan: &Plan) -> Vec<StepSummary> {
    plan.steps()
        .iter()
        .map(|step| {
            let (node, buffer) = (plan.node(step), plan.buffer(step.output()));
            StepSummary {
                name: node.name.clone(),
                op: node.op.to_string(),
                role: node.role,
                shape: buffer.shape.clone(),
                cost: Cost::new(step.flops, step.bytes_read, step.bytes_written),
                offset: buffer.offset,
                bytes: buffer.bytes,
                overwrites: step.in_place.and_then(|i| match step.inputs[i] {
                    Operand::Buffer(id) => Some(plan.graph().value(plan.buffer(id).value).name.clone()),
                    _ => None,
                }),
            }
        })
        .collect()
}

fn parameters(graph: &Graph) -> Vec<Parameter> {
    graph
        .ids()
        .filter_map(|id| {
            let value = graph.value(id);
            let tensor = value.constant.as_ref()?;
            let first = tensor.stored_parts().next().unwrap_or(tensor);
            Some(Parameter {
                name: value.name.clone(),
                shape: tensor.shape().to_vec(),
                dtype: tensor.dtype(),
                bytes: tensor.size_in_bytes(),
                place: if tensor.is_mapped() {
                    Place::MappedFile
                } else if tensor.is_assembled() {
                    Place::Assembled
                } else {
                    Place::HostMemory
                },
                address: format!("{:#x}", first.address()),
                device: None,
                id,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::graph::{Passes, optimize};
    use crate::graph_tests::vit::Vit;

    fn tiny() -> (Inspection, Plan) {
        let before = Vit::default().zeros();
        let (after, reports) = optimize(before.clone(), &Passes::default()).unwrap();
        let plan = Plan::new(Arc::new(after), 2, DType::F32).unwrap();
        (Inspection::new(&before, &reports, &plan), plan)
    }

    #[test]
    fn sums_and_places_are_those_of_the_plan() {
        let (inspection, plan) = tiny();
        assert_eq!(inspection.total.flops, plan.flops());
        assert_eq!(inspection.steps.len(), plan.steps().len());
        assert_eq!(inspection.after.len(), plan.graph().nodes().len());
        let place = |name: &str| {
            let parameter = inspection.parameters.iter().find(|p| p.name == name).unwrap();
            (parameter.place, parameter.bytes)
        };
        assert_eq!(place("blocks.0.qkv.weight"), (Place::MappedFile, 36 * 12 * 4));
        assert_eq!(place("positions.position").0, Place::MappedFile);
        assert_eq!(place("positions.prefix").0, Place::HostMemory);
        assert_eq!(place("patch.bias (normalized)"), (Place::HostMemory, 12 * 4));
    }

    #[test]
    fn what_is_on_a_device_is_shown_beside_the_rest() {
        let (inspection, plan) = tiny();
        let ids: Vec<ValueId> = plan
            .graph()
            .nodes()
            .iter()
            .flat_map(|n| n.inputs.clone())
            .collect();
        let is_qkv = |id: &&ValueId| plan.graph().value(**id).name == "blocks.0.qkv.weight";
        let id = *ids.iter().find(is_qkv).unwrap();
        let region = |address| Region { address, bytes: 864 };
        let inspection = inspection.on_device(DeviceMemory {
            device: "GPU 0 (Test, gfx942)".into(),
            dtype: DType::F16,
            weights: region(0x1000),
            arena: region(0x2000),
            scratch: region(0x3000),
            input: region(0x4000),
            parameters: HashMap::from([(id, region(0x1100))]),
        });
        let json = serde_json::to_value(&inspection).unwrap();
        assert_eq!(json["device_memory"]["arena"]["address"], "0x2000");
        let parameters = json["parameters"].as_array().unwrap();
        let qkv = parameters
            .iter()
            .find(|p| p["name"] == "blocks.0.qkv.weight")
            .unwrap();
        assert_eq!(
            qkv["device"],
            serde_json::json!({"dtype": "f16", "address": "0x1100", "bytes": 864})
        );
        assert!(parameters.iter().any(|p| p.get("device").is_none()));
    }

    #[test]
    fn json_has_every_part() {
        let (inspection, _) = tiny();
        let json = serde_json::to_value(&inspection).unwrap();
        assert_eq!(json["batch"], 2);
        assert_eq!(json["dtype"], "f32");
        assert_eq!(json["before"][0]["op"], "normalize");
        assert_eq!(json["passes"][0]["name"], "infer_shapes");
        assert_eq!(json["steps"][0]["shape"], serde_json::json!([2, 9, 48]));
        assert!(json["steps"][1]["flops"].as_u64().unwrap() > 0);
        assert_eq!(json["parameters"][0]["dtype"], "f32");
        assert!(
            json["parameters"][0]["address"]
                .as_str()
                .unwrap()
                .starts_with("0x")
        );
    }
}
