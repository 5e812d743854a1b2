//! The data of `hipvit inspect`: the graph before and after the passes, the cost of every step, the use of memory, and the address of each
//! parameter. Addresses are those on the host and, if requested, on a GPU. The data serialises to JSON through serde.

mod division;

use std::collections::HashMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::graph::plan::{Operand, Plan};
use crate::graph::{Graph, PassReport, Role, ValueId};
use crate::hip::DeviceAddress;
use crate::tensor::DType;

pub use division::{Part, parts};

/// A planned model.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Name of the model.
    pub model: String,
    /// Images per run.
    pub batch: usize,
    /// Dtype of the activations.
    pub dtype: DType,
    /// Graph of the model builder, at batch 1.
    pub before: Vec<NodeSummary>,
    /// Passes, in order.
    pub passes: Vec<PassReport>,
    /// Planned graph, at batch 1.
    pub after: Vec<NodeSummary>,
    /// Steps of the plan, at its batch size.
    pub steps: Vec<StepSummary>,
    /// Sums over all steps.
    pub total: Cost,
    /// Memory of the activations.
    pub memory: Memory,
    /// Constants of the planned graph. In a graph of training also what steps update: weights, their copies in f32, and the states of the
    /// optimiser.
    pub parameters: Vec<Parameter>,
    /// Kernels on a GPU, if the model is loaded on one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<SelectedKernels>,
    /// Reason why a GPU does not use the preferred kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels_note: Option<String>,
    /// Memory on a GPU, if the model is loaded on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<DeviceMemory>,
    /// Parts of the model on several GPUs, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// Kernels that compute steps on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectedKernels {
    /// Op, with the fused operations.
    pub op: String,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Number of equal steps.
    pub steps: usize,
    /// Kernels and library calls of each step, in order.
    pub kernels: Vec<String>,
    /// Launch geometry of the builtin kernels. Libraries do not report theirs.
    pub launches: Vec<KernelLaunch>,
    /// Origin of the selection: tuned, shipped or rule. `None` if there is no choice.
    pub origin: Option<String>,
}

/// Launch geometry of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelLaunch {
    /// Name of the kernel.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads per block along x, y, z.
    pub block: [u32; 3],
}

impl SelectedKernels {
    /// Returns true if both are equal except for the number of steps.
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

/// Range of GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Address of the first byte. In JSON, hexadecimal text.
    #[serde(serialize_with = "hexadecimal")]
    pub address: DeviceAddress,
    /// Size in bytes.
    pub bytes: usize,
}

/// Memory of a model on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// Name of the GPU.
    pub device: String,
    /// Dtype of parameters and activations on the GPU.
    pub dtype: DType,
    /// All parameters, in one allocation.
    pub weights: Region,
    /// Activations of a run.
    pub arena: Region,
    /// Temporary memory of steps, outside of the arena.
    pub scratch: Region,
    /// Input of a run. `None` if kernels read it in the host's memory.
    pub input: Option<Region>,
    /// Range of each parameter in the weights.
    #[serde(skip)]
    pub parameters: HashMap<ValueId, Region>,
}

/// A node of a graph.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSummary {
    /// Name of the node, which is also that of its result.
    pub name: String,
    /// Op, with the fused operations.
    pub op: String,
    /// Part of the model.
    pub role: Role,
    /// Operands, in order.
    pub inputs: Vec<ValueSummary>,
    /// Shape of the result.
    pub shape: Vec<usize>,
}

/// An operand of a node.
#[derive(Clone, Debug, Serialize)]
pub struct ValueSummary {
    /// Name of the value.
    pub name: String,
    /// Shape of the value.
    pub shape: Vec<usize>,
}

/// Operations and memory traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that the step has to read, including weights.
    pub bytes_read: u64,
    /// Bytes that the step has to write.
    pub bytes_written: u64,
    /// Floating-point operations per byte. Determines whether a step is bound by compute or memory.
    pub intensity: f64,
}

/// A step of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// Name of the node.
    pub name: String,
    /// Op, with the fused operations.
    pub op: String,
    /// Part of the model.
    pub role: Role,
    /// Shape of the result at the plan's batch size.
    pub shape: Vec<usize>,
    /// Cost of the step.
    #[serde(flatten)]
    pub cost: Cost,
    /// Offset of the result in the arena, in bytes.
    pub offset: usize,
    /// Size of the result in bytes.
    pub bytes: usize,
    /// Name of the operand that the result overwrites, if any.
    pub overwrites: Option<String>,
}

/// Memory of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Size of the arena in bytes.
    pub arena_bytes: usize,
    /// Size of the arena in bytes if no buffer were reused.
    pub without_reuse_bytes: usize,
    /// Peak of live buffers in bytes, a lower bound for any arena.
    pub lower_bound_bytes: usize,
}

/// A constant, or a value that training updates.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// Name of the tensor in the weight file, or an expression of the tensors that it was computed from.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// Dtype as stored.
    pub dtype: DType,
    /// Stored size in bytes.
    pub bytes: usize,
    /// Location on the host.
    pub place: Place,
    /// Host address of the first element, in hexadecimal. For an assembled constant, that of the first element of its first part.
    pub address: String,
    /// Copy on the GPU, if the model is loaded on one and a step reads the constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceParameter>,
    #[serde(skip)]
    id: ValueId,
    /// Dtype on a GPU, if it is not that of all parameters.
    #[serde(skip)]
    state_dtype: Option<DType>,
}

/// A parameter on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceParameter {
    /// Dtype on the GPU.
    pub dtype: DType,
    /// Range in the weights.
    #[serde(flatten)]
    pub region: Region,
}

/// Location of a parameter's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// In the mapped weight file, as stored.
    #[serde(rename = "mapped file")]
    MappedFile,
    /// In separate memory, because a pass computed or packed it.
    #[serde(rename = "folded, host memory")]
    HostMemory,
    /// In other tensors. Their rows are packed or multiplied by factors when an executor reads them.
    #[serde(rename = "assembled from others")]
    Assembled,
    /// In separate memory: the elements before the first step of training.
    #[serde(rename = "initial state")]
    InitialState,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MappedFile => "mapped file",
            Self::HostMemory => "folded, host memory",
            Self::Assembled => "assembled from others",
            Self::InitialState => "initial state",
        })
    }
}

impl Inspection {
    /// Inspects the model builder's graph `before`, and the plan created from it.
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
            parameters: parameters(plan),
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
                    dtype: parameter.state_dtype.unwrap_or(memory.dtype),
                    region,
                });
        }
        self.device_memory = Some(memory);
        self
    }

    /// Adds the kernels on a device, and the reason if they are not the preferred ones.
    pub fn with_kernels(mut self, kernels: Vec<SelectedKernels>, note: Option<&str>) -> Self {
        self.kernels = kernels;
        self.kernels_note = note.map(str::to_owned);
        self
    }
}

fn hexadecimal<S: Serializer>(address: &DeviceAddress, serializer: S) -> Result<S::Ok, S::Error> {
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

fn parameters(plan: &Plan) -> Vec<Parameter> {
    let graph = plan.graph();
    graph
        .ids()
        .filter_map(|id| {
            let value = graph.value(id);
            let tensor = value.constant.as_ref().or(value.initial.as_ref())?;
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
                } else if value.is_stateful() {
                    Place::InitialState
                } else {
                    Place::HostMemory
                },
                address: format!("{:#x}", first.address()),
                device: None,
                id,
                state_dtype: value.is_stateful().then(|| plan.state_dtype(id)),
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
        let region = |address| Region {
            address: DeviceAddress::from_raw(address),
            bytes: 864,
        };
        let inspection = inspection.on_device(DeviceMemory {
            device: "GPU 0 (Test, gfx942)".into(),
            dtype: DType::F16,
            weights: region(0x1000),
            arena: region(0x2000),
            scratch: region(0x3000),
            input: Some(region(0x4000)),
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
